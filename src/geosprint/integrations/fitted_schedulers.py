"""Schedulers for diffusers that step with the fitted coefficients of their payload.

The path of this module is written into saved pipelines: it stays where it is.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import diffusers

# diffusers takes classes for schedulers from a module that has SchedulerMixin too.
from diffusers import SchedulerMixin as SchedulerMixin
from diffusers.schedulers.scheduling_ddim import DDIMSchedulerOutput
from torch import Tensor

from geosprint.errors import ScheduleError
from geosprint.fitted_solver import UNHEARD, Predicted
from geosprint.integrations.geosprint_scheduler import Fitted, precise, stepping_along_sigmas
from geosprint.integrations.hooks import conditional_part
from geosprint.integrations.schedulers import (
    ExactDDIMScheduler,
    GeoSprintDDIMScheduler,
    GeoSprintEDMEulerScheduler,
    GeoSprintFlowMatchEulerScheduler,
    watching_size,
)


class _FittedPayload(Fitted):
    """Fitted steps of a payload, which may also want to be told what guidance added."""

    _refusal = ScheduleError
    heard: list[Tensor] | None = None  # the latest outputs of the network, where `apply` listens to it

    def _steps_for(self, number: int | None, mu: float | None) -> dict[str, Any]:
        if self.heard:
            self.heard.clear()  # of another run
        return super()._steps_for(number, mu)  # type: ignore[misc]

    def _predicted(self, output: Tensor, x0_of: Callable[[Tensor], Tensor]) -> Predicted:
        """x0, and what guidance added to it, where these steps want that and it is told."""
        x0, heard = x0_of(output), self.heard or []
        if not (self._in_use or {}).get("guided"):
            return (x0,)
        conditional = conditional_part(output, heard)
        heard.clear()
        if conditional is not None:
            return (x0, x0 - x0_of(conditional))
        if not self._seen:
            warnings.warn(
                f"{UNHEARD}; after loading or swapping the scheduler, call geosprint.apply(pipe)", stacklevel=5
            )
        return (x0,)


class GeoSprintFittedScheduler(_FittedPayload, GeoSprintDDIMScheduler):
    """A fitted solver for diffusion pipelines; without one in its payload it is `GeoSprintDDIMScheduler`.

    Timesteps of the caller's own are stepped by ddim. So is the beginning of a run that starts midway, as image to
    image does, until enough predictions are there to look back at.
    """

    @watching_size
    @functools.wraps(ExactDDIMScheduler.step)
    def step(self, model_output: Tensor, timestep: Any, sample: Tensor, *given: Any, **named: Any) -> Any:
        by_ddim = functools.partial(ExactDDIMScheduler.step, self, model_output, timestep, sample, *given, **named)
        if not self.is_fitted:
            return by_ddim()
        asked = inspect.signature(ExactDDIMScheduler.step).bind(*by_ddim.args, **named).arguments
        if eta := asked.get("eta"):
            raise ValueError(f"fitted steps draw no fresh noise: eta must be 0, got {eta}")
        t, x = int(timestep), precise(sample)
        told = (precise(model_output), lambda output: self._prediction(output, x, t)[0])
        x0, found = self.fitted(self.timesteps.tolist().index(t), x, *told)
        if found is None:
            return by_ddim()
        found, x0 = found.to(sample.dtype), x0.to(sample.dtype)
        as_dict = asked.get("return_dict", True)
        return DDIMSchedulerOutput(prev_sample=found, pred_original_sample=x0) if as_dict else (found, x0)


class GeoSprintFittedFlowMatchScheduler(_FittedPayload, GeoSprintFlowMatchEulerScheduler):
    """A fitted solver for flow-matching pipelines; without one it is `GeoSprintFlowMatchEulerScheduler`.

    Sigmas of the caller's own are stepped by Euler, and so is the beginning of a run that starts midway.
    """

    step = watching_size(stepping_along_sigmas(diffusers.FlowMatchEulerDiscreteScheduler))


class GeoSprintFittedEDMScheduler(_FittedPayload, GeoSprintEDMEulerScheduler):
    """A fitted solver for networks that are told the noise level; without one it is `GeoSprintEDMEulerScheduler`."""

    step = watching_size(stepping_along_sigmas(diffusers.EDMEulerScheduler))
