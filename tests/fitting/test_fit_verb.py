"""`geosprint fit`."""

import json

import pytest
from typer.testing import CliRunner

import geosprint
from geosprint.baselines import BASELINES, baseline_schedule
from geosprint.cli import app
from geosprint.errors import GeoSprintError

SMALL = ["--budget-nfe", "3000"]


def run(*words):
    return CliRunner().invoke(app, ["fit", *map(str, words)])


def test_the_verb_writes_what_the_function_makes_and_says_how_good_it_is(tmp_path):
    out = tmp_path / "fitted.json"
    done = run("mixture", "--steps", 4, "--order", 2, *SMALL, "-o", out)
    assert done.exit_code == 0, done.output
    made = geosprint.fit(geosprint.load_model("mixture"), 4, order=2, budget_nfe=3000, progress=False)
    written = geosprint.Tuned.load(out)
    assert written[4].coefficients == made[4].coefficients
    assert f"{made.result().error().value:.4g}" in done.output
    assert "50 DDIM steps" in done.output
    assert f"geosprint sample mixture --schedule {out}" in done.output
    assert out.with_suffix(".html").stat().st_size > 5000


def test_the_verb_takes_a_schedule_and_speaks_json(tmp_path):
    place = tmp_path / "schedule.json"
    model = geosprint.load_model("mixture")
    baseline_schedule("karras", model.noise, 4).save(place)
    done = run("mixture", "--steps", 4, "--schedule", place, *SMALL, "-o", tmp_path / "fitted.json", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    (result,) = told["results"]
    assert result["timesteps"] == BASELINES["karras"](model.noise, 4).tolist()
    assert {"this", "today"} < set(result["errors"])
    assert 0 < told["nfe"] <= 3000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mixture", "--steps", "4", "--order", "7"], "order must be in 1..4"),
        (["mixture", "--steps", "1"], "steps must be at least 2"),
        (["mixture", "--steps", "4", "--budget-nfe", "10"], "network calls, got 10"),
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
