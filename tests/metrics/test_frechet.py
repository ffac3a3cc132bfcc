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
)
from geosprint.models.networks import FeatureStatistics

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
