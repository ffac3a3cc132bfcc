"""The hyperplanarity test: which points of an ordered sequence lie in the span of those before (Section 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geosprint.errors import GeometryError
from geosprint.noise import Array

RANK_TOLERANCE = 1e-12
"""Of the singular values of the directions, relative to the largest: below it a direction is a repetition."""

CHORD_POINTS = 257
"""The table of chord scores grows with the square of its points: finer references are thinned to this many."""

CHORD_BEGINNINGS = 16
"""Chords from so many neighbouring states are scored together: more save no time, and cost accuracy."""


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
        return gram_from_increment_products((steps @ steps.mT).cpu().double().numpy())
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


def mean_chord_scores(gram: Array) -> tuple[Array, NDArray[np.intp]]:
    """Mean over trajectories of the score lost between every two states kept with none between them.

    Entry (i, l) sums r² of the states i < j < l to the line through states i and l, as a share of the
    trajectory's variance. The score of any schedule is a sum of such entries.
    """
    last = gram.shape[1] - 1
    chosen = np.unique(np.round(np.linspace(0, last, min(last, CHORD_POINTS - 1) + 1)).astype(np.intp))
    table = np.zeros((len(chosen), len(chosen)))
    for one in gram:
        one = one[np.ix_(chosen, chosen)]
        variance = np.trace(one) - one.sum() / len(chosen)
        table += _chord_losses(one) / variance / len(gram)
    return table, chosen


def _chord_losses(gram: Array) -> Array:
    """Sum of squared distances to the chord (i, l) of the points between, for one trajectory.

    With A the inner products about point i, that is the sum over i < j < l of A_jj - A_jl² / A_ll. Chords that
    begin near one another share the products O about one of their beginnings: A_jl = O_jl - O_ji + O_ii - O_il,
    and the sums of squares are products of matrices. Where those would cancel, each chord is scored by itself.
    """
    points = len(gram)
    losses, later = np.zeros((points, points)), np.triu(np.ones((points, points)), 1)  # 1 where column > row
    for first in range(0, points - 2, CHORD_BEGINNINGS):
        offset = gram[first, first:] - 0.5 * gram[first, first]
        about = gram[first:, first:] - offset[:, None] - offset  # O
        beginnings = about[:CHORD_BEGINNINGS]  # row i: O_ij
        own = beginnings.diagonal()[:, None]
        after = later[: len(beginnings), : len(about)]  # row i: 1 where j > i
        squares = (own - 2 * beginnings + about.diagonal()) * after  # A_jj
        shift = own - beginnings
        rows, columns = beginnings * after, about * later[: len(about), : len(about)]  # column l: O_jl of points j < l
        each = np.stack([after, rows, rows**2, squares])
        count, sum_rows, squared_rows, sum_squares = np.cumsum(each, axis=-1) - each  # over i < j < l
        positive = after @ columns**2 + squared_rows + count * shift**2
        along = positive - 2 * rows @ columns + 2 * shift * (after @ columns - sum_rows)
        found = np.maximum(sum_squares - along / np.where(squares > 0, squares, np.inf), 0) * after
        for i in np.nonzero((positive > 100 * np.trace(gram) * squares).any(axis=1))[0]:
            found[i, i + 1 :] = _losses_of_chords_from(gram[first + i :, first + i :])
        losses[first : first + len(own), first:] = found
    return losses


def _losses_of_chords_from(gram: Array) -> Array:
    """Losses of the chords from the first of these points to every other."""
    about = gram[1:, 1:] - gram[1:, 0, None] - gram[0, 1:] + gram[0, 0]
    squares, before = about.diagonal(), np.triu(about, 1)  # column l: the points j < l
    along = np.einsum("jl,jl->l", before, before) / np.where(squares > 0, squares, np.inf)
    return np.maximum(np.append(0.0, np.cumsum(squares)[:-1]) - along, 0)


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
    """An orthonormal basis (rank, d) of the window's span, without directions that are repetitions."""
    _, lengths, basis = torch.linalg.svd(window[1:] - window[0], full_matrices=False)
    return basis[lengths > max(RANK_TOLERANCE * float(lengths.max()), rounding)]


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
