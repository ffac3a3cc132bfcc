from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from geosprint.errors import GeometryError
from geosprint.estimates import (
    UniformSteps,
    bootstrap_mean,
    decibels,
    endpoint_errors,
    jackknifed,
    power_law_steps,
    steps_reaching,
    tempered_mean,
    uniform_steps_with,
)


def test_endpoint_errors_by_hand():
    samples = torch.tensor([[[3.0, 4.0]], [[1.0, 1.0]], [[-2.0, 0.0]]])
    reference = torch.tensor([[[0.0, 0.0]], [[1.0, 1.0]], [[0.0, 0.0]]])
    found = endpoint_errors(samples, reference)
    np.testing.assert_allclose(found, [np.sqrt(25 / 2), 0, np.sqrt(2)])


def test_endpoint_errors_are_computed_in_float64():
    far = torch.full((1, 4), 1000.0)
    assert endpoint_errors(far + 2**-10, far)[0] == pytest.approx(2**-10, rel=1e-12)


def test_samples_without_their_twins_are_refused():
    with pytest.raises(GeometryError, match=r"\(3, 2\) and \(2, 2\)"):
        endpoint_errors(torch.zeros(3, 2), torch.zeros(2, 2))


def test_the_tempered_mean_is_the_square_of_the_mean_root():
    assert tempered_mean(np.array([1.0, 4.0, 16.0])) == pytest.approx((7 / 3) ** 2)
    assert tempered_mean(3 * np.array([1.0, 4.0, 16.0])) == pytest.approx(3 * (7 / 3) ** 2)  # in the errors' own unit


def test_the_bootstrap_interval_covers_the_true_mean_about_19_times_in_20():
    rng = np.random.default_rng(1)
    trials = 300
    found = [bootstrap_mean(rng.gamma(4.0, 0.5, size=60), resamples=400, seed=i) for i in range(trials)]
    covered = sum(estimate.low <= 2.0 <= estimate.high for estimate in found)
    assert 0.89 <= covered / trials <= 0.985  # 0.95 expected, deviation 0.013, percentile intervals run a little short


def test_the_bootstrap_interval_is_that_of_the_normal_theory_for_many_values():
    values = np.random.default_rng(2).normal(5.0, 2.0, size=2000)
    found = bootstrap_mean(values)
    half = 1.96 * values.std() / np.sqrt(2000)
    assert found.value == pytest.approx(values.mean(), rel=1e-12)
    assert found.low == pytest.approx(values.mean() - half, abs=0.15 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.15 * half)


def test_equal_values_have_no_interval_and_a_seed_repeats_itself():
    found = bootstrap_mean(np.full(10, 0.25))
    assert (found.value, found.low, found.high) == (0.25, 0.25, 0.25)
    values = np.arange(30.0)
    assert bootstrap_mean(values, seed=3) == bootstrap_mean(values, seed=3)
    assert bootstrap_mean(values, seed=3) != bootstrap_mean(values, seed=4)


def test_peak_signal_to_noise_by_hand():
    reference = torch.zeros(3, 1, 2, 2)
    samples = torch.stack([torch.full((1, 2, 2), 2.0), torch.full((1, 2, 2), 0.2), torch.zeros(1, 2, 2)])
    samples[2, 0, 0, 0] = 0.04  # mean square 0.0004, and 4 / 0.0004 is 10⁴
    np.testing.assert_allclose(decibels(endpoint_errors(samples, reference)), [0, 20, 40], atol=1e-5)


def test_equal_pictures_have_the_ratio_of_float32_rounding_so_that_means_stay_finite():
    pictures = torch.rand(2, 1, 3, 3)
    np.testing.assert_allclose(decibels(endpoint_errors(pictures, pictures)), 50 * 10 * np.log10(2), rtol=1e-12)
    off_by_one_rounding = torch.ones(1, 1, 3, 3)
    assert decibels(endpoint_errors(off_by_one_rounding, off_by_one_rounding - 2**-24))[0] == pytest.approx(
        50 * 10 * np.log10(2), rel=1e-12
    )
    # One rounding of float32 at 0.5 to 1 is the worst that still counts as equal; twice that is 6.02 dB less.
    twice = decibels(endpoint_errors(off_by_one_rounding, off_by_one_rounding - 2**-23))[0]
    assert twice == pytest.approx(48 * 10 * np.log10(2), rel=1e-12)


def test_a_paired_difference_of_ratios_has_an_interval_that_leaves_out_chance():
    generator = torch.Generator().manual_seed(3)
    reference = torch.rand(40, 1, 8, 8, generator=generator) - 0.5
    error = torch.randn(40, 1, 8, 8, generator=generator) * 0.01
    # Half the error is 20 lg 2 decibels better in every pair, so the interval has no width.
    better, worse = (decibels(endpoint_errors(reference + scale * error, reference)) for scale in (0.5, 1.0))
    found = bootstrap_mean(better - worse)
    np.testing.assert_allclose([found.value, found.low, found.high], 20 * np.log10(2), atol=1e-3)


def test_the_jackknife_of_a_mean_is_its_standard_error():
    values = torch.from_numpy(np.random.default_rng(1).standard_normal(10_000)) + 3
    found = jackknifed(lambda rows: float(values[rows].mean()), len(values), groups=100)
    assert found.value == pytest.approx(float(values.mean()))
    assert found.high - found.value == pytest.approx(1.96 * 0.01, rel=0.2)


@given(st.floats(0.3, 4.0), st.floats(1e-3, 1e3), st.integers(2, 50), st.integers(1, 50), st.floats(0.0, 1.0))
def test_a_power_law_through_two_points_is_recovered_exactly_between_them(order, scale, few, more, share):
    many = few + more
    steps = few * (many / few) ** share
    error = {k: scale * k**-order for k in (few, many, steps)}
    assert power_law_steps((few, error[few]), (many, error[many]), error[steps]) == pytest.approx(steps, rel=1e-6)


def test_a_power_law_ends_where_it_may_reach_no_further():
    def steps(goal, reach=1.0):
        return power_law_steps((4, 1 / 4), (8, 1 / 8), goal, reach)

    assert steps(1 / 3) == 4  # a higher error than both: never below the first
    assert steps(1 / 12) == 8
    assert steps(1 / 12, reach=2) == pytest.approx(12)  # the law goes on beyond the second point
    assert steps(1 / 100, reach=2) == pytest.approx(16)  # twice the way in logarithms: 4 · (8 / 4)²
    assert steps(0.0) == 8


def test_a_curve_that_does_not_fall_between_two_points_gives_one_of_them():
    assert power_law_steps((4, 0.5), (8, 0.5), 0.5) == 4
    assert power_law_steps((4, 0.0), (8, 0.0), 0.0) == 4


@pytest.mark.parametrize(("goal", "steps"), [(1 / 4, 4), (1 / 7, 7), (1 / 15, 15), (1 / 20, 20), (1, 4), (1 / 99, 20)])
def test_a_measured_curve_is_read_between_its_points_and_no_further(goal, steps):
    assert steps_reaching({20: 1 / 20, 4: 1 / 4, 10: 1 / 10}, goal) == pytest.approx(steps)


def test_a_curve_that_rises_again_is_read_where_it_first_reaches_the_goal():
    curve = {5: 0.8, 10: 0.2, 20: 0.21, 40: 0.1}
    assert steps_reaching(curve, 0.4) == pytest.approx(5 * 2**0.5)
    assert steps_reaching(curve, 0.205) == pytest.approx(10, rel=0.02)  # though 20 have a higher error


SCALES = np.random.default_rng(3).lognormal(size=40)  # samples differ, all by the same law


def law(steps: float, order: float = 1.0) -> np.ndarray:
    """Errors that fall as a power of the steps: a straight line in logarithms."""
    return SCALES * steps**-order


@pytest.mark.parametrize("order", [1.0, 2.0])
@pytest.mark.parametrize("goal", [5.0, 7.3, 10.0, 19.9])
def test_a_power_law_is_met_exactly_wherever_it_was_measured(goal, order):
    found = uniform_steps_with(law(goal, order), {k: law(k, order) for k in (20, 4, 10)})
    assert (found.fewest, found.most) == (4, 20)
    assert found.value == pytest.approx(goal)
    # All samples follow the law, so that no resample says otherwise.
    assert (found.low, found.high) == pytest.approx((goal, goal))
    assert not found.is_below
    assert not found.is_beyond


@pytest.mark.parametrize(("goal", "below", "beyond"), [(3.0, True, False), (40.0, False, True)])
def test_what_lies_outside_of_what_was_measured_is_only_a_bound(goal, below, beyond):
    found = uniform_steps_with(law(goal), {k: law(k) for k in (4, 10, 20)})
    assert (found.is_below, found.is_beyond) == (below, beyond)
    assert found.value == (4 if below else 20)


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
    assert UniformSteps(5.0, low, high, 3, 20).interval == said


def test_one_number_of_uniform_steps_bounds_from_one_side():
    assert uniform_steps_with(law(5), {4: law(4)}).is_beyond
    assert uniform_steps_with(law(3), {4: law(4)}).is_below


def test_errors_of_nothing_are_no_reason_to_fail():
    found = uniform_steps_with(np.zeros(5), {4: np.ones(5), 8: np.zeros(5)})
    assert found.value == 8


def test_a_curve_that_rises_again_is_met_where_it_first_falls_so_low():
    found = uniform_steps_with(np.full(6, 2.0), {4: np.full(6, 4.0), 8: np.full(6, 1.0), 16: np.full(6, 3.0)})
    # Half of the way from 4 to 1 in logarithms, hence from 4 to 8.
    assert found.value == pytest.approx(4 * np.sqrt(2))


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
    found = uniform_steps_with(errors, uniform)
    low, high = one_by_one(errors, uniform, seed=77)
    assert found.low < found.value < found.high
    assert (found.low, found.high) == pytest.approx((low, high), rel=0.03)


@settings(max_examples=25, deadline=None)
@given(st.floats(1.0, 60.0), st.floats(0.05, 20.0))
def test_the_unit_of_the_error_does_not_matter(goal, unit):
    uniform = {k: law(k) for k in (4, 9, 20)}
    one = uniform_steps_with(law(goal), uniform)
    other = uniform_steps_with(unit * law(goal), {k: unit * errors for k, errors in uniform.items()})
    assert (other.value, other.low, other.high) == pytest.approx((one.value, one.low, one.high))
