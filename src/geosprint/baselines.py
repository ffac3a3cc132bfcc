"""Schedules in closed form, which need nothing but the noise schedule and K."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from geosprint.errors import ScheduleError
from geosprint.noise import NoiseSchedule
from geosprint.schedule import StepSchedule, check_steps, log_snr_density, place, whole_steps

Array = NDArray[np.float64]


def uniform_leading(noise: NoiseSchedule, steps: int) -> Array:
    """(T // K)·i: starts low when K does not divide T. The default of diffusers' DDIM."""
    if noise.continuous:
        raise ScheduleError("uniform-leading ends at t = 0, which continuous time calls clean; use uniform-trailing")
    return (np.arange(steps)[::-1] * (int(noise.first + 1) // steps)).astype(np.float64)


def uniform_trailing(noise: NoiseSchedule, steps: int) -> Array:
    """round(T - i·T / K) - 1; in continuous time the clock at 1, 1 - 1/K, ..., 1/K."""
    if noise.continuous:
        return _continuous(noise, np.arange(steps, 0, -1) / steps)
    count = noise.first + 1
    return np.round(np.arange(count, 0, -count / steps)[:steps]) - 1  # arange rounds as diffusers' own does


def uniform_linspace(noise: NoiseSchedule, steps: int) -> Array:
    """Both trained ends and equal steps between them; a flow's smallest trained time is taken as 1/1000."""
    if noise.continuous:
        return noise.time_at(np.linspace(1, max(float(noise.clock(noise.last)), 1e-3), steps))
    return np.round(np.linspace(0, noise.first, steps))[::-1].copy()


def quadratic(noise: NoiseSchedule, steps: int) -> Array:
    """Equal steps in the square root of the clock (Song et al. 2021, Appendix D.2)."""
    if noise.continuous:
        return _continuous(noise, (np.arange(steps, 0, -1) / steps) ** 2)
    return whole_steps(noise.time_at(np.linspace(1, 0, steps) ** 2), int(noise.first))


def uniform_in_log_snr(noise: NoiseSchedule, steps: int) -> Array:
    """Equal steps in log-SNR (Lu et al. 2022): the paper's blend 0."""
    return place(log_snr_density(noise), steps, noise)


def _continuous(noise: NoiseSchedule, shares: Array) -> Array:
    """Times at these shares of the clock; squeezed together where they would go below the last trained time."""
    end = float(noise.clock(noise.last))
    return noise.time_at(shares if shares.min() >= end else end + (1 - end) * shares)


BASELINES: dict[str, Callable[[NoiseSchedule, int], Array]] = {
    "uniform-leading": uniform_leading,
    "uniform-trailing": uniform_trailing,
    "uniform-linspace": uniform_linspace,
    "quadratic": quadratic,
    "logsnr": uniform_in_log_snr,
}


def baseline_schedule(name: str, noise: NoiseSchedule, steps: int) -> StepSchedule:
    """One of the closed forms by name."""
    if name not in BASELINES:
        raise ScheduleError(f"the schedule must be one of {', '.join(BASELINES)}, got {name!r}")
    check_steps(steps, noise)
    return StepSchedule.at(BASELINES[name](noise, steps), noise, {"method": name})


def applicable_baselines(noise: NoiseSchedule) -> list[str]:
    """The closed forms that make sense for this noise schedule."""
    return [name for name in BASELINES if not (noise.continuous and name == "uniform-leading")]


def reference_timesteps(noise: NoiseSchedule, steps: int) -> Array:
    """The fine uniform grid that reference trajectories are recorded on, the first time included."""
    check_steps(steps, noise)
    return (uniform_trailing if noise.continuous else uniform_linspace)(noise, steps)
