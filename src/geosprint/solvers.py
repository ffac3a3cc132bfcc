"""Solvers: one step each, arithmetic only, state in the open.

A solver takes the state x, the model's prediction there, the step to make and its own memory, and
returns the next state and the next memory. Times and factors may be 0-dimensional tensors: gradients
with respect to them then flow through every solver. Factors may also be tensors of several schedules, none of them 0,
that are walked together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from geosprint.errors import ScheduleError
from geosprint.models.base import Predict, Prediction
from geosprint.noise import CLEAN, Flow, NoiseSchedule

Number = float | Tensor
Draw = Callable[[], Tensor]


@dataclass(frozen=True)
class Step:
    """From time t, where x = a·x0 + s·eps, to t_next, where the factors are a_next and s_next."""

    t: Number
    t_next: Number
    a: Number
    s: Number
    a_next: Number
    s_next: Number
    is_flow: bool
    predict: Predict  # for solvers that look at the model twice
    draw: Draw  # fresh standard normal noise, for stochastic solvers

    @classmethod
    def between(cls, noise: NoiseSchedule, t: float, t_next: float, predict: Predict, draw: Draw) -> Step:
        """The step between two times of a noise schedule."""
        now, then = noise.signal_and_sigma(t), noise.signal_and_sigma(t_next)
        return cls(t, t_next, *now, *then, isinstance(noise, Flow), predict, draw)

    @property
    def half_log_snr_gain(self) -> Number:
        """h of DPM-Solver: ln(a_next / s_next) - ln(a / s)."""
        return _log_ratio(self.a_next, self.s_next) - _log_ratio(self.a, self.s)

    @property
    def log_sigma_drop(self) -> Number:
        """h of k-diffusion, in -ln of the exchange sigma: the same as above but for flows, whose sigma is s."""
        return _log_ratio(self.s, self.s_next) if self.is_flow else self.half_log_snr_gain

    def carry(self, x: Tensor, x0: Tensor) -> Tensor:
        """Where x goes if x0 stays constant on the way: DPM-Solver++ of first order, exact for such a model."""
        shrink = 0.0 if _is_zero(self.s) else self.s_next / self.s
        return shrink * x + (self.a_next - self.a * shrink) * x0


Solver = Callable[[Tensor, Prediction, Step, Any], tuple[Tensor, Any]]


def refuse_to_draw() -> Tensor:
    """The `draw` of walks that must not need fresh noise."""
    raise AssertionError("this walk is for solvers without fresh noise")


def ddim(x: Tensor, p: Prediction, step: Step, memory: None, eta: float = 0.0) -> tuple[Tensor, None]:
    """Song et al. (2021), Eq. 12, for any t_next below t, a share of the noise drawn afresh.

    With eta = 1 it is ancestral sampling (Ho et al. 2020, Eq. 6 and 7), from the posterior given x and x0. With eta = 0
    it is Euler's method along the straight line from x to x0: x + (s_next - s)·v for a flow.
    """
    if eta == 0 or _is_zero(step.s_next):
        return step.a_next * p.x0 + step.s_next * p.eps, None
    # The variance of x given the next state, s² - (a / a_next)² s_next², is 1 - a² / a_next² for VP.
    variance = step.s**2 - (step.a / step.a_next * step.s_next) ** 2
    fresh = eta * step.s_next / step.s * _function("sqrt", variance)
    kept = _function("sqrt", step.s_next**2 - fresh**2)
    return step.a_next * p.x0 + kept * p.eps + fresh * step.draw(), None


def heun(x: Tensor, p: Prediction, step: Step, memory: None) -> tuple[Tensor, None]:
    """Karras et al. (2022), Algorithm 1: Euler, look again where it lands, go with the mean slope.

    There is no second slope at the clean end, where no model is, nor where no signal is (zero terminal SNR).
    """
    landing, _ = ddim(x, p, step, memory)
    if step.t_next == CLEAN or _is_zero(step.s_next) or (_is_zero(step.a) and not step.is_flow):
        return landing, None
    scale, sigma = _ode_coordinates(step.a, step.s, step.is_flow)
    scale_next, sigma_next = _ode_coordinates(step.a_next, step.s_next, step.is_flow)
    slope = (x / scale - p.x0) / sigma
    slope_there = (landing / scale_next - step.predict(landing, step.t_next).x0) / sigma_next
    return scale_next * (x / scale + (sigma_next - sigma) * (slope + slope_there) / 2), None


def dpmpp_2m(x: Tensor, p: Prediction, step: Step, memory: Any, in_sigma: bool = False) -> tuple[Tensor, Any]:
    """Lu et al. (2023), Algorithm 2: DPM-Solver++(2M); first order at the start and where it ends without noise.

    k-diffusion, and ComfyUI and stable-diffusion.cpp after it, extrapolate x0 in -ln sigma, for flows too.
    """
    h = step.log_sigma_drop if in_sigma else step.half_log_snr_gain
    x0, ahead = p.x0, p.x0
    if memory is not None and _is_finite(h):
        x0_before, h_before = memory
        ahead = x0 + (h / (2 * h_before)) * (x0 - x0_before)
    return step.carry(x, ahead), (x0, h)


@dataclass(frozen=True)
class UniPCMemory:
    """The step that led to the current state, kept until the prediction at its end can correct it."""

    step: Step
    x: Tensor  # where it began, corrected
    x0: Tensor  # what was predicted there
    slope: Tensor | None  # of x0 over half log-SNR, None if the step was of first order
    h_before: Number  # of the step before it


def unipc(x: Tensor, p: Prediction, step: Step, memory: UniPCMemory | None) -> tuple[Tensor, UniPCMemory]:
    """Zhao et al. (2023): UniPC-2, multistep, with B(h) = e^h - 1 and data prediction.

    The prediction at x first corrects x, then leads on; the model is not asked again at the corrected x.
    First order at the start and to the clean end.
    """
    h, ahead, slope = step.half_log_snr_gain, p.x0, None
    h_before: Number = math.inf
    if memory is not None:
        x = _corrected(memory, p.x0)
        if step.t_next != CLEAN and _is_finite(h):
            h_before = memory.step.half_log_snr_gain
            slope = (p.x0 - memory.x0) / h_before
            ahead = p.x0 + h / 2 * slope
    return step.carry(x, ahead), UniPCMemory(step, x, p.x0, slope, h_before)


def _corrected(made: UniPCMemory, x0_there: Tensor) -> Tensor:
    """The end of a step made again, now that x0 is known there too (UniC of Zhao et al. 2023).

    The weights make the integral of e^lambda·x0 exact for polynomials through the points seen;
    for a first-order step the paper takes 1/2.
    """
    gained = x0_there - made.x0
    if made.slope is None:
        return made.step.carry(made.x, made.x0 + gained / 2)
    h = made.step.half_log_snr_gain
    inverse = 1 / _function("expm1", -h)
    linear = -1 / h - inverse  # the mean of (lambda - start) / h with the integrator's weight e^lambda
    quadratic = -2 * linear / h - inverse  # and of its square
    past = (linear - quadratic) * h / (h + made.h_before)
    ahead = made.x0 + past * h * made.slope + (linear - past) * gained
    return made.step.carry(made.x, ahead)


def deis(x: Tensor, p: Prediction, step: Step, memory: Any) -> tuple[Tensor, Any]:
    """Zhang & Chen (2023), AB-DEIS of third order: eps as a polynomial in ln rho, rho = s / a, through its last values.

    d(x / a) / d rho = eps is then integrated exactly. First order to the clean end, as the other multistep solvers.
    """
    if _is_zero(step.a) or _is_zero(step.s_next) or step.t_next == CLEAN:
        return ddim(x, p, step, None)[0], ()
    rho = step.s / step.a
    zeroth, first, second = _moments(_log_ratio(step.s_next / step.a_next, rho))
    gained = zeroth * p.eps
    nodes = [(_log_ratio(before, rho), eps) for before, eps in memory or ()]
    if nodes:
        u, eps = nodes[0]
        slope = (eps - p.eps) / u
        gained = gained + first * slope
        for u_older, eps_older in nodes[1:]:
            bend = ((eps_older - eps) / (u_older - u) - slope) / u_older
            gained = gained + (second - u * first) * bend
    return step.a_next * (x / step.a + rho * gained), ((rho, p.eps), *(memory or ()))[:2]


def ipndm(x: Tensor, p: Prediction, step: Step, memory: Any) -> tuple[Tensor, Any]:
    """Zhang & Chen (2023), iPNDM: ddim along Adams and Bashforth's mean of the last slopes, the order rising to 4.

    The weights are those of equal steps, whatever the steps are. First order to the clean end.
    """
    slopes = (p.eps - p.x0 if step.is_flow else p.eps, *(memory or ()))[:4]
    if step.t_next == CLEAN or (_is_zero(step.a) and not step.is_flow):
        return ddim(x, p, step, None)[0], slopes[:3]
    scale, sigma = _ode_coordinates(step.a, step.s, step.is_flow)
    scale_next, sigma_next = _ode_coordinates(step.a_next, step.s_next, step.is_flow)
    mean = torch.stack(
        [weight * slope for weight, slope in zip(ADAMS_BASHFORTH[len(slopes)], slopes, strict=True)]
    ).sum(0)
    return scale_next * (x / scale + (sigma_next - sigma) * mean), slopes[:3]


ADAMS_BASHFORTH = {
    1: (1.0,),
    2: (3 / 2, -1 / 2),
    3: (23 / 12, -16 / 12, 5 / 12),
    4: (55 / 24, -59 / 24, 37 / 24, -9 / 24),
}


SOLVERS: dict[str, Solver] = {
    "ddim": ddim,
    "ddpm": partial(ddim, eta=1.0),
    "euler": ddim,
    "heun": heun,
    "dpmpp-2m": dpmpp_2m,
    "dpmpp-2m-kdiffusion": partial(dpmpp_2m, in_sigma=True),
    "unipc": unipc,
    "deis": deis,
    "ipndm": ipndm,
}


def predictions_of_walk(solver: str | None, steps: int) -> int:
    """How often a walk of so many steps asks the model: Heun twice a step, except in the last."""
    return 2 * steps - 1 if solver == "heun" else steps


def solver_named(name: str | Solver, eta: float = 0.0) -> Solver:
    """The solver of this name, or a solver itself; eta is the share of fresh noise and belongs to ddim alone."""
    if callable(name):
        if eta:
            raise ScheduleError(f"eta belongs to ddim; a {type(name).__name__} does not take it, leave it out")
        return name
    if name not in SOLVERS:
        raise ScheduleError(f"solver must be one of {', '.join(SOLVERS)}, got {name!r}")
    if not 0 <= eta <= 1:
        raise ScheduleError(f"eta must be in 0..1, got {eta}")
    if eta and name != "ddim":
        raise ScheduleError(f"eta belongs to ddim; {name} does not take it, leave it out")
    return partial(ddim, eta=eta) if eta else SOLVERS[name]


def _ode_coordinates(a: Number, s: Number, is_flow: bool) -> tuple[Number, Number]:
    """Scale and time in which the ODE's slope is (x / scale - x0) / time: variance exploding, or the flow's own."""
    return (1.0, s) if is_flow else (a, s / a)


def _moments(u: Number) -> tuple[Number, Number, Number]:
    """The integrals from 0 to u of v^k·e^v for k = 0, 1, 2."""
    zeroth, grown = _function("expm1", u), _function("exp", u)
    first = u * grown - zeroth
    return zeroth, first, u**2 * grown - 2 * first


def _log_ratio(a: Number, s: Number) -> Number:
    if _is_zero(s):
        return math.inf
    return -math.inf if _is_zero(a) else _function("log", a / s)


def _is_finite(number: Number) -> bool:
    """False for nan too, which h is where both ends of a step hold no noise."""
    return bool(torch.isfinite(number).all()) if isinstance(number, Tensor) else math.isfinite(number)


def _is_zero(number: Number) -> bool:
    """Of several schedules no factor is 0."""
    return number.numel() == 1 and not number if isinstance(number, Tensor) else number == 0


def _function(name: str, number: Number) -> Any:
    """A function of `math`, or torch's of the same name where gradients are wanted."""
    return getattr(torch if isinstance(number, Tensor) else math, name)(number)
