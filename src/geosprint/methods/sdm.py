"""SDM: steps that share out the root of the local error which trial Euler steps measure."""

from __future__ import annotations

import numpy as np

from geosprint.methods.base import Array, Method, Task
from geosprint.noise import Flow
from geosprint.schedule import Density, curvature_density, place
from geosprint.search.one_step import mean_changes, predictions_of
from geosprint.trajectory import Trajectories

EMPHASIS = 0.1  # q, the default of the published tool
NEARLY_NOTHING = 1e-200  # paths that are straight throughout can be stepped along anywhere: evenly
FLOOR = 1e-6  # of the largest density: no step where paths are straight, but an order


def sdm(task: Task, steps: int) -> Array:
    """Jo & Choi (2026): uniform quantiles of the cumulative sqrt(h²S / 2)·(sigma_max / sigma)^q."""
    return place(error_density(task.recorded), steps, task.model.noise)


def error_density(recorded: Trajectories) -> Density:
    """The weighted root of each grid cell's local error, over the clock.

    The slope d of the ODE is eps in sigma = s / a, or eps - x0 in a flow's own sigma. A trial Euler step along it
    is a ddim step, which is how the recording went on to its next state: the slope d' there is on record, and
    asking the model again would give the same.
    """
    noise, times = recorded.origin.noise, recorded.timesteps[:-1]
    x0, eps = predictions_of(recorded)
    slope = eps - x0 if isinstance(noise, Flow) else eps
    sigma = noise.sigma(times)
    h = np.abs(np.diff(sigma))
    error = h**2 * (mean_changes(slope) / h) / 2
    length = np.sqrt(error) * (sigma[0] / sigma[1:]) ** EMPHASIS
    per_clock = np.maximum(length / np.abs(np.diff(noise.clock(times))), NEARLY_NOTHING)
    return curvature_density(per_clock, (times[:-1] + times[1:]) / 2, noise, smoothing=0, floor=FLOOR)


SDM = Method("sdm", sdm, source="Jo & Choi (2026)", from_recording=True)
