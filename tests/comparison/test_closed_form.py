from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from geosprint.baselines import baseline_schedule
from geosprint.comparison.measures import closed_forms, mean_root
from geosprint.models.exact import Gaussian, ring
from geosprint.sampling import sample
from geosprint.teacher import fine_timesteps


def test_the_mean_root_of_one_square_is_the_mean_of_a_half_normal():
    assert mean_root(np.array([4.0])) == pytest.approx(2 * np.sqrt(2 / np.pi), rel=1e-6)


@pytest.mark.parametrize("count", [2, 7, 3072])
def test_the_mean_root_of_equal_squares_is_the_mean_of_a_chi_distribution(count):
    assert mean_root(np.full(count, 0.25)) == pytest.approx(0.5 * stats.chi(count).mean(), rel=1e-6)


def test_the_mean_root_of_unequal_squares_agrees_with_simulation():
    weights = np.array([5.0, 1.0, 0.2, 0.01])
    draws = np.sqrt(np.random.default_rng(0).standard_normal((400_000, 4)) ** 2 @ weights)
    assert mean_root(weights) == pytest.approx(draws.mean(), abs=4 * draws.std() / np.sqrt(len(draws)))


def test_nothing_has_no_root():
    assert mean_root(np.zeros(3)) == 0


@pytest.mark.parametrize("solver", ["ddim", "heun", "dpmpp-2m", "unipc"])
def test_the_exact_error_is_that_of_samples_from_the_same_noise(solver):
    model = Gaussian.of_images((1, 8, 8))
    times = baseline_schedule("uniform-trailing", model.noise, 6).timesteps
    seeds = range(4000)
    fine = sample(model, fine_timesteps(model.noise, 60), seeds, "heun", batch=4000)
    errors = (sample(model, times, seeds, solver, batch=4000) - fine).double().flatten(1).square().mean(dim=1).sqrt()
    exact = closed_forms(model, times, solver, 60)["rmse-exact"]
    assert exact == pytest.approx(float(errors.mean()), abs=4 * float(errors.std()) / np.sqrt(len(seeds)))


def test_the_exact_distance_to_the_data_is_that_of_the_samples_own_deviations():
    model = Gaussian(torch.tensor([2.0, 0.5, 0.1]).double(), in_cosine_basis=False)
    times = baseline_schedule("uniform-trailing", model.noise, 4).timesteps
    made = sample(model, times, range(40_000), batch=40_000).double().std(dim=0)
    exact = closed_forms(model, times, "ddim", 50)["frechet-data"]
    assert exact == pytest.approx(float(((made - model.variances.sqrt()) ** 2).sum()), rel=0.05)


def test_other_models_have_no_closed_form():
    assert closed_forms(ring(), baseline_schedule("quadratic", ring().noise, 4).timesteps, "ddim", 20) == {}
