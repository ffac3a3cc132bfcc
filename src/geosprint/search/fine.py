"""The fine solve that stands for the truth."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from geosprint.baselines import quadratic
from geosprint.noise import NoiseSchedule
from geosprint.schedule import check_steps

FINE_SOLVER = "heun"
"""Second order: 200 calls of it are nearer to 1000 DDIM steps than 200 DDIM steps are (docs/choices.md, 29)."""


def fine_timesteps(noise: NoiseSchedule, steps: int) -> NDArray[np.float64]:
    """Where the fine solve steps: closer together at low noise, where trajectories bend."""
    check_steps(steps, noise)
    return quadratic(noise, steps)
