from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geosprint.errors import GeometryError
from geosprint.threshold import (
    SEARCHES,
    bisected_below_score,
    largest_threshold,
    least_score_at_share,
    most_pruned_below_score,
    prune_many,
)
from problems import centred_gram, drifting_walk, random_walk, rotation, smooth_curve, straight_line
from references import geometry, search

CURVES = [smooth_curve, random_walk, drifting_walk]
TESTS = [(2, 1), (3, 1), (4, 1), (2, 2), (2, 3)]
TARGETS = [1e-3, 1e-2, 1e-1]
SEEDS = range(12)
POINTS = 9


@cache
def outcomes(curve, seed, window, levels):
    return search.every_outcome(curve(seed, POINTS), window, levels)


def gram_of(curve, seeds=SEEDS, points=POINTS):
    return centred_gram(np.stack([curve(seed, points) for seed in seeds]))


# Theorems


@pytest.mark.parametrize(("window", "levels"), TESTS)
def test_straight_lines_keep_their_first_window_and_score_zero(window, levels):
    gram = centred_gram(np.stack([straight_line(seed, 12, 6) for seed in range(5)]))
    for found in (
        most_pruned_below_score(gram, 1e-3, window, levels),
        bisected_below_score(gram, 1e-3, window, levels),
    ):
        assert found.kept[:, :window].all()
        assert not found.kept[:, window:].any()
        assert (found.scores < 1e-12).all()


def test_the_largest_threshold_is_above_every_residual():
    for curve in CURVES:
        points = curve(3, POINTS)
        residuals = [
            geometry.residual(points[[i, j]], points[k]) for k in range(POINTS) for j in range(k) for i in range(j)
        ]
        assert largest_threshold(centred_gram(points)[None])[0] > max(residuals)


@given(st.integers(0, 10_000), st.floats(1e-3, 3.0), st.sampled_from(TESTS), st.sampled_from(CURVES))
@settings(max_examples=60, deadline=None)
def test_the_score_is_at_most_the_bound_of_theorem_1(seed, threshold, test, curve):
    points = curve(seed, 14)
    found = prune_many(centred_gram(points)[None], np.array([threshold]), *test)
    # |S| tau² / ((N+1) tr C) with the covariance over N+1.
    bound = (~found.kept).sum() * threshold**2 / (len(points) * np.trace(np.cov(points.T, bias=True)))
    assert found.scores[0] <= bound


@pytest.mark.parametrize("window", [2, 3, 4])
def test_a_curve_in_as_many_dimensions_as_the_window_spans_keeps_only_the_first_window(window):
    gram = centred_gram(random_walk(1, 15, window - 1))[None]
    assert prune_many(gram, np.array([1e-5]), window).kept.sum() == window


def test_nothing_is_pruned_at_threshold_zero_not_even_on_a_straight_line():
    gram = centred_gram(np.outer(np.arange(12.0), np.ones(3)))[None]
    assert prune_many(gram, np.array([0.0])).kept.all()


# Properties


@given(st.integers(0, 10_000), st.sampled_from(CURVES), st.sampled_from(TESTS), st.sampled_from(TARGETS))
@settings(max_examples=40, deadline=None)
def test_the_search_never_exceeds_its_target_and_its_threshold_gives_its_outcome_again(seed, curve, test, target):
    window, levels = test
    points = curve(seed, 14)
    found = most_pruned_below_score(centred_gram(points)[None], target, window, levels)
    again = search.outcome_at(points, found.thresholds[0], window, levels)
    assert found.scores[0] <= target
    assert found.kept[0].tolist() == again.kept.tolist()
    assert found.scores[0] == pytest.approx(again.score, rel=1e-7, abs=1e-13)


@given(st.integers(0, 10_000), st.sampled_from(CURVES), st.floats(1e-3, 1e3))
@settings(max_examples=30, deadline=None)
def test_rotation_translation_and_scale_change_no_kept_set(seed, curve, scale):
    points = curve(seed, 12)
    moved = scale * (points @ rotation(seed, points.shape[1]) + 5)
    both = most_pruned_below_score(centred_gram(np.stack([points, moved])), 1e-2)
    assert both.kept[0].tolist() == both.kept[1].tolist()
    assert both.scores[1] == pytest.approx(both.scores[0], rel=1e-7)
    assert both.thresholds[1] == pytest.approx(scale * both.thresholds[0], rel=1e-6)


@pytest.mark.parametrize("name", list(SEARCHES))
def test_a_trajectory_is_pruned_alike_alone_and_in_a_batch(name):
    gram = np.concatenate([gram_of(curve) for curve in CURVES])
    together = SEARCHES[name](gram, 1e-2)
    for i in range(0, len(gram), 5):
        alone = SEARCHES[name](gram[i : i + 1], 1e-2)
        assert alone.kept[0].tolist() == together.kept[i].tolist()
        assert alone.scores[0] == pytest.approx(together.scores[i], rel=1e-12)


def test_a_large_batch_is_pruned_as_each_of_its_trajectories_alone():
    gram = gram_of(drifting_walk, range(300))
    exact, at_share = most_pruned_below_score(gram, 1e-2), least_score_at_share(gram, 0.5)
    for i in (0, 100, 127, 128, 129, 255, 256, 299):
        assert exact.kept[i].tolist() == most_pruned_below_score(gram[i : i + 1], 1e-2).kept[0].tolist()
        assert at_share.kept[i].tolist() == least_score_at_share(gram[i : i + 1], 0.5).kept[0].tolist()


@pytest.mark.parametrize("target", TARGETS)
def test_bisection_never_prunes_more_than_the_exact_search(target):
    for curve in CURVES:
        gram = gram_of(curve, range(40), 16)
        exact, literal = most_pruned_below_score(gram, target), bisected_below_score(gram, target)
        assert (exact.kept.sum(axis=1) <= literal.kept.sum(axis=1)).all()


# References


@pytest.mark.parametrize(("window", "levels"), TESTS)
@pytest.mark.parametrize("curve", CURVES)
def test_pruning_by_inner_products_equals_algorithm_2_on_points(curve, window, levels):
    points = np.stack([curve(seed, 15) for seed in SEEDS])
    thresholds = 0.2 * np.linalg.norm(np.diff(points, axis=1), axis=2).mean(axis=1)
    found = prune_many(centred_gram(points), thresholds, window, levels)
    for i, threshold in enumerate(thresholds):
        literal = search.outcome_at(points[i], threshold, window, levels)
        assert found.kept[i].tolist() == literal.kept.tolist()
        assert found.scores[i] == pytest.approx(literal.score, rel=1e-7, abs=1e-13)


@pytest.mark.parametrize("window", [2, 3])
@pytest.mark.parametrize("target", [1e-3, 1e-6])
def test_pruning_by_inner_products_equals_algorithm_2_on_fine_smooth_curves(window, target):
    # Four neighbours of 200 steps are too nearly dependent for inner products to tell, see RANK_TOLERANCE.
    points = np.stack([smooth_curve(seed, 201, 8) for seed in range(6)])
    found = most_pruned_below_score(centred_gram(points), target, window)
    for i, threshold in enumerate(found.thresholds):
        literal = search.outcome_at(points[i], threshold, window)
        assert found.kept[i].tolist() == literal.kept.tolist()
        assert found.scores[i] == pytest.approx(literal.score, rel=1e-4)


@pytest.mark.parametrize("levels", [2, 3])
def test_levels_by_inner_products_equal_those_on_points_of_fine_smooth_curves(levels):
    points = np.stack([smooth_curve(seed, 201, 8) for seed in range(4)])
    found = most_pruned_below_score(centred_gram(points), 1e-4, levels=levels)
    for i, threshold in enumerate(found.thresholds):
        assert found.kept[i].tolist() == search.outcome_at(points[i], threshold, levels=levels).kept.tolist()


def test_the_second_level_prunes_what_the_first_one_left():
    points = np.array([[0, 0, 0], [1, 0, 0], [2, 0, 0], [2, 1, 0], [2, 2, 0], [5, 7, 0], [0, 0, 9]], dtype=float)
    gram, threshold = centred_gram(points)[None], np.array([1e-4])
    # Level 1 takes point 2, on the line of 0 and 1; level 2 takes 4 and 5, in the plane of 0, 1 and 3.
    assert prune_many(gram, threshold, levels=2).kept.tolist() == [[True, True, False, True, False, False, True]]
    assert np.nonzero(~prune_many(gram, threshold).kept[0])[0].tolist() == [2]


def test_the_projection_score_equals_eq_8_computed_by_hand():
    points = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 3.0]])
    # The third point is 3 off the line; distances to the mean (1, 1), squared: 2, 1 and 5.
    assert prune_many(centred_gram(points)[None], np.array([4.0])).scores[0] == pytest.approx(9 / 8, rel=1e-12)


def test_a_point_exactly_at_the_threshold_is_kept():
    gram = np.array([[[5.0, -2, -3], [-2, 1, 1], [-3, 1, 2]]])  # of (-2, -1), (1, 0), (1, 1)
    distance = geometry.residual(np.array([[-2.0, -1], [1, 0]]), np.array([1.0, 1]))
    assert prune_many(gram, np.array([distance * (1 - 1e-9)])).kept.all()
    assert prune_many(gram, np.array([distance * (1 + 1e-9)])).kept.tolist() == [[True, True, False]]


def test_pruning_by_inner_products_survives_repeated_points():
    points = np.repeat(smooth_curve(5, 6), 3, axis=0)
    gram = centred_gram(points)[None]
    for window, levels in TESTS:
        found = prune_many(gram, np.array([0.2]), window, levels)
        assert found.kept[0].tolist() == search.outcome_at(points, 0.2, window, levels).kept.tolist()


def test_the_score_of_many_of_these_curves_is_not_monotone():
    falls = 0
    for curve in CURVES:
        for seed in SEEDS:
            scores = [outcome.score for outcome in outcomes(curve, seed, 2, 1)]
            falls += bool((np.diff(scores) < -1e-9).any())
    assert falls >= 8


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("window", "levels"), TESTS)
@pytest.mark.parametrize("curve", CURVES)
def test_the_search_equals_an_exhaustive_one(curve, window, levels, target):
    found = most_pruned_below_score(gram_of(curve), target, window, levels)
    for i, seed in enumerate(SEEDS):
        best = search.most_pruned_below(outcomes(curve, seed, window, levels), target)
        assert found.kept[i].tolist() == best.kept.tolist()
        assert found.scores[i] == pytest.approx(best.score, rel=1e-7, abs=1e-13)


@pytest.mark.parametrize(
    ("seed", "dimensions", "target", "levels"),
    [
        (25, 3, 1e-2, 1),
        (127, 3, 1e-2, 1),
        (79, 3, 1e-2, 2),
        (114, 3, 1e-2, 2),
        (64, 4, 1e-2, 2),
        (107, 4, 1e-1, 2),
    ],
)
def test_the_search_finds_an_outcome_that_holds_for_a_narrow_range_of_thresholds_only(seed, dimensions, target, levels):
    points = drifting_walk(seed, POINTS, dimensions)
    best = search.most_pruned_below(search.every_outcome(points, 2, levels), target)
    found = most_pruned_below_score(centred_gram(points)[None], target, 2, levels)
    assert found.kept[0].tolist() == best.kept.tolist()


def test_bisection_misses_what_the_exact_search_finds_on_some_curve():
    # The reason for the exact search: a kinked walk on which a higher threshold scores less.
    gram = centred_gram(np.stack([drifting_walk(seed, POINTS) for seed in range(40)]))
    exact, literal = most_pruned_below_score(gram, 1e-2), bisected_below_score(gram, 1e-2)
    assert (exact.kept.sum(axis=1) < literal.kept.sum(axis=1)).any()


@pytest.mark.parametrize("share", [0.3, 0.5, 0.6])
@pytest.mark.parametrize(("window", "levels"), [(2, 1), (3, 1), (2, 2)])
@pytest.mark.parametrize("curve", CURVES)
def test_the_lowest_score_at_a_share_equals_that_of_an_exhaustive_search(curve, window, levels, share):
    found = least_score_at_share(gram_of(curve), share, window, levels)
    for i, seed in enumerate(SEEDS):
        best = search.least_score_above(outcomes(curve, seed, window, levels), share)
        assert (~found.kept[i]).sum() >= share * POINTS
        assert found.scores[i] == pytest.approx(best.score, rel=1e-7, abs=1e-13)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("window", "levels"), [(2, 1), (3, 1), (2, 3)])
@pytest.mark.parametrize("curve", CURVES)
def test_bisection_equals_thirty_halvings_one_after_another(curve, window, levels, target):
    seeds = range(4)
    found = bisected_below_score(gram_of(curve, seeds, 12), target, window, levels)
    for i, seed in enumerate(seeds):
        literal = search.bisected(curve(seed, 12), target, window, levels)
        assert found.kept[i].tolist() == literal.kept.tolist()
        assert found.thresholds[i] == pytest.approx(literal.threshold, rel=1e-6)
        assert found.scores[i] == pytest.approx(literal.score, rel=1e-7, abs=1e-13)


# Bad input


@pytest.mark.parametrize("find", [most_pruned_below_score, bisected_below_score])
@pytest.mark.parametrize("target", [0.0, -1e-3, 1.0, float("nan")])
def test_a_target_that_is_no_share_of_the_variance_is_refused(find, target):
    with pytest.raises(GeometryError, match="target"):
        find(gram_of(smooth_curve), target)


@pytest.mark.parametrize("find", [most_pruned_below_score, bisected_below_score, least_score_at_share])
def test_gram_matrices_that_are_not_finite_are_refused(find):
    gram = gram_of(smooth_curve)
    gram[2, 3, 3] = np.nan
    with pytest.raises(GeometryError, match="finite"):
        find(gram, 0.1)


@pytest.mark.parametrize("shape", [(5, 5), (2, 5, 4), (1, 2, 5, 5)])
def test_gram_matrices_of_the_wrong_shape_are_refused(shape):
    with pytest.raises(GeometryError, match=r"\(trajectories, points, points\).*got shape"):
        most_pruned_below_score(np.ones(shape), 0.1)


@pytest.mark.parametrize("window", [0, 1, POINTS, POINTS + 1])
def test_a_window_out_of_range_is_refused(window):
    with pytest.raises(GeometryError, match=rf"2\.\.{POINTS - 1} .*got {window}"):
        most_pruned_below_score(gram_of(smooth_curve), 0.1, window)


@pytest.mark.parametrize(("window", "levels"), [(2, 0), (3, 2)])
def test_levels_that_do_not_start_from_a_window_of_two_are_refused(window, levels):
    with pytest.raises(GeometryError, match=f"got {levels} and {window}"):
        most_pruned_below_score(gram_of(smooth_curve), 0.1, window, levels)


def test_more_levels_than_points_allow_are_refused():
    with pytest.raises(GeometryError, match="levels"):
        most_pruned_below_score(gram_of(smooth_curve), 0.1, levels=POINTS)


@pytest.mark.parametrize("threshold", [-1.0, float("nan")])
def test_a_threshold_that_is_no_distance_is_refused(threshold):
    with pytest.raises(GeometryError, match=f"must be at least 0, got {threshold}"):
        prune_many(gram_of(smooth_curve), np.array([threshold]))


def test_a_trajectory_that_never_moves_is_refused_by_number():
    gram = gram_of(smooth_curve)
    gram[4] = 0
    with pytest.raises(GeometryError, match="trajectory 4 never moves"):
        most_pruned_below_score(gram, 0.1)


@pytest.mark.parametrize("share", [0.0, -0.5, 0.8, 1.0, 2.0])
def test_a_share_that_cannot_be_pruned_is_refused(share):
    with pytest.raises(GeometryError, match=rf"7/9 = 0\.778, got {share}"):
        least_score_at_share(gram_of(smooth_curve), share)
