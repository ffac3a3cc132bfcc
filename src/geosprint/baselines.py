"""Schedules in closed form, which need nothing but the noise schedule and K."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from geosprint.errors import ScheduleError
from geosprint.noise import Array, DiscreteVP, Flow, NoiseSchedule
from geosprint.schedule import Density, StepSchedule, check_steps, known_times, log_snr_density, quantile_times

RHO = 7  # Karras et al. (2022), Eq. 5
BETA = 0.6  # Lee et al. (2024): both shape parameters of the distribution
AYS_SD15 = (999, 850, 736, 645, 545, 455, 343, 233, 124, 24, 0)  # timesteps; the eleventh stands for the clean end
AYS_SDXL = (999, 845, 730, 587, 443, 310, 193, 116, 53, 13, 0)
STRETCHES = (0.9, 0.8, 0.7, 0.6)  # of all time that a closed form spans: few steps may do better to begin late
AYS_SVD = (700, 54.5, 15.886, 7.977, 4.248, 1.789, 0.981, 0.403, 0.173, 0.034, 0.002)  # sigmas


def uniform_leading(noise: NoiseSchedule, steps: int) -> Array:
    """(T // K)·i: starts low when K does not divide T. The default of diffusers' DDIM."""
    return (np.arange(steps)[::-1] * (int(noise.first + 1) // steps)).astype(np.float64)


def uniform_trailing(noise: NoiseSchedule, steps: int) -> Array:
    """round(T - i·T / K) - 1; in continuous time the clock at 1, 1 - 1/K, ..., 1/K."""
    if noise.continuous:
        return _at_shares(noise, np.arange(steps, 0, -1) / steps)
    count = noise.first + 1
    return np.round(np.arange(count, 0, -count / steps)[:steps]) - 1  # arange rounds as diffusers' own does


def uniform_linspace(noise: NoiseSchedule, steps: int) -> Array:
    """Both trained ends and equal steps between them."""
    if noise.continuous:
        return noise.time_at(np.linspace(1, float(noise.clock(smallest_time(noise))), steps))
    return np.round(np.linspace(0, noise.first, steps))[::-1].copy()


def quadratic(noise: NoiseSchedule, steps: int) -> Array:
    """Equal steps in the square root of the clock (Song et al. 2021, Appendix D.2)."""
    if noise.continuous:
        return _at_shares(noise, (np.arange(steps, 0, -1) / steps) ** 2)
    return _at_shares(noise, np.linspace(1, 0, steps) ** 2)


def uniform_in_log_snr(noise: NoiseSchedule, steps: int) -> Array:
    """Equal steps in log-SNR (Lu et al. 2022): the paper's blend 0."""
    return quantile_times(log_snr_density(noise), steps, noise)


def karras(noise: NoiseSchedule, steps: int) -> Array:
    """Equal steps in the seventh root of sigma (Karras et al. 2022, Eq. 5)."""
    return _between_sigmas(noise, steps, lambda sigma: sigma ** (1 / RHO), lambda root: root**RHO)


def kl_optimal(noise: NoiseSchedule, steps: int) -> Array:
    """Equal steps in the arc tangent of sigma: optimal for Gaussian data (Sabour et al. 2024, Theorem 3.1)."""
    return _between_sigmas(noise, steps, np.arctan, np.tan)


def beta(noise: NoiseSchedule, steps: int) -> Array:
    """Quantiles of Beta(0.6, 0.6) over the clock at 1, 1 - 1/K, ..., 1/K (Lee et al. 2024), the way ComfyUI does."""
    return _at_shares(noise, beta_quantiles(np.arange(steps, 0, -1) / steps))


def align_your_steps(noise: NoiseSchedule, steps: int, sigmas: ArrayLike) -> Array:
    """Sabour et al. (2024): ten steps and the clean end become K steps and the clean end, linearly in log sigma."""
    known = np.log(np.maximum(sigmas, noise.sigma(smallest_time(noise))))
    stretched = np.interp(np.linspace(0, 1, steps + 1), np.linspace(0, 1, len(known)), known)
    return _at_sigmas(np.exp(stretched[:-1]), noise)


@dataclass(frozen=True)
class Baseline:
    """A closed form, and which noise schedules it was made for."""

    name: str
    times: Callable[[NoiseSchedule, int], Array]  # K strictly falling times that the model knows
    applies: Callable[[NoiseSchedule], bool] = lambda noise: True
    needs: str = ""  # what to say where it does not apply

    def __call__(self, noise: NoiseSchedule, steps: int) -> Array:
        if not self.applies(noise):
            raise ScheduleError(f"{self.name} needs {self.needs}")
        return self.times(noise, steps)


def _aligned_at(timesteps: ArrayLike) -> Callable[[NoiseSchedule, int], Array]:
    return lambda noise, steps: align_your_steps(noise, steps, noise.sigma(timesteps))


def _is_stable_diffusion(noise: NoiseSchedule) -> bool:
    return noise.same_as(DiscreteVP.named("scaled_linear"))


def _reaches_stable_video(noise: NoiseSchedule) -> bool:
    """Whether the model knows all ten sigmas, as far as tables are exact; a flow's sigma means another thing."""
    largest, smallest = noise.sigma(noise.first), noise.sigma(smallest_time(noise))
    return not isinstance(noise, Flow) and bool(largest > 0.999 * AYS_SVD[0] and smallest < AYS_SVD[-2])


_STABLE_DIFFUSION = "Stable Diffusion's own noise schedule: scaled_linear from 0.00085 to 0.012 over 1000 timesteps"
_STABLE_VIDEO = f"a variance preserving noise schedule whose sigma reaches from {AYS_SVD[0]} to below {AYS_SVD[-2]}"
_WHOLE_STEPS = "whole timesteps: it ends at t = 0, which continuous time calls clean; use uniform-trailing"

BASELINES: dict[str, Baseline] = {
    baseline.name: baseline
    for baseline in (
        Baseline("uniform-leading", uniform_leading, lambda noise: not noise.continuous, _WHOLE_STEPS),
        Baseline("uniform-trailing", uniform_trailing),
        Baseline("uniform-linspace", uniform_linspace),
        Baseline("quadratic", quadratic),
        Baseline("logsnr", uniform_in_log_snr),
        Baseline("karras", karras),
        Baseline("beta", beta),
        Baseline("kl-optimal", kl_optimal),
        Baseline("ays-sd15", _aligned_at(AYS_SD15), _is_stable_diffusion, _STABLE_DIFFUSION),
        Baseline("ays-sdxl", _aligned_at(AYS_SDXL), _is_stable_diffusion, _STABLE_DIFFUSION),
        Baseline("ays-svd", partial(align_your_steps, sigmas=AYS_SVD), _reaches_stable_video, _STABLE_VIDEO),
    )
}


def baseline_schedule(name: str, noise: NoiseSchedule, steps: int) -> StepSchedule:
    """One of the closed forms by name."""
    if name not in BASELINES:
        raise ScheduleError(f"the schedule must be one of {', '.join(BASELINES)}, got {name!r}")
    check_steps(steps, noise)
    return StepSchedule.at(BASELINES[name](noise, steps), noise, {"method": name})


def applicable_baselines(noise: NoiseSchedule) -> list[str]:
    """The closed forms that make sense for this noise schedule."""
    return [name for name, baseline in BASELINES.items() if baseline.applies(noise)]


def smallest_time(noise: NoiseSchedule) -> float:
    """The smallest time that can be a step; for a flow, which has none, a thousandth of its clock."""
    # That is where the table of a flow with 1000 timesteps ends in diffusers and ComfyUI, the shift included.
    return noise.last if noise.contains(noise.last) else float(noise.time_at(1e-3))


def beta_quantiles(shares: ArrayLike) -> Array:
    """Where a Beta(0.6, 0.6) distribution has these shares of its mass below."""
    shares = np.asarray(shares, dtype=np.float64)
    # In x^0.6 the density has no pole at 0; the upper half, which has the other pole, is the lower one mirrored.
    root = np.linspace(0, 0.5**BETA, 10_001)
    lower_half = Density(root, (1 - root ** (1 / BETA)) ** (BETA - 1))
    lower = lower_half.quantiles(2 * np.minimum(shares, 1 - shares)) ** (1 / BETA)
    return np.where(shares < 0.5, lower, 1 - lower)


def reference_timesteps(noise: NoiseSchedule, steps: int) -> Array:
    """The fine uniform grid that reference trajectories are recorded on, the first time included."""
    check_steps(steps, noise)
    return (uniform_trailing if noise.continuous else uniform_linspace)(noise, steps)


def _between_sigmas(
    noise: NoiseSchedule, steps: int, warp: Callable[[Array], Array], unwarp: Callable[[Array], Array]
) -> Array:
    """Equal steps in warped sigma from the largest to the smallest that the model knows."""
    # A flow's sigma is s, in 0..1, as diffusers and ComfyUI take it.
    largest, smallest = warp(noise.sigma([noise.first, smallest_time(noise)]))
    return _at_sigmas(unwarp(np.linspace(largest, smallest, steps)), noise)


def _at_sigmas(sigmas: Array, noise: NoiseSchedule) -> Array:
    """The times of these sigmas, whole where the model's are; rounding does not carry the ends out of its range."""
    return known_times(np.clip(noise.time_of_sigma(sigmas), smallest_time(noise), noise.first), noise)


def _at_shares(noise: NoiseSchedule, shares: Array) -> Array:
    """Times at these shares of the clock; squeezed together where they would go below the last trained time."""
    end = float(noise.clock(noise.last))
    return known_times(noise.time_at(shares if shares.min() >= end else end + (1 - end) * shares), noise)


def closed_forms(noise: NoiseSchedule, steps: int) -> dict[str, Array]:
    """By name, all that apply to a noise schedule."""
    return {name: BASELINES[name](noise, steps) for name in applicable_baselines(noise)}


def closed_form_schedules(noise: NoiseSchedule, steps: int) -> list[StepSchedule]:
    """All that apply to a noise schedule, each with its name as its method."""
    return [baseline_schedule(name, noise, steps) for name in applicable_baselines(noise)]


def closed_forms_begun_late(noise: NoiseSchedule, steps: int) -> dict[str, Array]:
    """The same over less than all of time."""
    return {
        f"{name} over {stretch:.0%}": known_times(noise.last + stretch * (times - noise.last), noise)
        for name, times in closed_forms(noise, steps).items()
        for stretch in STRETCHES
    }
