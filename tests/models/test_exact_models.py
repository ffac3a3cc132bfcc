import math

import numpy as np
import pytest
import scipy.fft
import torch

from geosprint.models.exact import Gaussian, Mixture, digit_images, digits, ring
from geosprint.noise import CLEAN, ContinuousVP, DiscreteVP, Flow
from geosprint.sampling import sample

NOISES = {"vp": (DiscreteVP.named(), 430), "continuous": (ContinuousVP(), 0.35), "flow": (Flow(shift=3), 600.0)}
every_noise = pytest.mark.parametrize(("noise", "t"), NOISES.values(), ids=NOISES.keys())


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dense_covariance(model):
    """The covariance of the pixels of one channel, its basis from scipy's inverse cosine transform."""
    height, width = model.shape[-2:]
    units = np.eye(height * width).reshape(-1, height, width)
    basis = scipy.fft.idctn(units, axes=(1, 2), norm="ortho").reshape(height * width, -1)  # row i: image of frequency i
    return basis.T @ np.diag(model.variances[0].flatten().numpy()) @ basis


# The Gaussian.


@every_noise
def test_the_gaussian_denoiser_is_the_bayes_posterior_mean_with_a_dense_covariance(noise, t):
    model = Gaussian.of_images((2, 3, 4), noise=noise)
    a, s = noise.signal_and_sigma(t)
    covariance = dense_covariance(model)
    x = normal(5, 2, 3, 4)
    gain = a * covariance @ np.linalg.inv(a**2 * covariance + s**2 * np.eye(12))
    expected = (x.numpy().reshape(5, 2, 12) @ gain.T).reshape(5, 2, 3, 4)
    np.testing.assert_allclose(model(x, t).numpy(), expected, rtol=1e-9, atol=1e-12)


def test_the_gaussian_denoiser_without_a_basis_shrinks_each_coordinate():
    noise = DiscreteVP(np.array([0.8, 0.36]))
    model = Gaussian(torch.tensor([4.0, 1.0], dtype=torch.float64), noise, in_cosine_basis=False)
    # a = 0.6, s² = 0.64: gains 0.6·4 / (0.36·4 + 0.64) and 0.6·1 / (0.36 + 0.64).
    expected = torch.tensor([[2.4 / 2.08, 0.6]], dtype=torch.float64)
    torch.testing.assert_close(model(torch.ones(1, 2, dtype=torch.float64), 1), expected)


def test_image_variances_fall_as_the_square_of_the_frequency_and_have_the_asked_mean():
    model = Gaussian.of_images((3, 8, 16), decay=2.0, deviation=0.5)
    assert model.shape == (3, 8, 16)
    assert float(model.variances.mean()) == pytest.approx(0.25)
    assert float(model.variances[0, 0, 0] / model.variances[0, 3, 4]) == pytest.approx(36)  # frequency 1 + |(3, 4)|
    assert float(model.variances[2, 0, 1] / model.variances[2, 0, 3]) == pytest.approx((4 / 2) ** 2)


def test_pixels_have_the_asked_deviation_on_average():
    covariance = dense_covariance(Gaussian.of_images((1, 6, 5), deviation=0.7))
    assert np.trace(covariance) / 30 == pytest.approx(0.49)


def test_the_solution_satisfies_the_probability_flow_ode_of_a_variance_preserving_process():
    noise = ContinuousVP()
    model = Gaussian.of_images((1, 3, 4), noise=noise)
    x, t, h = normal(2, 1, 3, 4), 0.4, 1e-5
    kept = math.exp(-(0.1 * t + 19.9 * t**2 / 2))
    covariance = kept * dense_covariance(model) + (1 - kept) * np.eye(12)
    score = -(x.numpy().reshape(2, 12) @ np.linalg.inv(covariance)).reshape(2, 1, 3, 4)
    velocity = -(0.1 + 19.9 * t) / 2 * (x.numpy() + score)
    difference = (model.solution(x, t, t + h) - model.solution(x, t, t - h)).numpy() / (2 * h)
    np.testing.assert_allclose(difference, velocity, rtol=1e-6, atol=1e-7)


def test_the_solution_satisfies_the_ode_of_a_flow():
    model = Gaussian.of_images((1, 3, 4), noise=Flow(timesteps=1))
    x, t, h = normal(2, 1, 3, 4), 0.6, 1e-6
    x0 = model(x, t)
    velocity = (x - x0) / t  # eps - x0 = (x - (1 - t)·x0) / t - x0
    difference = (model.solution(x, t, t + h) - model.solution(x, t, t - h)) / (2 * h)
    torch.testing.assert_close(difference, velocity, rtol=1e-6, atol=1e-7)


@every_noise
def test_the_solution_starts_where_it_is_and_can_be_cut_in_two(noise, t):
    model = Gaussian.of_images((1, 4, 4), noise=noise)
    x = normal(3, 1, 4, 4)
    torch.testing.assert_close(model.solution(x, t, t), x)
    torch.testing.assert_close(model.solution(model.solution(x, noise.first, t), t), model.solution(x, noise.first))


def test_the_solution_carries_noise_to_the_data_distribution():
    noise = DiscreteVP.named("scaled_linear", zero_terminal_snr=True)
    model = Gaussian.of_images((1, 3, 3), noise=noise)
    units = torch.eye(9, dtype=torch.float64).reshape(9, 1, 3, 3)
    made = model.solution(units, 999, CLEAN).reshape(9, 9).numpy()
    np.testing.assert_allclose(made.T @ made, dense_covariance(model), atol=1e-12)


# The mixture.


def log_density(model, x, t):
    """Of the noised mixture, mode by mode, in plain torch."""
    a, s = model.noise.signal_and_sigma(t)
    variance = a**2 * model.deviation**2 + s**2
    squares = ((x.flatten(1)[:, None] - a * model.means.flatten(1)[None]) ** 2).sum(dim=2)
    return torch.logsumexp(-squares / (2 * variance), dim=1)


@every_noise
def test_the_mixture_denoiser_obeys_tweedie(noise, t):
    model = ring(deviation=0.2, noise=noise)
    x = normal(20, 2, seed=1).requires_grad_()
    (score,) = torch.autograd.grad(log_density(model, x, t).sum(), x)
    a, s = noise.signal_and_sigma(t)
    torch.testing.assert_close(model(x, t).detach(), ((x + s**2 * score) / a).detach(), rtol=1e-8, atol=1e-9)


def test_the_denoiser_of_the_digits_obeys_tweedie():
    model, t = digits(), 300
    x = (model.means[:3] * 0.7 + 0.5 * normal(3, 1, 8, 8)).requires_grad_()
    (score,) = torch.autograd.grad(log_density(model, x, t).sum(), x)
    a, s = model.noise.signal_and_sigma(t)
    torch.testing.assert_close(model(x, t).detach(), ((x + s**2 * score) / a).detach(), rtol=1e-7, atol=1e-8)


@every_noise
def test_the_mixture_denoiser_is_the_posterior_mean_by_quadrature_on_a_line(noise, t):
    means = torch.tensor([[-1.0], [0.2], [1.5]], dtype=torch.float64)
    model = Mixture(means, 0.25, noise)
    a, s = noise.signal_and_sigma(t)
    clean = np.linspace(-5, 6, 20_001)
    prior = sum(np.exp(-((clean - m) ** 2) / (2 * 0.25**2)) for m in (-1.0, 0.2, 1.5))
    for x in (-2.0, -0.3, 0.0, 0.9, 2.4):
        weight = prior * np.exp(-((x - a * clean) ** 2) / (2 * s**2))
        expected = np.trapezoid(weight * clean, clean) / np.trapezoid(weight, clean)
        assert model(torch.tensor([[x]], dtype=torch.float64), t).item() == pytest.approx(expected, abs=1e-8)


def test_the_mixture_denoiser_is_the_posterior_mean_by_quadrature_in_the_plane():
    model, t = ring(modes=5, deviation=0.3), 350
    a, s = model.noise.signal_and_sigma(t)
    axis = np.linspace(-3, 3, 601)
    clean = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    angles = 2 * np.pi * np.arange(5) / 5
    prior = sum(np.exp(-((clean - [np.cos(v), np.sin(v)]) ** 2).sum(-1) / (2 * 0.3**2)) for v in angles)
    for x in ([0.4, -0.9], [-1.1, 0.1], [0.05, 0.0]):
        weight = prior * np.exp(-((np.array(x) - a * clean) ** 2).sum(-1) / (2 * s**2))
        expected = (weight[..., None] * clean).sum((0, 1)) / weight.sum()
        found = model(torch.tensor([x], dtype=torch.float64), t)[0].numpy()
        np.testing.assert_allclose(found, expected, atol=1e-7)


def test_a_mixture_of_one_mode_is_a_gaussian_about_it():
    noise, t = DiscreteVP.named(), 500
    mean = torch.tensor([[0.5, -1.0]], dtype=torch.float64)
    a, _ = noise.signal_and_sigma(t)
    x = normal(4, 2)
    about_zero = Gaussian(torch.full((2,), 0.09, dtype=torch.float64), noise, in_cosine_basis=False)
    torch.testing.assert_close(Mixture(mean, 0.3, noise)(x, t), mean + about_zero(x - a * mean, t))


def test_the_ring_has_its_modes_on_the_unit_circle_at_equal_angles():
    means = ring(modes=4).means
    expected = torch.tensor([[1, 0], [0, 1], [-1, 0], [0, -1]], dtype=torch.float64)
    torch.testing.assert_close(means, expected, atol=1e-12, rtol=0)


def test_samples_of_the_ring_lie_on_its_modes_evenly_and_with_their_deviation():
    model = ring()
    points = sample(model, np.arange(995.0, -1, -5), range(800), batch=800).double()
    distances = torch.cdist(points, model.means)
    nearest, mode = distances.min(dim=1)
    counts = torch.bincount(mode, minlength=8)
    assert counts.min() > 65  # 100 expected, deviation 9.4
    assert counts.max() < 135
    assert float((nearest**2).mean() / 2) ** 0.5 == pytest.approx(0.1, rel=0.08)


def test_far_from_every_mode_the_denoiser_stays_finite():
    model = digits()
    for t in (0, 500, 999):
        assert torch.isfinite(model(torch.full((1, 1, 8, 8), 50.0), t)).all()


# The digits.


def test_the_digits_are_the_published_data_set():
    images, labels = digit_images()
    assert images.shape == (1797, 1, 8, 8)
    assert labels.shape == (1797,)
    assert torch.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    raw = (images + 1) * 8
    assert torch.equal(raw, raw.round())
    assert (raw.min(), raw.max()) == (0, 16)
    # The first digit of the set, a zero, as its documentation prints it.
    assert labels[0] == 0
    assert raw[0, 0, 0].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]
    assert raw[0, 0, 1].tolist() == [0, 0, 13, 15, 10, 15, 5, 0]
    assert raw[0, 0, 7].tolist() == [0, 0, 6, 13, 10, 0, 0, 0]


def test_samples_of_the_digits_are_data_plus_the_kernel():
    model = digits()
    samples = sample(model, np.arange(990.0, -1, -10), range(24)).double()
    nearest = torch.cdist(samples.flatten(1), model.means.flatten(1)).min(dim=1).values / 8  # per pixel
    assert nearest.min() > 0.06
    assert nearest.max() < 0.14
    assert float(nearest.mean()) == pytest.approx(0.1, abs=0.015)


def test_an_ideal_denoiser_returns_an_image_that_is_hardly_noised():
    images, _ = digit_images()
    model = digits()
    torch.testing.assert_close(model(images[:5] * model.noise.signal_and_sigma(0)[0], 0), images[:5], atol=1e-3, rtol=0)
