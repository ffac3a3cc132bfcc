import itertools
import math

import numpy as np
import pytest
import torch

from geosprint.errors import GeometryError
from geosprint.metrics.distances import kernel_distance


def draws(count, width=5, seed=0, offset=0.0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, width, generator=generator, dtype=torch.float64) + offset


def standard_error(found):
    """Of which a 95 % interval has 1.96 on either side."""
    return (found.high - found.low) / (2 * 1.96)


def kernel(x, y):
    return (sum(float(a) * float(b) for a, b in zip(x, y, strict=True)) / len(x) + 1) ** 3


def slow(one, other):
    """Squared MMD without bias, pair by pair."""
    value = 0.0
    for part in (one, other):
        pairs = list(itertools.permutations(range(len(part)), 2))
        value += sum(kernel(part[i], part[j]) for i, j in pairs) / len(pairs)
    return value - 2 * sum(kernel(x, y) for x in one for y in other) / (len(one) * len(other))


@pytest.mark.parametrize(("count", "other_count", "offset"), [(6, 6, 0.0), (7, 4, 1.0), (5, 12, -0.5)])
def test_the_kernel_distance_is_the_mean_over_pairs(count, other_count, offset):
    one, other = draws(count, seed=1), draws(other_count, seed=2, offset=offset)
    assert kernel_distance(one, other).value == pytest.approx(slow(one, other), rel=1e-9, abs=1e-12)


def test_the_kernel_distance_by_hand():
    # Kernels on a line, (xy + 1)³: 8 within the ones, 1 within the zeros, 1 between them.
    found = kernel_distance(torch.ones(4, 1), torch.zeros(5, 1))
    assert found.value == pytest.approx(8 + 1 - 2 * 1)
    assert standard_error(found) == pytest.approx(0, abs=1e-12)


def test_the_kernel_distance_is_symmetric_and_of_one_scale_in_float32():
    one, other = draws(30, seed=1), draws(20, seed=2, offset=1)
    there, back = kernel_distance(one, other), kernel_distance(other, one)
    assert there.value == pytest.approx(back.value, rel=1e-12)
    assert standard_error(there) == pytest.approx(standard_error(back), rel=1e-12)
    assert kernel_distance(one.float(), other.float()).value == pytest.approx(there.value, rel=1e-6)


def test_the_kernel_distance_forgets_the_order_of_samples():
    one, other = draws(30, seed=1), draws(20, seed=2, offset=1)
    shuffled = kernel_distance(one.flip(0), other.roll(3, 0))
    straight = kernel_distance(one, other)
    assert shuffled.value == pytest.approx(straight.value, rel=1e-12)
    assert standard_error(shuffled) == pytest.approx(standard_error(straight), rel=1e-10)


def left_out_variance(one, other):
    """The jackknife's, by leaving out each sample of the first set in turn."""
    left = np.array([slow([*one[:i], *one[i + 1 :]], other) for i in range(len(one))])
    return (len(one) - 1) * left.var()


def spread_within(part):
    """E[k(a,b)²] - 2 E[k(a,b) k(a,c)] + E[k(a,b) k(c,d)], each a mean over samples that all differ."""
    table = np.array([[kernel(x, y) for y in part] for x in part])
    a, b, c, d = np.array(list(itertools.permutations(range(len(part)), 4))).T
    return (table[a, b] ** 2 - 2 * table[a, b] * table[a, c] + table[a, b] * table[c, d]).mean()


def spread_between(one, other):
    """The same of the kernel k(a, u) of one sample of each set."""
    table = np.array([[kernel(x, y) for y in other] for x in one])
    pairs = itertools.product(itertools.permutations(range(len(one)), 2), itertools.permutations(range(len(other)), 2))
    a, b, u, v = np.array([[*left, *right] for left, right in pairs]).T
    found = table[a, u] ** 2 - table[a, u] * table[a, v] - table[a, u] * table[b, u] + table[a, u] * table[b, v]
    return found.mean()


@pytest.mark.parametrize(
    ("count", "other_count", "offset", "seed"),
    [(6, 5, 3.0, 1), (5, 7, 0.0, 1), (6, 6, 0.0, 9)],  # in the last, single samples seem to cause less than nothing
)
def test_the_standard_error_is_the_jackknife_with_pairs_counted_once(count, other_count, offset, seed):
    one, other = draws(count, seed=seed), draws(other_count, seed=seed + 1, offset=offset)
    n, m = count, other_count
    pairs = 2 * spread_within(one) / (n * (n - 1)) + 2 * spread_within(other) / (m * (m - 1))
    pairs += 4 * spread_between(one, other) / (n * m)
    jackknife = left_out_variance(one, other) + left_out_variance(other, one)
    expected = max(jackknife - 2 * pairs, 0) + pairs
    assert standard_error(kernel_distance(one, other)) ** 2 == pytest.approx(expected, rel=1e-9)


def repeated(trials, count, other_count, offset):
    found = [
        kernel_distance(draws(count, seed=2 * trial), draws(other_count, seed=2 * trial + 1, offset=offset))
        for trial in range(trials)
    ]
    return np.array([one.value for one in found]), np.array([standard_error(one) for one in found])


def expected_distance(offset, width=5):
    """E[(u/d + 1)³] of u = x·y: moments of u from those of independent coordinates, expanded by hand."""

    def mean_kernel(a, b):
        # One coordinate's product of normals of means a, b and unit variance.
        m1 = a * b
        m2 = (1 + a**2) * (1 + b**2)
        m3 = (a**3 + 3 * a) * (b**3 + 3 * b)
        variance, third = m2 - m1**2, m3 - 3 * m1 * m2 + 2 * m1**3
        mean, spread, skew = width * m1, width * variance, width * third  # cumulants add up
        u2, u3 = spread + mean**2, skew + 3 * spread * mean + mean**3
        return 1 + 3 * mean / width + 3 * u2 / width**2 + u3 / width**3

    return mean_kernel(0, 0) + mean_kernel(offset, offset) - 2 * mean_kernel(0, offset)


@pytest.mark.parametrize(
    ("count", "other_count", "offset"), [(40, 40, 0.0), (60, 30, 0.0), (12, 12, 0.0), (40, 60, 0.6)]
)
def test_the_kernel_distance_has_no_bias_and_its_standard_error_is_its_spread(count, other_count, offset):
    trials = 600
    values, errors = repeated(trials, count, other_count, offset)
    expected = expected_distance(offset)
    assert abs(values.mean() - expected) < 3.5 * values.std() / math.sqrt(trials)
    # A jackknife alone would be off by √2 where the distributions are equal.
    assert 0.9 < math.sqrt((errors**2).mean()) / values.std() < 1.25
    covered = (np.abs(values - expected) < 1.96 * errors).mean()
    assert 0.89 < covered <= 1


def test_the_expected_distance_of_equal_distributions_is_zero():
    assert expected_distance(0.0) == pytest.approx(0, abs=1e-12)
    assert expected_distance(0.6) > 0.5  # so that the case above is one of unequal distributions


@pytest.mark.parametrize(("one", "other"), [((3, 2), (9, 2)), ((9, 2), (3, 2)), ((9, 2), (9, 3)), ((9,), (9,))])
def test_sets_that_are_too_small_or_do_not_fit_are_refused(one, other):
    with pytest.raises(GeometryError, match="at least 4 samples of equal width"):
        kernel_distance(torch.ones(one), torch.ones(other))
