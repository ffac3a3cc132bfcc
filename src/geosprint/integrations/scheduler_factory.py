"""Stock schedulers that carry a profile or a schedule in their config: the solver is theirs, the times are ours."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from diffusers import (
    DDPMScheduler,
    DPMSolverMultistepScheduler,
    DPMSolverSinglestepScheduler,
    EulerAncestralDiscreteScheduler,
    EulerDiscreteScheduler,
    HeunDiscreteScheduler,
    LCMScheduler,
    UniPCMultistepScheduler,
)
from diffusers.configuration_utils import register_to_config
from numpy.typing import NDArray
from torch import Tensor

from geosprint.integrations.noise_of import is_flow, noise_of, shift_of
from geosprint.integrations.payload import (
    check_carried,
    flow_of,
    is_default,
    steps_carried,
    warn_of_another_shift,
    warn_of_another_size,
)
from geosprint.noise import NoiseSchedule

Array = NDArray[np.float64]
Place = Callable[..., None]

HOME = "geosprint.integrations.schedulers"
"""Where saved pipelines look for these classes."""


def told(stock: type, scheduler: Any, times: Array, noise: NoiseSchedule, device: Any = None, **more: Any) -> None:
    """For schedulers that take `timesteps=` and look the next one up in the list."""
    more["timesteps"] = times.astype(int).tolist()
    stock.set_timesteps(scheduler, device=device, **more)  # type: ignore[attr-defined]


def injected(stock: type, scheduler: Any, times: Array, noise: NoiseSchedule, device: Any = None, **more: Any) -> None:
    """For schedulers that read `sigmas` (K + 1, the last one 0) by a step counter: both lists are put in."""
    stock.set_timesteps(scheduler, num_inference_steps=len(times), device=device, **more)  # type: ignore[attr-defined]
    # A flow that starts at sigma 1 has no log-SNR there: these solvers want it a little below.
    sigmas = np.minimum(noise.sigma(times), 1 - 1e-6) if is_flow(scheduler) else noise.sigma(times)
    kind = torch.float32 if is_flow(scheduler) else scheduler.timesteps.dtype
    scheduler.timesteps = torch.tensor(times.tolist(), dtype=kind, device=device)
    scheduler.sigmas = torch.tensor([*sigmas, 0.0], dtype=torch.float32)
    scheduler.num_inference_steps = len(times)
    scheduler._step_index = scheduler._begin_index = None


def carrying(stock: type, place: Place) -> type:
    """A subclass with one more argument, `geosprint`; without it, it is the stock scheduler to the last bit."""
    stock_init, stock_set_timesteps = stock.__init__.__wrapped__, stock.set_timesteps  # type: ignore[misc, attr-defined]

    def init(self: Any, *given: Any, geosprint: dict[str, Any] | None = None, **named: Any) -> None:
        self._carried = None  # Heun sets timesteps while it is being made
        stock_init(self, *given, **named)
        if geosprint is not None:
            check_carried(geosprint, _noise(self, geosprint))
        self._carried = geosprint

    signature = inspect.signature(stock_init)
    extra = inspect.Parameter("geosprint", inspect.Parameter.KEYWORD_ONLY, default=None)
    # diffusers reads the names of a config from the signature.
    init.__signature__ = signature.replace(parameters=[*signature.parameters.values(), extra])  # type: ignore[attr-defined]

    @functools.wraps(stock_set_timesteps)  # pipelines read the signature for timesteps and sigmas
    def set_timesteps(self: Any, *given: Any, **named: Any) -> None:
        asked = inspect.signature(stock_set_timesteps).bind(self, *given, **named).arguments
        sigmas = asked.get("sigmas")
        if self._carried is None or asked.get("timesteps") is not None or not is_default(sigmas):
            stock_set_timesteps(self, *given, **named)
            return
        noise = _noise(self, self._carried)
        if is_flow(self):
            warn_of_another_shift(self._carried, shift_of(self, asked.get("mu")))
        steps = len(sigmas) if sigmas is not None else asked.get("num_inference_steps")
        others = {name: asked[name] for name in asked if name not in ("self", "num_inference_steps", "sigmas")}
        place(stock, self, steps_carried(self._carried, steps, noise), noise, **others)

    @functools.wraps(stock.step)  # type: ignore[attr-defined]
    def step(self: Any, model_output: Tensor, timestep: Any, sample: Tensor, *given: Any, **named: Any) -> Any:
        if self._carried is not None:
            warn_of_another_size(self._carried, sample.shape[1:])
        return stock.step(self, model_output, timestep, sample, *given, **named)  # type: ignore[attr-defined]

    methods = {"__init__": register_to_config(init), "set_timesteps": set_timesteps, "step": step}
    about = f"`{stock.__name__}` that steps where its `geosprint` says."
    return type(f"GeoSprint{stock.__name__}", (stock,), {**methods, "__module__": HOME, "__doc__": about})


def _noise(scheduler: Any, carried: dict[str, Any]) -> NoiseSchedule:
    if is_flow(scheduler):
        return flow_of(carried, scheduler.config.num_train_timesteps)
    return noise_of(scheduler)


GeoSprintDDPMScheduler = carrying(DDPMScheduler, told)
GeoSprintLCMScheduler = carrying(LCMScheduler, told)
GeoSprintHeunDiscreteScheduler = carrying(HeunDiscreteScheduler, told)  # doubles every time but the first by itself
GeoSprintEulerDiscreteScheduler = carrying(EulerDiscreteScheduler, injected)
GeoSprintEulerAncestralDiscreteScheduler = carrying(EulerAncestralDiscreteScheduler, injected)
GeoSprintDPMSolverMultistepScheduler = carrying(DPMSolverMultistepScheduler, injected)
GeoSprintDPMSolverSinglestepScheduler = carrying(DPMSolverSinglestepScheduler, injected)
GeoSprintUniPCMultistepScheduler = carrying(UniPCMultistepScheduler, injected)
