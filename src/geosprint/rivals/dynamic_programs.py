"""Which recorded points to step on, when a step between two of them has a known cost: dynamic programs."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from geosprint.errors import GeometryError, ScheduleError
from geosprint.noise import Array
from geosprint.trajectory import Trajectories

Points = NDArray[np.intp]


def cheapest_path(cost: ArrayLike, steps: int, decay: float = 1.0, start_cost: ArrayLike | None = None) -> Points:
    """The points (steps,) that the cheapest path of exactly so many steps leaves on its way to the last point.

    cost[i, j] is the price of a step from i to a later j. The price of going on after it counts `decay` times:
    V[i, k] = min over j of cost[i, j] + decay·V[j, k - 1]. A path begins at point 0, or, given start_cost,
    at whichever point makes start_cost[i] + V[i, k] least. Of equal paths the one with the earlier points is taken.
    """
    price = _checked(cost, steps)
    last = len(price) - 1
    start = np.zeros(last + 1) if start_cost is None else np.asarray(start_cost, dtype=np.float64)
    if start.shape != (last + 1,):
        raise ScheduleError(f"start_cost must have one price for each of {last + 1} points, got shape {start.shape}")
    to_go, onward = price[:, last], list[Points]()  # onward[k - 2][i]: the best next point with k steps to go
    for _ in range(1, steps):
        totals = price + decay * to_go
        onward.append(np.argmin(totals, axis=1))
        to_go = totals.min(axis=1)
    points = [0 if start_cost is None else int(np.argmin(start + to_go))]
    for following in reversed(onward):
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


def one_step_errors(recorded: Trajectories, space: str = "vp") -> Array:
    """Root mean square error of one ddim (Euler) step from state i to the time of a later state j.

    (trajectories, N+1, N+1), zero for j <= i. The states are compared as recorded ("vp", a flow's own), or divided
    by their signal ("ve"), in which ddim is Euler's method.
    """
    x0, eps = predictions_of(recorded)
    if space not in ("vp", "ve"):
        raise GeometryError(f"steps are compared in the space vp or ve, got {space!r}")
    levels = [recorded.origin.noise.signal_and_sigma(t) for t in recorded.timesteps]
    signal, sigma = np.array(levels).T
    # No step lands on the first state, which may hold no signal to divide by.
    scale = np.append(1.0, signal[1:]) if space == "ve" else np.ones(len(signal))
    errors = np.zeros((len(recorded.states), len(signal), len(signal)))
    for b in range(len(errors)):
        squares = _squared_distances(recorded.states[b], x0[b], eps[b], signal, sigma)
        errors[b, :-1] = np.sqrt(squares / math.prod(recorded.origin.shape)) / scale
    return np.triu(errors, k=1)


def predictions_of(recorded: Trajectories) -> tuple[Tensor, Tensor]:
    """The recorded x0 and eps, or an error that says how to get them."""
    if recorded.x0 is None or recorded.eps is None:
        raise GeometryError("solver steps need recorded predictions: record with predictions=True")
    return recorded.x0, recorded.eps


def mean_changes(vectors: Tensor) -> Array:
    """How far (trajectories, points, dimensions) vectors move from one point to the next, in the mean (points - 1,)."""
    return np.mean([torch.linalg.vector_norm(one.double().diff(dim=0), dim=1).numpy() for one in vectors], axis=0)


def _squared_distances(states: Tensor, x0: Tensor, eps: Tensor, signal: Array, sigma: Array) -> Array:
    """|a_j·x0_i + s_j·eps_i - z_j|² for all i and j (N, N+1), from inner products.

    Everything is told relative to the straight path between the ends' x0 and eps, which any step along it meets
    exactly: what is left to cancel in the sums is small.
    """
    z, x, e = (part.double().numpy() for part in (states, x0, eps))
    clean, noise = z[-1], e[0]
    z = z - signal[:, None] * clean - sigma[:, None] * noise
    x, e = x - clean, e - noise
    squares = signal**2 * _dots(x, x)[:, None] + sigma**2 * _dots(e, e)[:, None] + _dots(z, z)
    crossed = signal * sigma * _dots(x, e)[:, None] - signal * (x @ z.T) - sigma * (e @ z.T)
    return np.maximum(squares + 2 * crossed, 0.0)


def _dots(one: Array, other: Array) -> Array:
    return np.einsum("id,id->i", one, other)
