"""Algorithm 2 for many trajectories and all thresholds at once, and the threshold tau of each (Section 3.2).

Residuals depend on inner products only, so everything here runs on the (N+1)² Gram matrix of each
trajectory. The threshold sweep follows *branches*: a branch is one trajectory and a range of thresholds
for which Algorithm 2 has so far decided alike. Where a residual falls inside a branch's range, the branch
splits: for the thresholds up to it the point is kept, for those above it is pruned. Branches beyond given
limits are dropped. What is left at the end is every outcome within them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from geosprint.errors import GeometryError
from geosprint.noise import Array

RANK_TOLERANCE = 1e-5
"""A direction whose new part is shorter than this share of the longest one is dropped.

Inner products hold the square of it, so float64 tells nothing shorter apart from rounding. From windows of
four on, neighbouring steps of a fine smooth trajectory come near this.
"""

FIRST_LOOK = 8
"""Thresholds per trajectory that are tried first: the best of them rules most branches out early."""

TOGETHER = 128
"""Trajectories whose branches advance together: enough to hide Python's overhead, few enough for the cache."""

Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class _Limits:
    """What a branch of each trajectory may lose and keep at most; beyond that it is dropped."""

    lost: Array  # (trajectories,)
    count: Array  # (trajectories,)


@dataclass
class _Branches:
    """What Algorithm 2 does for every tau² in low < tau² <= high: what it has decided, and where its window stands."""

    which: Indices  # (branches,) trajectory
    low: Array  # (branches,)
    high: Array  # (branches,)
    lost: Array  # (branches,) sum of squared residuals of pruned points
    bits: NDArray[np.uint8]  # (points / 8, branches) one for each point, 0 where it is pruned
    count: Indices  # (branches,) points kept so far
    shortest: Array  # (branches,) squared length below which a direction is rounding only
    corners: Indices  # (window, branches) the last kept points, oldest first
    products: Array  # (window, window, branches) of the corners; the upper triangle is kept up to date
    inverse: Array  # (window - 1, window - 1, branches) of the Gram matrix of the directions from the oldest corner

    @classmethod
    def begun(
        cls, gram: Array, which: Indices, low: Array, high: Array, lost: Array, bits: NDArray[np.uint8], window: int
    ) -> _Branches:
        """Before the first test: the window holds the first points that are left."""
        points, flat = gram.shape[1], gram.reshape(-1)
        left = np.cumsum(np.unpackbits(bits, axis=0, count=points, bitorder="little"), axis=0, dtype=np.intp)
        corners = np.stack([np.argmax(left == 1 + nth, axis=0) for nth in range(window)])
        corners[-1, left[-1] < window] = points - 1  # there is no point beyond it that could be tested
        products = flat[(which * points + corners[:, None]) * points + corners[None]]
        shortest = 1e-13 * np.diagonal(gram, axis1=1, axis2=2).max(axis=1)[which]
        count, inverse = np.minimum(window, left[-1]), _inverse(products, shortest)
        return cls(which, low, high, lost, bits, count, shortest, corners, products, inverse)

    def residual(self, with_corners: Array, with_itself: Array) -> Array:
        """Squared distance of a point to the window's span, Definition 1, from its inner products."""
        along = with_corners[1:] - with_corners[0]
        along += self.products[0, 0] - self.products[0, 1:]
        residual = with_itself - 2 * with_corners[0]
        residual += self.products[0, 0]
        if len(along) == 1:
            residual -= self.inverse[0, 0] * along[0] ** 2
        else:
            residual -= np.einsum("il,ijl,jl->l", along, self.inverse, along)
        return np.maximum(residual, 0, out=residual)

    def is_tested(self, i: int) -> Mask:
        """Whether point i is left, and comes after the window."""
        return (self.bits[i // 8] & (1 << i % 8) != 0) & (self.corners[-1] < i)

    def prune(self, i: int, residual: Array, where: Mask) -> None:
        """Drop point i, which is left in these branches."""
        np.add(self.lost, residual, out=self.lost, where=where)
        self.bits[i // 8] -= where * np.uint8(1 << i % 8)

    def keep(self, i: int, with_corners: Array, with_itself: Array, where: Mask) -> None:
        """First in, first out: point i becomes the newest corner of these branches, and the oldest falls out."""
        np.copyto(self.corners[:-1], self.corners[1:], where=where)
        np.copyto(self.corners[-1], i, where=where)
        np.copyto(self.products[:-1, :-1], self.products[1:, 1:], where=where)
        np.copyto(self.products[:-1, -1], with_corners[1:], where=where)
        np.copyto(self.products[-1, -1], with_itself, where=where)
        self.count += where
        if len(self.corners) == 2:
            self.inverse = _inverse(self.products, self.shortest)
        elif len(moved := np.nonzero(where)[0]):
            self.inverse[:, :, moved] = _inverse(self.products[:, :, moved], self.shortest[moved])

    def are_within(self, limits: _Limits) -> Mask:
        """Which branches are not dropped."""
        return (self.lost <= limits.lost[self.which]) & (self.count <= limits.count[self.which])

    def kept(self, points: int) -> Mask:
        """What each branch keeps (branches, points)."""
        return np.unpackbits(self.bits, axis=0, count=points, bitorder="little").astype(bool).T

    def chosen(self, branches: Indices) -> _Branches:
        """Some of the branches, as copies."""
        return _Branches(*(np.take(getattr(self, part.name), branches, axis=-1) for part in fields(self)))

    def joined(self, other: _Branches) -> _Branches:
        """Both groups of branches."""
        both = ((getattr(self, part.name), getattr(other, part.name)) for part in fields(self))
        return _Branches(*(np.concatenate(pair, axis=-1) for pair in both))


def _sweep(
    gram: Array, which: Indices, low: Array, high: Array, window: int, levels: int, limits: _Limits
) -> _Branches:
    """Algorithm 2, or its hierarchy of levels, for these trajectories and ranges of tau²."""
    nothing_pruned = np.packbits(np.ones((gram.shape[1], len(which)), dtype=bool), axis=0, bitorder="little")
    branches = _Branches.begun(gram, which, low, high, np.zeros(len(which)), nothing_pruned, window)
    keep_at_will = replace(limits, count=np.full(len(gram), np.inf))  # a later level may still prune it
    for level in range(1, levels):
        found = _one_level(gram, branches, keep_at_will)
        decided = (found.which, found.low, found.high, found.lost, found.bits)
        branches = _Branches.begun(gram, *decided, window + level)
    return _one_level(gram, branches, limits)


def _one_level(gram: Array, branches: _Branches, limits: _Limits) -> _Branches:
    """One run of Algorithm 2 over the points that the level before kept."""
    points, flat = gram.shape[1], gram.reshape(-1)
    for i in range(len(branches.corners), points):
        row = (branches.which * points + i) * points
        with_corners, with_itself = flat[row + branches.corners], flat[row + i]
        residual = branches.residual(with_corners, with_itself)
        tested, beyond = branches.is_tested(i), residual > branches.low
        stay = tested & beyond
        split = np.nonzero(stay & (residual < branches.high))[0]
        above = branches.chosen(split)  # the thresholds of split branches that prune the point
        above.low = residual[split]
        above.prune(i, above.low, np.ones(len(split), dtype=bool))
        branches.high[split] = residual[split]
        branches.prune(i, residual, tested & ~beyond)
        branches.keep(i, with_corners, with_itself, stay)
        if len(split):
            branches = branches.joined(above)
        within = np.nonzero(branches.are_within(limits))[0]
        if len(within) < 0.9 * len(branches.which):  # dropping branches means copying the others: not for a few
            branches = branches.chosen(within)
    return branches.chosen(np.nonzero(branches.are_within(limits))[0])


def _inverse(products: Array, shortest: Array) -> Array:
    """Pseudo-inverse of the directions' Gram matrix, dropping directions that are rounding only."""
    with_origin = products[0, 1:]
    if len(products) == 2:
        length = products[1, 1] - 2 * with_origin[0]
        length += products[0, 0]
        inverse = np.zeros((1, 1, len(length)))
        np.divide(1, length, out=inverse[0, 0], where=length > shortest)
        return inverse
    upper = products[1:, 1:] - with_origin[:, None] - with_origin[None] + products[0, 0]
    return _inverse_by_gram_schmidt(upper, shortest)


def _inverse_by_gram_schmidt(upper: Array, shortest: Array) -> Array:
    """Gram-Schmidt, twice, expressed in inner products.

    Row j of `combined` holds the coefficients of orthonormal vector j in terms of the directions.
    """
    size, branches = len(upper), upper.shape[-1]
    full = np.where(np.arange(size)[:, None, None] <= np.arange(size)[None, :, None], upper, np.swapaxes(upper, 0, 1))
    floor = np.maximum(RANK_TOLERANCE**2 * full[np.arange(size), np.arange(size)].max(axis=0), shortest)
    combined = np.zeros((size, size, branches))
    for j in range(size):
        new = np.zeros((size, branches))
        new[j] = 1
        for _ in range(2):
            along = np.einsum("kal,abl,bl->kl", combined[:j], full, new)
            new -= np.einsum("kl,kal->al", along, combined[:j])
        length = np.einsum("al,abl,bl->l", new, full, new)
        long_enough = length > floor
        combined[j] = new * np.where(long_enough, 1 / np.sqrt(np.where(long_enough, length, 1)), 0)
    return np.einsum("kil,kjl->ijl", combined, combined)


@dataclass(frozen=True)
class Prunings:
    """One pruning per trajectory: Algorithm 1's inner loop, done for a batch."""

    kept: Mask  # (trajectories, points)
    thresholds: Array  # (trajectories,)
    scores: Array  # (trajectories,) Eq. 8


def prune_many(gram: Array, thresholds: Array, window: int = 2, levels: int = 1) -> Prunings:
    """Algorithm 2 on each trajectory at its own threshold."""
    _check(gram, window, levels)
    thresholds = np.broadcast_to(np.asarray(thresholds, dtype=np.float64), len(gram)).copy()
    if not (thresholds >= 0).all():
        raise GeometryError(f"a threshold is a distance and must be at least 0, got {thresholds.min()}")
    branches = _at_thresholds(gram, thresholds[:, None], window, levels)
    return Prunings(branches.kept(gram.shape[1]), thresholds, branches.lost / _total(gram))


def most_pruned_below_score(gram: Array, target: float, window: int = 2, levels: int = 1) -> Prunings:
    """Section 3.1: of all prunings whose score is at most the target, the one that removes most.

    Of several that remove as many, the one at the highest threshold, which is where bisection ends.
    """
    _check(gram, window, levels)
    _check_target(target)
    limits = _Limits(target * _total(gram), np.full(len(gram), gram.shape[1]))
    return _least(gram, "count", limits, target, window, levels)


def least_score_at_share(gram: Array, share: float, window: int = 2, levels: int = 1) -> Prunings:
    """Of all prunings that remove at least this share of the points, the one with the lowest score."""
    _check(gram, window, levels)
    points = gram.shape[1]
    wanted = int(np.ceil(share * points - 1e-9)) if np.isfinite(share) else 0
    most = points - max(window, levels + 1)
    if not 0 < wanted <= most:
        raise GeometryError(
            f"the share to prune must be above 0 and leave the first window standing, so at most "
            f"{most}/{points} = {most / points:.3f}, got {share}"
        )
    limits = _Limits(np.full(len(gram), np.inf), np.full(len(gram), points - wanted))
    return _least(gram, "lost", limits, 1e-12, window, levels)


def bisected_below_score(gram: Array, target: float, window: int = 2, levels: int = 1) -> Prunings:
    """Algorithm 1 to the letter: 30 halvings of 0..tau_max, keeping the half whose middle is feasible.

    Five halvings have 31 possible middles: one pass tries them all and walks down the tree.
    """
    _check(gram, window, levels)
    _check_target(target)
    most_lost = target * _total(gram)
    each = np.arange(len(gram))
    low, high = np.zeros(len(gram)), largest_threshold(gram)
    for _ in range(6):
        middles = low[:, None] + (high - low)[:, None] * np.arange(1, 32) / 32
        branches = _at_thresholds(gram, middles, window, levels)
        feasible = (branches.lost <= most_lost[branches.which]).reshape(len(gram), 31)
        left, right = np.zeros(len(gram), dtype=np.intp), np.full(len(gram), 32)
        for _ in range(5):
            middle = (left + right) // 2
            good = feasible[each, middle - 1]
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
    points = gram.shape[1]
    if not 2 <= window < points:
        raise GeometryError(f"window must be in 2..{points - 1} for {points} points, got {window}")
    if not 1 <= levels < points - 1 or (levels > 1 and window != 2):
        raise GeometryError(
            f"levels must be in 1..{points - 2} for {points} points and start from window 2, got {levels} and {window}"
        )
    if not np.isfinite(gram).all():
        raise GeometryError("Gram matrices must be finite; a nan or infinity came in")
    if (still := np.nonzero(_total(gram) <= 0)[0]).size:
        raise GeometryError(f"trajectory {still[0]} never moves: all its points are the same")


def _check_target(target: float) -> None:
    if not 0 < target < 1:
        raise GeometryError(f"the target score must be in 0..1, a share of the variance, got {target}")


def _total(gram: Array) -> Array:
    """The denominator of Eq. 8 for each trajectory: the trace of the centred Gram matrix."""
    return np.trace(gram, axis1=1, axis2=2)


def _least(gram: Array, what: str, limits: _Limits, target: float, window: int, levels: int) -> Prunings:
    """Of all outcomes within the limits those that keep the least ("count") or lose the least ("lost").

    Of several, those at the highest thresholds. What a first look finds within the limits makes them narrower.
    """
    best = []
    for at in range(0, len(gram), TOGETHER):
        some, own = gram[at : at + TOGETHER], _Limits(limits.lost[at : at + TOGETHER], limits.count[at : at + TOGETHER])
        look = _first_look(some, target, window, levels)
        seen = np.where(look.are_within(own), getattr(look, what), np.inf).reshape(len(some), -1).min(axis=1)
        narrower = replace(own, **{what: np.minimum(seen, getattr(own, what))})
        each, none = np.arange(len(some)), np.zeros(len(some))
        found = _sweep(some, each, none, largest_threshold(some) ** 2, window, levels, narrower)
        found = found.joined(look)  # rounding must not be able to rule out what made the limits narrower
        found = found.chosen(np.nonzero(found.are_within(own))[0])
        order = np.lexsort((found.high, -getattr(found, what), found.which))
        best.append(found.chosen(order[np.nonzero(np.diff(found.which[order], append=-1))[0]]))
    # The middle of the range is far from every residual, so that rounding elsewhere does not change the outcome.
    thresholds = np.concatenate([(np.sqrt(found.low) + np.sqrt(found.high)) / 2 for found in best])
    kept = np.concatenate([found.kept(gram.shape[1]) for found in best])
    return Prunings(kept, thresholds, np.concatenate([found.lost for found in best]) / _total(gram))


def _first_look(gram: Array, target: float, window: int, levels: int) -> _Branches:
    """A few thresholds between the one that Theorem 1 proves feasible and the largest."""
    safe = np.sqrt(target * _total(gram) / gram.shape[1])
    edges = np.exp(np.linspace(np.log(safe), np.log(largest_threshold(gram)), FIRST_LOOK, axis=1))
    return _at_thresholds(gram, edges, window, levels)


def _at_thresholds(gram: Array, thresholds: Array, window: int, levels: int) -> _Branches:
    """Algorithm 2 at given thresholds (trajectories, any): ranges that hold one number each and cannot split."""
    which = np.repeat(np.arange(len(gram)), thresholds.shape[1])
    squared = thresholds.ravel() ** 2
    no_limits = _Limits(np.full(len(gram), np.inf), np.full(len(gram), np.inf))
    return _sweep(gram, which, np.nextafter(squared, -1), squared, window, levels, no_limits)
