"""Steps of GeoSPRINT in schedulers that need diffusers alone: they step where and how their config says.

In a pipeline that was saved after `geosprint.apply(pipe, ..., standalone=True)` this file lies beside the config of the
scheduler, and `DiffusionPipeline.from_pretrained(..., trust_remote_code=True)` loads it from there.
"""

from __future__ import annotations

import functools
import inspect
import math
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import torch
from diffusers.configuration_utils import register_to_config
from diffusers.schedulers.scheduling_ddim import DDIMSchedulerOutput
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteSchedulerOutput
from torch import Tensor

MODULE = "geosprint_scheduler"  # as pipelines name this file
STEP_OF_ANOTHER = (
    "something else steps in the place of this scheduler, as xDiT does on several devices, and would step by Euler "
    "where the steps were fitted; use steps that were tuned for euler there"
)


def _extended_init(stock: Any) -> Any:
    """The stock's __init__ with one more argument, `geosprint`: steps as a dictionary, or None."""
    # The decorated one would register its own defaults over what was given.
    stock_init = stock.__init__.__wrapped__

    def init(self: Any, *given: Any, geosprint: dict[str, Any] | None = None, **named: Any) -> None:
        stock_init(self, *given, **named)
        if geosprint is not None:
            self._take(geosprint)

    signature = inspect.signature(stock_init)
    extra = inspect.Parameter("geosprint", inspect.Parameter.KEYWORD_ONLY, default=None)
    # diffusers reads the names of a config from the signature.
    init.__signature__ = signature.replace(parameters=[*signature.parameters.values(), extra])  # type: ignore[attr-defined]
    return register_to_config(init)


def steps_of_the_caller(asked: dict[str, Any]) -> bool:
    """Whether lists given to `set_timesteps` are somebody's wish, which is then said, and not a pipeline's default."""
    lists = {name: asked[name] for name in ("timesteps", "sigmas") if asked.get(name) is not None}
    if not lists:
        return False
    call = _call_of_a_pipeline()
    wished = lists if call is None else [name for name in ("timesteps", "sigmas") if call[1].get(name) is not None]
    if not wished or (call is None and _is_uniform(lists)):
        return False
    who = type(asked["self"]).__name__ if call is None else call[0]
    warnings.warn(
        f"the steps that geosprint.apply put into this {who} are not used, because it was given "
        f"{' and '.join(wished)}; leave that out to use them",
        stacklevel=4,
    )
    return True


def _call_of_a_pipeline() -> tuple[str, dict[str, Any]] | None:
    """The pipeline that is drawing, and the arguments that it was called with.

    Pipelines put lists of their own in place of what was left out, so the frame above tells, that of their `no_grad`.
    """
    frame = inspect.currentframe()
    while frame := frame.f_back if frame else None:
        owner = frame.f_locals.get("self")
        if frame.f_code.co_name == "__call__" and hasattr(owner, "scheduler"):
            above = frame.f_back.f_locals if frame.f_back else {}
            if above.get("args", ())[:1] == (owner,):
                bound = inspect.signature(type(owner).__call__).bind(*above["args"], **above["kwargs"]).arguments
                return type(owner).__name__, {**bound, **bound.get("kwargs", {})}
            return type(owner).__name__, frame.f_locals
    return None


def _is_uniform(lists: dict[str, Any]) -> bool:
    """Whether this is the list of sigmas that engines pass when nobody asked for one."""
    given = np.asarray(lists.get("sigmas", ()), dtype=np.float64)
    return "timesteps" not in lists and np.allclose(given, np.linspace(1.0, 1 / len(given), len(given)), atol=1e-6)


def _unscaled(self: Any, sample: Tensor, timestep: Any = None) -> Tensor:
    """`scale_model_input` of a flow, which Bria asks of every scheduler that is not of the stock class itself."""
    return sample


def steps_asked_for(asked: dict[str, Any]) -> int | None:
    """How many steps `set_timesteps` was told to make, by a number or by a pipeline's own list."""
    listed = next((asked[name] for name in ("sigmas", "timesteps") if asked.get(name) is not None), None)
    return asked.get("num_inference_steps") if listed is None else len(listed)


def shift_of(scheduler: Any, mu: float | None = None) -> float:
    """The shift of a flow's clock: fixed, or of this run's mu."""
    if scheduler.config.get("use_dynamic_shifting", False) and mu is not None:
        return math.exp(mu) if scheduler.config.get("time_shift_type", "exponential") == "exponential" else float(mu)
    if scheduler.config.get("use_flow_sigmas", False):
        return float(scheduler.config.get("flow_shift", 1.0))
    return float(getattr(scheduler, "shift", 1.0))


def is_edm(scheduler: Any) -> bool:
    """Whether the network is told log(sigma) / 4 of x0 + sigma·eps, as Karras et al. (2022) do, and no timestep."""
    if isinstance(scheduler, diffusers.EulerDiscreteScheduler):
        return (scheduler.config.timestep_type, scheduler.config.prediction_type) == ("continuous", "v_prediction")
    return isinstance(scheduler, diffusers.EDMEulerScheduler | diffusers.EDMDPMSolverMultistepScheduler)


def size_of_states(scheduler: Any, sigma: float) -> float:
    """How many times larger its states are there than those of a flow or of a variance preserving model."""
    return math.hypot(1, sigma) if is_edm(scheduler) else 1.0


def denoised(scheduler: Any, output: Any, x: Any, sigma: float) -> Any:
    """x0, as the output of a network says it at x: of a flow, or preconditioned (Karras et al. 2022, Table 1)."""
    if not is_edm(scheduler):
        return x - sigma * output
    data = float(scheduler.config.sigma_data) if hasattr(scheduler, "precondition_outputs") else 1.0
    norm = math.hypot(sigma, data)
    sign = -1 if scheduler.config.prediction_type == "v_prediction" else 1
    return (data / norm) ** 2 * x + sign * sigma * data / norm * output


def by_timesteps(stock: Any, scheduler: Any, steps: dict[str, Any], asked: dict[str, Any]) -> None:
    """For schedulers that take `timesteps=` and look the next one up in the list."""
    times = [int(t) for t in steps["timesteps"]]
    stock.set_timesteps(scheduler, **_others(asked), timesteps=times)


def by_sigmas(stock: Any, scheduler: Any, steps: dict[str, Any], asked: dict[str, Any]) -> None:
    """For schedulers that read `sigmas` (K + 1, the last one 0) by a step counter: both lists are put in."""
    times, is_flow = steps["timesteps"], scheduler.config.get("use_flow_sigmas", False)
    stock.set_timesteps(scheduler, num_inference_steps=len(times), **_others(asked))
    # A flow that starts at sigma 1 has no log-SNR there: these solvers want it a little below.
    sigmas = [min(sigma, 1 - 1e-6) if is_flow else sigma for sigma in steps["sigmas"][: len(times)]]
    told = [math.log(sigma) / 4 for sigma in sigmas] if is_edm(scheduler) else times
    timesteps = torch.tensor(told, dtype=torch.float32 if is_flow else scheduler.timesteps.dtype)
    _put_in(scheduler, timesteps.to(asked.get("device")), torch.tensor([*sigmas, 0.0]))


def by_final_sigmas(stock: Any, scheduler: Any, steps: dict[str, Any], asked: dict[str, Any]) -> None:
    """For Euler on a flow: the shift is already in the sigmas, so nothing of its own may touch them."""
    times, device = np.array(steps["timesteps"]), asked.get("device")
    told, last = times, scheduler.config.num_train_timesteps
    if asked.get("timesteps") is not None:  # pipelines that have such a list tell their network times before the shift
        told = last * times / (times + shift_of(scheduler, asked.get("mu")) * (last - times))
    sigmas = [*times / last, 0.0]
    _put_in(scheduler, *(torch.tensor(list(part), dtype=torch.float32, device=device) for part in (told, sigmas)))


def _others(asked: dict[str, Any]) -> dict[str, Any]:
    """What else `set_timesteps` was told."""
    return {name: asked[name] for name in asked if name not in ("self", "num_inference_steps", "sigmas", "timesteps")}


def _put_in(scheduler: Any, timesteps: Tensor, sigmas: Tensor) -> None:
    scheduler.timesteps, scheduler.sigmas, scheduler.num_inference_steps = timesteps, sigmas, len(timesteps)
    scheduler._step_index = scheduler._begin_index = None


def _first_noise(stock: Any) -> dict[str, Any]:
    """`init_noise_sigma` of EDM schedulers, who say that of all their range wherever they begin."""
    if not hasattr(stock, "precondition_noise"):
        return {}

    def init_noise_sigma(self: Any) -> float:
        return math.hypot(1, float(self.sigmas[0])) if self._in_use else stock.init_noise_sigma.fget(self)

    return {"init_noise_sigma": property(init_noise_sigma)}


def following(name: str, module: str, shared: type, stock: Any, place: Callable[..., None], step: Any = None) -> Any:
    """The stock scheduler, at the steps that `shared` finds in its config; without any, it is the stock one itself."""
    stock_set_timesteps = stock.set_timesteps

    @functools.wraps(stock_set_timesteps)  # pipelines read the signature for timesteps and sigmas
    def set_timesteps(self: Any, *given: Any, **named: Any) -> None:
        asked = inspect.signature(stock_set_timesteps).bind(self, *given, **named).arguments
        self._in_use, self._seen = None, {}
        if self._payload is None or steps_of_the_caller(asked):
            stock_set_timesteps(self, *given, **named)
        else:
            steps = self._steps_for(steps_asked_for(asked), asked.get("mu"))
            place(stock, self, steps, asked)
            self._in_use = steps

    own = {"__init__": _extended_init(stock), "set_timesteps": set_timesteps, "step": step or stock.step}
    own["scale_model_input"] = getattr(stock, "scale_model_input", _unscaled)
    about = f"`{stock.__name__}` that steps where its `geosprint` says."
    return type(name, (shared, stock), {**own, **_first_noise(stock), "__module__": module, "__doc__": about})


class Fitted:
    """Steps with the coefficients of the list in use, if it has some."""

    _in_use: dict[str, Any] | None = None
    _seen: dict[int, tuple[Tensor, ...]]  # what the latest steps predicted
    _refusal: type[Exception] = RuntimeError

    @property
    def is_fitted(self) -> bool:
        """Whether fitted steps are in use."""
        return bool(self._in_use and self._in_use.get("coefficients"))

    def fitted(
        self, index: int, x: Tensor, output: Tensor, x0_of: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor | None]:
        """x0 and the state after this step; None where it is not fitted, or has not seen all that it looks back at."""
        predicted = self._predicted(output, x0_of)
        past = looked_back_at(self._seen, index, predicted)
        rows = (self._in_use or {}).get("coefficients" if len(predicted) == 1 else "guided")
        earlier = [before - now for one in past for before, now in zip(one, predicted, strict=True)]
        if not rows or len(parts := [x, *predicted, *earlier]) < len(rows[index]):
            return predicted[0], None
        return predicted[0], sum(number * part for number, part in zip(rows[index], parts, strict=False))

    def _predicted(self, output: Tensor, x0_of: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...]:
        return (x0_of(output),)

    def _init_step_index(self, timestep: Any) -> None:
        """A step that is not ours begins with it: xDiT replaces that of every flow scheduler by Euler's."""
        if self.is_fitted and not is_edm(self):
            raise self._refusal(STEP_OF_ANOTHER)
        super()._init_step_index(timestep)  # type: ignore[misc]


class _Listed(Fitted):
    """What all schedulers of this file share: the steps of their config, and this file beside it."""

    _payload: dict[int, dict[str, Any]] | None = None  # lists by their number of steps

    def _take(self, described: dict[str, Any]) -> None:
        self._payload = {len(one["timesteps"]): one for one in described.get("several", [described])}

    def _steps_for(self, number: int | None, mu: float | None) -> dict[str, Any]:
        known = self._payload or {}
        number = next(iter(known)) if number is None and len(known) == 1 else number
        if number not in known:
            raise ValueError(f"this scheduler has steps for {', '.join(map(str, known))}, {number} were asked for")
        return known[number]

    def save_pretrained(self, save_directory: Any, *given: Any, **named: Any) -> None:
        """The config, and the code that it needs."""
        super().save_pretrained(save_directory, *given, **named)  # type: ignore[misc]
        shutil.copyfile(__file__, Path(save_directory) / f"{MODULE}.py")


def _by_list(stock: Any, scheduler: Any, steps: dict[str, Any], asked: dict[str, Any]) -> None:
    scheduler.timesteps = torch.tensor([int(t) for t in steps["timesteps"]], device=asked.get("device"))
    scheduler.num_inference_steps = len(scheduler.timesteps)


class _DDIM(diffusers.DDIMScheduler):
    """It hears what LCM pipelines tell their own scheduler."""

    def set_timesteps(
        self, num_inference_steps: int, device: Any = None, original_inference_steps: int | None = None
    ) -> None:
        super().set_timesteps(num_inference_steps, device)


def _ddim_step(
    self: Any,
    model_output: Tensor,
    timestep: Any,
    sample: Tensor,
    eta: float | None = 0.0,
    use_clipped_model_output: bool = False,
    generator: Any = None,
    variance_noise: Tensor | None = None,
    return_dict: bool = True,
) -> Any:
    """DDIM to the next entry of the list, whatever its distance, or the fitted step there."""
    if self._in_use is None:
        given = (eta, use_clipped_model_output, generator, variance_noise, return_dict)
        return _DDIM.step(self, model_output, timestep, sample, *given)
    if eta:
        raise ValueError(f"these steps draw no fresh noise: eta must be 0, got {eta}")
    times, t = self.timesteps.tolist(), int(timestep)
    index = times.index(t)
    here, final = float(self.alphas_cumprod[t]), float(self.final_alpha_cumprod)
    there = float(self.alphas_cumprod[times[index + 1]]) if index + 1 < len(times) else final
    signal, sigma = math.sqrt(max(here, 2**-24)), math.sqrt(1 - here)
    x, output = precise(sample), precise(model_output)
    x0, eps = {
        "epsilon": lambda: ((x - sigma * output) / signal, output),
        "sample": lambda: (output, (x - signal * output) / sigma),
        "v_prediction": lambda: (signal * x - sigma * output, sigma * x + signal * output),
    }[self.config.prediction_type]()
    if self.config.thresholding:
        x0 = self._threshold_sample(x0)
    elif self.config.clip_sample:
        x0 = x0.clamp(-self.config.clip_sample_range, self.config.clip_sample_range)
    if use_clipped_model_output:
        eps = (x - signal * x0) / sigma
    _, found = self.fitted(index, x, x0, lambda x0: x0)
    if found is None:
        found = math.sqrt(there) * x0 + math.sqrt(1 - there) * eps
    found, x0 = found.to(sample.dtype), x0.to(sample.dtype)
    return DDIMSchedulerOutput(prev_sample=found, pred_original_sample=x0) if return_dict else (found, x0)


def stepping_along_sigmas(stock: Any) -> Any:
    """The `step` of this scheduler of sigmas, or the fitted step where one is in use, in its own coordinates."""

    @functools.wraps(stock.step)  # pipelines read the signature for generator
    def step(self: Any, model_output: Tensor, timestep: Any, sample: Tensor, *given: Any, **named: Any) -> Any:
        plain = functools.partial(stock.step, self, model_output, timestep, sample, *given, **named)
        if not self.is_fitted:
            return plain()
        if named.get("per_token_timesteps") is not None:
            raise ValueError("fitted steps are the same for all tokens; apply a schedule to this pipeline instead")
        if self.step_index is None:
            stock._init_step_index(self, timestep)
        x, told = precise(sample), named.get("pred_original_sample")  # Cosmos guides x0 itself
        now, then = self.sigmas[self.step_index : self.step_index + 2].tolist()

        def x0_of(output: Tensor) -> Tensor:
            return denoised(self, output, x, now) if told is None else precise(told)

        x0, found = self.fitted(self.step_index, x / size_of_states(self, now), precise(model_output), x0_of)
        if found is None:
            return plain()
        self._step_index += 1
        found, as_dict = (found * size_of_states(self, then)).to(model_output.dtype), named.get("return_dict", True)
        if is_edm(self):
            return DDIMSchedulerOutput(prev_sample=found, pred_original_sample=x0) if as_dict else (found, x0)
        return FlowMatchEulerDiscreteSchedulerOutput(prev_sample=found) if as_dict else (found,)

    return step


def looked_back_at(seen: dict[int, Any], index: int, predicted: Any, most: int = 3) -> list[Any]:
    """What the steps right before this one predicted, latest first; remembers this one's, also if it is made again."""
    if index < max(seen, default=0):
        seen.clear()  # another run has begun
    seen[index] = predicted
    seen.pop(index - most - 1, None)
    past: list[Any] = []
    shapes = [part.shape for part in predicted]
    while (before := seen.get(index - len(past) - 1)) and [part.shape for part in before] == shapes:
        past.append(before)
    return past


def precise(tensor: Tensor) -> Tensor:
    """At least single precision: the coefficients of a step add up large parts to a small difference."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


_FLOW, _EDM = diffusers.FlowMatchEulerDiscreteScheduler, diffusers.EDMEulerScheduler
STANDALONE: dict[str, tuple[Any, ...]] = {
    "GeoSprintDDIMScheduler": (_DDIM, _by_list, _ddim_step),
    "GeoSprintFittedScheduler": (_DDIM, _by_list, _ddim_step),
    "GeoSprintFlowMatchEulerScheduler": (_FLOW, by_final_sigmas, stepping_along_sigmas(_FLOW)),
    "GeoSprintFittedFlowMatchScheduler": (_FLOW, by_final_sigmas, stepping_along_sigmas(_FLOW)),
    "GeoSprintFittedEDMScheduler": (_EDM, by_sigmas, stepping_along_sigmas(_EDM)),
    "GeoSprintEDMEulerScheduler": (_EDM, by_sigmas),
    "GeoSprintEDMDPMSolverMultistepScheduler": (diffusers.EDMDPMSolverMultistepScheduler, by_sigmas),
    "GeoSprintDDPMScheduler": (diffusers.DDPMScheduler, by_timesteps),
    "GeoSprintLCMScheduler": (diffusers.LCMScheduler, by_timesteps),
    "GeoSprintHeunDiscreteScheduler": (diffusers.HeunDiscreteScheduler, by_timesteps),
    "GeoSprintEulerDiscreteScheduler": (diffusers.EulerDiscreteScheduler, by_sigmas),
    "GeoSprintEulerAncestralDiscreteScheduler": (diffusers.EulerAncestralDiscreteScheduler, by_sigmas),
    "GeoSprintDPMSolverMultistepScheduler": (diffusers.DPMSolverMultistepScheduler, by_sigmas),
    "GeoSprintDPMSolverSinglestepScheduler": (diffusers.DPMSolverSinglestepScheduler, by_sigmas),
    "GeoSprintUniPCMultistepScheduler": (diffusers.UniPCMultistepScheduler, by_sigmas),
}
globals().update({name: following(name, MODULE, _Listed, *made) for name, made in STANDALONE.items()})
