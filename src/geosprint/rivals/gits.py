"""GITS: the cheapest path over the recorded states, where a step costs what one step misses its recorded state by."""

from __future__ import annotations

from geosprint.noise import Array, Flow
from geosprint.rivals.base import Evidence
from geosprint.rivals.dynamic_programs import cheapest_path, one_step_errors
from geosprint.trajectory import Trajectories

DECAY = 1.15  # of GITS by default, for 5 to 10 steps: the k-th error weighs 1.15^k, 14 times the first at 20 steps


def gits(evidence: Evidence, steps: int, decay: float = DECAY) -> Array:
    """Chen et al. (2024), on every recorded state: a finer grid offers more paths and costs no model calls.

    With a decay of 1, the other end of the published range, errors count alike.
    """
    return one_step_path(evidence.recorded, steps, decay)


def one_step_path(recorded: Trajectories, steps: int, decay: float, space: str | None = None) -> Array:
    """The K times of GITS (Chen et al. 2024): where ddim is Euler's method, the k-th error weighs decay^k."""
    space = space or ("vp" if isinstance(recorded.origin.noise, Flow) else "ve")
    cost = one_step_errors(recorded, space).mean(axis=0)
    return recorded.timesteps[cheapest_path(cost, steps, decay)]
