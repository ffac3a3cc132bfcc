"""A fitted solver as `sample` takes it."""

import pytest
import torch

import geosprint
from geosprint import FittedSolver, StepSchedule
from geosprint.errors import ScheduleError
from geosprint.fitted_solver import known_coefficients
from geosprint.models.base import predict
from geosprint.models.exact import digits, ring
from geosprint.noise import DiscreteVP
from geosprint.sampling import SeededNoise

TIMES = [999.0, 700.0, 350.0, 90.0]
NUMBERS = ((1.01, 0.02), (0.9, 0.2, -0.3), (0.7, 0.5, -0.6, 0.1), (0.05, 0.97, -0.4, 0.2, -0.05))


def solver(times=TIMES, numbers=NUMBERS, noise=None):
    schedule = StepSchedule.at(times, noise or DiscreteVP.named(), {"method": "fitted by hand"})
    return FittedSolver(schedule, numbers)


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
    as_known = solver(times, known_coefficients("dpmpp-2m", model.noise, times, 2), model.noise)
    ours, theirs = (geosprint.sample(model, times, range(8), one) for one in (as_known, "dpmpp-2m"))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("times", [TIMES[:3], TIMES[1:], [999.0, 700.0, 351.0, 90.0], [*TIMES, 10.0]])
def test_other_steps_than_its_own_are_refused(times):
    with pytest.raises(ScheduleError, match=r"999, 700, 350, 90 and takes no others.*walk its own schedule"):
        geosprint.sample(digits(), times, [0], solver())


def test_it_draws_no_noise():
    with pytest.raises(ScheduleError, match="FittedSolver does not take it"):
        geosprint.sample(digits(), TIMES, [0], solver(), eta=0.5)


def test_infinite_numbers_are_refused():
    with pytest.raises(ScheduleError, match="step 2 has"):
        solver(numbers=(NUMBERS[0], (1.0, float("inf")), *NUMBERS[2:]))
