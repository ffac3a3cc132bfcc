"""Distances between sets of samples: Fréchet, kernel (KID) and sliced Wasserstein."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from geosprint.errors import GeometryError
from geosprint.estimates import Estimate
from geosprint.metrics.features import check_features
from geosprint.models.exact import Gaussian
from geosprint.models.networks import FeatureStatistics
from geosprint.sampling import walk
from geosprint.solvers import Solver


def frechet_distance(features: Tensor, other: Tensor) -> float:
    """Squared Fréchet distance between Gaussians fitted to two sets of features (samples, features)."""
    check_features(features, other, at_least=2)
    if max(len(features), len(other)) < features.shape[1]:
        return _frechet_of_few(features.double(), other.double())
    return frechet_between(*_moments(features), *_moments(other))


def frechet_to_statistics(features: Tensor, statistics: FeatureStatistics) -> float:
    """Squared Fréchet distance of features (samples, features) to a data set known by its mean and covariance."""
    mean, covariance = torch.from_numpy(statistics.mean), torch.from_numpy(statistics.covariance)
    if features.ndim != 2 or features.shape[1] != len(mean) or len(features) < 2:
        raise GeometryError(
            f"features must be at least 2 samples of the statistics' width {len(mean)}, got {tuple(features.shape)}"
        )
    return frechet_between(*_moments(features), mean, covariance)


def frechet_between(mean: Tensor, covariance: Tensor, other_mean: Tensor, other_covariance: Tensor) -> float:
    """|m1 - m2|² + tr(C1 + C2 - 2 (C1^½ C2 C1^½)^½), by symmetric eigen-decompositions in float64."""
    mean, covariance, other_mean, other_covariance = (
        part.double() for part in (mean, covariance, other_mean, other_covariance)
    )
    root = _symmetric_root(covariance)
    cross = torch.linalg.eigvalsh(root @ other_covariance @ root).clamp(min=0).sqrt().sum()
    shift = ((mean - other_mean) ** 2).sum()
    return float(shift + covariance.trace() + other_covariance.trace() - 2 * cross)


def gaussian_response(model: Gaussian, timesteps: ArrayLike, solver: Solver) -> Tensor:
    """What a deterministic solver makes of one unit of noise in each coordinate (*shape); samples are this times noise.

    It is linear in the noise, and coordinates do not mix.
    """
    if model.clip is not None:
        raise GeometryError("clipping is not linear: there is no closed form for a model that clips")
    variances, index = torch.unique(model.variances, return_inverse=True)  # equal coordinates behave alike
    coordinates = replace(model, variances=variances, in_cosine_basis=False)
    start = torch.ones(1, len(variances), dtype=torch.float64)
    states = walk(coordinates, start, timesteps, solver, _refuse_to_draw)
    return deque(states, maxlen=1).pop().x[0, index]


def _refuse_to_draw() -> Tensor:
    raise GeometryError("a solver that draws fresh noise has no single response; take a deterministic one")


def _frechet_of_few(features: Tensor, other: Tensor) -> float:
    """With C = A'A, the eigenvalues of C1·C2 are the squared singular values of A1·A2', small where samples are few.

    No matrix of (features, features) is formed, and no rounding of its null space is rooted.
    """
    roots = [(part - part.mean(dim=0)) / math.sqrt(len(part) - 1) for part in (features, other)]
    cross = torch.linalg.svdvals(roots[0] @ roots[1].T).sum()
    shift = ((features.mean(dim=0) - other.mean(dim=0)) ** 2).sum()
    return float(shift + (roots[0] ** 2).sum() + (roots[1] ** 2).sum() - 2 * cross)


def _moments(features: Tensor) -> tuple[Tensor, Tensor]:
    features = features.double()
    return features.mean(dim=0), torch.atleast_2d(torch.cov(features.T))


def _symmetric_root(matrix: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.clamp(min=0).sqrt()) @ vectors.T


FEWEST = 4  # below it the spread of pairs of samples is unknown


def kernel_distance(features: Tensor, other: Tensor) -> Estimate:
    """KID of two independent sets of features: squared MMD with (x·y/d + 1)³ (Bińkowski et al. 2018, Eq. 4).

    It has no bias, so it may be negative.
    """
    check_features(features, other, at_least=FEWEST)
    features, other = features.double(), other.double()
    within = _without_diagonal(_kernel(features, features)), _without_diagonal(_kernel(other, other))
    between = _kernel(features, other)
    n, m = between.shape
    inside = sum(float(part.sum()) / (len(part) * (len(part) - 1)) for part in within)
    value = inside - 2 * float(between.sum()) / (n * m)
    return Estimate.normal(value, math.sqrt(_variance(within, between)))


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


def sliced_wasserstein(samples: Tensor, other: Tensor, projections: int = 500, seed: int = 0) -> float:
    """Root mean square, over random directions, of the Wasserstein-2 distance of projections (Bonneel et al. 2015)."""
    check_features(samples, other, at_least=1)
    if projections < 1:
        raise GeometryError(f"a sliced distance needs at least 1 projection, got {projections}")
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(projections, samples.shape[1], dtype=torch.float64, generator=generator)
    directions = drawn / drawn.norm(dim=1, keepdim=True)  # uniform on the sphere
    squares = _squared_on_lines(samples.double() @ directions.T, other.double() @ directions.T)
    return float(squares.mean().sqrt())


def _squared_on_lines(places: Tensor, others: Tensor) -> Tensor:
    """Exact squared Wasserstein-2 distance of each column: the quantile functions are constant between these levels."""
    n, m = len(places), len(others)
    # Levels i / n and j / m in units of 1 / (n·m): whole numbers, so equal levels meet exactly.
    levels = torch.unique(torch.cat([torch.arange(n + 1) * m, torch.arange(m + 1) * n]))
    starts, weights = levels[:-1], levels.diff().double() / (n * m)
    gaps = places.sort(dim=0).values[starts // m] - others.sort(dim=0).values[starts // n]
    return weights @ gaps**2
