import numpy as np
import pytest
import torch

from geosprint.errors import GeometryError
from geosprint.metrics.estimates import bootstrap_mean, endpoint_errors, peak_signal_to_noise, tempered_mean


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
    np.testing.assert_allclose(peak_signal_to_noise(samples, reference), [0, 20, 40], atol=1e-5)


def test_equal_pictures_have_the_ratio_of_float32_rounding_so_that_means_stay_finite():
    pictures = torch.rand(2, 1, 3, 3)
    np.testing.assert_allclose(peak_signal_to_noise(pictures, pictures), 50 * 10 * np.log10(2), rtol=1e-12)
    off_by_one_rounding = torch.ones(1, 1, 3, 3)
    assert peak_signal_to_noise(off_by_one_rounding, off_by_one_rounding - 2**-24)[0] == pytest.approx(
        50 * 10 * np.log10(2), rel=1e-12
    )
    # One rounding of float32 at 0.5 to 1 is the worst that still counts as equal; twice that is 6.02 dB less.
    twice = peak_signal_to_noise(off_by_one_rounding, off_by_one_rounding - 2**-23)[0]
    assert twice == pytest.approx(48 * 10 * np.log10(2), rel=1e-12)


def test_a_paired_difference_of_ratios_has_an_interval_that_leaves_out_chance():
    generator = torch.Generator().manual_seed(3)
    reference = torch.rand(40, 1, 8, 8, generator=generator) - 0.5
    error = torch.randn(40, 1, 8, 8, generator=generator) * 0.01
    # Half the error is 20 lg 2 decibels better in every pair, so the interval has no width.
    better, worse = (peak_signal_to_noise(reference + scale * error, reference) for scale in (0.5, 1.0))
    found = bootstrap_mean(better - worse)
    np.testing.assert_allclose([found.value, found.low, found.high], 20 * np.log10(2), atol=1e-3)
