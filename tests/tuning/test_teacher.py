from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from geosprint.errors import GeometryError
from geosprint.estimates import endpoint_errors
from geosprint.integrations.adapter import load_model
from geosprint.models.exact import Gaussian, digits
from geosprint.models.spread import Spread
from geosprint.models.wrappers import Wrapped
from geosprint.noise import Flow
from geosprint.sampling import SeededNoise, sample
from geosprint.solvers import solver_named
from geosprint.teacher import FINE_SOLVER, SOLVER, STEPS, fine_timesteps, record_teacher
from geosprint.tuning.surrogate import Coordinates, Response, Surrogate

NOISES = {"whole timesteps": {}, "flow": {"noise": Flow(shift=1.5), "prediction": "x0"}}


def gaussian(**rest):
    return Gaussian(torch.tensor([0.04, 0.3, 1.0, 2.5], dtype=torch.float64), in_cosine_basis=False, **rest)


@pytest.mark.parametrize("kind", NOISES)
def test_a_gaussian_walk_is_where_the_ode_says_at_every_time_between_the_recorded_ones(kind):
    model = gaussian(**NOISES[kind])
    walks = record_teacher(Spread(model), range(5))
    first = float(model.noise.first)
    for t in np.linspace(first, first / 50, 23):
        true = model.solution(walks.starts.double(), first, float(t))
        assert torch.allclose(walks.state_at(float(t)).double(), true, atol=4e-3)
        assert torch.allclose(walks.prediction_at(float(t)).x0.double(), model(true, float(t)), atol=2e-2)
    assert torch.allclose(walks.ends.double(), model.solution(walks.starts.double(), first), atol=4e-3)


class TwoExperts(Wrapped):
    """The one inside, and below 640 a network that was trained on other data."""

    boundary = 640.0
    other = Gaussian(torch.tensor([9.0, 0.01, 4.0, 0.2], dtype=torch.float64), Flow(), in_cosine_basis=False)

    def __call__(self, x, t):
        return (self.inner if t >= self.boundary else self.other)(x, t)

    def solution(self, x, t):
        if t >= self.boundary:
            return self.inner.solution(x, 1000.0, t)
        return self.other.solution(self.inner.solution(x, 1000.0, self.boundary), self.boundary, t)


def test_where_one_network_takes_over_from_another_each_says_its_own():
    """Between the times around the boundary, a line would say what neither does."""
    model = TwoExperts(gaussian(noise=Flow(), prediction="x0"))
    walks = record_teacher(Spread(model), range(5))
    below = int(np.argmax(walks.times < model.boundary))
    assert walks.times[below] < model.boundary - 1
    jump = walks.x0[below] - walks.x0[below - 1]
    for t in np.linspace(walks.times[below - 1], walks.times[below], 9):
        expected = model(model.solution(walks.starts.double(), t), t)
        assert (walks.prediction_at(t).x0 - expected).norm() < 0.1 * jump.norm()
        assert (walks.at(slice(0, 2)).prediction_at(t).x0 - expected[:2]).norm() < 0.1 * jump.norm()
    half = replace(walks, boundary=None).prediction_at(float(walks.times[below - 1 : below + 1].mean())).x0
    torch.testing.assert_close(half, (walks.x0[below - 1] + walks.x0[below]) / 2)


def test_errors_of_steps_near_the_boundary_are_predicted():
    model, moments = TwoExperts(gaussian(noise=Flow(), prediction="x0")), np.linspace(629, 649, 12)
    walks = record_teacher(Spread(model), range(12))
    coordinates = Coordinates.of(walks, None)

    def predicted(boundary):
        projected = coordinates.of_trajectories(replace(walks, boundary=boundary))
        surrogate = Surrogate(projected, Response(walks.noise, coordinates.data), solver_named("euler"))
        ends = [coordinates.samples_at(surrogate.end([1000.0, t, 400.0, 120.0])) for t in moments]
        return [endpoint_errors(end, walks.ends).mean() for end in ends]

    ends = [sample(model, [1000.0, t, 400.0, 120.0], range(12), "euler") for t in moments]
    measured = [endpoint_errors(end, walks.ends).mean() for end in ends]
    assert np.abs(np.log(predicted(model.boundary)) - np.log(measured)).max() < 0.1
    assert np.abs(np.log(predicted(None)) - np.log(measured)).max() > 0.2


def test_walks_begin_with_the_noise_of_their_seeds_and_end_where_sampling_ends():
    model = digits()
    walks = record_teacher(Spread(model, batch=2), range(7, 12))
    assert torch.equal(walks.starts, SeededNoise(range(7, 12), model.shape, model.device).draw())
    assert torch.allclose(walks.ends, sample(model, walks.times, range(7, 12), SOLVER), atol=1e-5)


@pytest.mark.slow
def test_a_strongly_guided_model_has_a_teacher_that_can_be_learnt_from():
    """iPNDM, which suits other models, ends 0.1 to 0.8 away here, where fifty DDIM steps end 0.05 away."""
    model, seeds = Spread(load_model("scenes")), range(5_000_000, 5_000_002)
    walks = record_teacher(model, seeds)
    fine = sample(model, fine_timesteps(model.noise, 40), seeds, FINE_SOLVER)
    errors, others = (endpoint_errors(ends, fine) for ends in (walks.ends, sample(model, walks.times, seeds, SOLVER)))
    assert errors.max() < 0.1 < others.mean()


def test_a_recorded_time_gives_what_was_recorded():
    walks = record_teacher(Spread(digits()), range(3))
    for i in (0, 17, len(walks.times) - 1):
        assert torch.allclose(walks.prediction_at(float(walks.times[i])).x0, walks.x0[i], atol=1e-6)


def test_every_walk_costs_sixty_calls():
    model = Spread(gaussian())
    record_teacher(model, range(5))
    assert model.nfe == 5 * STEPS


def test_some_of_the_walks_are_those_walks():
    walks = record_teacher(Spread(gaussian()), range(6), first_row=10)
    some = walks.at(slice(2, 4))
    assert some.rows == (12, 13)
    assert torch.equal(some.ends, walks.ends[2:4])
    assert torch.equal(some.state_at(333.3), walks.state_at(333.3)[2:4])


def test_one_walk_is_refused():
    with pytest.raises(GeometryError, match="at least 2"):
        record_teacher(Spread(gaussian()), [0])
