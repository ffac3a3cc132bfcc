"""Section 3.1 and 3.3 of the paper, line by line."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def residual(window: Array, point: Array) -> float:
    """Eq. 5 with the pseudo-inverse; repeated and dependent points are no directions of their own."""
    directions = (window[1:] - window[0]).T
    offset = point - window[0]
    return float(np.linalg.norm(offset - directions @ (np.linalg.pinv(directions, rcond=1e-10) @ offset)))


def prune(points: Array, window: int, threshold: float) -> dict[int, float]:
    """Algorithm 2: the residual of every pruned index."""
    last_kept = list(range(window))
    pruned = {}
    for i in range(window, len(points)):
        r = residual(points[last_kept], points[i])
        if r < threshold:
            pruned[i] = r
        else:
            last_kept = [*last_kept[1:], i]
    return pruned


def prune_with_qr(points: Array, window: int, threshold: float) -> dict[int, float]:
    """Algorithm 2 with its cached thin QR, for points in general position."""
    last_kept = list(range(window))
    basis = np.linalg.qr((points[last_kept[1:]] - points[last_kept[0]]).T)[0]
    pruned = {}
    for i in range(window, len(points)):
        offset = points[i] - points[last_kept[0]]
        r = float(np.linalg.norm(offset - basis @ (basis.T @ offset)))
        if r < threshold:
            pruned[i] = r
        else:
            last_kept = [*last_kept[1:], i]
            basis = np.linalg.qr((points[last_kept[1:]] - points[last_kept[0]]).T)[0]
    return pruned


def prune_levels(points: Array, levels: int, threshold: float) -> dict[int, float]:
    """Level l looks at what the levels before it left, with a window of l + 1 points."""
    survivors = list(range(len(points)))
    pruned: dict[int, float] = {}
    for level in range(1, levels + 1):
        found = prune(points[survivors], level + 1, threshold) if len(survivors) > level + 1 else {}
        pruned |= {survivors[i]: r for i, r in found.items()}
        survivors = [i for i in survivors if i not in pruned]
    return pruned


def kept_mask(pruned: dict[int, float], points: int) -> NDArray[np.bool_]:
    """True for every point that was not pruned."""
    return np.array([i not in pruned for i in range(points)])


def projection_score(pruned: dict[int, float], points: Array) -> float:
    """Eq. 8."""
    mean = sum(points) / len(points)
    return sum(r**2 for r in pruned.values()) / sum(float(np.sum((z - mean) ** 2)) for z in points)


def chord_score(points: Array, kept: list[int]) -> float:
    """Eq. 8 where every skipped point is measured to the line through the kept points before and after it."""
    lost = {}
    for i in range(len(points)):
        if i not in kept:
            before = max(j for j in kept if j < i)
            after = min(j for j in kept if j > i)
            lost[i] = residual(points[[before, after]], points[i])
    return projection_score(lost, points)


def causal_score(points: Array, kept: list[int]) -> float:
    """Eq. 8 where every skipped point is measured to the line through the two kept points before it."""
    lost = {
        i: residual(points[[j for j in kept if j < i][-2:]], points[i]) for i in range(len(points)) if i not in kept
    }
    return projection_score(lost, points)


def chord_losses(gram: Array) -> Array:
    """Sum of squared distances to the chord (i, l) of the points between, each chord by itself."""
    points = len(gram)
    losses = np.zeros((points, points))
    for i in range(points):
        about = gram - gram[i] - gram[:, i, None] + gram[i, i]  # inner products about point i
        for l in range(i + 2, points):  # noqa: E741
            between = slice(i + 1, l)
            along = (about[between, l] ** 2).sum() / about[l, l] if about[l, l] > 0 else 0.0
            losses[i, l] = max(np.diagonal(about)[between].sum() - along, 0.0)
    return losses


def score_of_kept(gram: Array, kept: list[int]) -> Array:
    """`chord_score` of keeping these states and both ends, of every trajectory, from its inner products."""
    kept = sorted({0, *kept, gram.shape[1] - 1})
    lost = [sum(losses[chord] for chord in pairwise(kept)) for losses in map(chord_losses, gram)]
    return np.array(lost) / np.trace(gram, axis1=1, axis2=2)
