from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from geosprint.baselines import baseline_schedule
from geosprint.cli import app
from geosprint.fitted_solver import FittedSolver
from geosprint.models.exact import ring
from geosprint.schedule import StepSchedule
from geosprint.tuning.result import load_record

runner = CliRunner()


def test_tune_leaves_a_schedule_a_page_and_a_sentence(tmp_path):
    out = tmp_path / "schedule.json"
    done = runner.invoke(app, ["tune", "mixture", "--steps", "3", "--budget-nfe", "4000", "-o", str(out)])
    assert done.exit_code == 0, done.output
    schedule = StepSchedule.load(out)
    assert len(schedule) == 3
    assert out.with_suffix(".html").stat().st_size > 5000
    assert not list(tmp_path.glob("*.png"))
    assert "3 tuned steps: " in done.stdout
    assert f"{schedule.timesteps[0]:g}" in done.stdout


def test_several_numbers_of_steps_leave_a_file_each_and_json_tells_all(tmp_path):
    out = tmp_path / "mine.json"
    asked = [
        "tune",
        "mixture",
        "--steps",
        "4,3",
        "--solver",
        "dpmpp-2m",
        "--budget-nfe",
        "4000",
        "-o",
        str(out),
        "--json",
    ]
    done = runner.invoke(app, asked)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert [one["steps"] for one in told] == [3, 4]
    for one in told:
        schedule = StepSchedule.load(tmp_path / f"mine-{one['steps']}.json")
        assert str(tmp_path / f"mine-{one['steps']}.json") == one["schedule"]
        assert schedule.provenance["solver"] == "dpmpp-2m"
        assert one["errors"][one["chosen"]]["value"] == schedule.provenance["error"]
        assert one["nfe"] <= 4000
    page = (tmp_path / "mine.html").read_text(encoding="utf-8")
    assert "mine-3.json" in page
    assert "mine-4.json" in page
    assert len(load_record(tmp_path / "mine-tuning.json").judged) == 2


def test_a_tuned_schedule_must_beat_the_one_it_is_given(tmp_path):
    yours, out = tmp_path / "yours.json", tmp_path / "better.json"
    baseline_schedule("quadratic", ring().noise, 3).save(yours)
    asked = [
        "tune",
        "mixture",
        "--steps",
        "3",
        "--budget-nfe",
        "4000",
        "-o",
        str(out),
        "--against",
        str(yours),
        "--json",
    ]
    done = runner.invoke(app, asked)
    assert done.exit_code == 0, done.output
    (told,) = json.loads(done.stdout)
    assert told["old"] == "yours"
    assert told["chosen"] == "tuned"
    assert not np.array_equal(StepSchedule.load(out).timesteps, StepSchedule.load(yours).timesteps)


def test_where_and_how_to_step_are_found_by_one_command(tmp_path):
    out = tmp_path / "solver.json"
    asked = ["tune", "mixture", "--steps", "3", "--solver", "fitted", "--budget-nfe", "14000", "-o", str(out), "--json"]
    done = runner.invoke(app, asked)
    assert done.exit_code == 0, done.output
    fitted = FittedSolver.load(out)
    assert len(fitted.schedule) == 3
    assert fitted.validation["rmse"]["fitted"] <= min(fitted.validation["rmse"].values()) * 1.0001


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["--steps", "five"], "whole numbers"),
        (["--steps", "5", "--solver", "ddpm"], "fresh noise"),
        (["--steps", "5", "--budget-nfe", "10"], "at least"),
        (["--steps", "5", "-o", "schedule.png"], "must end in .json"),
        (["--steps", "5", "--against", "missing.json"], "missing.json"),
        (["--steps", "5", "--measure", "beauty"], "beauty"),
        (["--steps", "5", "--solver", "fitted", "--measure", "raw"], "neither --against nor --measure"),
    ],
)
def test_mistakes_are_one_sentence(asked, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    from geosprint.cli import main

    monkeypatch.setattr("sys.argv", ["geosprint", "tune", "mixture", *asked])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert told in error
    assert "Traceback" not in error
    assert not list(tmp_path.iterdir())
