"""SDM and SharpEuler: densities of steps that even out local errors, as recorded predictions give them."""

from __future__ import annotations

import numpy as np

from geosprint.noise import Array, Flow
from geosprint.rivals.base import Evidence
from geosprint.rivals.dynamic_programs import mean_changes, predictions_of
from geosprint.schedule import Density, curvature_density, quantile_times
from geosprint.trajectory import Trajectories

EMPHASIS = 0.1  # q of SDM, the default of the published tool
POWER = 0.5  # of SharpEuler: evens out the local error h²|a| / 2 of Euler's method
SMOOTHING = 1.0  # of SharpEuler: cells of the recorded grid, as published
NEARLY_NOTHING = 1e-200  # paths that are straight throughout can be stepped along anywhere: evenly
FLOOR = 1e-6  # of the largest density: no step where paths are straight, but an order


def error_density(recorded: Trajectories) -> Density:
    """SDM (Jo & Choi 2026): the weighted root of each grid cell's local error, over the clock.

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


def sharpness_density(recorded: Trajectories) -> Density:
    """SharpEuler (Gupta et al. 2026): |dv/dtau|^0.5 over the clock.

    The velocity is v = eps - x0, the time tau = s / (a + s), as in a flow. Divided by a + s every path is a flow's,
    and ddim is Euler's method along it: this is the acceleration whose error the solver makes. Raw
    variance-preserving paths bend even where ddim is exact.
    """
    noise, times = recorded.origin.noise, recorded.timesteps[:-1]
    x0, eps = predictions_of(recorded)
    signal, sigma = np.array([noise.signal_and_sigma(t) for t in times]).T
    spans = np.abs(np.diff(sigma / (signal + sigma)))
    sharpness = (mean_changes(eps - x0) / spans) ** POWER
    per_clock = np.maximum(sharpness * spans / np.abs(np.diff(noise.clock(times))), NEARLY_NOTHING)
    return curvature_density(per_clock, (times[:-1] + times[1:]) / 2, noise, SMOOTHING, floor=FLOOR)


def sdm(evidence: Evidence, steps: int) -> Array:
    """Jo & Choi (2026): uniform quantiles of the cumulative sqrt(h²S / 2)·(sigma_max / sigma)^q."""
    return quantile_times(error_density(evidence.recorded), steps, evidence.recorded.origin.noise)


def sharp_euler(evidence: Evidence, steps: int) -> Array:
    """Gupta et al. (2026): uniform quantiles of |dv/dt|^0.5."""
    return quantile_times(sharpness_density(evidence.recorded), steps, evidence.recorded.origin.noise)
