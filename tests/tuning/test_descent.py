from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from geosprint.models.exact import Gaussian
from geosprint.models.spread import Spread
from geosprint.noise import DiscreteVP
from geosprint.principal_axes import PrincipalAxes
from geosprint.schedule import gaps_of, times_of
from geosprint.solvers import solver_named
from geosprint.teacher import record_teacher
from geosprint.tuning.descent import Correction, PredictedError, _normal_equations, descended
from geosprint.tuning.surrogate import Response, Surrogate

VARIANCES = torch.tensor([2.0, 0.7, 0.2, 0.05], dtype=torch.float64)


@pytest.fixture(scope="module")
def predicted():
    noise = DiscreteVP.named()
    walks = record_teacher(Spread(Gaussian(VARIANCES, noise=noise, in_cosine_basis=False)), range(12))
    surrogate = Surrogate(walks, Response(noise, PrincipalAxes(torch.eye(4), VARIANCES, 0.0)), solver_named("ddim"))
    return PredictedError(surrogate, lambda ends: ends / ends.shape[1] ** 0.5)


def test_the_error_is_the_mean_over_walks_of_the_root_mean_square(predicted):
    times = np.array([900.0, 500.0, 100.0])
    off = (predicted.surrogate.end(times.tolist()) - predicted.surrogate.trajectories.ends).double().numpy()
    assert predicted.error(times) == pytest.approx(np.mean([np.sqrt(np.mean(one**2)) for one in off]))


def test_a_descent_goes_the_steepest_way_down_of_the_tempered_mean(predicted):
    gaps, nothing = gaps_of(np.array([900.0, 500.0, 100.0]), predicted.surrogate.trajectories.noise), np.zeros((4, 4))
    _, downhill = _normal_equations(predicted, gaps, nothing)

    def tempered(moved):
        return np.sqrt(predicted.errors(times_of(moved, predicted.surrogate.trajectories.noise))).mean() ** 2

    slopes = [(tempered(gaps + 1e-3 * one) - tempered(gaps - 1e-3 * one)) / 2e-3 for one in np.eye(4)]
    assert downhill == pytest.approx(-np.array(slopes), rel=0.02, abs=1e-5)


def test_no_two_steps_are_better_than_those_the_descent_finds(predicted):
    found = descended(predicted, np.array([800.0, 300.0]), radius=5.0)
    tried = itertools.combinations(range(995, 0, -15), 2)
    best = min(predicted.tempered(np.array(times, dtype=float)) for times in tried)
    assert predicted.tempered(found) < 1.02 * best


def test_a_descent_does_not_climb_and_stays_within_its_radius(predicted):
    start = np.array([950.0, 800.0, 600.0, 350.0, 120.0, 10.0])
    for radius in (0.05, 0.4):
        found = descended(predicted, start, radius)
        assert predicted.error(found) < predicted.error(start)
        moved = gaps_of(found, predicted.surrogate.trajectories.noise) - gaps_of(
            start, predicted.surrogate.trajectories.noise
        )
        assert np.ptp(moved) < 2 * radius + 1e-9


def test_a_correction_makes_the_predicted_end_the_real_one(predicted):
    times, noise = np.array([900.0, 500.0, 100.0]), predicted.surrogate.trajectories.noise
    off = predicted.surrogate.trajectories.ends + 0.25 - predicted.surrogate.end(times.tolist())
    corrected = replace(predicted, correction=Correction.of(gaps_of(times, noise), off))
    assert corrected.error(times) == pytest.approx(0.25, rel=1e-5)


def test_secants_make_the_correction_right_at_other_walks_and_along_the_way():
    centre, off = np.zeros(4), torch.ones(2, 3)
    moves = [np.array([0.3, 0, 0, 0]), np.array([0, 0.2, 0.1, 0])]
    changes = [torch.full((2, 3), 2.0), torch.full((2, 3), -1.0)]
    others = [(move, off + change) for move, change in zip(moves, changes, strict=True)]
    correction = Correction.of(centre, off, others)
    for move, change in zip(moves, changes, strict=True):
        assert torch.allclose(correction.at(move), off + change, atol=0.1)  # drawn a little to nothing
        assert torch.allclose(correction.at(-move), off - change, atol=0.1)
    assert torch.allclose(correction.at(np.array([0, 0, 0, 0.5])), off)
    told = torch.einsum("g,gwc->wc", torch.tensor([0.1, 0.2, 0.3, 0.4]), correction.slopes)
    assert torch.allclose(correction.at(np.array([0.1, 0.2, 0.3, 0.4])), off + told, atol=1e-5)


def test_walks_far_away_or_at_the_centre_itself_give_no_secant():
    centre, off = np.zeros(3), torch.ones(2, 3)
    correction = Correction.of(centre, off, [(centre, off + 1), (np.array([2.0, 0, 0]), off + 1)])
    assert torch.equal(correction.at(np.array([0.5, 0.5, 0.5])), off)


@pytest.mark.parametrize("is_corrected", [False, True])
def test_slopes_of_residuals_are_those_of_small_moves_of_the_gaps(predicted, is_corrected):
    noise = predicted.surrogate.trajectories.noise
    gaps = gaps_of(np.array([900.0, 500.0, 100.0]), noise)
    if is_corrected:
        drawn = torch.Generator().manual_seed(0)
        off, other = (torch.randn(12, 4, generator=drawn) for _ in range(2))
        predicted = replace(
            predicted, correction=Correction.of(gaps, off, [(gaps + np.array([0.1, -0.2, 0, 0.1]), other)])
        )
    residuals, slopes = predicted.slopes(gaps)
    assert np.allclose(residuals.norm(dim=1), predicted.errors(times_of(gaps, noise)), atol=1e-6)
    for j in range(4):
        ends = []
        for sign in (-1, 1):
            moved = gaps + sign * 5e-3 * np.eye(4)[j]
            end = predicted.surrogate.end(times_of(moved, noise).tolist())
            correction = predicted.correction.at(moved) if predicted.correction else 0
            ends.append((end + correction).double() / 2)
        expected = (ends[1] - ends[0]) / 1e-2
        assert (slopes[j] - expected).norm() < 0.05 * expected.norm()
