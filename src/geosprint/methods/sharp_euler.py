"""SharpEuler: steps where the velocity along recorded paths changes fastest."""

from __future__ import annotations

import numpy as np

from geosprint.methods.base import Array, Method, Task
from geosprint.noise import NoiseSchedule
from geosprint.schedule import Density, curvature_density, place
from geosprint.search.one_step import mean_changes, predictions_of
from geosprint.trajectory import Trajectories

POWER = 0.5  # evens out the local error h²|a| / 2 of Euler's method
SMOOTHING = 1.0  # cells of the recorded grid, as published
NEARLY_NOTHING = 1e-200  # paths that are straight throughout can be stepped along anywhere: evenly
FLOOR = 1e-6  # of the largest density: no step where paths are straight, but an order


def sharp_euler(task: Task, steps: int) -> Array:
    """Gupta et al. (2026): uniform quantiles of |dv/dt|^0.5."""
    return place(sharpness_density(task.recorded), steps, task.model.noise)


def sharpness_density(recorded: Trajectories) -> Density:
    """|dv/dtau|^0.5 over the clock, from the velocity v = eps - x0 and the time tau = s / (a + s) of a flow.

    Divided by a + s every path is a flow's, and ddim is Euler's method along it: this is the acceleration
    whose error the solver makes. Raw variance-preserving paths bend even where ddim is exact.
    """
    noise, times = recorded.origin.noise, recorded.timesteps[:-1]
    x0, eps = predictions_of(recorded)
    spans = np.abs(np.diff(_flow_times(noise, times)))
    sharpness = (mean_changes(eps - x0) / spans) ** POWER
    per_clock = np.maximum(sharpness * spans / np.abs(np.diff(noise.clock(times))), NEARLY_NOTHING)
    return curvature_density(per_clock, (times[:-1] + times[1:]) / 2, noise, SMOOTHING, floor=FLOOR)


def _flow_times(noise: NoiseSchedule, times: Array) -> Array:
    signal, sigma = np.array([noise.signal_and_sigma(t) for t in times]).T
    return sigma / (signal + sigma)


SHARP_EULER = Method("sharp-euler", sharp_euler, source="Gupta et al. (2026)", from_recording=True)
