"""How far one solver step from any recorded state lands from the recorded state at its end."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geosprint.errors import GeometryError
from geosprint.trajectory import Trajectories

Array = NDArray[np.float64]


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
    """The recorded x0 and eps of raw states, or an error that says how to get them."""
    if recorded.x0 is None or recorded.eps is None:
        raise GeometryError("solver steps need recorded predictions: record with predictions=True")
    if recorded.space != "vp" or recorded.normalisation != "none":
        raise GeometryError(
            f"solver steps need states as recorded, got {recorded.normalisation}-normalised {recorded.space} ones"
        )
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
