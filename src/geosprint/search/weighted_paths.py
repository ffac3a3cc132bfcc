"""Steps where one-step errors, or what survives of them to the end, add up to least: dynamic programs."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from geosprint.noise import Flow
from geosprint.search.one_step import one_step_errors
from geosprint.search.paths import cheapest_path
from geosprint.trajectory import Trajectories

Array = NDArray[np.float64]

DECAY = 1.15  # of GITS by default, for 5 to 10 steps: the k-th error weighs 1.15^k, 14 times the first at 20 steps


def one_step_path(recorded: Trajectories, steps: int, decay: float) -> Array:
    """The K times of GITS (Chen et al. 2024): where ddim is Euler's method, the k-th error weighs decay^k."""
    space = "vp" if isinstance(recorded.origin.noise, Flow) else "ve"
    cost = one_step_errors(recorded, space).mean(axis=0)
    return recorded.timesteps[cheapest_path(cost, steps, decay)]


def weighted_path(recorded: Trajectories, sensitivity: Array, steps: int, power: int) -> Array:
    """The K times whose errors, each times what is left of it at the end, add up to least in this power.

    Power 1 takes errors to point the same way, power 2 to have nothing to do with each other. Starting at a later
    state than the first costs the distance between the noise and that state.
    """
    cost = (one_step_errors(recorded) * sensitivity) ** power
    start = (start_distances(recorded) * sensitivity) ** power
    path = cheapest_path(cost.mean(axis=0), steps, start_cost=start.mean(axis=0))
    return recorded.timesteps[path]


def start_distances(recorded: Trajectories) -> Array:
    """Root mean square distance of every recorded state from the noise its walk began with (walks, points)."""
    off = recorded.states - recorded.states[:, :1]
    return torch.linalg.vector_norm(off, dim=2).double().numpy() / math.sqrt(recorded.states.shape[2])
