"""`sample` takes whatever `tune`, `fit` and `schedule` make, in Python and as files, and steps as it was made for."""

import json
import warnings

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import geosprint
from geosprint import FittedSolver, StepSchedule
from geosprint.cli import app
from geosprint.errors import FileError, ScheduleError
from geosprint.fitted_solver import known_coefficients
from geosprint.models.exact import ring
from geosprint.models.fingerprint import made_for
from geosprint.noise import DiscreteVP, Flow
from geosprint.tuned import FITTED, Tuned, TunedSteps

TIMES = [999.0, 700.0, 350.0, 90.0]
FEWER = [999.0, 300.0]


def schedule(times=TIMES, noise=None, **provenance):
    return StepSchedule.at(times, noise or ring().noise, {"method": "by hand", **provenance})


def fitted(times=TIMES, noise=None):
    """A solver with the coefficients of DPM++ 2M, so that what it must draw is known."""
    noise = noise or ring().noise
    return FittedSolver(schedule(times, noise), known_coefficients("dpmpp-2m", noise, times, 2))


def tuned(noise=None, **about):
    results = (TunedSteps(fitted(FEWER, noise), FITTED), TunedSteps(fitted(TIMES, noise), FITTED))
    return Tuned(results, **{"made_for": made_for(ring()), **about})


def old_solver_file(path, made):
    """As earlier versions wrote it."""
    lists = {name: getattr(made.schedule, name).tolist() for name in ("timesteps", "sigmas", "log_snr")}
    content = {"steps": len(made), **lists, "coefficients": made.coefficients, "validation": {}, "provenance": {}}
    path.write_text(json.dumps({"format": "geosprint-solver", "version": 1, "formula": "", **content}))
    return path


def drawn(made, *given, **named):
    """Samples, with all warnings as errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        return geosprint.sample(ring(), made, range(8), *given, **named)


# In Python.


def test_a_schedule_is_walked_by_the_solver_that_it_was_tuned_for():
    expected = drawn(TIMES, "dpmpp-2m")
    assert not torch.allclose(drawn(TIMES), expected)
    assert torch.equal(drawn(schedule(solver="dpmpp-2m")), expected)
    assert torch.equal(drawn(schedule()), drawn(TIMES, "ddim"))  # made for no solver


@pytest.mark.parametrize("made", [fitted(), tuned(proved=4)], ids=["solver", "tuned"])
def test_fitted_steps_are_taken_with_their_coefficients(made):
    torch.testing.assert_close(drawn(made), drawn(TIMES, "dpmpp-2m"), rtol=1e-4, atol=1e-5)


def test_one_of_several_numbers_of_steps_is_picked():
    fewer = drawn(FEWER, "dpmpp-2m")
    torch.testing.assert_close(drawn(tuned(proved=2)), fewer, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(drawn(tuned(proved=4), steps=2), fewer, rtol=1e-4, atol=1e-5)
    with pytest.raises(ScheduleError, match="steps for K = 2, 4: say which one"):
        drawn(tuned())
    with pytest.raises(ScheduleError, match="steps for K = 2, 4: 3 were asked for"):
        drawn(tuned(), steps=3)
    with pytest.raises(ScheduleError, match="leave it out where the timesteps are given"):
        drawn(TIMES, steps=4)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (schedule(solver="dpmpp-2m"), "tuned for the solver dpmpp-2m, and you sample with heun"),
        (fitted(), "fitted with coefficients of their own, and you sample with heun"),
    ],
    ids=["schedule", "solver"],
)
def test_another_solver_is_taken_with_a_warning_that_names_both(made, said):
    with pytest.warns(UserWarning, match=said):
        found = geosprint.sample(ring(), made, range(8), "heun")
    assert torch.equal(found, drawn(TIMES, "heun"))


def test_the_same_solver_by_name_and_euler_for_ddim_are_no_reason_to_warn():
    drawn(schedule(solver="unipc"), "unipc")
    drawn(schedule(solver="ddim"), "euler")
    solver = fitted()
    drawn(solver, solver)


def test_steps_made_for_another_model_are_warned_of():
    other = tuned(proved=4, made_for={**made_for(ring()), "model": "fashion"})
    with pytest.warns(
        UserWarning, match="made for model 'fashion' and are used with 'mixture'; tune them for this one"
    ):
        geosprint.sample(ring(), other, [0])


def test_steps_of_another_noise_schedule_are_refused():
    with pytest.raises(ScheduleError, match="made for another noise schedule: at t = "):
        drawn(schedule(noise=DiscreteVP.named("cosine")))


# On the command line.


def run(*words):
    return CliRunner().invoke(app, ["sample", "mixture", *map(str, words)])


def samples_of(out, *words):
    done = run(*words, "-n", 5, "--batch", 2, "-o", out, "--json")
    assert done.exit_code == 0, done.output
    return load_file(out)["samples"], json.loads(done.stdout)


@pytest.mark.parametrize("kind", ["tuned.json", "solver.json", "schedule.json"])
def test_a_file_of_any_kind_draws_with_the_solver_that_it_was_made_for(kind, tmp_path):
    path = tmp_path / kind
    if kind == "tuned.json":
        tuned(proved=4).save(path)
    elif kind == "solver.json":
        old_solver_file(path, fitted())
    else:
        schedule(solver="dpmpp-2m").save(path)
    found, told = samples_of(tmp_path / "found.safetensors", "--schedule", path)
    expected = geosprint.sample(ring(), TIMES, range(5), "dpmpp-2m")
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert (told["steps"], told["nfe"]) == (4, 20)
    assert told["solver"] == ("dpmpp-2m" if kind == "schedule.json" else FITTED)


def test_steps_picks_one_of_a_file_and_alone_means_a_spacing(tmp_path):
    path = tuned(proved=4).save(tmp_path / "tuned.json")
    found, told = samples_of(tmp_path / "found.safetensors", "--schedule", path, "--steps", 2)
    expected = geosprint.sample(ring(), FEWER, range(5), "dpmpp-2m")
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert told["steps"] == 2
    found, told = samples_of(tmp_path / "found.safetensors", "--steps", 4)
    assert torch.equal(found, geosprint.sample(ring(), [999, 749, 499, 249], range(5)))
    assert told["solver"] == "ddim"


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (["--solver", "solver.json"], ScheduleError, "goes to --schedule: say --schedule solver.json"),
        (["--schedule", "solver.json", "--steps", 5], ScheduleError, "steps for K = 4: 5 were asked for"),
        (["--schedule", "solver.json", "--eta", 0.5], ScheduleError, "eta belongs to ddim; a FittedSolver does not"),
        (["--schedule", "missing.json"], FileError, "cannot read missing.json"),
        (["--schedule", "profile.json"], FileError, "but its format is 'geosprint-profile'"),
        (["--schedule", "cut.json"], FileError, "cut.json is not a whole JSON file"),
        (["--schedule", "damaged.json"], FileError, "damaged.json is damaged: 4 steps need as many lists"),
        (["--schedule", "flow.json"], ScheduleError, "but model 'mixture' (discrete-vp) knows"),
        ([], ScheduleError, "give --schedule FILE or --steps K"),
    ],
    ids=str,
)
def test_what_cannot_be_drawn_with_is_one_sentence(tmp_path, monkeypatch, words, error, said):
    monkeypatch.chdir(tmp_path)
    solver = old_solver_file(tmp_path / "solver.json", fitted())
    (tmp_path / "cut.json").write_text(solver.read_text()[:200])
    (tmp_path / "profile.json").write_text('{"format": "geosprint-profile", "version": 1}')
    content = json.loads(solver.read_text())
    (tmp_path / "damaged.json").write_text(json.dumps({**content, "coefficients": content["coefficients"][1:]}))
    schedule([1.0, 0.7, 0.35, 0.1], Flow()).save(tmp_path / "flow.json")
    done = run(*words, "-o", "drawn.safetensors")
    assert isinstance(done.exception, error)
    assert said in str(done.exception)
    assert not (tmp_path / "drawn.safetensors").exists()
