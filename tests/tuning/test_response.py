from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from geosprint.models.exact import Gaussian
from geosprint.models.spread import Spread
from geosprint.noise import DiscreteVP, Flow
from geosprint.principal_axes import PrincipalAxes
from geosprint.teacher import record_teacher
from geosprint.tuning.config import DEFAULT
from geosprint.tuning.surrogate import Observation, Response

VARIANCES = torch.tensor([2.0, 0.7, 0.05, 0.3], dtype=torch.float64)


def gaussian_response():
    """Of a Gaussian whose last coordinate counts as the rest."""
    return Response(DiscreteVP.named(), PrincipalAxes(torch.eye(4)[:3], VARIANCES[:3], float(VARIANCES[3])))


def gaussian():
    return Gaussian(VARIANCES, in_cosine_basis=False)


def test_the_response_of_gaussian_data_is_how_a_gaussian_model_answers():
    model, displaced = gaussian(), torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    for t in (999.0, 500.0, 40.0, 0.0):
        expected = model(displaced.double(), t)  # linear: the answer to a displacement is the displacement's answer
        assert torch.allclose((displaced * gaussian_response().gains(t, 4)).double(), expected, atol=1e-5)


def test_one_observation_draws_the_factors_to_what_was_seen():
    seen = Observation(position=0.5, sizes=np.array([0.8, 0.2]), moments=np.array([0.8 * 1.5, 0.2 * 0.4]))
    there = replace(gaussian_response(), observations=(seen,)).factors[(DEFAULT.response_nodes - 1) // 2]
    trust = DEFAULT.response_trust
    assert there == pytest.approx([(0.8 * 1.5 + trust) / (0.8 + trust), (0.2 * 0.4 + trust) / (0.2 + trust)])


def test_displacements_to_which_gaussian_data_would_not_respond_tell_no_factor():
    """Near the start of a flow, where a is almost 0: whatever moves x0 there, a factor of it would be noise."""
    walks = record_teacher(Spread(Gaussian(VARIANCES, Flow(), in_cosine_basis=False)), range(4))
    t, there = 999.9, torch.randn(4, 4, generator=torch.Generator().manual_seed(3))
    for sign in (-1, 1):
        moved = [walks.prediction_at(t).x0 + sign * 0.3 * there]
        response = replace(gaussian_response(), noise=Flow())
        for _ in range(20):
            response = response.updated(walks, [t], [walks.state_at(t) + there], moved)
        assert np.allclose(response.factors, 1, atol=0.15)


def test_factors_are_between_no_response_and_one_ten_times_as_large():
    seen = [Observation(0.5, np.array([0.5, 0.5]), np.array([-40.0, 40.0]))] * 50
    factors = replace(gaussian_response(), observations=tuple(seen)).factors
    assert factors.min() == 0
    assert factors.max() == DEFAULT.largest_factor


def test_far_from_all_observations_the_gaussian_response_holds():
    seen = Observation(position=0.9, sizes=np.array([0.5, 0.5]), moments=np.array([5.0, 5.0]))
    assert np.allclose(replace(gaussian_response(), observations=(seen,)).factors[:5], 1, atol=1e-6)
    assert np.array_equal(gaussian_response().factors, np.ones((DEFAULT.response_nodes, 2)))


def test_evaluations_show_the_factors_by_which_a_model_departs_from_the_gaussian_response():
    model = gaussian()
    walks = record_teacher(Spread(model), range(8))
    t, drawn = 400.0, torch.Generator().manual_seed(2)
    displaced = 0.3 * torch.randn(8, 4, generator=drawn) * torch.tensor([1, 1, 1, 20])
    answers = model(displaced.double(), t).float() * torch.tensor([1.4, 1.4, 1.4, 0.6])
    response = gaussian_response()
    for _ in range(400):  # so many that the Gaussian response no longer counts
        response = response.updated(walks, [t], [walks.state_at(t) + displaced], [walks.prediction_at(t).x0 + answers])
    assert torch.allclose(displaced * response.gains(t, 4), answers, rtol=1e-2, atol=1e-3)


def test_a_state_on_the_trajectory_shows_nothing():
    walks = record_teacher(Spread(gaussian()), range(4))
    after = gaussian_response().updated(walks, [400.0], [walks.state_at(400.0)], [walks.prediction_at(400.0).x0 + 1])
    assert after.observations == ()
    assert np.array_equal(after.factors, np.ones((DEFAULT.response_nodes, 2)))
