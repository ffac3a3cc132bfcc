from dataclasses import replace

import numpy as np
import pytest
import torch

from geosprint.metrics.features import classifier_features
from geosprint.models.exact import ring
from geosprint.models.networks import load_statistics
from geosprint.models.registry import load_model
from geosprint.paper.base import TOY, Setting
from geosprint.paper.measuring import Yardstick, and_list, fresh_seeds
from geosprint.sampling import sample
from geosprint.teacher import fine_timesteps

COARSE, FINER = np.array([999.0, 500, 0]), np.array([999.0, 800, 600, 400, 200, 0])


@pytest.fixture(scope="module")
def yardstick():
    return Yardstick.of(TOY)


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
    assert list(fresh_seeds(setting)) == [seed for r in range(3) for seed in setting.fresh_seeds(r)]


@pytest.mark.parametrize("repetition", [0, 1])
def test_each_repetition_is_measured_on_its_own_noise(yardstick, repetition):
    made, fine = both_solves(repetition, COARSE)
    judged = yardstick.judge(COARSE)
    rmse = torch.sqrt(((made - fine).double() ** 2).mean(dim=1)).mean()
    assert yardstick.repeated(judged, "rmse")[repetition] == pytest.approx(float(rmse), rel=1e-5)
    assert yardstick.repeated(judged, "frechet_fine")[repetition] == pytest.approx(frechet(made, fine), rel=1e-4)


def test_columns_are_means_and_sample_deviations_over_repetitions(yardstick):
    judged = yardstick.judge(COARSE)
    columns, (one, other) = yardstick.columns(judged), yardstick.repeated(judged, "frechet_fine")
    assert columns["frechet_fine"] == pytest.approx((one + other) / 2)
    assert columns["frechet_fine_std"] == pytest.approx(abs(one - other) / np.sqrt(2))
    assert (columns["nfe"], columns["start"]) == (3, 999)
    assert columns["frechet_data"] is columns["frechet_data_std"] is None  # nobody knows the statistics of a ring
    assert yardstick.metrics == ("rmse", "frechet_fine")


@pytest.mark.parametrize("metric", ["rmse", "frechet_fine"])
def test_a_gap_is_above_zero_where_the_first_is_farther(yardstick, metric):
    coarse, finer = yardstick.judge(COARSE), yardstick.judge(FINER)
    gap = yardstick.gap(coarse, finer, metric)
    if metric == "rmse":
        expected = (coarse.errors - finer.errors).mean()
    else:
        fine = yardstick.fine.features
        expected = frechet(coarse.features, fine) - frechet(finer.features, fine)
    assert gap["value"] == pytest.approx(expected, rel=1e-6)
    assert 0 < gap["low"] < gap["value"] < gap["high"]
    assert yardstick.gap(finer, coarse, metric)["high"] < 0
    nothing = yardstick.gap(finer, finer, metric)
    assert nothing["low"] == nothing["value"] == nothing["high"] == 0


def test_an_estimate_is_of_all_samples_together(yardstick):
    judged = yardstick.judge(COARSE)
    expected = {"rmse": judged.errors.mean(), "frechet_fine": frechet(judged.features, yardstick.fine.features)}
    for metric, value in expected.items():
        found = yardstick.estimate(judged, metric)
        assert found["value"] == pytest.approx(value, rel=1e-6)
        assert found["low"] < found["value"] < found["high"]
    error = 1.96 * judged.errors.std(ddof=1) / np.sqrt(len(judged.errors))
    assert yardstick.estimate(judged, "rmse")["high"] - expected["rmse"] == pytest.approx(error, rel=0.3)


def test_a_single_repetition_has_no_deviation():
    alone = Yardstick.of(replace(TOY, repetitions=1))
    assert alone.columns(alone.judge(COARSE))["rmse_std"] is None


def test_the_solver_is_the_one_asked_for(yardstick):
    seeds, fine = fresh_seeds(TOY), yardstick.fine.samples
    made = sample(ring(), FINER, seeds, "dpmpp-2m")
    expected = torch.sqrt(((made - fine).double() ** 2).mean(dim=1)).numpy()
    np.testing.assert_allclose(yardstick.judge(FINER, "dpmpp-2m").errors, expected, rtol=1e-5)
    assert not np.allclose(yardstick.judge(FINER, "ddim").errors, expected, rtol=1e-2)


def test_where_the_data_is_known_the_distance_to_it_is_measured():
    setting = Setting("fashion", (2,), trajectories=2, reference_steps=4, samples=12, repetitions=1, fine_steps=2)
    yardstick = Yardstick.of(setting)
    assert "frechet_data" in yardstick.metrics
    times = np.array([999.0, 400])
    found = yardstick.repeated(yardstick.judge(times), "frechet_data")[0]
    features = classifier_features()(sample(load_model("fashion"), times, setting.fresh_seeds(0))).numpy()
    data = load_statistics()
    expected = between(features.mean(0), np.cov(features.T), data.mean, data.covariance)
    assert found == pytest.approx(expected, rel=1e-3)


def test_the_same_setting_gives_the_same_bits(yardstick):
    again = Yardstick.of(TOY).judge(COARSE)
    np.testing.assert_array_equal(yardstick.judge(COARSE).errors, again.errors)
    torch.testing.assert_close(yardstick.judge(COARSE).features, again.features, rtol=0, atol=0)


def test_lists_are_read_aloud():
    assert [and_list([5]), and_list([5, 10]), and_list([5, 10, 20])] == ["5", "5 and 10", "5, 10 and 20"]
