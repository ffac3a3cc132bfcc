"""Thresholds found the slow way: try all of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from references.geometry import kept_mask, projection_score, prune, prune_levels, residual

Array = NDArray[np.float64]
Residuals = dict[tuple[int, ...], float]


@dataclass(frozen=True)
class Outcome:
    """What Algorithm 2 does at one threshold."""

    threshold: float
    kept: NDArray[np.bool_]  # (points,)
    score: float

    @property
    def pruned(self) -> int:
        return int((~self.kept).sum())


def every_outcome(points: Array, window: int = 2, levels: int = 1) -> list[Outcome]:
    """Algorithm 2 (or the hierarchy of levels) at every threshold that can make a difference, from low to high.

    A threshold matters only by which residuals lie below it, and every residual is that of a point to some
    window of earlier points: so one threshold between any two neighbours of all those residuals is enough.
    """
    windows = range(2, levels + 2) if levels > 1 else [window]
    table = {
        chosen: residual(points[list(chosen[:-1])], points[chosen[-1]])
        for size in windows
        for chosen in combinations(range(len(points)), size + 1)
    }
    edges = np.array([0.0, *sorted(table.values()), 2 * max(table.values())])
    outcomes = []
    for threshold in (edges[:-1] + edges[1:]) / 2:
        pruned = _prune_by_table(table, len(points), list(windows), threshold)
        outcomes.append(Outcome(threshold, kept_mask(pruned, len(points)), projection_score(pruned, points)))
    return outcomes


def most_pruned_below(outcomes: list[Outcome], target: float) -> Outcome:
    """The feasible outcome that removes most; of equals, the one at the highest threshold."""
    feasible = [outcome for outcome in outcomes if outcome.score <= target]
    return max(feasible, key=lambda outcome: (outcome.pruned, outcome.threshold))


def least_score_above(outcomes: list[Outcome], share: float) -> Outcome:
    """The outcome of the lowest score among those that remove at least this share."""
    enough = [outcome for outcome in outcomes if outcome.pruned >= share * len(outcome.kept) - 1e-9]
    return min(enough, key=lambda outcome: outcome.score)


def bisected(points: Array, target: float, window: int = 2, levels: int = 1) -> Outcome:
    """Algorithm 1's binary search: 30 halvings, one after another."""
    low = 0.0
    high = 2 * max(np.linalg.norm(points - points.mean(axis=0), axis=1))
    for _ in range(30):
        middle = (low + high) / 2
        if outcome_at(points, middle, window, levels).score <= target:
            low = middle
        else:
            high = middle
    return outcome_at(points, low, window, levels)


def outcome_at(points: Array, threshold: float, window: int = 2, levels: int = 1) -> Outcome:
    """Algorithm 2 (or the hierarchy of levels) at one threshold."""
    pruned = prune_levels(points, levels, threshold) if levels > 1 else prune(points, window, threshold)
    return Outcome(threshold, kept_mask(pruned, len(points)), projection_score(pruned, points))


def _prune_by_table(table: Residuals, points: int, windows: list[int], threshold: float) -> dict[int, float]:
    """One run of Algorithm 2 per window, each on the survivors of the last."""
    pruned: dict[int, float] = {}
    for window in windows:
        survivors = [i for i in range(points) if i not in pruned]
        last_kept = survivors[:window]
        for i in survivors[window:]:
            r = table[(*last_kept, i)]
            if r < threshold:
                pruned[i] = r
            else:
                last_kept = [*last_kept[1:], i]
    return pruned
