"""The measures against an independent implementation; in one file, because importing that takes seconds."""

import numpy as np
import pytest
import torch

from geosprint.estimates import decibels, endpoint_errors
from geosprint.metrics.distances import frechet_distance, kernel_distance

pytest.importorskip("torchmetrics")


def features(count, width, seed, offset=0.0):
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(width, width, generator=generator, dtype=torch.float64)
    return torch.randn(count, width, generator=generator, dtype=torch.float64) @ mixing + offset


def test_peak_signal_to_noise():
    from torchmetrics.functional.image import peak_signal_noise_ratio

    generator = torch.Generator().manual_seed(0)
    samples, reference = (torch.rand(5, 3, 4, 4, generator=generator) * 2 - 1 for _ in range(2))
    expected = peak_signal_noise_ratio(samples, reference, data_range=2.0, dim=(1, 2, 3), reduction="none")
    np.testing.assert_allclose(decibels(endpoint_errors(samples, reference)), expected, rtol=1e-6)


@pytest.mark.parametrize(("count", "width"), [(300, 6), (250, 40), (50, 64), (20, 64)])
def test_frechet_distance(count, width):
    from torchmetrics.image.fid import _compute_fid

    one, other = features(count, width, 1), features(count + 20, width, 2, 0.4)
    expected = _compute_fid(one.mean(0), torch.cov(one.T), other.mean(0), torch.cov(other.T))
    assert frechet_distance(one, other) == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize("offset", [0.0, 0.2])
def test_kernel_distance(offset):
    from torchmetrics.image.kid import poly_mmd

    one, other = features(50, 30, 1), features(50, 30, 2, offset)
    assert kernel_distance(one, other).value == pytest.approx(float(poly_mmd(one, other)), rel=1e-9)
