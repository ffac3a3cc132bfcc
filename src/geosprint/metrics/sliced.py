"""Sliced Wasserstein distance: for points of few dimensions, where optimal transport on lines says enough."""

from __future__ import annotations

import torch
from torch import Tensor

from geosprint.errors import GeometryError
from geosprint.metrics.features import check_features


def sliced_wasserstein(samples: Tensor, other: Tensor, projections: int = 500, seed: int = 0) -> float:
    """Root mean square, over random directions, of the Wasserstein-2 distance of projections (Bonneel et al. 2015)."""
    check_features(samples, other, at_least=1)
    if projections < 1:
        raise GeometryError(f"a sliced distance needs at least 1 projection, got {projections}")
    directions = _directions(projections, samples.shape[1], seed)
    squares = _squared_on_lines(samples.double() @ directions.T, other.double() @ directions.T)
    return float(squares.mean().sqrt())


def _directions(count: int, width: int, seed: int) -> Tensor:
    """Unit vectors, uniform on the sphere (count, width)."""
    drawn = torch.randn(count, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return drawn / drawn.norm(dim=1, keepdim=True)


def _squared_on_lines(places: Tensor, others: Tensor) -> Tensor:
    """Exact squared Wasserstein-2 distance of each column: the quantile functions are constant between these levels."""
    n, m = len(places), len(others)
    # Levels i / n and j / m in units of 1 / (n·m): whole numbers, so equal levels meet exactly.
    levels = torch.unique(torch.cat([torch.arange(n + 1) * m, torch.arange(m + 1) * n]))
    starts, weights = levels[:-1], levels.diff().double() / (n * m)
    gaps = places.sort(dim=0).values[starts // m] - others.sort(dim=0).values[starts // n]
    return weights @ gaps**2
