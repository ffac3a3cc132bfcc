"""The formula of a fitted step, and known solvers written in it."""

import numpy as np
import pytest
import torch

from geosprint.errors import ScheduleError
from geosprint.fitted_solver import check_order, known_coefficients, stepped
from geosprint.fitting.stepwise import student_trajectories
from geosprint.models.base import predict
from geosprint.models.exact import Mixture
from geosprint.noise import ContinuousVP, DiscreteVP, Flow
from geosprint.sampling import walk
from geosprint.solvers import SOLVERS

NOISES = {
    "discrete": (DiscreteVP.named(), [999, 760, 500, 210, 60, 4]),
    "discrete that ends at its first alpha": (
        DiscreteVP(DiscreteVP.named().alphas_cumprod, float(DiscreteVP.named().alphas_cumprod[0])),
        [900, 500, 20],
    ),
    "continuous": (ContinuousVP(), [1.0, 0.61, 0.2, 0.05]),
    "flow": (Flow(), [1000.0, 800.0, 450.0, 90.0]),
}


def test_the_formula_is_its_sentence():
    x, x0, before, before_that = (torch.tensor([[value]], dtype=torch.float64) for value in (2.0, 3.0, 5.0, 11.0))
    past = (before, before_that)
    assert float(stepped(x, x0, past, (0.5, 0.25))) == 0.5 * 2 + 0.25 * 3
    assert float(stepped(x, x0, past, (0.5, 0.25, 10.0))) == 1.75 + 10 * (5 - 3)
    assert float(stepped(x, x0, past, (0.5, 0.25, 10.0, 100.0))) == 1.75 + 10 * (5 - 3) + 100 * (11 - 3)


@pytest.mark.parametrize(
    ("known", "order"),
    [*((known, order) for known in ("ddim", "dpmpp-2m") for order in (2, 3, 4)), ("unipc", 3), ("unipc", 4)],
)
@pytest.mark.parametrize("noise", NOISES)
def test_known_solvers_written_in_the_formula_walk_as_they_do(known, order, noise):
    schedule, times = NOISES[noise]
    means = torch.randn(3, 5, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    model = Mixture(means, 0.3, schedule)
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    numbers = known_coefficients(known, schedule, times, order)
    assert [len(own) for own in numbers] == [min(order, i + 1) + 1 for i in range(len(times))]
    ours = student_trajectories(lambda x, t: (predict(model, x, t).x0,), x, times, numbers)
    theirs = [state.x for state in walk(model, x, times, SOLVERS[known], lambda: x)]
    for one, other in zip([*ours.states, ours.ends], theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_dpmpp_of_order_one_is_ddim():
    noise, times = NOISES["discrete"]
    for one, other in zip(*(known_coefficients(known, noise, times, 1) for known in ("dpmpp-2m", "ddim")), strict=True):
        assert one == pytest.approx(other, abs=1e-12)
    assert not np.allclose(
        known_coefficients("dpmpp-2m", noise, times, 2)[2], known_coefficients("ddim", noise, times, 2)[2]
    )


@pytest.mark.parametrize("order", [0, 5, -1])
def test_an_order_that_no_step_has_is_refused(order):
    with pytest.raises(ScheduleError, match=rf"1\.\.4.*got {order}"):
        check_order(order)
