"""Inner products: how they are taken, and that the residuals made from them are those of the paper."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from geosprint.geometry import gram_from_increment_products, gram_of_centred
from geosprint.threshold import prune_many
from problems import centred_gram, circle, drifting_walk, random_walk, smooth_curve
from references import geometry as reference

CURVES = [smooth_curve, random_walk, drifting_walk]
seeds = st.integers(0, 10_000)


def residual(window, point):
    """Distance of a point to the span of a window, as pruning sees it: all that a trajectory of both loses."""
    points = np.array([*window, point], dtype=float)
    gram = gram_of_centred(torch.from_numpy(points)[None])
    pruned = prune_many(gram, np.array([1e9]), window=len(window))
    assert not pruned.kept[0, -1]
    return float(np.sqrt(pruned.scores[0] * np.trace(gram[0])))


# Theorems


def test_residual_is_dt_squared_times_orthogonal_curvature_on_a_circle():
    radius, steps = 2.0, np.array([0.2, 0.1, 0.05, 0.025])
    residuals = []
    for step in steps:
        points = circle(3, step, radius, dimensions=6)
        residuals.append(residual(points[:2], points[2]))
    # Exactly: the chord of one step has length 2R sin(h/2R), and the next one turns by h/R.
    exact = 2 * radius * np.sin(steps / radius / 2) * np.sin(steps / radius)
    assert residuals == pytest.approx(exact, rel=1e-9)
    # Eq. 10: dt² |z''| with |z''| = 1/R, off by O(dt³); on a circle the cubic term vanishes too.
    errors = np.abs(residuals - steps**2 / radius)
    slopes = np.diff(np.log(errors)) / np.diff(np.log(steps))
    assert slopes == pytest.approx(4, abs=0.02)


def test_residual_approaches_eq_10_with_a_cubic_error_on_a_curve_that_changes_its_curvature():
    # z(t) = (t, t² + t³): z' = (1, 0) and z'' = (0, 2) at 0, z''' = (0, 6).
    steps = np.array([0.02, 0.01, 0.005, 0.0025])
    errors = []
    for step in steps:
        time = np.arange(3) * step
        points = np.stack([time, time**2 + time**3], axis=1)
        errors.append(residual(points[:2], points[2]) - 2 * step**2)
    slopes = np.diff(np.log(np.abs(errors))) / np.diff(np.log(steps))
    assert slopes == pytest.approx(3, abs=0.05)


def test_tangential_acceleration_does_not_contribute_to_the_residual():
    # Two walks through the same circle: one at unit speed, one that speeds up; z''_perp = speed²/R at the start.
    radius, step = 3.0, 1e-3
    speeding_up = 5.0
    time = np.arange(3) * step
    angles = (time + speeding_up * time**2 / 2) / radius
    points = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert residual(points[:2], points[2]) == pytest.approx(step**2 / radius, rel=0.02)
    full_acceleration = np.hypot(speeding_up, 1 / radius)
    assert residual(points[:2], points[2]) < 0.1 * step**2 * full_acceleration


def test_speeding_up_along_a_straight_line_leaves_no_residual():
    points = np.array([[0.0], [1.0], [10.0]]) * [0.6, -0.8, 0.0]
    assert residual(points[:2], points[2]) < 1e-6  # inner products hold its square


# References


@given(seeds, st.integers(2, 5), st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_residual_equals_that_of_the_pseudo_inverse(seed, window, dimensions):
    points = random_walk(seed, window + 1, dimensions)
    assert residual(points[:-1], points[-1]) == pytest.approx(reference.residual(points[:-1], points[-1]), abs=1e-5)


@pytest.mark.parametrize(
    "window",
    [
        [[1, 2, 3], [1, 2, 3]],
        [[1, 2, 3], [1, 2, 3], [1, 2, 3]],
        [[1, 2, 3], [1, 2, 3], [4, 0, 3]],
        [[1, 2, 3], [4, 0, 3], [1, 2, 3]],
        [[1, 2, 3], [4, 0, 3], [4, 0, 3]],
        [[0, 0, 0], [1, 1, 0], [2, 2, 0], [-3, -3, 0]],
        [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]],
        [[0, 0, 0], [1e-3, 0, 0], [0, 1, 0]],
    ],
    ids=[
        "a point twice",
        "a point thrice",
        "the origin repeated first",
        "the origin repeated last",
        "a corner repeated",
        "four on a line",
        "four in a plane",
        "a short direction counts",
    ],
)
def test_residual_of_repeated_and_dependent_points_equals_that_of_the_pseudo_inverse(window):
    point = np.array([0.3, -1.7, 2.2])
    expected = reference.residual(np.array(window, dtype=float), point)
    assert residual(window, point) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("curve", CURVES)
def test_the_gram_matrix_of_increments_is_that_of_the_centred_points(curve):
    batch = np.stack([curve(seed, 9, 6) for seed in range(4)])
    ours = gram_of_centred(torch.from_numpy(batch))
    assert ours == pytest.approx(centred_gram(batch), abs=1e-12)
    scale = np.linspace(0.5, 2, 6)
    ours = gram_of_centred(torch.from_numpy(batch), torch.from_numpy(scale))
    assert ours == pytest.approx(centred_gram(batch / scale), abs=1e-12)


def test_the_gram_matrix_leaves_the_points_as_they_were():
    points = torch.from_numpy(smooth_curve(1, 9))[None]
    before = points.clone()
    gram_of_centred(points, 3.0)
    assert torch.equal(points, before)


def test_the_gram_matrix_in_single_precision_keeps_short_steps_far_from_the_origin():
    # A tiny circle around a point a thousand units away: rounding must be relative to the steps.
    points = circle(9, 1 / 64) + 1024.0
    points = np.round(points * 2**13) / 2**13  # a float32 holds these numbers exactly
    single = gram_of_centred(torch.from_numpy(points).float()[None])[0]
    exact = centred_gram(points)
    assert single == pytest.approx(exact, abs=1e-5 * np.diagonal(exact).max())


def test_products_of_increments_give_products_of_points():
    points = random_walk(2, 7, 3)
    steps = np.diff(points, axis=0)
    assert gram_from_increment_products((steps @ steps.T)[None])[0] == pytest.approx(centred_gram(points), abs=1e-12)
