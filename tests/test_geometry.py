from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from geosprint.errors import GeometryError
from geosprint.geometry import (
    affine_residual,
    gram_from_increment_products,
    gram_of_centred,
    projection_score,
    prune,
    prune_levels,
    score_bound,
)
from problems import centred_gram, circle, drifting_walk, random_walk, rotation, smooth_curve, straight_line
from references import geometry as reference

CURVES = [smooth_curve, random_walk, drifting_walk]
seeds = st.integers(0, 10_000)


def as_dict(pruning):
    return {int(i): float(pruning.residuals[i]) for i in pruning.pruned}


def median_residual(points, window):
    """A threshold that prunes about half of the points."""
    return float(np.median([reference.residual(points[i : i + window], points[i + window]) for i in range(5)]))


# Theorems


@pytest.mark.parametrize("dimensions", [1, 2, 3, 17, 400])
@pytest.mark.parametrize("threshold", [1e-9, 1e-3, 1.0, 1e6])
def test_a_straight_line_keeps_its_first_two_points_and_scores_zero(dimensions, threshold):
    points = torch.from_numpy(straight_line(dimensions, 40, dimensions))
    pruning = prune(points, 2, threshold)
    assert torch.nonzero(pruning.kept).flatten().tolist() == [0, 1]
    assert pruning.pruned.tolist() == list(range(2, 40))
    assert projection_score(pruning, points) < 1e-24


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_a_straight_line_keeps_its_first_two_points_at_every_number_of_levels(levels):
    pruning = prune_levels(torch.from_numpy(straight_line(3, 20)), levels, 1e-9)
    assert torch.nonzero(pruning.kept).flatten().tolist() == [0, 1]


def test_nothing_is_pruned_at_threshold_zero_not_even_on_a_straight_line():
    points = torch.arange(12.0)[:, None].expand(12, 3)
    assert prune(points, 2, 0.0).kept.all()


def test_a_point_exactly_at_the_threshold_is_kept():
    points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 3.0]])
    assert prune(points, 2, 3.0).kept.all()
    assert prune(points, 2, 3.0000001).pruned.tolist() == [2]


@pytest.mark.parametrize("window", [2, 3, 4])
def test_a_curve_in_as_many_dimensions_as_the_window_spans_keeps_only_the_first_window(window):
    points = torch.from_numpy(random_walk(1, 15, window - 1))
    assert prune(points, window, 1e-8).kept.sum() == window


@given(seeds, st.floats(1e-3, 3.0), st.sampled_from([2, 3, 4]), st.sampled_from(CURVES))
@settings(max_examples=60, deadline=None)
def test_the_score_is_at_most_the_bound_of_theorem_1(seed, threshold, window, curve):
    points = curve(seed, 14)
    pruning = prune(torch.from_numpy(points), window, threshold)
    # The bound from its own symbols: |S| tau² / ((N+1) tr C) with the covariance over N+1.
    trace = np.trace(np.cov(points.T, bias=True))
    bound = len(pruning.pruned) * threshold**2 / (len(points) * trace)
    assert score_bound(pruning, torch.from_numpy(points)) == pytest.approx(bound, rel=1e-12)
    assert projection_score(pruning, torch.from_numpy(points)) <= bound


@given(seeds, st.floats(1e-3, 3.0), st.sampled_from([2, 3]))
@settings(max_examples=30, deadline=None)
def test_the_score_of_several_levels_is_at_most_the_bound_of_theorem_1(seed, threshold, levels):
    points = torch.from_numpy(random_walk(seed, 14))
    pruning = prune_levels(points, levels, threshold)
    assert projection_score(pruning, points) <= score_bound(pruning, points)


def test_residual_is_dt_squared_times_orthogonal_curvature_on_a_circle():
    radius, steps = 2.0, np.array([0.2, 0.1, 0.05, 0.025])
    residuals = []
    for step in steps:
        points = torch.from_numpy(circle(3, step, radius, dimensions=6))
        residuals.append(float(affine_residual(points[:2], points[2])))
    # Exactly: the chord of one step has length 2R sin(h/2R), and the next one turns by h/R.
    exact = 2 * radius * np.sin(steps / radius / 2) * np.sin(steps / radius)
    assert residuals == pytest.approx(exact, rel=1e-10)
    # Eq. 10: dt² |z''| with |z''| = 1/R, off by O(dt³); on a circle the cubic term vanishes too.
    errors = np.abs(residuals - steps**2 / radius)
    slopes = np.diff(np.log(errors)) / np.diff(np.log(steps))
    assert (slopes > 2.95).all()
    assert slopes == pytest.approx(4, abs=0.02)


def test_residual_approaches_eq_10_with_a_cubic_error_on_a_curve_that_changes_its_curvature():
    # z(t) = (t, t² + t³): z' = (1, 0) and z'' = (0, 2) at 0, z''' = (0, 6).
    steps = np.array([0.02, 0.01, 0.005, 0.0025])
    errors = []
    for step in steps:
        time = np.arange(3) * step
        points = torch.from_numpy(np.stack([time, time**2 + time**3], axis=1))
        errors.append(float(affine_residual(points[:2], points[2])) - 2 * step**2)
    slopes = np.diff(np.log(np.abs(errors))) / np.diff(np.log(steps))
    assert slopes == pytest.approx(3, abs=0.05)


def test_tangential_acceleration_does_not_contribute_to_the_residual():
    # Two walks through the same circle: one at unit speed, one that speeds up; z''_perp = speed²/R at the start.
    radius, step = 3.0, 1e-3
    speeding_up = 5.0
    time = np.arange(3) * step
    angles = (time + speeding_up * time**2 / 2) / radius
    points = torch.from_numpy(radius * np.stack([np.cos(angles), np.sin(angles)], axis=1))
    assert float(affine_residual(points[:2], points[2])) == pytest.approx(step**2 / radius, rel=0.02)
    full_acceleration = np.hypot(speeding_up, 1 / radius)
    assert float(affine_residual(points[:2], points[2])) < 0.1 * step**2 * full_acceleration


def test_speeding_up_along_a_straight_line_leaves_no_residual():
    pace = torch.tensor([0.0, 1.0, 10.0, 1000.0], dtype=torch.float64)
    points = pace[:, None] * torch.tensor([[0.6, -0.8, 0.0]], dtype=torch.float64)
    assert float(affine_residual(points[:2], points[3])) < 1e-12


# Properties


@given(seeds, st.sampled_from([2, 3, 4]), st.sampled_from(CURVES), st.floats(1e-3, 1e3))
@settings(max_examples=50, deadline=None)
def test_rotating_moving_and_scaling_a_trajectory_changes_neither_what_is_kept_nor_the_score(
    seed, window, curve, scale
):
    points = curve(seed, 12)
    threshold = median_residual(points, window) * 1.01
    moved = scale * (points @ rotation(seed, points.shape[1]).T + 10 * random_walk(seed, 1, points.shape[1]))
    before = prune(torch.from_numpy(points), window, threshold)
    after = prune(torch.from_numpy(moved), window, scale * threshold)
    assert torch.equal(before.kept, after.kept)
    assert after.residuals.numpy() == pytest.approx(scale * before.residuals.numpy(), abs=1e-9 * scale)
    score = projection_score(before, torch.from_numpy(points))
    assert projection_score(after, torch.from_numpy(moved)) == pytest.approx(score, rel=1e-8, abs=1e-14)


@given(seeds, st.floats(0.01, 2.0), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_levels_are_invariant_under_rotation_and_scaling(seed, threshold, levels):
    points = random_walk(seed, 12)
    before = prune_levels(torch.from_numpy(points), levels, threshold)
    after = prune_levels(torch.from_numpy(7 * points @ rotation(seed, 5)), levels, 7 * threshold)
    assert torch.equal(before.kept, after.kept)


@given(seeds, st.sampled_from([2, 3, 4]), st.floats(0, 5))
@settings(max_examples=40, deadline=None)
def test_kept_points_have_no_residual_and_pruned_ones_stay_under_the_threshold(seed, window, threshold):
    pruning = prune(torch.from_numpy(random_walk(seed, 12)), window, threshold)
    assert pruning.kept[:window].all()
    assert (pruning.residuals[pruning.kept] == 0).all()
    assert (pruning.residuals[~pruning.kept] < threshold).all()


# References


@given(seeds, st.integers(2, 5), st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_residual_equals_that_of_the_pseudo_inverse(seed, window, dimensions):
    points = random_walk(seed, window + 1, dimensions)
    ours = float(affine_residual(torch.from_numpy(points[:-1]), torch.from_numpy(points[-1])))
    assert ours == pytest.approx(reference.residual(points[:-1], points[-1]), abs=1e-9)


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
        [[0, 0, 0], [1e-5, 0, 0], [0, 1, 0]],
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
    window = np.array(window, dtype=float)
    point = np.array([0.3, -1.7, 2.2])
    ours = float(affine_residual(torch.from_numpy(window), torch.from_numpy(point)))
    assert ours == pytest.approx(reference.residual(window, point), abs=1e-12)


def test_residual_to_a_repeated_point_is_the_distance_to_it():
    window = torch.tensor([[1.0, 2.0], [1.0, 2.0]])
    assert float(affine_residual(window, torch.tensor([4.0, 6.0]))) == pytest.approx(5)


@given(seeds)
@settings(max_examples=30, deadline=None)
def test_residual_of_single_precision_points_on_one_line_does_not_invent_a_plane(seed):
    random = np.random.default_rng(seed)
    direction = random.integers(-1000, 1000, size=7)  # whole numbers: the window is exactly on a line in float32
    window = np.outer([0, 3, 7, 11], direction).astype(np.float32)
    point = random.normal(size=7).astype(np.float32)
    ours = float(affine_residual(torch.from_numpy(window), torch.from_numpy(point)))
    assert ours == pytest.approx(reference.residual(window.astype(float), point.astype(float)), rel=1e-4)


@pytest.mark.parametrize("window", [2, 3, 4])
@pytest.mark.parametrize("curve", CURVES)
def test_prune_equals_the_literal_algorithm_2(curve, window):
    for seed in range(10):
        points = curve(seed, 14)
        for factor in (0.3, 1.01, 3.0):
            threshold = factor * median_residual(points, window)
            ours = as_dict(prune(torch.from_numpy(points), window, threshold))
            literal = reference.prune(points, window, threshold)
            assert ours.keys() == literal.keys()
            assert ours == pytest.approx(literal, abs=1e-9)


@pytest.mark.parametrize("window", [2, 3, 4])
def test_prune_equals_algorithm_2_with_cached_qr_in_many_dimensions(window):
    points = smooth_curve(3, 40, 200)
    threshold = 20 * median_residual(points, window)
    literal = reference.prune_with_qr(points, window, threshold)
    assert 3 < len(literal) < 37
    assert as_dict(prune(torch.from_numpy(points), window, threshold)) == pytest.approx(literal, rel=1e-8, abs=1e-10)


@pytest.mark.parametrize("window", [2, 3])
def test_prune_equals_the_literal_algorithm_when_points_repeat(window):
    points = np.repeat(smooth_curve(5, 7), 3, axis=0)
    threshold = 0.2
    ours = as_dict(prune(torch.from_numpy(points), window, threshold))
    assert ours == pytest.approx(reference.prune(points, window, threshold), abs=1e-9)


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("curve", CURVES)
def test_prune_levels_equals_the_literal_hierarchy(curve, levels):
    for seed in range(8):
        points = curve(seed, 16)
        threshold = 0.8 * median_residual(points, 2)
        ours = prune_levels(torch.from_numpy(points), levels, threshold)
        literal = reference.prune_levels(points, levels, threshold)
        assert as_dict(ours) == pytest.approx(literal, abs=1e-9)
        score = reference.projection_score(literal, points)
        assert projection_score(ours, torch.from_numpy(points)) == pytest.approx(score, rel=1e-9, abs=1e-15)


def test_the_second_level_prunes_what_the_first_one_left():
    points = np.array([[0, 0, 0], [1, 0, 0], [2, 0, 0], [2, 1, 0], [2, 2, 0], [5, 7, 0], [0, 0, 9]], dtype=float)
    pruning = prune_levels(torch.from_numpy(points), 2, 1e-6)
    # Level 1 takes point 2, on the line of 0 and 1; level 2 takes 4 and 5, in the plane of 0, 1 and 3.
    assert pruning.kept.tolist() == [True, True, False, True, False, False, True]
    assert prune_levels(torch.from_numpy(points), 1, 1e-6).pruned.tolist() == [2]


def test_the_projection_score_equals_eq_8_computed_by_hand():
    points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 3.0]])
    pruning = prune(points, 2, 4.0)
    assert pruning.residuals.tolist() == [0, 0, 3]
    # Distances to the mean (1, 1), squared: 2, 1 and 5.
    assert projection_score(pruning, points) == pytest.approx(9 / 8, rel=1e-12)
    assert score_bound(pruning, points) == pytest.approx(16 / 8, rel=1e-12)


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


# Bad input


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_points_that_are_not_finite_are_refused(wrong):
    points = torch.from_numpy(smooth_curve(0, 8))
    points[3, 1] = wrong
    with pytest.raises(GeometryError, match="finite"):
        prune(points, 2, 0.1)
    with pytest.raises(GeometryError, match="finite"):
        prune_levels(points, 2, 0.1)


def test_points_of_the_wrong_shape_are_refused():
    with pytest.raises(GeometryError, match=r"\(points, dimensions\).*\(5,\)"):
        prune(torch.zeros(5), 2, 0.1)
    with pytest.raises(GeometryError, match=r"\(points, dimensions\).*\(2, 5, 3\)"):
        prune(torch.zeros(2, 5, 3), 2, 0.1)


@pytest.mark.parametrize("window", [-1, 0, 1, 8, 9])
def test_a_window_out_of_range_is_refused_with_the_range_and_what_came(window):
    with pytest.raises(GeometryError, match=rf"2\.\.7 .*got {window}"):
        prune(torch.from_numpy(smooth_curve(0, 8)), window, 0.1)


def test_no_levels_are_refused():
    with pytest.raises(GeometryError, match="at least 1, got 0"):
        prune_levels(torch.from_numpy(smooth_curve(0, 8)), 0, 0.1)


def test_points_that_are_all_the_same_have_no_score():
    points = torch.ones(5, 3)
    with pytest.raises(GeometryError, match="all the same"):
        projection_score(prune(points, 2, 0.1), points)


@pytest.mark.parametrize("threshold", [-1.0, float("nan")])
def test_a_threshold_that_is_no_distance_is_refused(threshold):
    with pytest.raises(GeometryError, match="threshold"):
        prune(torch.from_numpy(smooth_curve(0, 8)), 2, threshold)
