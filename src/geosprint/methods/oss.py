"""OSS: a dynamic program that asks the model at the student's own states, image by image."""

from __future__ import annotations

from functools import partial

from geosprint.methods.base import Array, Method, Task
from geosprint.models.base import predict
from geosprint.search.student_paths import student_path

IMAGES = 16  # the median over them settles; 12 thousand network calls for 20 steps


def oss(task: Task, steps: int) -> Array:
    """Pei et al. (2025): the median over images of each step's time on that image's best path."""
    model, recorded = task.model, task.recorded
    teachers = recorded.states[:IMAGES].unflatten(2, model.shape).to(model.device)
    return student_path(
        partial(predict, model), model.noise, teachers.split(task.recording.batch), recorded.timesteps, steps
    )


OSS = Method("oss", oss, source="Pei et al. (2025)", from_recording=True)
