"""Algorithm 2 tried at every threshold that can make a difference."""

from __future__ import annotations

import numpy as np


def outcomes(states):
    """(score, kept) of every pruning with a window of two, of states normalised over time."""
    points = states - states.mean(axis=0)
    points = points / points.std(axis=0)
    total = (points**2).sum()
    distances = {}
    count = len(points)
    for a in range(count):
        for b in range(a + 1, count):
            way = (points[b] - points[a]) / np.linalg.norm(points[b] - points[a])
            offsets = points[b + 1 :] - points[a]
            off = np.linalg.norm(offsets - np.outer(offsets @ way, way), axis=1)
            distances |= {(a, b, b + 1 + i): float(r) for i, r in enumerate(off)}
    levels = np.unique(list(distances.values()))
    for threshold in [*(levels[:-1] + levels[1:]) / 2, 2 * levels[-1]]:
        a, b, kept, lost = 0, 1, np.ones(count, dtype=bool), 0.0
        for i in range(2, count):
            r = distances[a, b, i]
            if r < threshold:
                kept[i], lost = False, lost + r**2
            else:
                a, b = b, i
        yield lost / total, kept


def least_score(states, share):
    """The lowest score of all prunings that remove at least this share."""
    return min(score for score, kept in outcomes(states) if (~kept).mean() >= share)


def most_pruned(states, target):
    """The largest share of points that can go at a score of at most the target."""
    return max((~kept).mean() for score, kept in outcomes(states) if score <= target)
