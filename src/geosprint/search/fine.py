"""The fine solve that stands for the truth."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from geosprint.noise import NoiseSchedule
from geosprint.schedule import check_steps, whole_steps

FINE_SOLVER = "heun"
"""Second order, and none of the solvers that fine walks are made with."""

POWER = 1.5
"""Of the clock in which steps are equal: nearer together at low noise, where trajectories bend, but less so than in the
quadratic spacing, of which 100 steps err half as much again on trained networks (docs/choices.md, 29)."""


def fine_timesteps(noise: NoiseSchedule, steps: int) -> NDArray[np.float64]:
    """Where a fine solve steps."""
    check_steps(steps, noise)
    if noise.continuous:
        end = max(float(noise.clock(noise.last)), 0.0)
        return noise.time_at(end + (1 - end) * (np.arange(steps, 0, -1) / steps) ** POWER)
    return whole_steps(noise.time_at(np.linspace(1, 0, steps) ** POWER), int(noise.first))
