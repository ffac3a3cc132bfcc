"""`geosprint fit`."""

import json

import pytest
from typer.testing import CliRunner

import geosprint
from geosprint.baselines import BASELINES, baseline_schedule
from geosprint.cli import app
from geosprint.errors import GeoSprintError

SMALL = ["--trajectories", "16", "--held-out", "4", "--budget-nfe", "4000"]


def run(*words):
    return CliRunner().invoke(app, ["fit", *map(str, words)])


def test_the_verb_writes_the_solver_that_the_function_makes(tmp_path):
    out = tmp_path / "solver.json"
    done = run("mixture", "--steps", 4, "--order", 2, *SMALL, "-o", out)
    assert done.exit_code == 0, done.output
    made = geosprint.fit(geosprint.load_model("mixture"), 4, order=2, trajectories=16, held_out=4, budget_nfe=4000)
    assert geosprint.FittedSolver.load(out).coefficients == made.coefficients
    calls = made.schedule.provenance["calls"]
    for said in (
        "4 steps",
        f"{calls:,} network calls",
        "4 held-out samples",
        f"{made.validation['rmse']['fitted']:.4f}",
    ):
        assert said in done.output


def test_the_verb_takes_a_schedule_and_speaks_json(tmp_path):
    place = tmp_path / "schedule.json"
    model = geosprint.load_model("mixture")
    baseline_schedule("karras", model.noise, 4).save(place)
    done = run("mixture", "--steps", 4, "--schedule", place, *SMALL, "-o", tmp_path / "solver.json", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["timesteps"] == BASELINES["karras"](model.noise, 4).tolist()
    assert set(told["rmse"]) == {"fitted", "ddim", "dpmpp-2m"}
    assert 0 < told["nfe"] <= 4000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mixture", "--steps", "4", "--order", "7"], "order must be in 1..4"),
        (["mixture", "--steps", "1"], "steps must be at least 2"),
        (["mixture", "--steps", "4", "--budget-nfe", "10"], "the budget is 10"),
        (["no-such", "--steps", "4"], "there is no model 'no-such'"),
        (["mixture", "--steps", "4", "-o", "solver.txt"], "must end in .json"),
        (["mixture", "--steps", "4", "--schedule", "missing.json"], "cannot read missing.json"),
        (["mixture", "--steps", "4", "--guidance", "2"], "takes neither"),
    ],
    ids=str,
)
def test_bad_input_is_one_sentence(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(*words)
    assert isinstance(done.exception, GeoSprintError)
    assert said in str(done.exception)
    assert not list(tmp_path.iterdir())
