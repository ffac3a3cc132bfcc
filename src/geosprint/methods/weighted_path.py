"""Our own dynamic program: errors of single steps, weighed by what is left of them at the end."""

from __future__ import annotations

from geosprint.methods.base import Array, Method, Task
from geosprint.models.base import predict
from geosprint.search.sensitivity import WALKS, sensitivities
from geosprint.search.weighted_paths import weighted_path as path_of


def weighted_path(task: Task, steps: int) -> Array:
    """The cheapest path with a free start, over squared errors: they hardly point the same way."""
    recorded = task.recorded
    model = task.model.for_samples(range(min(WALKS, len(recorded.states))))
    gap = max(round((len(recorded.timesteps) - 1) / steps), 1)
    left = sensitivities(recorded, lambda x, t: predict(model, x, t), model.noise, gap)
    return path_of(recorded, left, steps, power=2)


WEIGHTED_PATH = Method("weighted-path", weighted_path, source="this package", from_recording=True)
