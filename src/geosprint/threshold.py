"""Algorithm 2 for many trajectories and all thresholds at once, and the threshold tau of each (Section 3.2).

Residuals depend on inner products only, so everything here runs on the (N+1)² Gram matrix of each
trajectory. The threshold sweep follows *branches*: a branch is one trajectory and a range of thresholds
for which Algorithm 2 has so far decided alike. Where a residual falls inside a branch's range, the branch
splits: for the thresholds up to it the point is kept, for those above it is pruned. Branches beyond given
limits are dropped. What is left at the end is every outcome within them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from geosprint.errors import GeometryError

RANK_TOLERANCE = 1e-5
"""A direction whose new part is shorter than this share of the longest one is dropped.

Inner products hold the square of it, so float64 tells nothing shorter apart from rounding. From windows of
four on, neighbouring steps of a fine smooth trajectory come near this.
"""

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]
Point = Indices | np.intp  # the same for all branches, or each branch's own

_Moment = tuple[Point, Indices | None, Mask]
"""One step of all branches: the point, each branch's parent before it (None: itself), and whether it kept the point."""


@dataclass(frozen=True)
class Branches:
    """What Algorithm 2 does for every tau² in low < tau² <= high."""

    which: Indices  # (branches,) trajectory
    low: Array  # (branches,)
    high: Array  # (branches,)
    kept: Mask  # (branches, points)
    lost: Array  # (branches,) sum of squared residuals of pruned points

    @property
    def pruned(self) -> Indices:
        """How many points each branch prunes."""
        return self.kept.shape[1] - self.kept.sum(axis=1)


@dataclass(frozen=True)
class Limits:
    """What a branch of each trajectory may lose and keep at most; beyond that it is dropped."""

    lost: Array  # (trajectories,)
    kept: Array  # (trajectories,)


def _sweep(gram: Array, which: Indices, low: Array, high: Array, window: int, levels: int, limits: Limits) -> Branches:
    """Algorithm 2, or its hierarchy of levels, for these trajectories and ranges of tau²."""
    kept = np.ones((len(which), gram.shape[1]), dtype=bool)
    branches = Branches(which, low, high, kept, np.zeros(len(which)))
    keep_at_will = Limits(limits.lost, np.full(len(gram), np.inf))  # a later level may still prune it
    for level in range(1, levels + 1):
        branches = _one_level(gram, branches, window + level - 1, limits if level == levels else keep_at_will)
    return branches


def _one_level(gram: Array, start: Branches, window: int, limits: Limits) -> Branches:
    """One run of Algorithm 2 over the points that the level before kept."""
    points, flat = gram.shape[1], gram.reshape(-1)
    survivors = start.kept.sum(axis=1)
    all_alike = bool(start.kept.all())
    if all_alike:
        order = np.broadcast_to(np.arange(points)[:, None], start.kept.T.shape)  # (points, branches)
    else:
        order = np.argsort(~start.kept, axis=1, kind="stable").T  # the survivors first
    front = _Front.of(gram, start, order[:window])
    history: list[_Moment] = []
    for rank in range(window, int(survivors.max(initial=0))):
        i = np.intp(rank) if all_alike else order[rank, front.origin]
        row = front.base + i * points
        with_corners, with_itself = flat[row + front.corners], flat[row + i]
        residual = front.residual(with_corners, with_itself)
        stay = residual > front.low
        drop = ~stay
        if not all_alike:
            tested = rank < survivors[front.origin]
            stay &= tested
            drop &= tested
        split = np.nonzero(stay & (residual < front.high))[0]
        above = front.chosen(split)  # the thresholds of split branches that prune the point
        above.low, above.lost = residual[split], above.lost + residual[split]
        front.high[split] = residual[split]
        np.add(front.lost, residual, out=front.lost, where=drop)
        front.slide(i, with_corners, with_itself, stay)
        parents, keeps = None, ~drop
        if len(split):
            front = front.joined(above)
            parents = np.concatenate([np.arange(len(stay)), split])
            keeps = np.concatenate([keeps, np.zeros(len(split), dtype=bool)])
        chosen = front.within(limits)
        if len(chosen) < 0.9 * len(keeps):  # dropping branches means copying the others: not for a few
            front, keeps = front.chosen(chosen), keeps[chosen]
            parents = chosen if parents is None else parents[chosen]
        history.append((i, parents, keeps))
    chosen = front.within(limits)
    front = front.chosen(chosen)
    return Branches(front.which, front.low, front.high, _kept(start, front.origin, chosen, history), front.lost)


def _kept(start: Branches, origin: Indices, branches: Indices, history: list[_Moment]) -> Mask:
    """What these branches kept, by going back from each to its parents."""
    kept = start.kept[origin]
    branch, ancestor = np.arange(len(kept)), branches
    for i, parents, keeps in reversed(history):
        kept_it = keeps[ancestor]
        ancestor = ancestor if parents is None else parents[ancestor]
        point = i[ancestor] if isinstance(i, np.ndarray) else i
        kept[branch, point] &= kept_it
    return kept


@dataclass
class _Front:
    """Where all branches stand: their windows, and what they have lost and kept so far."""

    origin: Indices  # (branches,) the branch it began as
    which: Indices  # (branches,) trajectory
    base: Indices  # (branches,) where that trajectory's Gram matrix begins
    low: Array  # (branches,) of tau²
    high: Array  # (branches,)
    lost: Array  # (branches,)
    count: Indices  # (branches,) points kept
    shortest: Array  # (branches,) squared length below which a direction is rounding only
    corners: Indices  # (window, branches) the last kept points, oldest first
    products: Array  # (window, window, branches) of the corners; the upper triangle is kept up to date
    inverse: Array  # (window - 1, window - 1, branches) of the Gram matrix of the directions from the oldest corner

    @classmethod
    def of(cls, gram: Array, start: Branches, corners: Indices) -> _Front:
        points, count = gram.shape[1], len(start.which)
        base = start.which * points * points
        products = gram.reshape(-1)[base + corners[:, None] * points + corners[None]]
        shortest = 1e-13 * np.diagonal(gram, axis1=1, axis2=2).max(axis=1)[start.which]
        return cls(
            np.arange(count),
            start.which,
            base,
            start.low.copy(),
            start.high.copy(),
            start.lost.copy(),
            np.minimum(len(corners), start.kept.sum(axis=1)),
            shortest,
            corners.copy(),
            products,
            _inverse(products, shortest),
        )

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

    def slide(self, i: Point, with_corners: Array, with_itself: Array, stay: Mask) -> None:
        """First in, first out: where point i stays, it becomes the newest corner and the oldest falls out."""
        last = len(self.corners) - 1
        for p in range(last):
            np.copyto(self.corners[p], self.corners[p + 1], where=stay)
            for q in range(p, last):
                np.copyto(self.products[p, q], self.products[p + 1, q + 1], where=stay)
        np.copyto(self.corners[last], i, where=stay)
        for p in range(last):
            np.copyto(self.products[p, last], with_corners[p + 1], where=stay)
        np.copyto(self.products[last, last], with_itself, where=stay)
        self.count += stay
        if last == 1:
            self.inverse = _inverse(self.products, self.shortest)
        elif len(moved := np.nonzero(stay)[0]):
            self.inverse[:, :, moved] = _inverse(self.products[:, :, moved], self.shortest[moved])

    def within(self, limits: Limits) -> Indices:
        """The branches that are not dropped."""
        return np.nonzero((self.lost <= limits.lost[self.which]) & (self.count <= limits.kept[self.which]))[0]

    def chosen(self, branches: Indices) -> _Front:
        """Some of the branches, as copies."""
        return _Front(*(np.take(getattr(self, part.name), branches, axis=-1) for part in fields(self)))

    def joined(self, other: _Front) -> _Front:
        """Both groups of branches."""
        both = ((getattr(self, part.name), getattr(other, part.name)) for part in fields(self))
        return _Front(*(np.concatenate(pair, axis=-1) for pair in both))


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


FIRST_LOOK = 8
"""Thresholds per trajectory that are tried first: the best of them rules most branches out early."""

TOGETHER = 128
"""Trajectories whose branches advance together: enough to hide Python's overhead, few enough for the cache."""


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
    return Prunings(branches.kept, thresholds, branches.lost / _total(gram))


def most_pruned_below_score(gram: Array, target: float, window: int = 2, levels: int = 1) -> Prunings:
    """Section 3.1: of all prunings whose score is at most the target, the one that removes most.

    Of several that remove as many, the one at the highest threshold, which is where bisection ends.
    """
    _check(gram, window, levels)
    _check_target(target)

    def search(gram: Array) -> Branches:
        most_lost = target * _total(gram)
        look = _first_look(gram, target, window, levels)
        kept = np.where(look.lost <= most_lost[look.which], look.kept.sum(axis=1), gram.shape[1])
        fewest = kept.reshape(len(gram), -1).min(axis=1).astype(np.float64)
        branches = _all_outcomes(gram, window, levels, Limits(most_lost, fewest), look)
        return _best_of_each(branches, np.where(branches.lost <= most_lost[branches.which], branches.pruned, -np.inf))

    return _searched(gram, search)


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

    def search(gram: Array) -> Branches:
        look = _first_look(gram, 1e-12, window, levels)
        lost = np.where(look.pruned >= wanted, look.lost, np.inf).reshape(len(gram), -1).min(axis=1)
        branches = _all_outcomes(gram, window, levels, Limits(lost, np.full(len(gram), points - wanted)), look)
        return _best_of_each(branches, np.where(branches.pruned >= wanted, -branches.lost, -np.inf))

    return _searched(gram, search)


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


def _searched(gram: Array, search: Callable[[Array], Branches]) -> Prunings:
    """The best branch of each trajectory, some trajectories at a time."""
    best = [search(gram[at : at + TOGETHER]) for at in range(0, len(gram), TOGETHER)]
    lost = np.concatenate([branches.lost for branches in best])
    # The middle of the range is far from every residual, so that rounding elsewhere does not change the outcome.
    thresholds = np.concatenate([(np.sqrt(branches.low) + np.sqrt(branches.high)) / 2 for branches in best])
    return Prunings(np.concatenate([branches.kept for branches in best]), thresholds, lost / _total(gram))


def _first_look(gram: Array, target: float, window: int, levels: int) -> Branches:
    """A few thresholds between the one that Theorem 1 proves feasible and the largest."""
    safe = np.sqrt(target * _total(gram) / gram.shape[1])
    edges = np.exp(np.linspace(np.log(safe), np.log(largest_threshold(gram)), FIRST_LOOK, axis=1))
    return _at_thresholds(gram, edges, window, levels)


def _at_thresholds(gram: Array, thresholds: Array, window: int, levels: int) -> Branches:
    """Algorithm 2 at given thresholds (trajectories, any): ranges that hold one number each and cannot split."""
    which = np.repeat(np.arange(len(gram)), thresholds.shape[1])
    squared = thresholds.ravel() ** 2
    no_limits = Limits(np.full(len(gram), np.inf), np.full(len(gram), np.inf))
    return _sweep(gram, which, np.nextafter(squared, -1), squared, window, levels, no_limits)


def _all_outcomes(gram: Array, window: int, levels: int, limits: Limits, look: Branches) -> Branches:
    """Every outcome of Algorithm 2 within the limits, and those of the first look.

    A limit comes from an outcome of the first look; rounding must not be able to rule that one out.
    """
    each = np.arange(len(gram))
    branches = _sweep(gram, each, np.zeros(len(gram)), largest_threshold(gram) ** 2, window, levels, limits)
    return Branches(*(np.concatenate([getattr(part, f.name) for part in (branches, look)]) for f in fields(Branches)))


def _best_of_each(branches: Branches, worth: Array) -> Branches:
    """The branch of highest worth of every trajectory, of equals the one with the highest thresholds."""
    order = np.lexsort((branches.high, worth, branches.which))
    best = order[np.nonzero(np.diff(branches.which[order], append=-1))[0]]
    return Branches(*(getattr(branches, part.name)[best] for part in fields(Branches)))
