from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geosprint.metrics.estimates import Worth, uniform_worth

SCALES = np.random.default_rng(3).lognormal(size=40)  # samples differ, all by the same law


def law(steps: float, order: float = 1.0) -> np.ndarray:
    """Errors that fall as a power of the steps: a straight line in logarithms."""
    return SCALES * steps**-order


@pytest.mark.parametrize("order", [1.0, 2.0])
@pytest.mark.parametrize("goal", [5.0, 7.3, 10.0, 19.9])
def test_a_power_law_is_met_exactly_wherever_it_was_measured(goal, order):
    found = uniform_worth(law(goal, order), {k: law(k, order) for k in (20, 4, 10)})
    assert (found.fewest, found.most) == (4, 20)
    assert found.steps == pytest.approx(goal)
    # All samples follow the law, so that no resample says otherwise.
    assert (found.low, found.high) == pytest.approx((goal, goal))
    assert not found.is_below
    assert not found.is_beyond


@pytest.mark.parametrize(("goal", "below", "beyond"), [(3.0, True, False), (40.0, False, True)])
def test_what_lies_outside_of_what_was_measured_is_only_a_bound(goal, below, beyond):
    found = uniform_worth(law(goal), {k: law(k) for k in (4, 10, 20)})
    assert (found.is_below, found.is_beyond) == (below, beyond)
    assert found.steps == (4 if below else 20)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (4, 8, "4.0 to 8.0"),
        (3, 8, "3 or fewer to 8.0"),
        (4.25, 20, "4.2 to 20 or more"),
        (3, 20, "3 or fewer to 20 or more"),
    ],
)
def test_an_interval_says_where_measuring_ended(low, high, said):
    assert Worth(5.0, low, high, 3, 20).interval == said


def test_one_number_of_uniform_steps_bounds_from_one_side():
    assert uniform_worth(law(5), {4: law(4)}).is_beyond
    assert uniform_worth(law(3), {4: law(4)}).is_below


def test_errors_of_nothing_are_no_reason_to_fail():
    found = uniform_worth(np.zeros(5), {4: np.ones(5), 8: np.zeros(5)})
    assert found.steps == 8


def test_a_curve_that_rises_again_is_met_where_it_first_falls_so_low():
    found = uniform_worth(np.full(6, 2.0), {4: np.full(6, 4.0), 8: np.full(6, 1.0), 16: np.full(6, 3.0)})
    # Half of the way from 4 to 1 in logarithms, hence from 4 to 8.
    assert found.steps == pytest.approx(4 * np.sqrt(2))


def one_by_one(errors: np.ndarray, uniform: dict[int, np.ndarray], seed: int) -> tuple[float, float]:
    """The same interval by a loop over resamples and a line drawn by hand."""
    random, found = np.random.default_rng(seed), []
    for _ in range(4000):
        rows = random.integers(0, len(errors), len(errors))
        goal, curve = errors[rows].mean(), {k: uniform[k][rows].mean() for k in sorted(uniform)}
        steps = list(curve)
        here = float(steps[-1])
        for few, many in pairwise(steps):
            if curve[few] <= goal:
                here = few
                break
            if curve[many] <= goal:
                slope = np.log(many / few) / np.log(curve[few] / curve[many])
                here = np.exp(np.log(few) + slope * np.log(curve[few] / goal))
                break
        found.append(here)
    return tuple(np.quantile(found, [0.025, 0.975]))


def test_the_interval_is_that_of_a_plain_bootstrap():
    random = np.random.default_rng(1)
    uniform = {k: law(k) * random.lognormal(sigma=0.3, size=40) for k in (5, 10, 20)}
    errors = law(9) * random.lognormal(sigma=0.3, size=40)
    found = uniform_worth(errors, uniform)
    low, high = one_by_one(errors, uniform, seed=77)
    assert found.low < found.steps < found.high
    assert (found.low, found.high) == pytest.approx((low, high), rel=0.03)


@settings(max_examples=25, deadline=None)
@given(st.floats(1.0, 60.0), st.floats(0.05, 20.0))
def test_the_unit_of_the_error_does_not_matter(goal, unit):
    uniform = {k: law(k) for k in (4, 9, 20)}
    one = uniform_worth(law(goal), uniform)
    other = uniform_worth(unit * law(goal), {k: unit * errors for k, errors in uniform.items()})
    assert (other.steps, other.low, other.high) == pytest.approx((one.steps, one.low, one.high))
