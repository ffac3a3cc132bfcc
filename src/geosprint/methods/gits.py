"""GITS: the cheapest path over the recorded states, where a step costs what one step misses its recorded state by."""

from __future__ import annotations

from geosprint.methods.base import Array, Method, Task
from geosprint.search.weighted_paths import DECAY, one_step_path


def gits(task: Task, steps: int) -> Array:
    """Chen et al. (2024), on every recorded state: a finer grid offers more paths and costs no model calls."""
    return one_step_path(task.recorded, steps, DECAY)


def gits_plain(task: Task, steps: int) -> Array:
    """The same with the plain sum of errors, the other end of the published range."""
    return one_step_path(task.recorded, steps, decay=1.0)


GITS = Method("gits", gits, source="Chen et al. (2024)", from_recording=True)
GITS_PLAIN = Method("gits-plain", gits_plain, source="Chen et al. (2024), coefficient 1", from_recording=True)
