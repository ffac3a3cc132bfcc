"""`geosprint inspect` shows every file that can be stepped by."""

from __future__ import annotations

import json

import numpy as np
import pytest

import geosprint
from geosprint import FittedSolver, StepSchedule
from geosprint.estimates import Estimate
from geosprint.models.exact import ring
from geosprint.models.fingerprint import made_for
from geosprint.tuned import FITTED, OURS, TODAY, Today, Tuned, TunedSteps, as_tuned


def schedule(*times, **provenance):
    return StepSchedule.at(times, ring().noise, provenance)


@pytest.fixture
def tuned(tmp_path):
    errors = {OURS: np.array([0.25, 0.25]), TODAY: np.array([0.5, 0.5])}
    few, more = schedule(999, 300), schedule(999, 600, 30)
    results = (
        TunedSteps(FittedSolver(few, ((0.5, 0.5),) * 2), FITTED, {name: 4 * own for name, own in errors.items()}),
        TunedSteps(FittedSolver(more, ((0.5, 0.5),) * 3), FITTED, errors, Estimate(61.5, 55.0, 70.0)),
    )
    today = Today("ddim", 50, "uniform-trailing")
    return Tuned(results, today, proved=3, made_for=made_for(ring()), nfe=12_345).save(tmp_path / "tuned.json")


def test_tuned_steps_are_a_table_the_headline_and_what_they_were_made_for(run, tuned):
    code, out, err = run("inspect", tuned)
    assert (code, err) == (0, "")
    for said in (
        "K = 2, 3; fitted; proved 3",
        "61.5",
        "your 50 DDIM steps",
        "made for mixture",
        "12,345 network calls",
    ):
        assert said in out
    assert "3 steps at t = 999, 600, 30" in out
    row = next(line.split() for line in out.splitlines() if line.split()[:1] == ["3"])
    assert row[1] == "0.25"


def test_json_is_the_file(run, tuned):
    code, out, _ = run("inspect", tuned, "--json")
    content = json.loads(tuned.read_text(encoding="utf-8"))
    del content["format"], content["version"]
    assert (code, json.loads(out)) == (0, content)


@pytest.mark.parametrize("kind", ["schedule", "tuned schedule", "solver"])
def test_files_of_earlier_versions_are_shown(run, kind, tmp_path):
    path = tmp_path / "old.json"
    made = schedule(999, 300, **({"solver": "unipc"} if kind == "tuned schedule" else {})).save(path)
    if kind == "solver":
        content = json.loads(made.read_text()) | {"format": "geosprint-solver", "validation": {}}
        path.write_text(json.dumps(content | {"coefficients": [[0.5, 0.5], [0.5, 0.5, 0.1]]}))
    code, out, err = run("inspect", path)
    assert (code, err) == (0, "")
    how = {"schedule": "any solver", "tuned schedule": "unipc", "solver": "fitted"}[kind]
    assert f"K = 2; {how}" in out
    assert "2 steps at t = 999, 300" in out
    assert json.loads(run("inspect", path, "--json")[1])["results"][0]["timesteps"] == [999.0, 300.0]


def test_a_profile_is_shown_and_drawn_as_ever(run, tmp_path):
    path = geosprint.extract(ring(), 3, 12).save(tmp_path / "profile.json")
    code, out, _ = run("inspect", path, "-o", tmp_path / "profile.png")
    assert (code, (tmp_path / "profile.png").exists()) == (0, True)
    assert "3 trajectories of 12 ddim steps" in out


def test_what_cannot_be_shown_is_one_sentence(run, tuned, tmp_path):
    code, out, err = run("inspect", tuned, "-o", tmp_path / "x.png")
    assert (code, out) == (2, "")
    assert "-o plots a profile" in err
    (tmp_path / "other.json").write_text('{"format": "geosprint-comparison", "version": 1}')
    code, out, err = run("inspect", tmp_path / "other.json")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "or geosprint-profile file, but its format is 'geosprint-comparison'" in err


def test_a_solver_without_a_proof_is_shown(run, tmp_path):
    made = as_tuned(FittedSolver(schedule(999, 300), ((0.5, 0.5),) * 2)).save(tmp_path / "t.json")
    code, out, _ = run("inspect", made)
    assert code == 0
    assert "proved" not in out
