import itertools
import math

import numpy as np
import pytest
import scipy.fft
import scipy.linalg
import torch

from geosprint.errors import GeometryError
from geosprint.metrics.distances import (
    frechet_between,
    frechet_distance,
    frechet_to_statistics,
    gaussian_frechet_distance,
    sampled_deviations,
)
from geosprint.models.exact import Gaussian
from geosprint.models.networks import FeatureStatistics
from geosprint.noise import CLEAN, ContinuousVP, DiscreteVP, Flow
from geosprint.sampling import sample
from geosprint.solvers import SOLVERS, solver_named

TIMES = [999, 850, 600, 480, 300, 120, 40, 8]


def features(count=200, width=6, seed=0, offset=0.0):
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(width, width, generator=generator, dtype=torch.float64)
    return torch.randn(count, width, generator=generator, dtype=torch.float64) @ mixing + offset


def textbook(one, other):
    """|m1 - m2|² + tr(C1 + C2 - 2 sqrtm(C1 C2)), as the FID was first written."""
    one, other = one.numpy(), other.numpy()
    c1, c2 = np.atleast_2d(np.cov(one, rowvar=False)), np.atleast_2d(np.cov(other, rowvar=False))
    root = scipy.linalg.sqrtm(c1 @ c2).real
    return ((one.mean(0) - other.mean(0)) ** 2).sum() + np.trace(c1 + c2 - 2 * root)


@pytest.mark.parametrize(("width", "offset"), [(1, 0.5), (6, 0.0), (6, 2.0), (20, -0.3)])
def test_frechet_distance_is_the_textbook_formula(width, offset):
    one, other = features(300, width, 1), features(250, width, 2, offset)
    assert frechet_distance(one, other) == pytest.approx(textbook(one, other), rel=1e-6)


def test_frechet_distance_of_float32_features_is_computed_in_float64():
    one, other = features(seed=1).float() + 100, features(seed=2).float() + 100
    assert frechet_distance(one, other) == pytest.approx(textbook(one.double(), other.double()), rel=1e-6)


def test_frechet_distance_by_hand_on_a_line():
    one = torch.tensor([[-1.0], [1.0]])  # variance 2
    other = torch.tensor([[1.0], [7.0]])  # mean 4, variance 18
    assert frechet_distance(one, other) == pytest.approx(16 + (math.sqrt(18) - math.sqrt(2)) ** 2)


def test_frechet_distance_of_commuting_covariances_is_that_of_deviations():
    one, other = torch.tensor([1.0, 4.0, 9.0]).double(), torch.tensor([4.0, 4.0, 0.25]).double()
    zero = torch.zeros(3, dtype=torch.float64)
    assert frechet_between(zero, torch.diag(one), zero + 1, torch.diag(other)) == pytest.approx(3 + 1 + 0 + 2.5**2)


def test_frechet_distance_is_symmetric_and_zero_to_itself():
    one, other = features(seed=1), features(seed=2, offset=1)
    assert frechet_distance(one, other) == pytest.approx(frechet_distance(other, one), rel=1e-9)
    assert frechet_distance(one, one) == pytest.approx(0, abs=1e-9 * float(one.var()))


def test_frechet_distance_does_not_change_under_rotation_and_translation():
    one, other = features(seed=1), features(seed=2, offset=1)
    rotation = torch.linalg.qr(features(6, 6, seed=3)).Q
    moved = frechet_distance(one @ rotation + 5, other @ rotation + 5)
    assert moved == pytest.approx(frechet_distance(one, other), rel=1e-9)


def test_frechet_distance_grows_with_the_square_of_scale():
    one, other = features(seed=1), features(seed=2, offset=1)
    assert frechet_distance(3 * one, 3 * other) == pytest.approx(9 * frechet_distance(one, other), rel=1e-9)


def test_frechet_distance_of_a_shifted_copy_is_the_squared_shift():
    one = features()
    shift = torch.tensor([1.0, -2.0, 0.0, 0.5, 0.0, 3.0])
    assert frechet_distance(one, one + shift) == pytest.approx(float((shift**2).sum()), rel=1e-8)


def test_fewer_samples_than_features_are_no_obstacle():
    one, other = features(5, 12, 1), features(7, 12, 2)
    # sqrtm of a singular product is inaccurate; the eigenvalues of C1·C2 are the same without a root of a matrix.
    c1, c2 = np.cov(one.numpy(), rowvar=False), np.cov(other.numpy(), rowvar=False)
    cross = np.sqrt(np.clip(scipy.linalg.eigvals(c1 @ c2).real, 0, None)).sum()
    expected = ((one.mean(0) - other.mean(0)) ** 2).sum() + np.trace(c1) + np.trace(c2) - 2 * cross
    assert frechet_distance(one, other) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.ones(5, 3), torch.ones(5, 4)),
        (torch.ones(1, 3), torch.ones(5, 3)),
        (torch.ones(5, 3, 2), torch.ones(5, 3, 2)),
        (torch.ones(5), torch.ones(5)),
    ],
)
def test_features_that_do_not_fit_are_refused(one, other):
    with pytest.raises(GeometryError, match="at least 2 samples of equal width"):
        frechet_distance(one, other)


@pytest.mark.parametrize(("count", "other_count", "width"), [(5, 7, 12), (20, 11, 60), (29, 29, 30), (2, 2, 3)])
def test_few_samples_take_another_way_to_the_same_distance(count, other_count, width):
    one, other = features(count, width, 1), features(other_count, width, 2, 0.3)
    moments = (one.mean(0), torch.cov(one.T), other.mean(0), torch.cov(other.T))
    assert frechet_distance(one, other) == pytest.approx(frechet_between(*moments), rel=1e-6)


def test_a_few_samples_of_many_features_shifted_are_the_squared_shift_apart():
    one = torch.randn(256, 3072, generator=torch.Generator().manual_seed(5))
    shift = torch.linspace(-0.1, 0.2, 3072)
    # The variance is 3072 and the shift's square 30.7: float32 of the sum rounds the latter at 1e-6.
    assert frechet_distance(one, one + shift) == pytest.approx(float((shift.double() ** 2).sum()), rel=1e-5)


def test_a_few_samples_of_many_features_scaled_are_as_far_as_their_deviations():
    one = torch.randn(100, 3072, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    centred = one - one.mean(0)
    # C2 = 9·C1, so the distance is tr(C1)·(3 - 1)².
    expected = 4 * float((centred**2).sum()) / 99
    assert frechet_distance(centred, 3 * centred) == pytest.approx(expected, rel=1e-10)


def test_the_distance_to_statistics_is_that_to_the_samples_they_were_taken_from():
    one, other = features(80, 6, 1), features(200, 6, 2, 0.5)
    statistics = FeatureStatistics(other.mean(0).numpy(), np.cov(other.numpy(), rowvar=False), 200)
    assert frechet_to_statistics(one, statistics) == pytest.approx(textbook(one, other), rel=1e-6)
    with pytest.raises(GeometryError, match=r"width 6, got \(80, 5\)"):
        frechet_to_statistics(one[:, :5], statistics)
    with pytest.raises(GeometryError, match=r"at least 2 samples.*\(1, 6\)"):
        frechet_to_statistics(one[:1], statistics)


# Closed form, for Gaussians.


def dense_end_covariance(covariance, noise, times, solver, eta=0.0):
    """Covariance of what a solver makes of standard noise, with matrices written out step by step."""
    size = len(covariance)
    one = np.eye(size)

    def denoiser(t):
        a, s = noise.signal_and_sigma(t)
        return a * covariance @ np.linalg.inv(a**2 * covariance + s**2 * one)

    # The state is response·z, with z all standard noise that ever entered.
    response = one
    before = h_before = None
    for t, t_next in itertools.pairwise([*times, CLEAN]):
        (a, s), (a1, s1) = noise.signal_and_sigma(t), noise.signal_and_sigma(t_next)
        x0 = denoiser(t) @ response
        eps = (response - a * x0) / s
        if solver in ("ddim", "euler", "ddpm"):
            fresh = 0.0
            if s1 > 0 and (solver == "ddpm" or eta):
                beta = 1 - a**2 / a1**2
                fresh = (1.0 if solver == "ddpm" else eta) * math.sqrt(s1**2 / s**2 * beta)
            response = np.hstack([a1 * x0 + math.sqrt(s1**2 - fresh**2) * eps, fresh * one])
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


@pytest.mark.parametrize(
    ("solver", "eta"),
    [("ddim", 0.0), ("ddim", 0.5), ("ddim", 1.0), ("euler", 0.0), ("ddpm", 0.0), ("heun", 0.0), ("dpmpp-2m", 0.0)],
)
def test_the_closed_form_is_that_of_dense_matrices(solver, eta):
    model = small_model()
    data = covariance_of(model)
    made = dense_end_covariance(data, model.noise, TIMES, solver, eta)
    expected = np.trace(made + data - 2 * scipy.linalg.sqrtm(made @ data).real)
    assert gaussian_frechet_distance(model, TIMES, solver_named(solver, eta)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("solver", ["ddim", "heun", "dpmpp-2m"])
def test_the_closed_form_of_a_continuous_process_is_that_of_dense_matrices(solver):
    model = small_model(ContinuousVP())
    times = [1.0, 0.8, 0.5, 0.33, 0.1, 0.02]
    data = covariance_of(model)
    made = dense_end_covariance(data, model.noise, times, solver)
    expected = np.trace(made + data - 2 * scipy.linalg.sqrtm(made @ data).real)
    assert gaussian_frechet_distance(model, times, SOLVERS[solver]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_closed_form_agrees_with_samples(solver):
    model = Gaussian(torch.tensor([0.02, 0.2, 1.0, 3.0], dtype=torch.float64), in_cosine_basis=False)
    count = 6000
    samples = sample(model, TIMES, range(count), solver, batch=count).double()
    expected = sampled_deviations(model, TIMES, SOLVERS[solver])
    # The deviation of a sample deviation is 1 / sqrt(2n) of it: 0.9 %, here allowed four times.
    np.testing.assert_allclose(samples.std(dim=0), expected, rtol=4 / math.sqrt(2 * count))
    distance = float(((expected - model.variances.sqrt()) ** 2).sum())
    assert gaussian_frechet_distance(model, TIMES, SOLVERS[solver]) == pytest.approx(distance, rel=1e-9)


def test_samples_in_the_cosine_basis_have_the_deviations_of_their_coordinates():
    model = small_model()
    samples = sample(model, TIMES, range(6000), batch=6000).double().numpy()
    coordinates = scipy.fft.dctn(samples, axes=(2, 3), norm="ortho").std(axis=0)
    np.testing.assert_allclose(coordinates, sampled_deviations(model, TIMES, SOLVERS["ddim"]), rtol=0.04)


@pytest.mark.parametrize(("solver", "order"), [("ddim", 1), ("ddpm", 1), ("euler", 1), ("heun", 2), ("dpmpp-2m", 2)])
def test_the_closed_form_tends_to_zero_with_more_steps(solver, order):
    noise = ContinuousVP(last=1e-5)
    model = small_model(noise)

    def distance(steps):
        times = noise.time_of_log_snr(np.linspace(noise.log_snr(1.0), 12, steps))
        times[0] = 1.0
        return gaussian_frechet_distance(model, times, SOLVERS[solver])

    found = [distance(steps) for steps in (10, 40, 160)]
    assert found[0] > found[1] > found[2]
    assert found[2] < 2e-3 * float(model.variances.sum())
    # A squared distance falls as the square of the error: by 16 for four times the steps at order 1.
    assert found[0] / found[1] > 4**order
    assert gaussian_frechet_distance(model, [1.0], SOLVERS[solver]) > 0.5 * float(model.variances.sum())


def test_a_flow_has_a_closed_form_too():
    model = Gaussian(torch.tensor([0.3, 2.0], dtype=torch.float64), Flow(), in_cosine_basis=False)
    # One Euler step from pure noise lands on the mean of the data, so no deviation is left.
    assert gaussian_frechet_distance(model, [1000.0], SOLVERS["euler"]) == pytest.approx(2.3)
    # Two steps: x1 = z/2 at s = 1/2, then x0 = (v/2) / (v/4 + 1/4)·x1 = v / (v + 1)·z.
    made = [0.3 / 1.3, 2 / 3]
    expected = sum((m - math.sqrt(v)) ** 2 for m, v in zip(made, (0.3, 2.0), strict=True))
    assert gaussian_frechet_distance(model, [1000.0, 500.0], SOLVERS["euler"]) == pytest.approx(expected)
