"""Principal axes against the covariance, the rest against its slow definition, the flow against that of a Gaussian."""

import numpy as np
import pytest
import torch

from geosprint.models.exact import Gaussian
from geosprint.noise import CLEAN, DiscreteVP, Flow
from geosprint.principal_axes import PrincipalAxes


def drawn(count, dimensions, seed=0):
    random = np.random.default_rng(seed)
    return torch.from_numpy(random.normal(size=(count, dimensions)) * np.geomspace(3, 0.1, dimensions) + 1)


@pytest.mark.parametrize(("count", "dimensions"), [(12, 30), (12, 5), (12, 11), (12, 12), (2, 4)])
def test_axes_and_variances_are_those_of_the_covariance(count, dimensions):
    samples = drawn(count, dimensions)
    found = PrincipalAxes.of(samples)
    axes = found.axes.numpy()
    assert len(axes) == min(count - 1, dimensions)
    np.testing.assert_allclose(axes @ axes.T, np.eye(len(axes)), atol=1e-9)
    covariance = np.cov(samples.numpy().T)
    np.testing.assert_allclose(covariance @ axes.T, axes.T * found.variances.numpy(), atol=1e-9)
    assert (np.diff(found.variances) <= 0).all()


def slow_rest(samples):
    """Mean squared distance of each sample from the affine span of the others, per dimension outside of that."""
    found = []
    for i in range(len(samples)):
        others = np.delete(samples, i, axis=0)
        directions = (others - others.mean(axis=0)).T
        off = samples[i] - others.mean(axis=0)
        left = off - directions @ np.linalg.lstsq(directions, off, rcond=1e-9)[0]
        found.append((left @ left) / (len(off) - np.linalg.matrix_rank(directions, tol=1e-9)))
    return np.mean(found)


@pytest.mark.parametrize(("count", "dimensions"), [(12, 30), (12, 400), (3, 7), (2, 4)])
def test_the_rest_is_what_each_sample_has_outside_the_span_of_the_others(count, dimensions):
    samples = drawn(count, dimensions)
    assert PrincipalAxes.of(samples).rest == pytest.approx(slow_rest(samples.numpy()), rel=1e-6)


def test_a_sample_that_comes_twice_has_nothing_outside_the_span_of_the_others():
    samples = drawn(8, 30)
    again = torch.cat([samples, samples[:1]])
    found = PrincipalAxes.of(again)
    assert len(found.axes) == 7
    outside = [slow_rest(again.numpy()[[*range(8)]]) * 8 / 9]  # two of nine are at distance 0, the others as without it
    assert 0 < found.rest < outside[0] * 1.05


@pytest.mark.parametrize("samples", [torch.ones(5, 4), torch.ones(1, 4)])
def test_equal_samples_have_no_axis_and_no_direction_counts_more_than_another(samples):
    found, errors = PrincipalAxes.of(samples), torch.randn(3, 4)
    assert len(found.axes) == 0
    assert found.rest == 0
    assert torch.equal(found.at_end(errors, 0.6, 0.8), errors)


def test_where_the_samples_fill_the_space_there_is_no_rest():
    assert PrincipalAxes.of(drawn(12, 5)).rest == 0


@pytest.mark.parametrize(("noise", "t"), [(DiscreteVP.named(), 400.0), (DiscreteVP.named(), 999.0), (Flow(), 300.0)])
def test_errors_reach_the_end_as_the_flow_of_a_gaussian_carries_them(noise, t):
    variances = torch.tensor([4.0, 1.0, 0.3, 0.01, 0.01], dtype=torch.float64)
    model = Gaussian(variances, noise, in_cosine_basis=False)
    data = PrincipalAxes(torch.eye(5, dtype=torch.float64)[:3], variances[:3], 0.01)
    state, error = (torch.randn(6, 5, generator=torch.Generator().manual_seed(i)).double() for i in (0, 1))
    expected = model.solution(state + 1e-3 * error, t, CLEAN) - model.solution(state, t, CLEAN)
    torch.testing.assert_close(1e-3 * data.at_end(error, *noise.signal_and_sigma(t)), expected, rtol=1e-6, atol=1e-9)


def test_at_the_clean_end_all_of_an_error_is_left():
    error = drawn(4, 6)
    torch.testing.assert_close(PrincipalAxes.of(drawn(12, 6)).at_end(error, 1.0, 0.0), error)
