"""The paper's own schedule: steps at quantiles of the blended curvature density."""

from __future__ import annotations

from geosprint.rivals.base import Array, Method, Task
from geosprint.schedule import build_schedule


def geosprint(task: Task, steps: int) -> Array:
    """Algorithm 1, in which the forced first points of a trajectory tell nothing."""
    return build_schedule(task.profile, steps).timesteps


def geosprint_literal(task: Task, steps: int) -> Array:
    """Algorithm 1 to the letter: the forced first points count as retained."""
    return build_schedule(task.profile, steps, literal=True).timesteps


GEOSPRINT = Method("geosprint", geosprint, source="the paper", from_recording=True)
GEOSPRINT_LITERAL = Method("geosprint-literal", geosprint_literal, source="the paper", from_recording=True)
