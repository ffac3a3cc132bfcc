"""Schedulers for diffusers that step with the fitted coefficients of their payload.

The path of this module is written into saved pipelines: it stays where it is.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from diffusers import SchedulerMixin
from diffusers.schedulers.scheduling_ddim import DDIMSchedulerOutput
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteSchedulerOutput
from torch import Tensor

from geosprint.errors import ScheduleError
from geosprint.fitted_solver import MOST_PREDICTIONS, UNHEARD, Predicted, order_of, remembered, stepped
from geosprint.integrations.hooks import conditional_part
from geosprint.integrations.payload import Steps
from geosprint.integrations.schedulers import GeoSprintDDIMScheduler, GeoSprintFlowMatchEulerScheduler

# diffusers takes classes for schedulers from a module that has SchedulerMixin too.
__all__ = ["GeoSprintFittedFlowMatchScheduler", "GeoSprintFittedScheduler", "SchedulerMixin"]


class _FittedRun:
    """The coefficients of every step, and what a run has predicted so far."""

    def __init__(self, steps: Steps, heard: list[Tensor]) -> None:
        self._steps, self._heard = steps, heard
        self._next = 0
        self._past: tuple[Predicted, ...] = ()

    def stepped(self, index: int, x: Tensor, predicted: Predicted) -> Tensor | None:
        """The state after this step; None where a run that began midway has not seen all that it looks back at."""
        if index != self._next or any(len(one) != len(predicted) for one in self._past):
            self._past = ()
        past, parts = self._past, len(predicted)
        self._next, self._past = index + 1, remembered(predicted, past, MOST_PREDICTIONS)
        own = (self._steps.coefficients if parts == 1 else self._steps.guided)[index]
        return stepped(x, predicted, past, own) if len(past) >= order_of(own, parts) - 1 else None

    def predicted(self, output: Tensor, x0_of: Callable[[Tensor], Tensor]) -> Predicted:
        """x0, and what guidance added to it, where these steps want that and it is told."""
        x0 = x0_of(output)
        if not self._steps.guided:
            return (x0,)
        conditional = conditional_part(output, self._heard)
        self._heard.clear()
        if conditional is not None:
            return (x0, x0 - x0_of(conditional))
        if self._next == 0:
            warnings.warn(
                f"{UNHEARD}; after loading or swapping the scheduler, call geosprint.apply(pipe)", stacklevel=4
            )
        return (x0,)


def beginning_a_run(set_timesteps: Any) -> Any:
    """The same `set_timesteps`, after which the fitted steps of the payload begin anew, if those are in use."""

    @functools.wraps(set_timesteps)
    def begun(self: Any, *given: Any, **named: Any) -> None:
        set_timesteps(self, *given, **named)
        self.heard = getattr(self, "heard", [])
        self.heard.clear()
        is_fitted = self._in_use and self._in_use.coefficients
        self._run = _FittedRun(self._in_use, self.heard) if is_fitted else None

    return begun


class GeoSprintFittedScheduler(GeoSprintDDIMScheduler):
    """A fitted solver for diffusion pipelines; without one in its payload it is `GeoSprintDDIMScheduler`.

    Timesteps of the caller's own are stepped by ddim. So is the beginning of a run that starts midway, as image to
    image does, until enough predictions are there to look back at.
    """

    _run: _FittedRun | None = None  # while fitted steps are in use
    heard: list[Tensor]  # the latest outputs of the network, where `apply` listens to it
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
        predicted = self._run.predicted(_precise(model_output), lambda output: self._prediction(output, x, t)[0])
        found = self._run.stepped(self.timesteps.tolist().index(t), x, predicted)
        if found is None:
            return super().step(*by_ddim, return_dict)
        if self._payload is not None:
            self._payload.warn_of_another_size(sample.shape[1:])
        found, x0 = found.to(sample.dtype), predicted[0].to(sample.dtype)
        return DDIMSchedulerOutput(prev_sample=found, pred_original_sample=x0) if return_dict else (found, x0)


class GeoSprintFittedFlowMatchScheduler(GeoSprintFlowMatchEulerScheduler):
    """A fitted solver for flow-matching pipelines; without one it is `GeoSprintFlowMatchEulerScheduler`.

    Sigmas of the caller's own are stepped by Euler, and so is the beginning of a run that starts midway.
    """

    _run: _FittedRun | None = None  # while fitted steps are in use
    heard: list[Tensor]  # the latest outputs of the network, where `apply` listens to it
    set_timesteps = beginning_a_run(GeoSprintFlowMatchEulerScheduler.set_timesteps)

    @functools.wraps(GeoSprintFlowMatchEulerScheduler.step)
    def step(
        self, model_output: Tensor, timestep: Any, sample: Tensor, *given: Any, return_dict: bool = True, **named: Any
    ) -> Any:
        """One step to the next sigma."""
        plain = functools.partial(super().step, model_output, timestep, sample, *given, **named)
        if self._run is None:
            return plain(return_dict=return_dict)
        if named.get("per_token_timesteps") is not None:
            raise ValueError("fitted steps are the same for all tokens; apply a schedule to this pipeline instead")
        if self.step_index is None:
            super()._init_step_index(timestep)
        index, x = self.step_index, _precise(sample)
        sigma = float(self.sigmas[index])
        predicted = self._run.predicted(_precise(model_output), lambda output: x - sigma * output)
        found = self._run.stepped(index, x, predicted)
        if found is None:
            return plain(return_dict=return_dict)
        self._payload.warn_of_another_size(sample.shape[1:])
        self._step_index: Any = index + 1
        found = found.to(model_output.dtype)
        return FlowMatchEulerDiscreteSchedulerOutput(prev_sample=found) if return_dict else (found,)

    def _init_step_index(self, timestep: Any) -> None:
        """A step that is not ours begins with it: xDiT replaces that of every flow scheduler by Euler's."""
        if self._run is not None:
            raise ScheduleError(
                "something else steps in the place of this scheduler, as xDiT does on several devices, and would step "
                "by Euler where the steps were fitted; use steps that were tuned for euler there"
            )
        super()._init_step_index(timestep)


def _precise(tensor: Tensor) -> Tensor:
    """At least single precision: the coefficients of a step add up large parts to a small difference."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
