"""Drop-in schedulers for diffusers that step where the payload in their config says; the solver is the stock one's.

The path of this module is written into saved pipelines: it stays where it is.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from operator import neg
from typing import Any

import diffusers
import torch

# diffusers takes classes for schedulers from a module that has SchedulerMixin too.
from diffusers import SchedulerMixin as SchedulerMixin
from diffusers.schedulers.scheduling_ddim import DDIMSchedulerOutput
from diffusers.utils.torch_utils import randn_tensor
from torch import Tensor

from geosprint.integrations.geosprint_scheduler import by_final_sigmas, by_sigmas, by_timesteps, following, shift_of
from geosprint.integrations.noise_of import is_flow, noise_of, prediction_of
from geosprint.integrations.payload import Payload
from geosprint.models.base import Prediction, x0_and_eps
from geosprint.noise import CLEAN, Flow, NoiseSchedule
from geosprint.solvers import Step, ddim


class ExactDDIMScheduler(diffusers.DDIMScheduler):
    """`DDIMScheduler` that is exact for any strictly falling list of timesteps.

    Without a list it is `DDIMScheduler` to the last bit.
    """

    _listed: list[int] | None = None  # while a list is in use, with the clean end

    @functools.cached_property
    def noise(self) -> NoiseSchedule:
        """The model's noise schedule; made when needed, since stock schedulers take tables that it refuses."""
        return noise_of(self)

    def set_timesteps(
        self,
        num_inference_steps: int | None = None,
        device: str | torch.device | None = None,
        timesteps: list[int] | None = None,
        original_inference_steps: int | None = None,  # what LCM pipelines tell their own scheduler
    ) -> None:
        """So many steps of its own spacing, or exactly these timesteps."""
        self._listed = None
        if timesteps is None:
            super().set_timesteps(num_inference_steps, device)
            return
        if num_inference_steps not in (None, len(timesteps)):
            raise ValueError(f"got {len(timesteps)} timesteps, but num_inference_steps says {num_inference_steps}")
        times = [int(t) for t in timesteps]
        if not times or any(a <= b for a, b in pairwise(times)):
            raise ValueError(f"timesteps must fall strictly, got {times}")
        if times[-1] < 0 or times[0] >= self.config.num_train_timesteps:
            raise ValueError(
                f"timesteps must be in 0..{self.config.num_train_timesteps - 1}, got {times[0]}..{times[-1]}"
            )
        self.num_inference_steps = len(times)
        self._listed = [*times, int(CLEAN)]
        self.timesteps = torch.tensor(times, dtype=torch.int64, device=device)

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
        if self._listed is None:
            return super().step(
                model_output, timestep, sample, eta, use_clipped_model_output, generator, variance_noise, return_dict
            )

        def draw() -> Tensor:
            if variance_noise is None:
                kind = {"device": model_output.device, "dtype": model_output.dtype}
                return randn_tensor(model_output.shape, generator=generator, **kind)
            if generator is not None:
                raise ValueError("give either generator or variance_noise, not both")
            return variance_noise

        t = int(timestep)
        t_next = self._listed[bisect_right(self._listed, -t, key=neg)]  # of the falling list, the first below t
        to_next = Step.between(self.noise, t, t_next, _ask_nothing, draw)
        x0, eps = self._prediction(model_output, sample, t)
        if use_clipped_model_output:
            _, eps = x0_and_eps("x0", sample, x0, *self.noise.signal_and_sigma(t))
        prev_sample, _ = ddim(sample, Prediction(x0, eps), to_next, None, eta or 0.0)  # LCM pipelines say None
        if not return_dict:
            return prev_sample, x0
        return DDIMSchedulerOutput(prev_sample=prev_sample, pred_original_sample=x0)

    def _prediction(self, output: Tensor, sample: Tensor, t: int) -> tuple[Tensor, Tensor]:
        """x0, clipped as the config says, and eps as the network predicts it."""
        x0, eps = x0_and_eps(prediction_of(self), sample, output, *self.noise.signal_and_sigma(t))
        if self.config.thresholding:
            return self._threshold_sample(x0), eps
        limit = self.config.clip_sample_range
        return x0.clamp(-limit, limit) if self.config.clip_sample else x0, eps


class _WithPayload:
    """What all of them share: the payload of their config."""

    _payload: Payload | None = None

    def _take(self, described: dict[str, Any]) -> None:
        payload = Payload.from_dict(described)
        payload.check_noise(noise_for(self, payload))
        self._payload = payload

    def _steps_for(self, number: int | None, mu: float | None) -> dict[str, Any]:
        assert self._payload is not None, "without a payload, the stock scheduler steps"
        if is_flow(self):
            self._payload.warn_of_another_shift(shift_of(self, mu))
        return self._payload.steps_for(number, noise_for(self, self._payload)).to_dict()


def watching_size(step: Callable[..., Any]) -> Any:
    """The same step, with a warning where the payload was recorded at another size."""

    @functools.wraps(step)  # pipelines read the signature for eta and generator
    def watched(self: Any, model_output: Tensor, timestep: Any, sample: Tensor, *given: Any, **named: Any) -> Any:
        if self._payload is not None:
            self._payload.warn_of_another_size(sample.shape[1:])
        return step(self, model_output, timestep, sample, *given, **named)

    return watched


def with_payload(stock: Any, place: Callable[..., None], name: str | None = None) -> Any:
    """A subclass that steps where its payload says; without one, it is the stock scheduler to the last bit."""
    name = name or f"GeoSprint{stock.__name__}"
    return following(name, __name__, _WithPayload, stock, place, watching_size(stock.step))


GeoSprintDDIMScheduler = with_payload(ExactDDIMScheduler, by_timesteps, "GeoSprintDDIMScheduler")
GeoSprintDDPMScheduler = with_payload(diffusers.DDPMScheduler, by_timesteps)
GeoSprintLCMScheduler = with_payload(diffusers.LCMScheduler, by_timesteps)
GeoSprintEulerDiscreteScheduler = with_payload(diffusers.EulerDiscreteScheduler, by_sigmas)
GeoSprintEulerAncestralDiscreteScheduler = with_payload(diffusers.EulerAncestralDiscreteScheduler, by_sigmas)
# Heun doubles all timesteps but the first itself.
GeoSprintHeunDiscreteScheduler = with_payload(diffusers.HeunDiscreteScheduler, by_timesteps)
GeoSprintDPMSolverMultistepScheduler = with_payload(diffusers.DPMSolverMultistepScheduler, by_sigmas)
GeoSprintDPMSolverSinglestepScheduler = with_payload(diffusers.DPMSolverSinglestepScheduler, by_sigmas)
GeoSprintUniPCMultistepScheduler = with_payload(diffusers.UniPCMultistepScheduler, by_sigmas)
GeoSprintEDMEulerScheduler = with_payload(diffusers.EDMEulerScheduler, by_sigmas)
GeoSprintEDMDPMSolverMultistepScheduler = with_payload(diffusers.EDMDPMSolverMultistepScheduler, by_sigmas)
GeoSprintFlowMatchEulerScheduler = with_payload(
    diffusers.FlowMatchEulerDiscreteScheduler, by_final_sigmas, "GeoSprintFlowMatchEulerScheduler"
)


def noise_for(scheduler: Any, payload: Payload) -> NoiseSchedule:
    """That of the scheduler's model; times of a flow are final, so only placing new ones needs the shift."""
    if is_flow(scheduler):
        return Flow(1.0 if payload.shift is None else float(payload.shift), scheduler.config.num_train_timesteps)
    return noise_of(scheduler)


def _ask_nothing(*_: Any) -> Any:
    raise AssertionError("ddim asks the network once a step")
