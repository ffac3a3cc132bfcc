"""Schedulers for diffusers that step with the fitted coefficients of their payload.

The path of this module is written into saved pipelines: it stays where it is.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from diffusers import SchedulerMixin
from diffusers.schedulers.scheduling_ddim import DDIMSchedulerOutput
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteSchedulerOutput
from torch import Tensor

from geosprint.fitted_solver import MOST_PREDICTIONS, Coefficients, remembered, stepped
from geosprint.integrations.schedulers import GeoSprintDDIMScheduler, GeoSprintFlowMatchEulerScheduler

# diffusers takes classes for schedulers from a module that has SchedulerMixin too.
__all__ = ["GeoSprintFittedFlowMatchScheduler", "GeoSprintFittedScheduler", "SchedulerMixin"]


class _FittedRun:
    """The coefficients of every step, and what a run has predicted so far."""

    def __init__(self, coefficients: Coefficients) -> None:
        self._coefficients = coefficients
        self._next = 0
        self._past: tuple[Tensor, ...] = ()

    def stepped(self, index: int, x: Tensor, x0: Tensor) -> Tensor | None:
        """The state after this step; None where a run that began midway has not seen all that it looks back at."""
        if index != self._next:
            self._past = ()
        coefficients, past = self._coefficients[index], self._past
        self._next, self._past = index + 1, remembered(x0, past, MOST_PREDICTIONS)
        return stepped(x, x0, past, coefficients) if len(past) >= len(coefficients) - 2 else None


def beginning_a_run(set_timesteps: Any) -> Any:
    """The same `set_timesteps`, after which the fitted steps of the payload begin anew, if those are in use."""

    @functools.wraps(set_timesteps)
    def begun(self: Any, *given: Any, **named: Any) -> None:
        set_timesteps(self, *given, **named)
        self._run = _FittedRun(self._in_use.coefficients) if self._in_use and self._in_use.coefficients else None

    return begun


class GeoSprintFittedScheduler(GeoSprintDDIMScheduler):
    """A fitted solver for diffusion pipelines; without one in its payload it is `GeoSprintDDIMScheduler`.

    Timesteps of the caller's own are stepped by ddim. So is the beginning of a run that starts midway, as image to
    image does, until enough predictions are there to look back at.
    """

    _run: _FittedRun | None = None  # while fitted steps are in use
    set_timesteps = beginning_a_run(GeoSprintDDIMScheduler.set_timesteps)

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
        by_ddim = (model_output, timestep, sample, eta, use_clipped_model_output, generator, variance_noise)
        if self._run is None:
            return super().step(*by_ddim, return_dict)
        if eta:
            raise ValueError(f"fitted steps draw no fresh noise: eta must be 0, got {eta}")
        t, x = int(timestep), _precise(sample)
        x0, _ = self._prediction(_precise(model_output), x, t)
        found = self._run.stepped(self.timesteps.tolist().index(t), x, x0)
        if found is None:
            return super().step(*by_ddim, return_dict)
        if self._payload is not None:
            self._payload.warn_of_another_size(sample.shape[1:])
        found, x0 = found.to(sample.dtype), x0.to(sample.dtype)
        return DDIMSchedulerOutput(prev_sample=found, pred_original_sample=x0) if return_dict else (found, x0)


class GeoSprintFittedFlowMatchScheduler(GeoSprintFlowMatchEulerScheduler):
    """A fitted solver for flow-matching pipelines; without one it is `GeoSprintFlowMatchEulerScheduler`.

    Sigmas of the caller's own are stepped by Euler, and so is the beginning of a run that starts midway.
    """

    _run: _FittedRun | None = None  # while fitted steps are in use
    set_timesteps = beginning_a_run(GeoSprintFlowMatchEulerScheduler.set_timesteps)

    @functools.wraps(GeoSprintFlowMatchEulerScheduler.step)
    def step(
        self, model_output: Tensor, timestep: Any, sample: Tensor, *given: Any, return_dict: bool = True, **named: Any
    ) -> Any:
        """One step to the next sigma."""
        plain = functools.partial(super().step, model_output, timestep, sample, *given, **named)
        if self._run is None:
            return plain(return_dict=return_dict)
        if self.step_index is None:
            self._init_step_index(timestep)
        index, x = self.step_index, _precise(sample)
        found = self._run.stepped(index, x, x - float(self.sigmas[index]) * _precise(model_output))
        if found is None:
            return plain(return_dict=return_dict)
        self._payload.warn_of_another_size(sample.shape[1:])
        self._step_index: Any = index + 1
        found = found.to(model_output.dtype)
        return FlowMatchEulerDiscreteSchedulerOutput(prev_sample=found) if return_dict else (found,)


def _precise(tensor: Tensor) -> Tensor:
    """At least single precision: the coefficients of a step add up large parts to a small difference."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
