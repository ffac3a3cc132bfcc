"""Fréchet distance between Gaussians: fitted to features, or known in closed form."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from geosprint.errors import GeometryError
from geosprint.models.gaussian import Gaussian
from geosprint.sampling import State, walk
from geosprint.solvers import Solver


def frechet_distance(features: Tensor, other: Tensor) -> float:
    """Squared Fréchet distance between Gaussians fitted to two sets of features (samples, features)."""
    if (
        features.ndim != 2
        or other.ndim != 2
        or features.shape[1] != other.shape[1]
        or min(len(features), len(other)) < 2
    ):
        raise GeometryError(
            "features must be two sets of at least 2 samples of equal width, "
            f"got {tuple(features.shape)} and {tuple(other.shape)}"
        )
    return frechet_between(*_moments(features), *_moments(other))


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
    return torch.sqrt((response**2).sum(dim=0))[place]


def _end(states: Iterator[State]) -> Tensor:
    """The last state of a walk, none of the others kept."""
    return deque(states, maxlen=1).pop().x


def _moments(features: Tensor) -> tuple[Tensor, Tensor]:
    features = features.double()
    return features.mean(dim=0), torch.atleast_2d(torch.cov(features.T))


def _symmetric_root(matrix: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.clamp(min=0).sqrt()) @ vectors.T
