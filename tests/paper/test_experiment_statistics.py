import numpy as np
import pytest
from scipy import stats

from geosprint.errors import GeometryError
from geosprint.estimates import bootstrapped
from geosprint.paper.base import as_numbers, estimate_in
from geosprint.paper.measuring import correlation, rank_correlation, ratio_of_means, spread


@pytest.fixture
def random():
    return np.random.default_rng(5)


def test_correlations_are_those_of_scipy_also_with_ties(random):
    one, other = random.normal(size=40), random.integers(0, 4, 40)
    assert correlation(one, other) == pytest.approx(stats.pearsonr(one, other).statistic)
    assert rank_correlation(one, other) == pytest.approx(stats.spearmanr(one, other).statistic)
    assert rank_correlation(np.exp(one), one) == pytest.approx(1)
    assert rank_correlation(-(one**3), one) == pytest.approx(-1)


def test_what_does_not_vary_is_related_to_nothing(random):
    assert correlation(np.ones(5), random.normal(size=5)) == 0
    assert rank_correlation(random.normal(size=5), np.zeros(5)) == 0


def test_the_interval_of_a_mean_is_that_of_normal_theory(random):
    values = random.normal(3, 2, size=400)
    found = bootstrapped(lambda rows: values[rows].mean(), 400)
    reach = 1.96 * values.std() / 20
    assert found.value == values.mean()
    assert found.low == pytest.approx(values.mean() - reach, abs=0.1 * reach)
    assert found.high == pytest.approx(values.mean() + reach, abs=0.1 * reach)


def test_an_interval_is_the_same_every_time_and_needs_rows(random):
    values = random.normal(size=20)
    one, other = (bootstrapped(lambda rows: np.median(values[rows]), 20) for _ in range(2))
    assert one == other
    with pytest.raises(GeometryError, match="at least one row"):
        bootstrapped(lambda rows: 0.0, 0)


def test_a_ratio_of_twins_has_no_spread_where_each_pair_has_the_same_ratio(random):
    below = random.uniform(0.1, 10, size=30)
    found = ratio_of_means(3 * below, below)
    assert [found.value, found.low, found.high] == pytest.approx([3, 3, 3])
    strangers = ratio_of_means(3 * below[::-1], below)
    assert strangers.value == pytest.approx(3)
    assert strangers.high - strangers.low > 0.5


def test_a_ratio_to_nothing_is_one_to_the_least_that_could_be_seen():
    assert ratio_of_means(np.full(4, 0.5), np.zeros(4), least=0.1).value == pytest.approx(5)


def test_an_estimate_is_three_numbers_in_a_finding():
    found = bootstrapped(lambda rows: float(rows.min()), 4)
    assert as_numbers("least", found) == {"least": 0.0, "least_low": found.low, "least_high": found.high}
    assert found.high > found.low
    assert estimate_in(as_numbers("least", found), "least") == found
    assert estimate_in({"least": 2.0}, "least").high == 2  # a number without an interval is exact


def test_a_spread_needs_two_values():
    assert spread([3.0, 5.0]) == pytest.approx(2**0.5)
    assert spread([3.0]) is None
    assert spread([]) is None
