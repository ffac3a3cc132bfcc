"""SDM: steps that share out the root of the local error which trial Euler steps measure."""

from __future__ import annotations

from geosprint.methods.base import Array, Method, Task
from geosprint.schedule import place
from geosprint.search.local_errors import error_density


def sdm(task: Task, steps: int) -> Array:
    """Jo & Choi (2026): uniform quantiles of the cumulative sqrt(h²S / 2)·(sigma_max / sigma)^q."""
    return place(error_density(task.recorded), steps, task.model.noise)


SDM = Method("sdm", sdm, source="Jo & Choi (2026)", from_recording=True)
