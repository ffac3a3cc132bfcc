"""The threshold tau of each trajectory: prune as much as a target score, or a target share, allows.

Residuals depend on inner products only, so everything here runs on the (N+1)² Gram matrix of each
trajectory. A *lane* is one trajectory at one threshold; one pass of Algorithm 2 serves all lanes.
Thresholds are compared as squares, and Algorithm 2's outcome is the same for every tau² between the
largest residual it pruned and the smallest it kept. So the finite list of all outcomes can be leapt
through, one after another, without missing any: the score is not monotone in tau, and bisection
alone can miss the best.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geosprint.errors import GeometryError

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

COARSE = 32
"""Thresholds per trajectory in the first, coarse look."""

LANES_PER_PASS = 8192
"""How many lanes are pruned together: enough to hide Python's overhead, few enough for the cache."""


@dataclass(frozen=True)
class Prunings:
    """One pruning per trajectory: Algorithm 1's inner loop, done for a batch."""

    kept: NDArray[np.bool_]  # (trajectories, points)
    thresholds: Array  # (trajectories,)
    scores: Array  # (trajectories,) Eq. 8


@dataclass(frozen=True)
class _Lanes:
    """What Algorithm 2 did in each lane."""

    which: Indices  # (lanes,) trajectory
    kept: NDArray[np.bool_]  # (lanes, points)
    lost: Array  # (lanes,) sum of squared residuals of pruned points
    largest_pruned: Array  # (lanes,) squared residual, 0 where nothing was pruned
    smallest_kept: Array  # (lanes,) squared residual, infinite where every tested point was pruned

    @property
    def pruned(self) -> Indices:
        return self.kept.shape[1] - self.kept.sum(axis=1)


def prune_many(gram: Array, thresholds: Array, window: int = 2, levels: int = 1) -> Prunings:
    """Algorithm 2 on each trajectory at its own threshold."""
    _check(gram, window, levels)
    thresholds = np.broadcast_to(np.asarray(thresholds, dtype=np.float64), len(gram))
    lanes = _prune_lanes(gram, np.arange(len(gram)), thresholds**2, window, levels)
    return Prunings(lanes.kept, thresholds.copy(), lanes.lost / _total(gram))


def most_pruned_below_score(gram: Array, target: float, window: int = 2, levels: int = 1) -> Prunings:
    """Section 3.1: of all prunings whose score is at most the target, the one that removes most.

    Every outcome is visited between the highest threshold below which the coarse scores stay under
    half the target and the lowest above which they stay over twice the target.
    """
    _check(gram, window, levels)
    if not 0 < target < 1:
        raise GeometryError(f"the target score must be in 0..1, a share of the variance, got {target}")
    total = _total(gram)
    low, high = _bracket(gram, total, target)

    def best(lanes: _Lanes) -> Array:
        return np.where(lanes.lost <= target * total[lanes.which], lanes.pruned, -np.inf)

    edges = np.exp(np.linspace(np.log(low), np.log(high), COARSE, axis=1))
    coarse = _prune_lanes(gram, np.repeat(np.arange(len(gram)), COARSE), edges.ravel(), window, levels)
    score = (coarse.lost / total[coarse.which]).reshape(-1, COARSE)
    start = _last_before(score > target / 2, edges)
    stop = edges[:, ::-1][np.arange(len(gram)), np.argmax(score[:, ::-1] <= 2 * target, axis=1) - 1]
    stop = np.where((score[:, -1] <= 2 * target), high, stop)
    return _best_outcome(gram, start, stop, window, levels, best, coarse)


def least_score_at_share(gram: Array, share: float, window: int = 2, levels: int = 1) -> Prunings:
    """Of all prunings that remove at least this share of the points, the one with the lowest score."""
    _check(gram, window, levels)
    points = gram.shape[1]
    wanted = int(np.ceil(share * points - 1e-9))
    most = points - max(window, levels + 1)
    if not 0 < wanted <= most:
        raise GeometryError(
            f"the share to prune must be above 0 and leave the first window standing, so at most "
            f"{most}/{points} = {most / points:.3f}, got {share}"
        )
    total = _total(gram)
    low, high = _bracket(gram, total, 1e-12)

    def best(lanes: _Lanes) -> Array:
        return np.where(lanes.pruned >= wanted, -lanes.lost / total[lanes.which], -np.inf)

    edges = np.exp(np.linspace(np.log(low), np.log(high), COARSE, axis=1))
    coarse = _prune_lanes(gram, np.repeat(np.arange(len(gram)), COARSE), edges.ravel(), window, levels)
    enough = (coarse.pruned >= wanted).reshape(-1, COARSE)
    start = _last_before(enough, edges)
    return _best_outcome(gram, start, np.minimum(start * 16, high), window, levels, best, coarse)


def bisected_below_score(gram: Array, target: float, window: int = 2, levels: int = 1) -> Prunings:
    """Algorithm 1 to the letter: 30 halvings of 0..tau_max, keeping the half whose middle is feasible.

    Five halvings have 31 possible middles: one pass tries them all and walks down the tree.
    """
    _check(gram, window, levels)
    total = _total(gram)
    count = len(gram)
    low, high = np.zeros(count), largest_threshold(gram)
    for _ in range(6):
        middles = low[:, None] + (high - low)[:, None] * np.arange(1, 32) / 32
        lanes = _prune_lanes(gram, np.repeat(np.arange(count), 31), middles.ravel() ** 2, window, levels)
        feasible = (lanes.lost / total[lanes.which] <= target).reshape(count, 31)
        left, right = np.zeros(count, dtype=np.intp), np.full(count, 32)
        for _ in range(5):
            middle = (left + right) // 2
            good = feasible[np.arange(count), middle - 1]
            left, right = np.where(good, middle, left), np.where(good, right, middle)
        low, high = low + (high - low) * left / 32, low + (high - low) * right / 32
    return prune_many(gram, low, window, levels)


SEARCHES: dict[str, Callable[..., Prunings]] = {
    "exact": most_pruned_below_score,
    "bisection": bisected_below_score,
}


def largest_threshold(gram: Array) -> Array:
    """A threshold no residual can reach: twice the distance of the farthest point from the mean."""
    return 2 * np.sqrt(np.diagonal(gram, axis1=1, axis2=2).max(axis=1))


def _check(gram: Array, window: int, levels: int) -> None:
    if gram.ndim != 3 or gram.shape[1] != gram.shape[2]:
        raise GeometryError(f"Gram matrices must be (trajectories, points, points), got shape {gram.shape}")
    if not 2 <= window < gram.shape[1]:
        raise GeometryError(f"window must be in 2..{gram.shape[1] - 1} for {gram.shape[1]} points, got {window}")
    if levels < 1 or (levels > 1 and window != 2):
        raise GeometryError(f"levels must be at least 1 and start from window 2, got {levels} and {window}")
    if not np.isfinite(gram).all():
        raise GeometryError("Gram matrices must be finite; a nan or infinity came in")
    if (_total(gram) <= 0).any():
        still = np.nonzero(_total(gram) <= 0)[0][0]
        raise GeometryError(f"trajectory {still} never moves: all its points are the same")


def _total(gram: Array) -> Array:
    """The denominator of Eq. 8 for each trajectory: the trace of the centred Gram matrix."""
    return np.trace(gram, axis1=1, axis2=2)


def _bracket(gram: Array, total: Array, target: float) -> tuple[Array, Array]:
    """Squared thresholds between which to look: Theorem 1 makes everything below feasible."""
    return target * total / gram.shape[1], largest_threshold(gram) ** 2 * (1 + 1e-9)


def _last_before(hit: NDArray[np.bool_], edges: Array) -> Array:
    """The edge before the first hit of each row, or the first edge; the last one where nothing hits."""
    first = np.where(hit.any(axis=1), np.argmax(hit, axis=1), hit.shape[1])
    return edges[np.arange(len(edges)), np.maximum(first - 1, 0)]


def _best_outcome(
    gram: Array,
    start: Array,
    stop: Array,
    window: int,
    levels: int,
    best: Callable[[_Lanes], Array],
    seen: _Lanes,
) -> Prunings:
    """Leap through every outcome of tau² in start..stop; keep each trajectory's best, at the highest tau of equals."""
    count = len(gram)
    value, reach = np.full((2, count), -np.inf)
    kept = np.ones((count, gram.shape[1]), dtype=bool)
    lost, threshold = np.zeros(count), np.sqrt(start)

    def remember(lanes: _Lanes) -> None:
        worth = best(lanes)
        order = np.lexsort((lanes.smallest_kept, worth, lanes.which))
        last = np.nonzero(np.diff(lanes.which[order], append=-1))[0]  # the best lane of each trajectory
        for lane in order[last]:
            trajectory = lanes.which[lane]
            if (worth[lane], lanes.smallest_kept[lane]) > (value[trajectory], reach[trajectory]):
                value[trajectory], reach[trajectory] = worth[lane], lanes.smallest_kept[lane]
                kept[trajectory], lost[trajectory] = lanes.kept[lane], lanes.lost[lane]
                threshold[trajectory] = _middle_threshold(lanes, lane)

    remember(seen)
    edges = np.exp(np.linspace(np.log(start), np.log(stop), COARSE + 1, axis=1))
    which = np.repeat(np.arange(count), COARSE)
    squared, end = edges[:, :-1].ravel(), edges[:, 1:].ravel()
    while len(which):
        lanes = _prune_lanes(gram, which, squared, window, levels)
        remember(lanes)
        squared = np.nextafter(lanes.smallest_kept, np.inf)
        on = squared < end
        which, squared, end = which[on], squared[on], end[on]
    return Prunings(kept, threshold, lost / _total(gram))


def _middle_threshold(lanes: _Lanes, lane: int) -> float:
    """A threshold far from every residual, so that rounding elsewhere does not change the outcome."""
    low, high = np.sqrt(lanes.largest_pruned[lane]), np.sqrt(lanes.smallest_kept[lane])
    return float((low + high) / 2 if np.isfinite(high) else 2 * low + 1e-300)


def _prune_lanes(gram: Array, which: Indices, squared: Array, window: int, levels: int) -> _Lanes:
    """Algorithm 2, or its hierarchy of levels, in every lane."""
    parts = []
    for at in range(0, len(which), LANES_PER_PASS):
        some = slice(at, at + LANES_PER_PASS)
        lanes = _one_level(gram, which[some], squared[some], window, None)
        for level in range(2, levels + 1):
            lanes = _one_level(gram, which[some], squared[some], level + 1, lanes)
        parts.append(lanes)
    if len(parts) == 1:
        return parts[0]
    names = ("which", "kept", "lost", "largest_pruned", "smallest_kept")
    return _Lanes(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _one_level(gram: Array, which: Indices, squared: Array, window: int, before: _Lanes | None) -> _Lanes:
    """One run of Algorithm 2 over the points that the level before kept, in every lane at once."""
    count, points = len(which), gram.shape[1]
    flat, diagonal = gram.reshape(-1), np.diagonal(gram, axis1=1, axis2=2)
    scale = diagonal.max(axis=1)[which]
    base = which * points * points
    lane = np.arange(count)
    if before is None:
        whole = np.ones((count, points), dtype=bool)
        before = _Lanes(which, whole, np.zeros(count), np.zeros(count), np.full(count, np.inf))
        order = np.broadcast_to(np.arange(points), (count, points))
    else:
        order = np.argsort(~before.kept, axis=1, kind="stable")
    survivors = before.kept.sum(axis=1)
    kept, lost = before.kept.copy(), before.lost.copy()
    largest, smallest = before.largest_pruned.copy(), before.smallest_kept.copy()
    corners = order[:, :window].T.copy()  # (window, lanes) the last kept points, oldest first
    oo, oc, inverse = _frames(flat, base, points, corners, scale)
    for rank in range(window, int(survivors.max())):
        i = order[:, rank]
        row = base + i * points
        io, ic = flat[row + corners[0]], flat[row + corners[1:]]
        ii = flat[row + i]
        along = ic - io - oc + oo
        residual = ii + oo - 2 * io - _quadratic(inverse, along)
        np.maximum(residual, 0, out=residual)
        tested = rank < survivors
        stay = (residual >= squared) & tested
        drop = ~stay & tested
        kept[lane[drop], i[drop]] = False
        lost += np.where(drop, residual, 0)
        np.maximum(largest, np.where(drop, residual, 0), out=largest)
        np.minimum(smallest, np.where(stay, residual, np.inf), out=smallest)
        moved = np.nonzero(stay)[0]
        if len(moved):
            corners[:-1, moved] = corners[1:, moved]
            corners[-1, moved] = i[moved]
            frame = _frames(flat, base[moved], points, corners[:, moved], scale[moved])
            oo[moved], oc[:, moved], inverse[:, :, moved] = frame
    return _Lanes(which, kept, lost, largest, smallest)


def _frames(flat: Array, base: Indices, points: int, corners: Indices, scale: Array) -> tuple[Array, Array, Array]:
    """Products of the window's origin with its corners, and the pseudo-inverse of its directions' Gram."""
    origin, others = corners[0], corners[1:]
    oo = flat[base + origin * points + origin]
    oc = flat[base + origin * points + others]
    cc = flat[base + others[:, None] * points + others[None]]
    products = cc - oc[:, None] - oc[None] + oo
    return oo, oc, _pseudo_inverse(products, scale)


def _pseudo_inverse(products: Array, scale: Array) -> Array:
    """Of symmetric matrices (k, k, lanes), dropping directions that are rounding error only."""
    if len(products) == 1:
        long_enough = products > 1e-13 * scale
        return np.where(long_enough, 1 / np.where(long_enough, products, 1), 0)
    values, vectors = np.linalg.eigh(np.moveaxis(products, -1, 0))
    floor = np.maximum(1e-11 * values[:, -1:], 1e-13 * scale[:, None])
    inverted = np.where(values > floor, 1 / np.where(values > floor, values, 1), 0)
    return np.einsum("lik,lk,ljk->ijl", vectors, inverted, vectors)


def _quadratic(inverse: Array, along: Array) -> Array:
    if len(along) == 1:
        return inverse[0, 0] * along[0] ** 2
    return np.einsum("il,ijl,jl->l", along, inverse, along)
