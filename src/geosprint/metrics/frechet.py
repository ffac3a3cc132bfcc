"""Fréchet distance between Gaussians: fitted to features, or known in closed form."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from geosprint.errors import GeometryError
from geosprint.metrics.features import check_features
from geosprint.models.gaussian import Gaussian
from geosprint.models.pretrained import FeatureStatistics
from geosprint.sampling import State, walk
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


def gaussian_frechet_distance(model: Gaussian, timesteps: ArrayLike, solver: Solver) -> float:
    """Of what a linear solver makes of standard noise to the model's own data, without sampling."""
    made, true = sampled_deviations(model, timesteps, solver), torch.sqrt(model.variances)
    return float(((made - true) ** 2).sum())


def sampled_deviations(model: Gaussian, timesteps: ArrayLike, solver: Solver) -> Tensor:
    """Standard deviation of every coordinate of the samples, from a linear solver's response to unit inputs."""
    return torch.sqrt((gaussian_responses(model, timesteps, solver) ** 2).sum(dim=0))


def gaussian_responses(model: Gaussian, timesteps: ArrayLike, solver: Solver) -> Tensor:
    """Every coordinate of a sample per unit of each input: the first noise, then every draw (inputs, *shape)."""
    if model.clip is not None:
        raise GeometryError("clipping is not linear: there is no closed form for a model that clips")
    variances, place = torch.unique(model.variances, return_inverse=True)  # equal coordinates behave alike
    coordinates = replace(model, variances=variances, in_cosine_basis=False)
    draws = 0

    def count_a_draw() -> Tensor:
        nonlocal draws
        draws += 1
        return torch.zeros(1, len(variances), dtype=torch.float64)

    start = torch.ones(1, len(variances), dtype=torch.float64)
    response = _end(walk(coordinates, start, timesteps, solver, count_a_draw))
    if draws:
        # Row 0 starts at one and draws nothing; row j starts at zero and draws one at its j-th draw.
        impulses = torch.eye(draws + 1, dtype=torch.float64)[:, :, None].expand(-1, -1, len(variances))
        inputs = iter(impulses)
        response = _end(walk(coordinates, next(inputs), timesteps, solver, lambda: next(inputs)))
    return response[:, place]


def _end(states: Iterator[State]) -> Tensor:
    """The last state of a walk, none of the others kept."""
    return deque(states, maxlen=1).pop().x


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
