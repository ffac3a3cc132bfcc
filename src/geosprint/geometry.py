"""The hyperplanarity test: which points of an ordered sequence lie in the span of those before (Section 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geosprint.errors import GeometryError

Array = NDArray[np.float64]

RANK_TOLERANCE = 1e-12
"""A direction whose new part is shorter than this share of the longest direction is a repetition."""


@dataclass(frozen=True)
class Pruning:
    """Which points of one trajectory are redundant, and how far off the plane they lie."""

    kept: Tensor  # (points,) bool
    residuals: Tensor  # (points,) distance to the plane, 0 where kept
    threshold: float

    @property
    def pruned(self) -> Tensor:
        """Indices of the redundant points: S of Algorithm 2."""
        return torch.nonzero(~self.kept).flatten()


def affine_residual(window: Tensor, point: Tensor) -> Tensor:
    """Distance of a point to the affine span of the window's points, Definition 1 (Eq. 5)."""
    window, rounding = window.double(), _rounding(window)
    return _distance(_orthonormal_directions(window, rounding), window[0], point.double())


def prune(points: Tensor, window: int, threshold: float) -> Pruning:
    """Algorithm 2 as written: drop every point closer than the threshold to the last kept ones' span."""
    points, rounding = _checked_points(points, window), _rounding(points)
    if not threshold >= 0:
        raise GeometryError(f"the threshold is a distance and must be at least 0, got {threshold}")
    kept = torch.ones(len(points), dtype=torch.bool)
    residuals = torch.zeros(len(points), dtype=points.dtype)
    last_kept = list(range(window))
    directions = _orthonormal_directions(points[last_kept], rounding)
    for i in range(window, len(points)):
        residual = _distance(directions, points[last_kept[0]], points[i])
        if residual < threshold:
            kept[i], residuals[i] = False, residual
        else:
            last_kept = [*last_kept[1:], i]
            directions = _orthonormal_directions(points[last_kept], rounding)
    return Pruning(kept, residuals, threshold)


def prune_levels(points: Tensor, levels: int, threshold: float) -> Pruning:
    """Section 3.1's hierarchy: level l tests with l + 1 points what the levels before it left over."""
    if levels < 1:
        raise GeometryError(f"levels must be at least 1, got {levels}")
    points = _checked_points(points, levels + 1)
    kept = torch.ones(len(points), dtype=torch.bool)
    residuals = torch.zeros(len(points), dtype=points.dtype)
    for window in range(2, levels + 2):
        survivors = torch.nonzero(kept).flatten()
        if len(survivors) <= window:
            break
        level = prune(points[survivors], window, threshold)
        kept[survivors] = level.kept
        residuals[survivors] = level.residuals
    return Pruning(kept, residuals, threshold)


def projection_score(pruning: Pruning, points: Tensor) -> float:
    """alpha_traj, Eq. 8: the share of the trajectory's variance that pruning throws away."""
    return float((pruning.residuals.double() ** 2).sum() / _total_variation(points))


def score_bound(pruning: Pruning, points: Tensor) -> float:
    """Theorem 1: what the score can be at most with so many points pruned at this threshold."""
    return float(len(pruning.pruned) * pruning.threshold**2 / _total_variation(points))


def gram_of_centred(points: Tensor, scale: Tensor | float = 1.0) -> Array:
    """Inner products of every trajectory's points / scale about their mean: all that the geometry depends on.

    The products are taken between *increments*, which are short, so that rounding is relative to
    a step and not to the whole trajectory; sums of them in float64 give every other product.
    """
    if points.device.type != "cpu":
        steps = torch.diff(points, dim=-2).div_(scale)
        return gram_from_increment_products((steps @ steps.mT).double().cpu().numpy())
    # NumPy knows that a product with its own transpose is symmetric: half the work. It does the rest as well,
    # because the threads of two libraries, taking turns on the same cores, wait for each other.
    small = np.diff(points.numpy(), axis=-2)
    small /= scale.numpy() if isinstance(scale, Tensor) else scale
    return gram_from_increment_products((small @ np.swapaxes(small, -1, -2)).astype(np.float64))


def gram_from_increment_products(products: Array) -> Array:
    """Inner products of centred points (..., N+1, N+1) from those of their increments (..., N, N)."""
    *batch, n, _ = products.shape
    gram = np.zeros((*batch, n + 1, n + 1))
    np.cumsum(np.cumsum(products, axis=-1), axis=-2, out=gram[..., 1:, 1:])
    means = gram.mean(axis=-1, keepdims=True)
    gram -= means
    gram -= np.swapaxes(means, -1, -2)
    gram += means.mean(axis=-2, keepdims=True)
    return gram


def _checked_points(points: Tensor, window: int) -> Tensor:
    if points.ndim != 2:
        raise GeometryError(f"points must be (points, dimensions), got shape {tuple(points.shape)}")
    if not 2 <= window < len(points):
        raise GeometryError(f"window must be in 2..{len(points) - 1} for {len(points)} points, got {window}")
    if not torch.isfinite(points).all():
        raise GeometryError("points must be finite; a nan or infinity came in")
    return points.double()


def _rounding(points: Tensor) -> float:
    """How far apart two equal points can lie in this precision."""
    return 4 * torch.finfo(points.dtype).eps * float(torch.linalg.vector_norm(points.double(), dim=1).max())


def _orthonormal_directions(window: Tensor, rounding: float) -> Tensor:
    """An orthonormal basis (rank, d) of the window's span: Gram-Schmidt, twice, dropping repetitions."""
    directions = window[1:] - window[0]
    floor = max(RANK_TOLERANCE * float(torch.linalg.vector_norm(directions, dim=1).max()), rounding)
    basis = window.new_zeros(0, window.shape[1])
    for direction in directions:
        for _ in range(2):
            direction = direction - (basis @ direction) @ basis
        length = torch.linalg.vector_norm(direction)
        if length > floor:
            basis = torch.cat([basis, (direction / length)[None]])
    return basis


def _distance(basis: Tensor, origin: Tensor, point: Tensor) -> Tensor:
    offset = point - origin
    return torch.linalg.vector_norm(offset - (basis @ offset) @ basis)


def _total_variation(points: Tensor) -> Tensor:
    """The denominator of Eq. 8, (N + 1) tr C."""
    points = points.double()
    total = ((points - points.mean(dim=0)) ** 2).sum()
    if total == 0:
        raise GeometryError("the projection score needs points that differ; these are all the same")
    return total
