"""The threshold tau of each trajectory: prune as much as a target score, or a target share, allows.

The score is not monotone in tau, so bisection alone can miss the best. The searches here see every
outcome of Algorithm 2 or rule it out (see `lanes`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from geosprint.errors import GeometryError
from geosprint.lanes import Lanes, Limits, run_lanes

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

FIRST_LOOK = 8
"""Thresholds per trajectory that are tried first: the best of them rules most lanes out early."""

TOGETHER = 128
"""Trajectories whose lanes walk together: enough to hide Python's overhead, few enough for the cache."""


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
    lanes = _at_thresholds(gram, thresholds[:, None], window, levels)
    return Prunings(lanes.kept, thresholds, lanes.lost / _total(gram))


def most_pruned_below_score(gram: Array, target: float, window: int = 2, levels: int = 1) -> Prunings:
    """Section 3.1: of all prunings whose score is at most the target, the one that removes most.

    Of several that remove as many, the one at the highest threshold, which is where bisection ends.
    """
    _check(gram, window, levels)
    _check_target(target)

    def race(gram: Array) -> Lanes:
        most_lost = target * _total(gram)
        look = _first_look(gram, target, window, levels)
        kept = np.where(look.lost <= most_lost[look.which], look.kept.sum(axis=1), gram.shape[1])
        fewest = kept.reshape(len(gram), -1).min(axis=1).astype(np.float64)
        lanes = _all_outcomes(gram, window, levels, Limits(most_lost, fewest), look)
        return _best_of_each(lanes, np.where(lanes.lost <= most_lost[lanes.which], lanes.pruned, -np.inf))

    return _raced(gram, race)


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

    def race(gram: Array) -> Lanes:
        look = _first_look(gram, 1e-12, window, levels)
        lost = np.where(look.pruned >= wanted, look.lost, np.inf).reshape(len(gram), -1).min(axis=1)
        lanes = _all_outcomes(gram, window, levels, Limits(lost, np.full(len(gram), points - wanted)), look)
        return _best_of_each(lanes, np.where(lanes.pruned >= wanted, -lanes.lost, -np.inf))

    return _raced(gram, race)


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
        lanes = _at_thresholds(gram, middles, window, levels)
        feasible = (lanes.lost <= most_lost[lanes.which]).reshape(len(gram), 31)
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


def _raced(gram: Array, race: Callable[[Array], Lanes]) -> Prunings:
    """Each trajectory's winner, some trajectories at a time."""
    winners = [race(gram[at : at + TOGETHER]) for at in range(0, len(gram), TOGETHER)]
    lost = np.concatenate([lanes.lost for lanes in winners])
    # The middle of the range is far from every residual, so that rounding elsewhere does not change the outcome.
    thresholds = np.concatenate([(np.sqrt(lanes.low) + np.sqrt(lanes.high)) / 2 for lanes in winners])
    return Prunings(np.concatenate([lanes.kept for lanes in winners]), thresholds, lost / _total(gram))


def _first_look(gram: Array, target: float, window: int, levels: int) -> Lanes:
    """A few thresholds between the one that Theorem 1 proves feasible and the largest."""
    safe = np.sqrt(target * _total(gram) / gram.shape[1])
    edges = np.exp(np.linspace(np.log(safe), np.log(largest_threshold(gram)), FIRST_LOOK, axis=1))
    return _at_thresholds(gram, edges, window, levels)


def _at_thresholds(gram: Array, thresholds: Array, window: int, levels: int) -> Lanes:
    """Algorithm 2 at given thresholds (trajectories, any): ranges that hold one number each and cannot split."""
    which = np.repeat(np.arange(len(gram)), thresholds.shape[1])
    squared = thresholds.ravel() ** 2
    no_limits = Limits(np.full(len(gram), np.inf), np.full(len(gram), np.inf))
    return run_lanes(gram, which, np.nextafter(squared, -1), squared, window, levels, no_limits)


def _all_outcomes(gram: Array, window: int, levels: int, limits: Limits, look: Lanes) -> Lanes:
    """Every outcome of Algorithm 2 within the limits, and those of the first look.

    A limit comes from an outcome of the first look; rounding must not be able to rule that one out.
    """
    each = np.arange(len(gram))
    lanes = run_lanes(gram, each, np.zeros(len(gram)), largest_threshold(gram) ** 2, window, levels, limits)
    return Lanes(*(np.concatenate([getattr(part, f.name) for part in (lanes, look)]) for f in fields(Lanes)))


def _best_of_each(lanes: Lanes, worth: Array) -> Lanes:
    """The lane of highest worth of every trajectory, of equals the one with the highest thresholds."""
    order = np.lexsort((lanes.high, worth, lanes.which))
    best = order[np.nonzero(np.diff(lanes.which[order], append=-1))[0]]
    return Lanes(lanes.which[best], lanes.low[best], lanes.high[best], lanes.kept[best], lanes.lost[best])
