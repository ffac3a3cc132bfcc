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
from torch import Tensor

from geosprint.errors import ScheduleError
from geosprint.fitted_solver import UNHEARD, Predicted, order_of, stepped
from geosprint.integrations.geosprint_scheduler import STEP_OF_ANOTHER, looked_back_at, precise, stepping_along_sigmas
from geosprint.integrations.hooks import conditional_part
from geosprint.integrations.payload import Payload, Steps
from geosprint.integrations.schedulers import (
    GeoSprintDDIMScheduler,
    GeoSprintEDMEulerScheduler,
    GeoSprintFlowMatchEulerScheduler,
)

# diffusers takes classes for schedulers from a module that has SchedulerMixin too.
__all__ = [
    "GeoSprintFittedEDMScheduler",
    "GeoSprintFittedFlowMatchScheduler",
    "GeoSprintFittedScheduler",
    "SchedulerMixin",
]


class _FittedRun:
    """The coefficients of every step, and what a run has predicted so far."""

    def __init__(self, steps: Steps, payload: Payload, heard: list[Tensor]) -> None:
        self._steps, self._payload, self._heard = steps, payload, heard
        self._seen: dict[int, Predicted] = {}

    def fitted(
        self, index: int, x: Tensor, output: Tensor, x0_of: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor | None]:
        """x0 and the state after this step; None where a run began midway, and has not seen all it looks back at."""
        predicted = self._predicted(output, x0_of)
        past, parts = looked_back_at(self._seen, index, predicted), len(predicted)
        own = (self._steps.coefficients if parts == 1 else self._steps.guided)[index]
        if len(past) < order_of(own, parts) - 1:
            return predicted[0], None
        self._payload.warn_of_another_size(x.shape[1:])
        return predicted[0], stepped(x, predicted, past, own)

    def _predicted(self, output: Tensor, x0_of: Callable[[Tensor], Tensor]) -> Predicted:
        """x0, and what guidance added to it, where these steps want that and it is told."""
        x0 = x0_of(output)
        if not self._steps.guided:
            return (x0,)
        conditional = conditional_part(output, self._heard)
        self._heard.clear()
        if conditional is not None:
            return (x0, x0 - x0_of(conditional))
        if not self._seen:
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
        self._run = _FittedRun(self._in_use, self._payload, self.heard) if is_fitted else None

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
        t, x = int(timestep), precise(sample)
        told = (precise(model_output), lambda output: self._prediction(output, x, t)[0])
        x0, found = self._run.fitted(self.timesteps.tolist().index(t), x, *told)
        if found is None:
            return super().step(*by_ddim, return_dict)
        found, x0 = found.to(sample.dtype), x0.to(sample.dtype)
        return DDIMSchedulerOutput(prev_sample=found, pred_original_sample=x0) if return_dict else (found, x0)


class GeoSprintFittedFlowMatchScheduler(GeoSprintFlowMatchEulerScheduler):
    """A fitted solver for flow-matching pipelines; without one it is `GeoSprintFlowMatchEulerScheduler`.

    Sigmas of the caller's own are stepped by Euler, and so is the beginning of a run that starts midway.
    """

    _run: _FittedRun | None = None  # while fitted steps are in use
    heard: list[Tensor]  # the latest outputs of the network, where `apply` listens to it
    set_timesteps = beginning_a_run(GeoSprintFlowMatchEulerScheduler.set_timesteps)
    step = stepping_along_sigmas(GeoSprintFlowMatchEulerScheduler)

    def _init_step_index(self, timestep: Any) -> None:
        """A step that is not ours begins with it: xDiT replaces that of every flow scheduler by Euler's."""
        if self._run is not None:
            raise ScheduleError(STEP_OF_ANOTHER)
        super()._init_step_index(timestep)


class GeoSprintFittedEDMScheduler(GeoSprintEDMEulerScheduler):
    """A fitted solver for networks that are told the noise level; without one it is `GeoSprintEDMEulerScheduler`."""

    _run: _FittedRun | None = None  # while fitted steps are in use
    heard: list[Tensor]  # the latest outputs of the network, where `apply` listens to it
    set_timesteps = beginning_a_run(GeoSprintEDMEulerScheduler.set_timesteps)
    step = stepping_along_sigmas(GeoSprintEDMEulerScheduler)
