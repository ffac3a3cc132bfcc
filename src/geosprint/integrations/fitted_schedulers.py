"""Schedulers for diffusers that step with fitted numbers, carried in their config.

The path of this module is written into saved pipelines: it stays where it is.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from diffusers import FlowMatchEulerDiscreteScheduler, SchedulerMixin
from diffusers.schedulers.scheduling_ddim import DDIMSchedulerOutput
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteSchedulerOutput
from torch import Tensor

from geosprint.fitted_solver import MOST_PREDICTIONS, remembered, stepped
from geosprint.integrations.noise_of import clip_of, is_flow
from geosprint.integrations.payload import warn_of_another_size
from geosprint.integrations.schedulers import GeoSprintDDIMScheduler, GeoSprintFlowMatchEulerScheduler

# diffusers takes classes for schedulers from a module that has SchedulerMixin too.
__all__ = ["GeoSprintFittedFlowMatchScheduler", "GeoSprintFittedScheduler", "SchedulerMixin"]


class _Steps:
    """The numbers of every step, and what a run has predicted so far."""

    def __init__(self, coefficients: list[list[float]]) -> None:
        self._coefficients = coefficients
        self._next = 0
        self._past: tuple[Tensor, ...] = ()

    def taken(self, index: int, x: Tensor, x0: Tensor) -> Tensor | None:
        """The state after this step; None where a run that began midway has not seen all that it looks back at."""
        if index != self._next:
            self._past = ()
        numbers, past = self._coefficients[index], self._past
        self._next, self._past = index + 1, remembered(x0, past, MOST_PREDICTIONS)
        return stepped(x, x0, past, numbers) if len(past) >= len(numbers) - 2 else None


class GeoSprintFittedScheduler(GeoSprintDDIMScheduler):
    """A fitted solver for diffusion pipelines; with nothing fitted in its config it is `GeoSprintDDIMScheduler`.

    A run that begins midway, as image to image does, takes ddim steps until it has seen enough.
    """

    _steps: _Steps | None = None  # while the carried steps are in use

    def set_timesteps(
        self,
        num_inference_steps: int | None = None,
        device: str | torch.device | None = None,
        timesteps: list[int] | None = None,
    ) -> None:
        """The steps that were fitted; their number is the only one it has. Other timesteps are stepped by ddim."""
        super().set_timesteps(num_inference_steps, device, timesteps)
        fitted = (self.config.geosprint or {}).get("coefficients") if timesteps is None else None
        self._steps = _Steps(fitted) if fitted else None

    def step(
        self,
        model_output: Tensor,
        timestep: int,
        sample: Tensor,
        eta: float = 0.0,
        use_clipped_model_output: bool = False,
        generator: torch.Generator | None = None,
        variance_noise: Tensor | None = None,
        return_dict: bool = True,
    ) -> DDIMSchedulerOutput | tuple[Tensor, Tensor]:
        """One step to the next entry of the list."""
        plainly = (model_output, timestep, sample, eta, use_clipped_model_output, generator, variance_noise)
        if self._steps is None:
            return super().step(*plainly, return_dict)
        if eta:
            raise ValueError(f"fitted steps draw no fresh noise: eta must be 0, got {eta}")
        warn_of_another_size(self.config.geosprint, sample.shape[1:])
        t = int(timestep)
        x, output = _precise(sample), _precise(model_output)
        x0 = self._clipped(self._prediction(output, x, *self.noise.signal_and_sigma(t))[0])
        found = self._steps.taken(self._place_of(t), x, x0)
        if found is None:
            return super().step(*plainly, return_dict)
        found, x0 = found.to(sample.dtype), x0.to(sample.dtype)
        return DDIMSchedulerOutput(prev_sample=found, pred_original_sample=x0) if return_dict else (found, x0)

    def _place_of(self, t: int) -> int:
        return self.timesteps.tolist().index(t)


class GeoSprintFittedFlowMatchScheduler(GeoSprintFlowMatchEulerScheduler):
    """A fitted solver for flow-matching pipelines; with nothing fitted it is `GeoSprintFlowMatchEulerScheduler`.

    A run that begins midway takes Euler steps until it has seen enough.
    """

    _steps: _Steps | None = None  # while the carried steps are in use

    def set_timesteps(
        self,
        num_inference_steps: int | None = None,
        device: str | torch.device | None = None,
        sigmas: list[float] | None = None,
        mu: float | None = None,
        timesteps: list[float] | None = None,
    ) -> None:
        """The steps that were fitted, unless the caller brings sigmas or timesteps of its own."""
        super().set_timesteps(num_inference_steps, device, sigmas, mu, timesteps)
        carried = self.config.geosprint or {}
        own = torch.tensor(carried.get("timesteps", []), dtype=torch.float32)
        in_use = self.timesteps.float().cpu()
        is_carried = own.shape == in_use.shape and torch.allclose(own, in_use)
        self._steps = _Steps(carried["coefficients"]) if is_carried and "coefficients" in carried else None

    @functools.wraps(FlowMatchEulerDiscreteScheduler.step)
    def step(
        self, model_output: Tensor, timestep: Any, sample: Tensor, *given: Any, return_dict: bool = True, **named: Any
    ) -> Any:
        """One step to the next sigma."""
        plainly: Any = super().step
        if self._steps is None:
            return plainly(model_output, timestep, sample, *given, return_dict=return_dict, **named)
        if self.step_index is None:
            self._init_step_index(timestep)
        index, x = self.step_index, _precise(sample)
        found = self._steps.taken(index, x, x - float(self.sigmas[index]) * _precise(model_output))
        if found is None:
            return plainly(model_output, timestep, sample, *given, return_dict=return_dict, **named)
        warn_of_another_size(self.config.geosprint, sample.shape[1:])
        self._step_index: Any = index + 1
        found = found.to(model_output.dtype)
        return FlowMatchEulerDiscreteSchedulerOutput(prev_sample=found) if return_dict else (found,)


def fitted_scheduler(scheduler: Any, carried: dict[str, Any]) -> Any:
    """A scheduler for the same model, whatever its solver was, that takes the fitted steps it carries."""
    if is_flow(scheduler):
        return GeoSprintFittedFlowMatchScheduler.from_config(scheduler.config, geosprint=carried)
    ends_clean = float(getattr(scheduler, "final_alpha_cumprod", 1.0)) == 1
    return GeoSprintFittedScheduler.from_config(
        scheduler.config,
        geosprint=carried,
        clip_sample=clip_of(scheduler) is not None,  # DDIM clips where the config does not say; the model did not
        set_alpha_to_one=ends_clean,
    )


def _precise(tensor: Tensor) -> Tensor:
    """At least single precision: the numbers of a step add up large parts to a small difference."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
