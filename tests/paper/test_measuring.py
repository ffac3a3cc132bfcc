from dataclasses import replace

import numpy as np
import pytest
import torch
from toy import TOY

from geosprint.integrations.adapter import load_model
from geosprint.metrics.features import classifier_features
from geosprint.models.exact import ring
from geosprint.models.networks import load_statistics
from geosprint.paper.base import Setting
from geosprint.paper.measuring import Bench
from geosprint.sampling import sample
from geosprint.teacher import fine_timesteps

COARSE, FINER = np.array([999.0, 500, 0]), np.array([999.0, 800, 600, 400, 200, 0])


@pytest.fixture(scope="module")
def bench():
    return Bench.of(TOY)


def frechet(one, other):
    one, other = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    return between(one.mean(0), np.cov(one.T), other.mean(0), np.cov(other.T))


def between(mean, covariance, other_mean, other_covariance):
    """|m1 - m2|² + tr C1 + tr C2 - 2 tr (C1·C2)^½, whose trace is the sum of the roots of its eigenvalues."""
    cross = np.sqrt(np.maximum(np.linalg.eigvals(covariance @ other_covariance).real, 0)).sum()
    return ((mean - other_mean) ** 2).sum() + np.trace(covariance) + np.trace(other_covariance) - 2 * cross


def both_solves(repetition, times):
    """The samples of one repetition and its fine solve, drawn by themselves."""
    seeds = TOY.fresh_seeds(repetition)
    return sample(ring(), times, seeds), sample(ring(), fine_timesteps(ring().noise, 20), seeds, "heun")


def test_fresh_seeds_are_those_of_every_repetition_in_turn():
    setting = replace(TOY, repetitions=3, seed=5)
    assert list(setting.fresh_seeds(0, 3)) == [seed for r in range(3) for seed in setting.fresh_seeds(r)]


@pytest.mark.parametrize("repetition", [0, 1])
def test_each_repetition_is_measured_on_its_own_noise(bench, repetition):
    made, fine = both_solves(repetition, COARSE)
    samples = bench.sample(COARSE)
    rmse = torch.sqrt(((made - fine).double() ** 2).mean(dim=1)).mean()
    assert bench.repeated(samples, "rmse")[repetition] == pytest.approx(float(rmse), rel=1e-5)
    assert bench.repeated(samples, "frechet_fine")[repetition] == pytest.approx(frechet(made, fine), rel=1e-4)


def test_columns_are_means_and_sample_deviations_over_repetitions(bench):
    samples = bench.sample(COARSE)
    columns, (one, other) = bench.columns(samples), bench.repeated(samples, "frechet_fine")
    assert columns["frechet_fine"] == pytest.approx((one + other) / 2)
    assert columns["frechet_fine_std"] == pytest.approx(abs(one - other) / np.sqrt(2))
    assert (columns["nfe"], columns["start"]) == (3, 999)
    assert columns["frechet_data"] is columns["frechet_data_std"] is None  # nobody knows the statistics of a ring
    assert bench.metrics == ["rmse", "frechet_fine"]


@pytest.mark.parametrize("metric", ["rmse", "frechet_fine"])
def test_a_gap_is_above_zero_where_the_first_is_farther(bench, metric):
    coarse, finer = bench.sample(COARSE), bench.sample(FINER)
    gap = bench.gap(coarse, finer, metric)
    if metric == "rmse":
        expected = (coarse.errors - finer.errors).mean()
    else:
        reference = bench.reference_features
        expected = frechet(coarse.features, reference) - frechet(finer.features, reference)
    assert gap["value"] == pytest.approx(expected, rel=1e-6)
    assert 0 < gap["low"] < gap["value"] < gap["high"]
    assert bench.gap(finer, coarse, metric)["high"] < 0
    nothing = bench.gap(finer, finer, metric)
    assert nothing["low"] == nothing["value"] == nothing["high"] == 0


def test_an_estimate_is_of_all_samples_together(bench):
    samples = bench.sample(COARSE)
    expected = {"rmse": samples.errors.mean(), "frechet_fine": frechet(samples.features, bench.reference_features)}
    for metric, value in expected.items():
        found = bench.estimate(samples, metric)
        assert found["value"] == pytest.approx(value, rel=1e-6)
        assert found["low"] < found["value"] < found["high"]
    error = 1.96 * samples.errors.std(ddof=1) / np.sqrt(len(samples.errors))
    assert bench.estimate(samples, "rmse")["high"] - expected["rmse"] == pytest.approx(error, rel=0.3)


def test_a_single_repetition_has_no_deviation():
    alone = Bench.of(replace(TOY, repetitions=1))
    assert alone.columns(alone.sample(COARSE))["rmse_std"] is None


def test_the_solver_is_the_one_asked_for(bench):
    seeds, fine = TOY.fresh_seeds(0, 2), bench.reference
    made = sample(ring(), FINER, seeds, "dpmpp-2m")
    expected = torch.sqrt(((made - fine).double() ** 2).mean(dim=1)).numpy()
    np.testing.assert_allclose(bench.sample(FINER, "dpmpp-2m").errors, expected, rtol=1e-5)
    assert not np.allclose(bench.sample(FINER, "ddim").errors, expected, rtol=1e-2)


def test_where_the_data_is_known_the_distance_to_it_is_measured():
    setting = Setting("fashion", (2,), trajectories=2, reference_steps=4, samples=12, repetitions=1, fine_steps=2)
    bench = Bench.of(setting)
    assert "frechet_data" in bench.metrics
    times = np.array([999.0, 400])
    found = bench.repeated(bench.sample(times), "frechet_data")[0]
    features = classifier_features()(sample(load_model("fashion"), times, setting.fresh_seeds(0))).numpy()
    data = load_statistics()
    expected = between(features.mean(0), np.cov(features.T), data.mean, data.covariance)
    assert found == pytest.approx(expected, rel=1e-3)


def test_the_same_setting_gives_the_same_bits(bench):
    again = Bench.of(TOY).sample(COARSE)
    np.testing.assert_array_equal(bench.sample(COARSE).errors, again.errors)
    torch.testing.assert_close(bench.sample(COARSE).features, again.features, rtol=0, atol=0)
