"""`geosprint sample --solver solver.json`."""

import json

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from geosprint import FittedSolver, StepSchedule
from geosprint.cli import app
from geosprint.errors import FileError, ScheduleError
from geosprint.fitted_solver import dpmpp_coefficients
from geosprint.models.exact import ring
from geosprint.noise import DiscreteVP, Flow

TIMES = [999.0, 700.0, 350.0, 90.0]


def saved(path, noise=None, times=TIMES, **provenance):
    """A solver with the numbers of DPM++ 2M, so that what it must draw is known."""
    noise = noise or ring().noise
    schedule = StepSchedule.at(times, noise, {"method": "by hand", **provenance})
    return FittedSolver(schedule, dpmpp_coefficients(noise, times, 2)).save(path), schedule.save(
        path.with_stem("place")
    )


def run(*words):
    return CliRunner().invoke(app, ["sample", *map(str, words)])


def test_a_solver_file_draws_what_its_numbers_say_on_its_own_steps(tmp_path):
    solver, place = saved(tmp_path / "solver.json", origin={"model": "mixture", "conditions": {}})
    out, known = tmp_path / "fitted.safetensors", tmp_path / "known.safetensors"
    done = run("mixture", "--solver", solver, "-n", 5, "--batch", 2, "-o", out, "--json")
    assert done.exit_code == 0, done.output
    assert run("mixture", "--solver", "dpmpp-2m", "--schedule", place, "-n", 5, "-o", known).exit_code == 0
    torch.testing.assert_close(load_file(out)["samples"], load_file(known)["samples"], rtol=1e-4, atol=1e-4)
    told = json.loads(done.stdout)
    assert (told["steps"], told["nfe"], told["solver"]) == (4, 20, str(solver))


def test_a_solver_that_was_fitted_to_another_model_is_warned_of(tmp_path):
    solver, _ = saved(tmp_path / "solver.json", origin={"model": "fashion"})
    with pytest.warns(UserWarning, match="fitted to model 'fashion' and is used with 'mixture'; fit one to it"):
        done = run("mixture", "--solver", solver, "-n", 2, "-o", tmp_path / "x.safetensors")
    assert done.exit_code == 0


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (["--solver", "solver.json", "--steps", 4], ScheduleError, "brings its own steps; leave --schedule and"),
        (["--solver", "solver.json", "--schedule", "place.json"], ScheduleError, "brings its own steps; leave"),
        (["--solver", "solver.json", "--eta", 0.5], ScheduleError, "eta belongs to ddim; a FittedSolver does not"),
        (["--solver", "missing.json"], FileError, "cannot read missing.json"),
        (["--solver", "place.json"], FileError, "must be a geosprint-solver file, but its format is 'geosprint-sch"),
        (["--solver", "cut.json"], FileError, "cut.json is not a whole JSON file"),
        (["--solver", "damaged.json"], FileError, "damaged.json is damaged: 4 steps need as many lists"),
        (["--solver", "flow.json"], ScheduleError, "but model 'mixture' (discrete-vp) knows"),
        (["--solver", "cosine.json"], ScheduleError, "these steps were made for another noise schedule: at t = "),
        ([], ScheduleError, "give either --schedule FILE or --steps K"),
    ],
    ids=str,
)
def test_a_file_that_cannot_be_drawn_with_is_one_sentence(tmp_path, monkeypatch, words, error, said):
    monkeypatch.chdir(tmp_path)
    solver, _ = saved(tmp_path / "solver.json")
    (tmp_path / "cut.json").write_text(solver.read_text()[:200])
    content = json.loads(solver.read_text())
    (tmp_path / "damaged.json").write_text(json.dumps({**content, "coefficients": content["coefficients"][1:]}))
    saved(tmp_path / "flow.json", Flow(), [1.0, 0.7, 0.35, 0.1])
    saved(tmp_path / "cosine.json", DiscreteVP.named("cosine"))
    saved(tmp_path / "solver.json")
    done = run("mixture", *words, "-o", "drawn.safetensors")
    assert isinstance(done.exception, error)
    assert said in str(done.exception)
    assert not (tmp_path / "drawn.safetensors").exists()
