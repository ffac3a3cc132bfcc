"""SharpEuler: steps where the velocity along recorded paths changes fastest."""

from __future__ import annotations

from geosprint.methods.base import Array, Method, Task
from geosprint.schedule import place
from geosprint.search.local_errors import sharpness_density


def sharp_euler(task: Task, steps: int) -> Array:
    """Gupta et al. (2026): uniform quantiles of |dv/dt|^0.5."""
    return place(sharpness_density(task.recorded), steps, task.model.noise)


SHARP_EULER = Method("sharp-euler", sharp_euler, source="Gupta et al. (2026)", from_recording=True)
