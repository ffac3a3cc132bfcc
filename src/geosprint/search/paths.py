"""Dynamic programs: which of many points to step on, when every step between two of them has a known cost."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geosprint.errors import ScheduleError

Array = NDArray[np.float64]
Points = NDArray[np.intp]


def cheapest_path(cost: ArrayLike, steps: int, decay: float = 1.0, start_cost: ArrayLike | None = None) -> Points:
    """The points (steps,) that the cheapest path of exactly so many steps leaves on its way to the last point."""
    return cheapest_paths(cost, steps, decay, start_cost)[steps]


def cheapest_paths(
    cost: ArrayLike, most_steps: int, decay: float = 1.0, start_cost: ArrayLike | None = None
) -> dict[int, Points]:
    """The cheapest path for every number of steps up to this one, all read from one table.

    cost[i, j] is the price of a step from i to a later j. The price of going on after it counts `decay` times:
    V[i, k] = min over j of cost[i, j] + decay·V[j, k - 1]. A path begins at point 0, or, given start_cost,
    at whichever point makes start_cost[i] + V[i, k] least. Of equal paths the one with the earlier points is taken.
    """
    price = _checked(cost, most_steps)
    last = len(price) - 1
    start = np.zeros(last + 1) if start_cost is None else np.asarray(start_cost, dtype=np.float64)
    if start.shape != (last + 1,):
        raise ScheduleError(f"start_cost must have one price for each of {last + 1} points, got shape {start.shape}")
    onward = [np.full(last + 1, last)]
    to_go = price[:, last]
    paths = {}
    for k in range(1, most_steps + 1):
        if k > 1:
            totals = price + decay * to_go
            onward.append(np.argmin(totals, axis=1))
            to_go = totals.min(axis=1)
        first = 0 if start_cost is None else int(np.argmin(start + to_go))
        paths[k] = _walked(first, onward)
    return paths


def _walked(first: int, onward: list[Points]) -> Points:
    """The points left on the way, where onward[k - 1][i] is the best next point with k steps to go."""
    points = [first]
    for following in onward[:0:-1]:
        points.append(int(following[points[-1]]))
    return np.array(points, dtype=np.intp)


def _checked(cost: ArrayLike, steps: int) -> Array:
    """The costs of steps forward; all others are infinite, the way to stay included."""
    price = np.array(cost, dtype=np.float64)
    if price.ndim != 2 or price.shape[0] != price.shape[1] or len(price) < 2:
        raise ScheduleError(f"cost must be a square matrix of at least 2 points, got shape {price.shape}")
    forward = np.triu(np.ones(price.shape, dtype=bool), k=1)
    if not np.isfinite(price[forward]).all():
        raise ScheduleError("the cost of every step forward must be finite; check the recording for nan")
    if not 1 <= steps <= len(price) - 1:
        raise ScheduleError(
            f"a path over {len(price)} points has 1..{len(price) - 1} steps, got {steps}; "
            "record with more reference steps to place more"
        )
    price[~forward] = np.inf
    return price
