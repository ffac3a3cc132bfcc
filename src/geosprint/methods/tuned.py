"""What `geosprint tune` returns, within its usual budget."""

from __future__ import annotations

from geosprint.methods.base import Array, Method, Task
from geosprint.tuning.run import prepared, tuned_schedule


def tuned(task: Task, steps: int) -> Array:
    """The tuned schedule for the task's solver, or the closed form that it did not beat."""
    ground = prepared(task.model, task.recording.fine, task.solver, batch=task.recording.batch)
    return tuned_schedule(ground, steps).schedule.timesteps


TUNED = Method(
    "tuned",
    tuned,
    source="this package",
    from_fine_walks=True,
    for_solver=True,
    applies=lambda task: task.solver != "ddpm",
)
