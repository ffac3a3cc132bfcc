"""Kernel distance: how far two sets of features are apart, without bias at any number of samples."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from geosprint.metrics.features import check_features

FEWEST = 4  # below it the spread of pairs of samples cannot be told


@dataclass(frozen=True)
class KernelDistance:
    """An unbiased squared distance, which may be negative, and its standard error."""

    value: float
    standard_error: float


def kernel_distance(features: Tensor, other: Tensor) -> KernelDistance:
    """KID of two independent sets of features: squared MMD with (x·y/d + 1)³ (Bińkowski et al. 2018, Eq. 4)."""
    check_features(features, other, at_least=FEWEST)
    features, other = features.double(), other.double()
    within = _without_diagonal(_kernel(features, features)), _without_diagonal(_kernel(other, other))
    between = _kernel(features, other)
    n, m = between.shape
    inside = sum(float(part.sum()) / (len(part) * (len(part) - 1)) for part in within)
    value = inside - 2 * float(between.sum()) / (n * m)
    return KernelDistance(value, math.sqrt(_variance(within, between)))


def _variance(within: tuple[Tensor, Tensor], between: Tensor) -> float:
    """Of the estimate: the part that single samples cause and the part that pairs cause.

    A jackknife counts the first once and the second twice (Efron and Stein 1981), and between equal distributions the
    second is all there is. So the second is also estimated by itself.
    """
    n, m = between.shape
    pairs = (
        2 / (n * (n - 1)) * _spread_within(within[0])
        + 2 / (m * (m - 1)) * _spread_within(within[1])
        + 4 / (n * m) * _spread_between(between)
    )
    jackknife = _left_out_spread(within[0], between) + _left_out_spread(within[1], between.T)
    return max(jackknife - 2 * pairs, 0.0) + pairs


def _left_out_spread(inside: Tensor, between: Tensor) -> float:
    """The jackknife's variance: of the estimates that leave out one sample, that is one row, each."""
    n, m = between.shape
    left = (inside.sum() - 2 * inside.sum(dim=1)) / ((n - 1) * (n - 2))
    left -= 2 * (between.sum() - between.sum(dim=1)) / ((n - 1) * m)
    return (n - 1) / n * float(((left - left.mean()) ** 2).sum())


def _spread_within(kernel: Tensor) -> float:
    """Mean square of the kernel centred in both samples, without bias by U-centring (Székely and Rizzo 2014)."""
    n = len(kernel)
    rows = kernel.sum(dim=1) / (n - 2)
    centred = kernel - rows[:, None] - rows[None, :] + kernel.sum() / ((n - 1) * (n - 2))
    return float((_without_diagonal(centred) ** 2).sum()) / (n * (n - 3))


def _spread_between(kernel: Tensor) -> float:
    """The same for pairs of one sample of each set."""
    n, m = kernel.shape
    centred = kernel - kernel.mean(dim=0, keepdim=True) - kernel.mean(dim=1, keepdim=True) + kernel.mean()
    return float((centred**2).sum()) / ((n - 1) * (m - 1))


def _kernel(features: Tensor, other: Tensor) -> Tensor:
    return (features @ other.T / features.shape[1] + 1) ** 3


def _without_diagonal(matrix: Tensor) -> Tensor:
    return matrix - torch.diag(matrix.diagonal())
