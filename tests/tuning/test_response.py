from __future__ import annotations

import numpy as np
import pytest
import torch

from geosprint.models.exact import Gaussian
from geosprint.noise import DiscreteVP
from geosprint.sampling import Counted
from geosprint.teacher import record_teacher
from geosprint.tuning.surrogate import PLACES, TRUST_IN_LAW, Lesson, Response, fitted_factors

VARIANCES = torch.tensor([2.0, 0.7, 0.05, 0.05], dtype=torch.float64)


def law():
    """Of a Gaussian whose last coordinate, of the same variance as the one before, counts as the rest."""
    return Response(DiscreteVP.named(), VARIANCES[:3].float())


def gaussian():
    return Gaussian(VARIANCES, in_cosine_basis=False)


def test_the_law_is_how_a_gaussian_model_answers():
    model, displaced = gaussian(), torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    for t in (999.0, 500.0, 40.0, 0.0):
        expected = model(displaced.double(), t)  # linear: the answer to a displacement is the displacement's answer
        assert torch.allclose(law()(displaced, t).double(), expected, atol=1e-5)


def test_one_lesson_draws_the_factors_to_what_was_seen():
    lesson = Lesson(place=0.5, sizes=np.array([0.8, 0.2]), moments=np.array([0.8 * 1.5, 0.2 * 0.4]))
    at_place = fitted_factors([lesson])[(PLACES - 1) // 2]
    trust = TRUST_IN_LAW
    assert at_place == pytest.approx([(0.8 * 1.5 + trust) / (0.8 + trust), (0.2 * 0.4 + trust) / (0.2 + trust)])


def test_far_from_all_lessons_the_law_holds():
    lesson = Lesson(place=0.9, sizes=np.array([0.5, 0.5]), moments=np.array([5.0, 5.0]))
    assert np.allclose(fitted_factors([lesson])[:5], 1, atol=1e-6)
    assert np.array_equal(fitted_factors([]), np.ones((PLACES, 2)))


def test_real_walks_teach_the_factors_by_which_a_model_departs_from_the_law():
    model = gaussian()
    walks = record_teacher(Counted(model), range(8))
    t, drawn = 400.0, torch.Generator().manual_seed(2)
    displaced = 0.3 * torch.randn(8, 4, generator=drawn) * torch.tensor([1, 1, 1, 20])
    answers = model(displaced.double(), t).float() * torch.tensor([1.4, 1.4, 1.4, 0.6])
    response = law()
    for _ in range(400):  # so many that the law no longer counts
        response = response.taught(walks, [t], [walks.state_at(t) + displaced], [walks.prediction_at(t).x0 + answers])
    assert torch.allclose(response(displaced, t), answers, atol=1e-3)


def test_a_state_on_the_walk_teaches_nothing():
    walks = record_teacher(Counted(gaussian()), range(4))
    taught = law().taught(walks, [400.0], [walks.state_at(400.0)], [walks.prediction_at(400.0).x0 + 1])
    assert taught.lessons == ()
    assert np.array_equal(taught.factors, np.ones((PLACES, 2)))
