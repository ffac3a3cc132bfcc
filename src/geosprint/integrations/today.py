"""What a pipeline runs today: its own scheduler, walked on any noise exactly as the pipeline walks it."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from torch import Tensor

from geosprint.integrations.apply import stock_of
from geosprint.integrations.geosprint_scheduler import denoised, is_edm, size_of_states
from geosprint.integrations.hooks import left_as_found
from geosprint.integrations.noise_of import is_flow, noise_of, own_config, solver_of
from geosprint.integrations.pipelines import PipelineInputs, asked_of
from geosprint.tuned import Today

STEPS = 50  # where a pipeline names no default

_SPACINGS = {
    "use_karras_sigmas": "karras",
    "use_exponential_sigmas": "logsnr",  # uniform in log sigma
    "use_lu_lambdas": "logsnr",
    "use_beta_sigmas": "beta",
}


@dataclass(frozen=True, eq=False)
class SchedulerToday:
    """A pipeline's stock scheduler, and what it is in our words."""

    pipe: Any = field(repr=False)
    inputs: PipelineInputs
    scheduler: Any = field(repr=False)
    today: Today
    _ready: dict[int, Any] = field(default_factory=dict, repr=False)  # schedulers whose timesteps are set, by steps

    @functools.cached_property
    def is_deterministic(self) -> bool:
        """Whether the same first noise always ends at the same sample."""
        starts, ends = torch.ones(1, 1, 4, 4, device=self.pipe.device), []
        with torch.random.fork_rng():
            for seed in (0, 1):
                torch.manual_seed(seed)
                ends.append(self.ends(lambda x, t: 0.1 * x, starts, self.today.steps).cpu())
        return torch.equal(*ends)

    def calls(self, steps: int) -> int:
        """How often it asks the network in so many steps: Heun and PNDM ask more often than they step."""
        return len(self._set(steps).timesteps)

    @torch.no_grad()
    def ends(self, model: Callable[[Tensor, float], Tensor], starts: Tensor, steps: int) -> Tensor:
        """Where so many steps lead from this first noise; the model answers in the pipeline's own prediction."""
        scheduler = copy.deepcopy(self._set(steps))
        x = starts * float(getattr(scheduler, "init_noise_sigma", 1.0))
        scaled = getattr(scheduler, "scale_model_input", lambda x, t: x)  # flows have none
        for t, time in zip(scheduler.timesteps, _times_of_states(scheduler), strict=True):
            seen = scaled(x, t)
            output = _output_of(scheduler, model, x, time) if is_edm(scheduler) else model(seen, time)
            x = scheduler.step(output, t, x, return_dict=False)[0]
        return x

    def _set(self, steps: int) -> Any:
        """The scheduler after its pipeline has told it the number of steps, with sigmas or a shift of its own."""
        if steps not in self._ready:
            self._ready[steps] = self._told_by_the_pipeline(steps)
        return self._ready[steps]

    def _told_by_the_pipeline(self, steps: int) -> Any:
        pipe, scheduler = self.pipe, copy.deepcopy(self.scheduler)
        set_timesteps = scheduler.set_timesteps

        @functools.wraps(set_timesteps)  # pipelines read the signature for timesteps and sigmas
        def set_and_stop(*given: Any, **named: Any) -> None:
            set_timesteps(*given, **named)
            raise _Told

        scheduler.set_timesteps = set_and_stop
        named = asked_of(pipe, 1, 0, self.inputs)
        try:
            with torch.no_grad(), left_as_found(pipe):
                pipe.scheduler = scheduler
                pipe(**named, num_inference_steps=steps, generator=torch.Generator().manual_seed(0))
        except _Told:
            del scheduler.set_timesteps
        return scheduler


def today_of(pipe: Any, inputs: PipelineInputs | None = None) -> SchedulerToday:
    """What this pipeline runs if nobody says otherwise; under a scheduler of ours, what it ran before."""
    scheduler = stock_of(pipe.scheduler)
    asked = inspect.signature(pipe.__call__).parameters.get("num_inference_steps")
    steps = asked.default if asked is not None and isinstance(asked.default, int) else STEPS
    today = Today(solver_of(scheduler), steps, _spacing(scheduler))
    return SchedulerToday(pipe, inputs or PipelineInputs(), scheduler, today)


class _Told(BaseException):
    """Ends the pipeline's run once its scheduler is set; no `except Exception` of a pipeline may swallow it."""


def _times_of_states(scheduler: Any) -> list[float]:
    """When the states are that the network is asked about: some flows tell it another time (CogView4)."""
    if is_edm(scheduler) or isinstance(scheduler, FlowMatchEulerDiscreteScheduler):
        noise, sigmas = noise_of(scheduler), scheduler.sigmas[:-1].cpu().double()
        return np.clip(noise.time_of_sigma(sigmas), noise.last, noise.first).tolist()  # a shifted 1 may be 1.0000001
    return [float(t) for t in scheduler.timesteps]


def _output_of(scheduler: Any, model: Callable[[Tensor, float], Tensor], x: Tensor, time: float) -> Tensor:
    """What its network would say for the scheduler to see the x0 that the model answers: that is linear in it."""
    sigma = float(scheduler.sigmas[scheduler.step_index])
    x0 = model(x / size_of_states(scheduler, sigma), time)
    return (x0 - denoised(scheduler, 0.0, x, sigma)) / denoised(scheduler, 1.0, 0.0, sigma)


def _spacing(scheduler: Any) -> str:
    """How it spaces its steps, in the names of our closed forms."""
    own = own_config(scheduler)
    if "sigma_schedule" in own:
        return {"karras": "karras", "exponential": "logsnr"}[own["sigma_schedule"]]
    if named := next((word for flag, word in _SPACINGS.items() if own.get(flag)), None):
        return named
    return "uniform-trailing" if is_flow(scheduler) else f"uniform-{own.get('timestep_spacing', 'leading')}"
