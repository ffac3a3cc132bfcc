import math

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from geosprint.errors import GeometryError
from geosprint.metrics.distances import sliced_wasserstein


def draws(count, width, seed):
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_assignment(one, other):
    """Wasserstein-2 on a line: every point repeated until both sets are equally many, then matched at least cost."""
    n, m = len(one), len(other)
    common = math.lcm(n, m)
    one, other = np.repeat(one.numpy().ravel(), common // n), np.repeat(other.numpy().ravel(), common // m)
    cost = (one[:, None] - other[None, :]) ** 2
    rows, columns = scipy.optimize.linear_sum_assignment(cost)
    return math.sqrt(cost[rows, columns].mean())


@settings(deadline=None, max_examples=40)
@given(n=st.integers(1, 12), m=st.integers(1, 12), seed=st.integers(0, 1000))
def test_on_a_line_it_is_the_cheapest_assignment(n, m, seed):
    one, other = draws(n, 1, seed), draws(m, 1, seed + 1)
    assert sliced_wasserstein(one, other, projections=3) == pytest.approx(by_assignment(one, other), rel=1e-9)


def test_unequal_counts_by_hand():
    # Of 0, 0, 3 against 1, 5: a third of 0 to 1, a sixth of 0 to 1, a sixth of 0 to 5 and a third of 3 to 5, in order:
    # levels 0..1/3: 0-1, 1/3..1/2: 0-1, 1/2..2/3: 0-5, 2/3..1: 3-5.
    one, other = torch.tensor([[3.0], [0.0], [0.0]]), torch.tensor([[5.0], [1.0]])
    expected = math.sqrt(1 / 3 + 1 / 6 + 25 / 6 + 4 / 3)
    assert sliced_wasserstein(one, other) == pytest.approx(expected, rel=1e-12)
    assert sliced_wasserstein(other, one) == pytest.approx(expected, rel=1e-12)


def test_a_shift_on_a_line_is_the_distance_itself():
    one = draws(17, 1, 0)
    assert sliced_wasserstein(one, one - 2.5, projections=1) == pytest.approx(2.5, rel=1e-12)


@pytest.mark.parametrize("width", [2, 3, 8])
def test_a_shift_counts_by_its_share_of_the_dimensions(width):
    one, shift = draws(20, width, 0), torch.arange(1.0, width + 1)
    projections = 20_000
    found = sliced_wasserstein(one, one + shift, projections=projections) ** 2
    mean = float((shift**2).sum()) / width
    # (v·u)² over the sphere is |v|²·Beta(1/2, (d - 1)/2), of variance 2 (d - 1) / (d² (d + 2)) for |v| = 1.
    spread = mean * width * math.sqrt(2 * (width - 1) / (width**2 * (width + 2)) / projections)
    assert found == pytest.approx(mean, abs=4 * spread)


def test_normals_of_another_scale_are_as_far_as_their_deviations():
    one = draws(4000, 3, 1)
    # The distance of x to 2x is the deviation of a projection, 1.
    assert sliced_wasserstein(one, 2 * one, projections=300) == pytest.approx(1, abs=0.03)


def test_it_grows_with_scale_and_is_symmetric_and_zero_only_for_equal_sets():
    one, other = draws(30, 4, 1), draws(20, 4, 2) + 0.5
    found = sliced_wasserstein(one, other)
    assert found > 0.1
    assert sliced_wasserstein(3 * one, 3 * other) == pytest.approx(3 * found, rel=1e-10)
    assert sliced_wasserstein(other, one) == pytest.approx(found, rel=1e-12)
    assert sliced_wasserstein(one, one.flip(0)) == pytest.approx(0, abs=1e-12)
    assert sliced_wasserstein(one, torch.cat([one, one])) == pytest.approx(0, abs=1e-12)


def test_a_rotation_matters_only_by_the_draw_of_directions():
    one, other = draws(40, 3, 1), draws(40, 3, 2) + 1
    rotation = torch.linalg.qr(draws(3, 3, 3)).Q
    turned = sliced_wasserstein(one @ rotation, other @ rotation, projections=5000)
    assert turned == pytest.approx(sliced_wasserstein(one, other, projections=5000), rel=0.03)


def test_a_seed_repeats_itself_and_another_draws_other_directions():
    one, other = draws(30, 4, 1), draws(20, 4, 2)
    assert sliced_wasserstein(one, other, seed=3) == sliced_wasserstein(one, other, seed=3)
    assert sliced_wasserstein(one, other, seed=3) != sliced_wasserstein(one, other, seed=4)


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(GeometryError, match="equal width"):
        sliced_wasserstein(draws(5, 2, 0), draws(5, 3, 0))
    with pytest.raises(GeometryError, match="at least 1 samples"):
        sliced_wasserstein(draws(0, 2, 0), draws(5, 2, 0))
    with pytest.raises(GeometryError, match="at least 1 projection, got 0"):
        sliced_wasserstein(draws(5, 2, 0), draws(5, 2, 0), projections=0)
