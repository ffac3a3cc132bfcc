from __future__ import annotations

import numpy as np
import pytest
import torch

from geosprint.errors import GeometryError
from geosprint.estimates import endpoint_errors
from geosprint.integrations.adapter import load_model
from geosprint.models.exact import Gaussian, digits
from geosprint.noise import Flow
from geosprint.sampling import Counted, SeededNoise, sample
from geosprint.teacher import FINE_SOLVER, SOLVER, STEPS, fine_timesteps, record_teacher

NOISES = {"whole timesteps": {}, "flow": {"noise": Flow(shift=1.5), "prediction": "x0"}}


def gaussian(**rest):
    return Gaussian(torch.tensor([0.04, 0.3, 1.0, 2.5], dtype=torch.float64), in_cosine_basis=False, **rest)


@pytest.mark.parametrize("kind", NOISES)
def test_a_gaussian_walk_is_where_the_ode_says_at_every_time_between_the_recorded_ones(kind):
    model = gaussian(**NOISES[kind])
    walks = record_teacher(Counted(model), range(5))
    first = float(model.noise.first)
    for t in np.linspace(first, first / 50, 23):
        true = model.solution(walks.starts.double(), first, float(t))
        assert torch.allclose(walks.state_at(float(t)).double(), true, atol=4e-3)
        assert torch.allclose(walks.prediction_at(float(t)).x0.double(), model(true, float(t)), atol=2e-2)
    assert torch.allclose(walks.ends.double(), model.solution(walks.starts.double(), first), atol=4e-3)


def test_walks_begin_with_the_noise_of_their_seeds_and_end_where_sampling_ends():
    model = digits()
    walks = record_teacher(Counted(model), range(7, 12), batch=2)
    assert torch.equal(walks.starts, SeededNoise(range(7, 12), model.shape, model.device).draw())
    assert torch.allclose(walks.ends, sample(model, walks.times, range(7, 12), SOLVER), atol=1e-5)


@pytest.mark.slow
def test_a_strongly_guided_model_has_a_teacher_that_can_be_learnt_from():
    """iPNDM, which suits other models, ends 0.1 to 0.8 away here, where fifty DDIM steps end 0.05 away."""
    model, seeds = Counted(load_model("scenes")), range(5_000_000, 5_000_002)
    walks = record_teacher(model, seeds)
    fine = sample(model, fine_timesteps(model.noise, 40), seeds, FINE_SOLVER)
    errors, others = (endpoint_errors(ends, fine) for ends in (walks.ends, sample(model, walks.times, seeds, SOLVER)))
    assert errors.max() < 0.1 < others.mean()


def test_a_recorded_time_gives_what_was_recorded():
    walks = record_teacher(Counted(digits()), range(3))
    for i in (0, 17, len(walks.times) - 1):
        assert torch.allclose(walks.prediction_at(float(walks.times[i])).x0, walks.x0[i], atol=1e-6)


def test_every_walk_costs_sixty_calls():
    model = Counted(gaussian())
    record_teacher(model, range(5))
    assert model.nfe == 5 * STEPS


def test_some_of_the_walks_are_those_walks():
    walks = record_teacher(Counted(gaussian()), range(6), first_row=10)
    some = walks.at(slice(2, 4))
    assert some.rows == (12, 13)
    assert torch.equal(some.ends, walks.ends[2:4])
    assert torch.equal(some.state_at(333.3), walks.state_at(333.3)[2:4])


def test_one_walk_is_refused():
    with pytest.raises(GeometryError, match="at least 2"):
        record_teacher(Counted(gaussian()), [0])
