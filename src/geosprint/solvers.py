"""Solvers: one step each, arithmetic only, state in the open.

A solver takes the state x, the model's prediction there, the step to make and its own memory, and
returns the next state and the next memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from geosprint.errors import ScheduleError
from geosprint.models.base import Prediction
from geosprint.noise import CLEAN, Flow, NoiseSchedule


@dataclass(frozen=True)
class Step:
    """From time t, where x = a·x0 + s·eps, to t_next, where the factors are a_next and s_next."""

    t: float
    t_next: float
    a: float
    s: float
    a_next: float
    s_next: float
    is_flow: bool
    predict: Callable[[Tensor, float], Prediction]  # for solvers that look at the model twice
    draw: Callable[[], Tensor]  # fresh standard normal noise, for stochastic solvers

    @classmethod
    def between(
        cls,
        noise: NoiseSchedule,
        t: float,
        t_next: float,
        predict: Callable[[Tensor, float], Prediction],
        draw: Callable[[], Tensor],
    ) -> Step:
        """The step between two times of a noise schedule."""
        now, then = noise.signal_and_sigma(t), noise.signal_and_sigma(t_next)
        return cls(t, t_next, *now, *then, isinstance(noise, Flow), predict, draw)

    @property
    def half_log_snr_gain(self) -> float:
        """h of DPM-Solver: ln(a_next / s_next) - ln(a / s)."""
        return _log_ratio(self.a_next, self.s_next) - _log_ratio(self.a, self.s)


Solver = Callable[[Tensor, Prediction, Step, Any], tuple[Tensor, Any]]


def ddim(x: Tensor, p: Prediction, step: Step, memory: None, eta: float = 0.0) -> tuple[Tensor, None]:
    """Song et al. (2021), Eq. 12, for any t_next below t."""
    return _renoise(p.x0, p.eps, step, eta), None


def ddpm(x: Tensor, p: Prediction, step: Step, memory: None) -> tuple[Tensor, None]:
    """Ho et al. (2020), Eq. 6 and 7: ancestral sampling from the posterior given x and x0."""
    return _renoise(p.x0, p.eps, step, eta=1.0), None


def euler(x: Tensor, p: Prediction, step: Step, memory: None) -> tuple[Tensor, None]:
    """Euler along the straight line from x to x0: x + (s_next - s)·v for a flow."""
    return _renoise(p.x0, p.eps, step, eta=0.0), None


def heun(x: Tensor, p: Prediction, step: Step, memory: None) -> tuple[Tensor, None]:
    """Karras et al. (2022), Algorithm 1: Euler, look again where it lands, go with the mean slope.

    There is no second slope at the clean end, where no model is, nor where no signal is (zero terminal SNR).
    """
    landing, _ = euler(x, p, step, memory)
    if step.t_next == CLEAN or step.s_next == 0 or (step.a == 0 and not step.is_flow):
        return landing, None
    scale, sigma = _ode_coordinates(step.a, step.s, step.is_flow)
    scale_next, sigma_next = _ode_coordinates(step.a_next, step.s_next, step.is_flow)
    slope = (x / scale - p.x0) / sigma
    slope_there = (landing / scale_next - step.predict(landing, step.t_next).x0) / sigma_next
    return scale_next * (x / scale + (sigma_next - sigma) * (slope + slope_there) / 2), None


def dpmpp_2m(x: Tensor, p: Prediction, step: Step, memory: Any) -> tuple[Tensor, Any]:
    """Lu et al. (2023), Algorithm 2: DPM-Solver++(2M); first order at the start and where it ends without noise."""
    h = step.half_log_snr_gain
    x0, ahead = p.x0, p.x0
    if memory is not None and math.isfinite(h):  # nan where both ends hold no noise
        x0_before, h_before = memory
        ahead = x0 + (h / (2 * h_before)) * (x0 - x0_before)
    shrink = step.s_next / step.s if step.s else 0.0
    return shrink * x + (step.a_next - step.a * shrink) * ahead, (x0, h)


SOLVERS: dict[str, Solver] = {
    "ddim": ddim,
    "ddpm": ddpm,
    "euler": euler,
    "heun": heun,
    "dpmpp-2m": dpmpp_2m,
}


def solver_named(name: str, eta: float = 0.0) -> Solver:
    """The solver of this name; eta is the share of fresh noise and belongs to ddim alone."""
    if name not in SOLVERS:
        raise ScheduleError(f"solver must be one of {', '.join(SOLVERS)}, got {name!r}")
    if not 0 <= eta <= 1:
        raise ScheduleError(f"eta must be in 0..1, got {eta}")
    if eta and name != "ddim":
        raise ScheduleError(f"eta belongs to ddim; {name} does not take it, leave it out")
    return partial(ddim, eta=eta) if eta else SOLVERS[name]


def _renoise(x0: Tensor, eps: Tensor, step: Step, eta: float) -> Tensor:
    """x0 and eps put together at the next time, a share of the noise drawn afresh."""
    if eta == 0 or step.s_next == 0:
        return step.a_next * x0 + step.s_next * eps
    # The variance of x given the next state, s² - (a / a_next)² s_next², is 1 - a² / a_next² for VP.
    variance = step.s**2 - (step.a / step.a_next * step.s_next) ** 2
    fresh = eta * step.s_next / step.s * math.sqrt(variance)
    kept = math.sqrt(step.s_next**2 - fresh**2)
    return step.a_next * x0 + kept * eps + fresh * step.draw()


def _ode_coordinates(a: float, s: float, is_flow: bool) -> tuple[float, float]:
    """Scale and time in which the ODE's slope is (x / scale - x0) / time: variance exploding, or the flow's own."""
    return (1.0, s) if is_flow else (a, s / a)


def _log_ratio(a: float, s: float) -> float:
    if s == 0:
        return math.inf
    return math.log(a / s) if a > 0 else -math.inf
