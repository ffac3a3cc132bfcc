"""Algorithm 2 for many trajectories and all thresholds at once.

Residuals depend on inner products only, so everything here runs on the (N+1)² Gram matrix of each
trajectory. A *lane* is one trajectory and a range of thresholds for which Algorithm 2 has so far
decided alike; all lanes walk along their trajectories together. Where a residual falls inside a
lane's range, the lane splits: for the thresholds up to it the point is kept, for those above it is
pruned. Lanes beyond given limits are dropped. What is left at the end is every outcome within them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

RANK_TOLERANCE = 1e-5
"""A direction whose new part is shorter than this share of the longest one is dropped.

Inner products hold the square of it, so float64 tells nothing shorter apart from rounding. From windows of
four on, neighbouring steps of a fine smooth trajectory come near this, and `geometry.prune` sees finer.
"""

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]
Point = Indices | np.intp  # the same for all lanes, or each lane's own

_Moment = tuple[Point, Indices | None, Mask]
"""One step of all lanes: the point, each lane's parent before it (None: itself), and whether it kept the point."""


@dataclass(frozen=True)
class Lanes:
    """What Algorithm 2 does for every tau² in low < tau² <= high."""

    which: Indices  # (lanes,) trajectory
    low: Array  # (lanes,)
    high: Array  # (lanes,)
    kept: Mask  # (lanes, points)
    lost: Array  # (lanes,) sum of squared residuals of pruned points

    @property
    def pruned(self) -> Indices:
        """How many points each lane prunes."""
        return self.kept.shape[1] - self.kept.sum(axis=1)


@dataclass(frozen=True)
class Limits:
    """What a lane of each trajectory may at most lose and keep to stay in the race."""

    lost: Array  # (trajectories,)
    kept: Array  # (trajectories,)


def run_lanes(gram: Array, which: Indices, low: Array, high: Array, window: int, levels: int, limits: Limits) -> Lanes:
    """Algorithm 2, or its hierarchy of levels, for these trajectories and ranges of tau²."""
    kept = np.ones((len(which), gram.shape[1]), dtype=bool)
    lanes = Lanes(which, low, high, kept, np.zeros(len(which)))
    keep_at_will = Limits(limits.lost, np.full(len(gram), np.inf))  # a later level may still prune it
    for level in range(1, levels + 1):
        lanes = _one_level(gram, lanes, window + level - 1, limits if level == levels else keep_at_will)
    return lanes


def _one_level(gram: Array, start: Lanes, window: int, limits: Limits) -> Lanes:
    """One run of Algorithm 2 over the points that the level before kept."""
    points, flat = gram.shape[1], gram.reshape(-1)
    survivors = start.kept.sum(axis=1)
    all_alike = bool(start.kept.all())
    if all_alike:
        order = np.broadcast_to(np.arange(points)[:, None], start.kept.T.shape)  # (points, lanes)
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
        above = front.chosen(split)  # the thresholds of split lanes that prune the point
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
        if len(chosen) < 0.9 * len(keeps):  # dropping lanes means copying the others: not for a few
            front, keeps = front.chosen(chosen), keeps[chosen]
            parents = chosen if parents is None else parents[chosen]
        history.append((i, parents, keeps))
    chosen = front.within(limits)
    front = front.chosen(chosen)
    return Lanes(front.which, front.low, front.high, _kept(start, front.origin, chosen, history), front.lost)


def _kept(start: Lanes, origin: Indices, lanes: Indices, history: list[_Moment]) -> Mask:
    """What these lanes kept, by going back from each to its parents."""
    kept = start.kept[origin]
    lane, ancestor = np.arange(len(kept)), lanes
    for i, parents, keeps in reversed(history):
        kept_it = keeps[ancestor]
        ancestor = ancestor if parents is None else parents[ancestor]
        point = i[ancestor] if isinstance(i, np.ndarray) else i
        kept[lane, point] &= kept_it
    return kept


@dataclass
class _Front:
    """Where all lanes stand: their windows, and what they have lost and kept so far."""

    origin: Indices  # (lanes,) the lane it began as
    which: Indices  # (lanes,) trajectory
    base: Indices  # (lanes,) where that trajectory's Gram matrix begins
    low: Array  # (lanes,) of tau²
    high: Array  # (lanes,)
    lost: Array  # (lanes,)
    count: Indices  # (lanes,) points kept
    shortest: Array  # (lanes,) squared length below which a direction is rounding only
    corners: Indices  # (window, lanes) the last kept points, oldest first
    products: Array  # (window, window, lanes) of the corners; the upper triangle is kept up to date
    inverse: Array  # (window - 1, window - 1, lanes) of the Gram matrix of the directions from the oldest corner

    @classmethod
    def of(cls, gram: Array, start: Lanes, corners: Indices) -> _Front:
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
        """First in, first out: where point i stays, it takes the last place and the oldest corner falls out."""
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
        """The lanes that are still in the race."""
        return np.nonzero((self.lost <= limits.lost[self.which]) & (self.count <= limits.kept[self.which]))[0]

    def chosen(self, lanes: Indices) -> _Front:
        """Some of the lanes, as copies."""
        return _Front(*(np.take(getattr(self, part.name), lanes, axis=-1) for part in fields(self)))

    def joined(self, other: _Front) -> _Front:
        """Both groups of lanes."""
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
    """Gram-Schmidt as in `geometry`, expressed in inner products.

    Row j of `combined` holds the coefficients of orthonormal vector j in terms of the directions.
    """
    size, lanes = len(upper), upper.shape[-1]
    full = np.where(np.arange(size)[:, None, None] <= np.arange(size)[None, :, None], upper, np.swapaxes(upper, 0, 1))
    floor = np.maximum(RANK_TOLERANCE**2 * full[np.arange(size), np.arange(size)].max(axis=0), shortest)
    combined = np.zeros((size, size, lanes))
    for j in range(size):
        new = np.zeros((size, lanes))
        new[j] = 1
        for _ in range(2):
            along = np.einsum("kal,abl,bl->kl", combined[:j], full, new)
            new -= np.einsum("kl,kal->al", along, combined[:j])
        length = np.einsum("al,abl,bl->l", new, full, new)
        long_enough = length > floor
        combined[j] = new * np.where(long_enough, 1 / np.sqrt(np.where(long_enough, length, 1)), 0)
    return np.einsum("kil,kjl->ijl", combined, combined)
