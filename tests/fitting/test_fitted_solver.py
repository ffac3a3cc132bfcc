"""A fitted solver as `sample` takes it, and its file."""

import json

import numpy as np
import pytest
import torch

import geosprint
from geosprint import FittedSolver, StepSchedule
from geosprint.errors import FileError, ScheduleError
from geosprint.fitted_solver import dpmpp_coefficients
from geosprint.models.base import predict
from geosprint.models.exact import digits, ring
from geosprint.noise import DiscreteVP, Flow
from geosprint.sampling import SeededNoise

TIMES = [999.0, 700.0, 350.0, 90.0]
NUMBERS = ((1.01, 0.02), (0.9, 0.2, -0.3), (0.7, 0.5, -0.6, 0.1), (0.05, 0.97, -0.4, 0.2, -0.05))


def solver(times=TIMES, numbers=NUMBERS, noise=None):
    schedule = StepSchedule.at(times, noise or DiscreteVP.named(), {"method": "fitted by hand"})
    return FittedSolver(schedule, numbers, {"rmse": {"fitted": 0.1}})


def test_sample_walks_the_formula_with_a_memory_of_three_predictions():
    model, fitted = digits(), solver()
    found = geosprint.sample(model, fitted.schedule.timesteps, [3, 4], fitted)
    x, past = SeededNoise([3, 4], model.shape, model.device).draw(), []
    for t, (of_x, of_x0, *of_past) in zip(TIMES, NUMBERS, strict=True):
        x0 = predict(model, x, t).x0
        x = of_x * x + of_x0 * x0 + sum(c * (past[-1 - k] - x0) for k, c in enumerate(of_past))
        past.append(x0)
    torch.testing.assert_close(found, x, rtol=1e-5, atol=1e-5)
    assert fitted.order == 4


def test_the_numbers_of_dpmpp_make_it_dpmpp():
    model = ring()
    times = [999.0, 600.0, 300.0, 100.0, 10.0]
    as_known = solver(times, dpmpp_coefficients(model.noise, times, 2), model.noise)
    ours, theirs = (geosprint.sample(model, times, range(8), one) for one in (as_known, "dpmpp-2m"))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("times", [TIMES[:3], TIMES[1:], [999.0, 700.0, 351.0, 90.0], [*TIMES, 10.0]])
def test_other_steps_than_its_own_are_refused(times):
    with pytest.raises(ScheduleError, match=r"999, 700, 350, 90 and takes no others.*walk its own schedule"):
        geosprint.sample(digits(), times, [0], solver())


def test_it_draws_no_noise():
    with pytest.raises(ScheduleError, match="FittedSolver does not take it"):
        geosprint.sample(digits(), TIMES, [0], solver(), eta=0.5)


def test_a_file_brings_back_every_number(tmp_path):
    fitted = solver()
    again = FittedSolver.load(fitted.save(tmp_path / "solver.json"))
    assert again.coefficients == fitted.coefficients
    assert again.validation == fitted.validation
    assert again.schedule.provenance == fitted.schedule.provenance
    for name in ("timesteps", "sigmas", "log_snr"):
        assert np.array_equal(getattr(again.schedule, name), getattr(fitted.schedule, name))
    text = (tmp_path / "solver.json").read_text()
    assert "c[0]*x + c[1]*x0" in text
    assert json.loads(text)["format"] == "geosprint-solver"


def test_times_between_whole_numbers_survive(tmp_path):
    fitted = solver([1000.0, 512.123456789], ((1.0, 0.1), (0.5, 0.5, 0.1)), Flow())
    again = FittedSolver.load(fitted.save(tmp_path / "solver.json"))
    assert again.schedule.timesteps.tolist() == [1000.0, 512.123456789]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"coefficients": None}, "coefficients"),
        ({"coefficients": [[1.0, 0.1]]}, "4 steps need as many lists"),
        ({"coefficients": [[1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]}, "step 1 can have 2 to 2 coefficients, got 1"),
        ({"coefficients": [[1.0, 0.1, 0.2], *map(list, NUMBERS[1:])]}, "step 1 can have 2 to 2 coefficients, got 3"),
        ({"coefficients": [[1.0, "a"], *map(list, NUMBERS[1:])]}, "finite numbers"),
        ({"coefficients": [[1.0, True], *map(list, NUMBERS[1:])]}, "finite numbers"),
        ({"coefficients": "abcd"}, "list of lists"),
        ({"steps": 5}, "5 steps but lists 4"),
        ({"validation": []}, "validation must be an object"),
        ({"provenance": 3}, "provenance must be an object"),
        ({"timesteps": [999, 700, 700, 90]}, "fall strictly"),
        ({"sigmas": None}, "finite numbers"),
        ({"version": 99}, "version 1"),
        ({"format": "geosprint-schedule"}, "must be a geosprint-solver file"),
    ],
    ids=str,
)
def test_a_damaged_file_is_refused_by_name(change, said, tmp_path):
    path = solver().save(tmp_path / "solver.json")
    content = json.loads(path.read_text()) | change
    path.write_text(json.dumps(content))
    with pytest.raises(FileError, match=said) as refused:
        FittedSolver.load(path)
    assert "solver.json" in str(refused.value)


@pytest.mark.parametrize(
    "name", ["steps", "timesteps", "sigmas", "log_snr", "coefficients", "validation", "provenance"]
)
def test_a_missing_field_is_named(name, tmp_path):
    path = solver().save(tmp_path / "solver.json")
    content = json.loads(path.read_text())
    del content[name]
    path.write_text(json.dumps(content))
    with pytest.raises(FileError, match=f"'{name}' is missing"):
        FittedSolver.load(path)


def test_half_a_file_is_refused(tmp_path):
    path = solver().save(tmp_path / "solver.json")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(FileError, match="not a whole JSON file"):
        FittedSolver.load(path)


def test_infinite_numbers_are_refused():
    with pytest.raises(ScheduleError, match="step 2 has"):
        solver(numbers=(NUMBERS[0], (1.0, float("inf")), *NUMBERS[2:]))
