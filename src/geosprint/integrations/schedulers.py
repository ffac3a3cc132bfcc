"""Drop-in schedulers for diffusers that carry a profile or a schedule inside their config.

The path of this module is written into saved pipelines: it stays where it is.
"""

from __future__ import annotations

import functools
import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from diffusers import DDIMScheduler, FlowMatchEulerDiscreteScheduler, SchedulerMixin
from diffusers.configuration_utils import register_to_config
from diffusers.schedulers.scheduling_ddim import DDIMSchedulerOutput
from diffusers.utils.torch_utils import randn_tensor
from torch import Tensor

from geosprint.integrations.noise_of import noise_of, shift_of
from geosprint.integrations.payload import (
    check_carried,
    flow_of,
    is_default,
    steps_carried,
    warn_of_another_shift,
    warn_of_another_size,
)
from geosprint.integrations.scheduler_factory import (
    GeoSprintDDPMScheduler,
    GeoSprintDPMSolverMultistepScheduler,
    GeoSprintDPMSolverSinglestepScheduler,
    GeoSprintEulerAncestralDiscreteScheduler,
    GeoSprintEulerDiscreteScheduler,
    GeoSprintHeunDiscreteScheduler,
    GeoSprintLCMScheduler,
    GeoSprintUniPCMultistepScheduler,
)
from geosprint.noise import CLEAN, NoiseSchedule

# diffusers takes classes for schedulers from a module that has SchedulerMixin too.
__all__ = [
    "GeoSprintDDIMScheduler",
    "GeoSprintDDPMScheduler",
    "GeoSprintDPMSolverMultistepScheduler",
    "GeoSprintDPMSolverSinglestepScheduler",
    "GeoSprintEulerAncestralDiscreteScheduler",
    "GeoSprintEulerDiscreteScheduler",
    "GeoSprintFlowMatchEulerScheduler",
    "GeoSprintHeunDiscreteScheduler",
    "GeoSprintLCMScheduler",
    "GeoSprintUniPCMultistepScheduler",
    "SchedulerMixin",
]


class GeoSprintDDIMScheduler(DDIMScheduler):
    """`DDIMScheduler` that is exact for any strictly falling list of timesteps (Song et al. 2021, Eq. 12).

    Without `geosprint` in its config and without a list it is `DDIMScheduler` to the last bit.
    """

    @register_to_config
    def __init__(
        self,
        num_train_timesteps: int = 1000,
        beta_start: float = 0.0001,
        beta_end: float = 0.02,
        beta_schedule: str = "linear",
        trained_betas: np.ndarray | list[float] | None = None,
        clip_sample: bool = True,
        set_alpha_to_one: bool = True,
        steps_offset: int = 0,
        prediction_type: str = "epsilon",
        thresholding: bool = False,
        dynamic_thresholding_ratio: float = 0.995,
        clip_sample_range: float = 1.0,
        sample_max_value: float = 1.0,
        timestep_spacing: str = "leading",
        rescale_betas_zero_snr: bool = False,
        geosprint: dict[str, Any] | None = None,
    ) -> None:
        # The parent's decorated __init__ would register its own defaults over what was given here.
        DDIMScheduler.__init__.__wrapped__(
            self, num_train_timesteps, beta_start, beta_end, beta_schedule, trained_betas, clip_sample,
            set_alpha_to_one, steps_offset, prediction_type, thresholding, dynamic_thresholding_ratio,
            clip_sample_range, sample_max_value, timestep_spacing, rescale_betas_zero_snr,
        )  # fmt: skip
        self._next_timestep: dict[int, int] | None = None  # while a list is in use
        if geosprint is not None:
            check_carried(geosprint, self.noise)

    @functools.cached_property
    def noise(self) -> NoiseSchedule:
        """The model's noise schedule; made when needed, since stock schedulers take tables that it refuses."""
        return noise_of(self)

    def set_timesteps(
        self,
        num_inference_steps: int | None = None,
        device: str | torch.device | None = None,
        timesteps: list[int] | None = None,
    ) -> None:
        """So many steps of what the scheduler carries, or exactly these timesteps."""
        if timesteps is None and self.config.geosprint is None:
            self._next_timestep = None
            super().set_timesteps(num_inference_steps, device)
            return
        if timesteps is None:
            timesteps = steps_carried(self.config.geosprint, num_inference_steps, self.noise).astype(int).tolist()
        elif num_inference_steps not in (None, len(timesteps)):
            raise ValueError(f"got {len(timesteps)} timesteps, but num_inference_steps says {num_inference_steps}")
        times = [int(t) for t in timesteps]
        if not times or any(a <= b for a, b in pairwise(times)):
            raise ValueError(f"timesteps must fall strictly, got {times}")
        if times[-1] < 0 or times[0] >= self.config.num_train_timesteps:
            raise ValueError(
                f"timesteps must be in 0..{self.config.num_train_timesteps - 1}, got {times[0]}..{times[-1]}"
            )
        self.num_inference_steps = len(times)
        self._next_timestep = dict(zip(times, [*times[1:], int(CLEAN)], strict=True))
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
        if self._next_timestep is None:
            return super().step(
                model_output, timestep, sample, eta, use_clipped_model_output, generator, variance_noise, return_dict
            )
        if self.config.geosprint is not None:
            warn_of_another_size(self.config.geosprint, sample.shape[1:])
        t = int(timestep)
        a, s = self.noise.signal_and_sigma(t)
        a_next, s_next = self.noise.signal_and_sigma(self._next_of(t))
        x0, eps = self._prediction(model_output, sample, a, s)
        x0 = self._clipped(x0)
        if use_clipped_model_output:
            eps = (sample - a * x0) / s
        fresh = eta * s_next / s * math.sqrt(max(1 - (a / a_next) ** 2, 0.0))
        prev_sample = a_next * x0 + math.sqrt(max(s_next**2 - fresh**2, 0.0)) * eps
        if eta > 0:
            if variance_noise is not None and generator is not None:
                raise ValueError("give either generator or variance_noise, not both")
            if variance_noise is None:
                variance_noise = randn_tensor(
                    model_output.shape, generator=generator, device=model_output.device, dtype=model_output.dtype
                )
            prev_sample = prev_sample + fresh * variance_noise
        if not return_dict:
            return prev_sample, x0
        return DDIMSchedulerOutput(prev_sample=prev_sample, pred_original_sample=x0)

    def _clipped(self, x0: Tensor) -> Tensor:
        """As the config says."""
        if self.config.thresholding:
            return self._threshold_sample(x0)
        if self.config.clip_sample:
            return x0.clamp(-self.config.clip_sample_range, self.config.clip_sample_range)
        return x0

    def _next_of(self, t: int) -> int:
        """The next entry of the list; from a time between two entries, the one below it."""
        if self._next_timestep is None or t in self._next_timestep:
            return (self._next_timestep or {}).get(t, int(CLEAN))
        return max((entry for entry in self._next_timestep if entry < t), default=int(CLEAN))

    def _prediction(self, output: Tensor, sample: Tensor, a: float, s: float) -> tuple[Tensor, Tensor]:
        kind = self.config.prediction_type
        if kind == "epsilon":
            return (sample - s * output) / a, output
        if kind == "sample":
            return output, (sample - a * output) / s
        if kind == "v_prediction":
            return a * sample - s * output, a * output + s * sample
        raise ValueError(f"prediction_type must be epsilon, sample or v_prediction, got {kind!r}")


class GeoSprintFlowMatchEulerScheduler(FlowMatchEulerDiscreteScheduler):
    """`FlowMatchEulerDiscreteScheduler` whose carried sigmas are final: the shift is already in them.

    Without `geosprint` in its config it is the stock scheduler to the last bit.
    """

    @register_to_config
    def __init__(
        self,
        num_train_timesteps: int = 1000,
        shift: float = 1.0,
        use_dynamic_shifting: bool = False,
        base_shift: float | None = 0.5,
        max_shift: float | None = 1.15,
        base_image_seq_len: int = 256,
        max_image_seq_len: int = 4096,
        invert_sigmas: bool = False,
        shift_terminal: float | None = None,
        use_karras_sigmas: bool = False,
        use_exponential_sigmas: bool = False,
        use_beta_sigmas: bool = False,
        time_shift_type: str = "exponential",
        stochastic_sampling: bool = False,
        geosprint: dict[str, Any] | None = None,
    ) -> None:
        FlowMatchEulerDiscreteScheduler.__init__.__wrapped__(
            self, num_train_timesteps, shift, use_dynamic_shifting, base_shift, max_shift, base_image_seq_len,
            max_image_seq_len, invert_sigmas, shift_terminal, use_karras_sigmas, use_exponential_sigmas,
            use_beta_sigmas, time_shift_type, stochastic_sampling,
        )  # fmt: skip
        if geosprint is not None:
            check_carried(geosprint, flow_of(geosprint, num_train_timesteps))

    def set_timesteps(
        self,
        num_inference_steps: int | None = None,
        device: str | torch.device | None = None,
        sigmas: list[float] | None = None,
        mu: float | None = None,
        timesteps: list[float] | None = None,
    ) -> None:
        """So many steps of what the scheduler carries, unless the caller brings sigmas or timesteps of its own."""
        carried = self.config.geosprint
        if carried is None or timesteps is not None or not is_default(sigmas):
            super().set_timesteps(num_inference_steps, device, sigmas, mu, timesteps)
            return
        warn_of_another_shift(carried, shift_of(self, mu))
        steps = len(sigmas) if sigmas is not None else num_inference_steps
        times = steps_carried(carried, steps, flow_of(carried, self.config.num_train_timesteps))
        self.timesteps = torch.tensor(times.tolist(), dtype=torch.float32, device=device)
        self.sigmas = torch.cat([self.timesteps / self.config.num_train_timesteps, self.timesteps.new_zeros(1)])
        self.num_inference_steps = len(times)
        self._step_index = None
        self._begin_index = None

    @functools.wraps(FlowMatchEulerDiscreteScheduler.step)
    def step(self, model_output: Tensor, timestep: Any, sample: Tensor, *given: Any, **named: Any) -> Any:
        """One step of Euler, as in stock."""
        if self.config.geosprint is not None:
            warn_of_another_size(self.config.geosprint, sample.shape[1:])
        return super().step(model_output, timestep, sample, *given, **named)
