from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy
import torch
from scipy import stats

from geosprint.baselines import baseline_schedule
from geosprint.comparison.measures import closed_forms, mean_root
from geosprint.errors import GeometryError
from geosprint.metrics.distances import gaussian_response
from geosprint.models.exact import Gaussian, ring
from geosprint.noise import CLEAN, ContinuousVP, DiscreteVP, Flow
from geosprint.sampling import sample
from geosprint.solvers import SOLVERS
from geosprint.teacher import fine_timesteps

TIMES = [999, 850, 600, 480, 300, 120, 40, 8]


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


def dense_end_covariance(covariance, noise, times, solver):
    """Covariance of what a solver makes of standard noise, with matrices written out step by step."""
    size = len(covariance)
    one = np.eye(size)

    def denoiser(t):
        a, s = noise.signal_and_sigma(t)
        return a * covariance @ np.linalg.inv(a**2 * covariance + s**2 * one)

    # The state is response·z, with z the standard noise that it started from.
    response = one
    before = h_before = None
    for t, t_next in itertools.pairwise([*times, CLEAN]):
        (a, s), (a1, s1) = noise.signal_and_sigma(t), noise.signal_and_sigma(t_next)
        x0 = denoiser(t) @ response
        eps = (response - a * x0) / s
        if solver in ("ddim", "euler"):
            response = a1 * x0 + s1 * eps
        elif solver == "heun":
            # In y = x / a and sigma = s / a the slope dy / dsigma is eps.
            landing = a1 * (response / a + (s1 / a1 - s / a) * eps)
            if s1 > 0:
                eps_there = (landing - a1 * denoiser(t_next) @ landing) / s1
                landing = a1 * (response / a + (s1 / a1 - s / a) * (eps + eps_there) / 2)
            response = landing
        else:
            h = math.inf if s1 == 0 else math.log(a1 / s1) - math.log(a / s)
            d = x0
            if before is not None and s1 > 0:
                r = h_before / h
                d = (1 + 1 / (2 * r)) * x0 - 1 / (2 * r) * before
            response = s1 / s * response - a1 * (math.exp(-h) - 1) * d
            before, h_before = x0, h
    return response @ response.T


def small_model(noise=None):
    return Gaussian.of_images((1, 3, 4), noise=noise or DiscreteVP.named())


def covariance_of(model):
    """The covariance of its pixels, the basis from scipy's inverse cosine transform."""
    height, width = model.shape[-2:]
    units = np.eye(height * width).reshape(-1, height, width)
    basis = scipy.fft.idctn(units, axes=(1, 2), norm="ortho").reshape(height * width, -1)
    return basis.T @ np.diag(model.variances.flatten().numpy()) @ basis


def distance_to_data(model, times, solver):
    return closed_forms(model, times, solver, 20)["frechet-data"]


@pytest.mark.parametrize("solver", ["ddim", "euler", "heun", "dpmpp-2m"])
def test_the_closed_form_is_that_of_dense_matrices(solver):
    model = small_model()
    data = covariance_of(model)
    made = dense_end_covariance(data, model.noise, TIMES, solver)
    expected = np.trace(made + data - 2 * scipy.linalg.sqrtm(made @ data).real)
    assert distance_to_data(model, TIMES, solver) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("solver", ["ddim", "heun", "dpmpp-2m"])
def test_the_closed_form_of_a_continuous_process_is_that_of_dense_matrices(solver):
    model = small_model(ContinuousVP())
    times = [1.0, 0.8, 0.5, 0.33, 0.1, 0.02]
    data = covariance_of(model)
    made = dense_end_covariance(data, model.noise, times, solver)
    expected = np.trace(made + data - 2 * scipy.linalg.sqrtm(made @ data).real)
    assert distance_to_data(model, times, solver) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("solver", [name for name in SOLVERS if name != "ddpm"])
def test_the_closed_form_agrees_with_samples(solver):
    model = Gaussian(torch.tensor([0.02, 0.2, 1.0, 3.0], dtype=torch.float64), in_cosine_basis=False)
    count = 6000
    samples = sample(model, TIMES, range(count), solver, batch=count).double()
    expected = gaussian_response(model, TIMES, SOLVERS[solver]).abs()
    # The deviation of a sample deviation is 1 / sqrt(2n) of it: 0.9 %, here allowed four times.
    np.testing.assert_allclose(samples.std(dim=0), expected, rtol=4 / math.sqrt(2 * count))
    distance = float(((expected - model.variances.sqrt()) ** 2).sum())
    assert distance_to_data(model, TIMES, solver) == pytest.approx(distance, rel=1e-9)


def test_samples_in_the_cosine_basis_have_the_deviations_of_their_coordinates():
    model = small_model()
    samples = sample(model, TIMES, range(6000), batch=6000).double().numpy()
    coordinates = scipy.fft.dctn(samples, axes=(2, 3), norm="ortho").std(axis=0)
    np.testing.assert_allclose(coordinates, gaussian_response(model, TIMES, SOLVERS["ddim"]).abs(), rtol=0.04)


@pytest.mark.parametrize(("solver", "order"), [("ddim", 1), ("euler", 1), ("heun", 2), ("dpmpp-2m", 2)])
def test_the_closed_form_tends_to_zero_with_more_steps(solver, order):
    noise = ContinuousVP(last=1e-5)
    model = small_model(noise)

    def distance(steps):
        times = noise.time_of_log_snr(np.linspace(noise.log_snr(1.0), 12, steps))
        times[0] = 1.0
        return distance_to_data(model, times, solver)

    found = [distance(steps) for steps in (10, 40, 160)]
    assert found[0] > found[1] > found[2]
    assert found[2] < 2e-3 * float(model.variances.sum())
    # A squared distance falls as the square of the error: by 16 for four times the steps at order 1.
    assert found[0] / found[1] > 4**order
    assert distance_to_data(model, [1.0], solver) > 0.5 * float(model.variances.sum())


def test_a_flow_has_a_closed_form_too():
    model = Gaussian(torch.tensor([0.3, 2.0], dtype=torch.float64), Flow(), in_cosine_basis=False)
    # One Euler step from pure noise lands on the mean of the data, so no deviation is left.
    assert distance_to_data(model, [1000.0], "euler") == pytest.approx(2.3)
    # Two steps: x1 = z/2 at s = 1/2, then x0 = (v/2) / (v/4 + 1/4)·x1 = v / (v + 1)·z.
    made = [0.3 / 1.3, 2 / 3]
    expected = sum((m - math.sqrt(v)) ** 2 for m, v in zip(made, (0.3, 2.0), strict=True))
    assert distance_to_data(model, [1000.0, 500.0], "euler") == pytest.approx(expected)


def test_a_solver_that_draws_noise_and_a_model_that_clips_have_no_closed_form():
    with pytest.raises(GeometryError, match="draws fresh noise"):
        gaussian_response(small_model(), TIMES, SOLVERS["ddpm"])
    with pytest.raises(GeometryError, match="clipping is not linear"):
        gaussian_response(replace(small_model(), clip=1.0), TIMES, SOLVERS["ddim"])
