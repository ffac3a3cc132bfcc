"""GITS: the cheapest path over the recorded states, where a step costs what one step misses its recorded state by."""

from __future__ import annotations

from geosprint.methods.base import Array, Method, Task
from geosprint.noise import Flow
from geosprint.search.one_step import one_step_errors
from geosprint.search.paths import cheapest_path

DECAY = 1.15  # the published default, for 5 to 10 steps: the k-th error weighs 1.15^k, 14 times the first at 20 steps


def gits(task: Task, steps: int) -> Array:
    """Chen et al. (2024), on every recorded state: a finer grid offers more paths and costs no model calls."""
    return _on_the_cheapest_path(task, steps, DECAY)


def gits_plain(task: Task, steps: int) -> Array:
    """The same with the plain sum of errors, the other end of the published range."""
    return _on_the_cheapest_path(task, steps, decay=1.0)


def _on_the_cheapest_path(task: Task, steps: int, decay: float) -> Array:
    space = "vp" if isinstance(task.model.noise, Flow) else "ve"
    cost = one_step_errors(task.recorded, space).mean(axis=0)
    return task.recorded.timesteps[cheapest_path(cost, steps, decay)]


GITS = Method("gits", gits, source="Chen et al. (2024)", from_recording=True)
GITS_PLAIN = Method("gits-plain", gits_plain, source="Chen et al. (2024), coefficient 1", from_recording=True)
