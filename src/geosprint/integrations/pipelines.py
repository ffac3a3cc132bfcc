"""Recording any diffusers pipeline by watching its scheduler's steps, and leaving it as it was found."""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline, FlowMatchEulerDiscreteScheduler
from torch import Tensor
from tqdm import tqdm

from geosprint.baselines import reference_timesteps
from geosprint.errors import ModelError
from geosprint.integrations.apply import apply, scheduler_carrying
from geosprint.integrations.noise_of import clip_of, is_flow, noise_of, prediction_of, shift_of
from geosprint.integrations.schedulers import GeoSprintDDIMScheduler
from geosprint.models.base import x0_and_eps
from geosprint.noise import CLEAN
from geosprint.trajectory import Origin, Trajectories


@dataclass(frozen=True)
class PipelineInputs:
    """What a pipeline is asked to draw while it is recorded; trajectory i gets prompt i, again from the first."""

    prompts: tuple[str, ...] = ()
    negative_prompt: str | None = None
    guidance_scale: float | None = None  # None: the pipeline's own default
    height: int | None = None
    width: int | None = None

    def describe(self, pipe: Any) -> dict[str, Any]:
        """For the profile: enough to notice that something else is being drawn; defaults are the pipeline's."""
        text = "\n".join(self.prompts)
        height, width = _own_size(pipe)
        return {
            "prompts": len(self.prompts),
            "prompts_sha256": hashlib.sha256(text.encode()).hexdigest() if text else None,
            "negative_prompt": self.negative_prompt,
            "guidance_scale": self.guidance_scale if self.guidance_scale is not None else _own_guidance(pipe),
            "height": self.height or height,
            "width": self.width or width,
        }


@dataclass
class StepLog:
    """What went through a scheduler's step, in order."""

    times: list[float] = field(default_factory=list)
    states: list[Tensor] = field(default_factory=list)  # one more than steps: the last one is the result
    outputs: list[Tensor] = field(default_factory=list)
    sigmas: list[float] = field(default_factory=list)
    mu: float | None = None
    calls: int = 0  # network calls, summed over samples


def record_pipeline(
    pipe: Any,
    seeds: Sequence[int],
    steps: int,
    solver: str = "ddim",
    eta: float = 0.0,
    batch: int = 4,
    predictions: bool = False,
    progress: bool = False,
    inputs: PipelineInputs | None = None,
) -> Iterator[Trajectories]:
    """Trajectories of a pipeline, a batch at a time: with DDIM, or with the scheduler it has (solver="pipeline").

    Flow pipelines are recorded with Euler, which is DDIM for them (the paper's Eq. 2).
    """
    inputs = inputs or PipelineInputs()
    if batch < 1:
        raise ModelError(f"the batch size must be at least 1, got {batch}")
    reference = _reference_scheduler(pipe.scheduler, steps, solver)
    if eta and not isinstance(reference, GeoSprintDDIMScheduler):
        raise ModelError("eta belongs to ddim; flow pipelines and solver='pipeline' do not take it, leave it out")
    with tqdm(total=len(seeds) * steps, desc="record", disable=not progress, delay=1) as bar:
        for start in range(0, len(seeds), batch):
            some = seeds[start : start + batch]
            with left_as_found(pipe):  # whoever takes the batch finds the pipeline whole, and may stop here
                pipe.scheduler = reference
                log = _run(pipe, some, steps, start, eta, inputs, bar)
                recorded = _as_trajectories(pipe, log, some, solver, eta, predictions, inputs)
            yield recorded


@contextmanager
def left_as_found(pipe: Any) -> Iterator[None]:
    """Evaluation mode and silence inside; scheduler, modes and progress bar as before afterwards, whatever happens."""
    scheduler = pipe.scheduler
    modules = [part for part in pipe.components.values() if isinstance(part, torch.nn.Module)]
    modes = [(module, module.training) for part in modules for module in part.modules()]
    bar = getattr(pipe, "_progress_bar_config", None)
    try:
        for part in modules:
            part.eval()
        pipe.set_progress_bar_config(disable=True)
        yield
    finally:
        pipe.scheduler = scheduler
        for module, mode in modes:
            module.training = mode
        if bar is None:
            del pipe._progress_bar_config
        else:
            pipe._progress_bar_config = bar


@contextmanager
def watching(scheduler: Any, denoiser: torch.nn.Module) -> Iterator[StepLog]:
    """Note every state, prediction and network call, changing nothing of what the pipeline sees."""
    log = StepLog()
    step, set_timesteps = scheduler.step, scheduler.set_timesteps

    @functools.wraps(step)  # pipelines read the signature for eta and generator
    def watched_step(model_output: Tensor, timestep: Any, sample: Tensor, *rest: Any, **named: Any) -> Any:
        before = _sigma_now(scheduler, timestep)
        result = step(model_output, timestep, sample, *rest, **named)
        if not log.states:
            log.states.append(sample.detach().float().cpu())
        log.times.append(float(timestep))
        log.sigmas.append(before)
        log.outputs.append(model_output.detach().float().cpu())
        following = result[0] if isinstance(result, tuple) else result.prev_sample
        log.states.append(following.detach().float().cpu())
        return result

    @functools.wraps(set_timesteps)
    def watched_set_timesteps(*given: Any, **named: Any) -> Any:
        log.mu = named.get("mu")
        return set_timesteps(*given, **named)

    def count(module: torch.nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        first = given[0] if given else named.get("sample", named.get("hidden_states"))
        log.calls += len(first) if isinstance(first, Tensor) else 0

    handle = denoiser.register_forward_pre_hook(count, with_kwargs=True)
    scheduler.step, scheduler.set_timesteps = watched_step, watched_set_timesteps
    try:
        yield log
    finally:
        handle.remove()
        del scheduler.step, scheduler.set_timesteps


def load_pipeline(
    path_or_id: str,
    dtype: str = "float32",
    device: str = "cpu",
    revision: str | None = None,
    token: str | None = None,
    cache_dir: Path | None = None,
) -> Any:
    """A pipeline from a directory or the hub, through diffusers' own `from_pretrained`.

    What its scheduler carried when it was saved is in use again, also in pipelines that put a stock scheduler in.
    """
    kinds = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
    if dtype not in kinds:
        raise ModelError(f"dtype must be one of {', '.join(kinds)}, got {dtype!r}")
    try:
        pipe = DiffusionPipeline.from_pretrained(
            path_or_id, torch_dtype=kinds[dtype], revision=revision, token=token, cache_dir=cache_dir
        )
        pipe.to(device)
    except (OSError, ValueError, RuntimeError, ImportError) as wrong:
        reason = str(wrong).strip().split("\n")[0]
        raise ModelError(
            f"cannot load a diffusers pipeline from {path_or_id!r}: {reason}; it must be a directory with a "
            "model_index.json or a hub id, and models in the box are listed by `geosprint models`"
        ) from wrong
    return apply(pipe) if pipe.scheduler.config.get("geosprint") else pipe


def denoiser_of(pipe: Any) -> Any:
    """The network that is called at every step."""
    for name in ("unet", "transformer"):
        if isinstance(getattr(pipe, name, None), torch.nn.Module):
            return getattr(pipe, name)
    raise ModelError(
        f"a {type(pipe).__name__} has neither a unet nor a transformer; wrap its network as a model instead"
    )


def _reference_scheduler(scheduler: Any, steps: int, solver: str) -> Any:
    """A scheduler that walks the fine uniform grid: DDIM (Euler for a flow), or one of the pipeline's own kind."""
    if solver not in ("ddim", "pipeline"):
        raise ModelError(f"a pipeline is recorded with solver ddim or pipeline (its own), got {solver!r}")
    if solver == "pipeline":
        _refuse_second_order(scheduler)
    noise = noise_of(scheduler)
    if is_flow(scheduler):
        return _reference_flow(scheduler, solver)
    times = reference_timesteps(noise, steps)
    carried = {"timesteps": times.tolist(), "sigmas": noise.sigma(times).tolist()}
    if solver == "pipeline":
        return scheduler_carrying(scheduler, carried)
    clips = clip_of(scheduler) is not None  # DDIM would clip by default, others do not
    return GeoSprintDDIMScheduler.from_config(scheduler.config, clip_sample=clips, geosprint=carried)


def _reference_flow(scheduler: Any, solver: str) -> Any:
    """Flows walk the pipeline's own spacing, which is uniform in their clock."""
    if solver == "pipeline" and not isinstance(scheduler, FlowMatchEulerDiscreteScheduler):
        raise ModelError(
            f"the states of a {type(scheduler).__name__} are not recorded here; record with solver ddim, "
            "which is Euler for a flow, and apply the schedule to it afterwards"
        )
    return FlowMatchEulerDiscreteScheduler.from_config(
        scheduler.config, shift=shift_of(scheduler), stochastic_sampling=False
    )


def _refuse_second_order(scheduler: Any) -> None:
    name, order = type(scheduler).__name__, getattr(scheduler, "order", 1)
    if "Singlestep" in name:
        order = scheduler.config.solver_order
    if order > 1:
        raise ModelError(
            f"{name} is of order {order}: some of its states are trials that it takes back, so they are no trajectory; "
            "record with solver ddim, and apply the schedule to it afterwards"
        )


def _run(
    pipe: Any, seeds: Sequence[int], steps: int, start: int, eta: float, inputs: PipelineInputs, bar: Any
) -> StepLog:
    accepted = inspect.signature(pipe.__call__).parameters
    named: dict[str, Any] = {
        "generator": [torch.Generator(device="cpu").manual_seed(int(seed)) for seed in seeds],
        "num_inference_steps": steps,
    }
    if "prompt" in accepted:
        if not inputs.prompts:
            raise ModelError(f"a {type(pipe).__name__} needs prompts; give some, as varied as what you will draw")
        named["prompt"] = [inputs.prompts[(start + i) % len(inputs.prompts)] for i in range(len(seeds))]
        if inputs.negative_prompt is not None:
            named["negative_prompt"] = [inputs.negative_prompt] * len(seeds)
        named["output_type"] = "latent"
    else:
        if inputs.prompts:
            raise ModelError(f"a {type(pipe).__name__} takes no prompts; leave them out")
        if pipe.dtype is torch.bfloat16:
            raise ModelError(f"a {type(pipe).__name__} cannot return bfloat16 images; use float32 or float16")
        named["batch_size"] = len(seeds)
        named["output_type"] = "np"
    for name in ("guidance_scale", "height", "width"):
        if getattr(inputs, name) is not None:
            named[name] = getattr(inputs, name)
    if eta:
        named["eta"] = eta
    if unknown := [name for name in named if name not in accepted]:
        raise ModelError(f"a {type(pipe).__name__} does not take {', '.join(unknown)}; leave that out")
    with torch.no_grad(), watching(pipe.scheduler, denoiser_of(pipe)) as log:
        pipe(**named)
    bar.update(len(seeds) * steps)
    if not torch.isfinite(log.states[-1]).all():
        wrong = seeds[int(torch.nonzero(~torch.isfinite(log.states[-1]).flatten(1).all(dim=1))[0])]
        at = next(t for t, x in zip(log.times, log.states[1:], strict=True) if not torch.isfinite(x).all())
        raise ModelError(
            f"the pipeline returned nan or infinity for seed {wrong} at t = {at:g}; half precision overflows"
        )
    return log


def _as_trajectories(
    pipe: Any, log: StepLog, seeds: Sequence[int], solver: str, eta: float, predictions: bool, inputs: PipelineInputs
) -> Trajectories:
    scheduler = pipe.scheduler
    noise = noise_of(scheduler, log.mu)
    scales = [_vp_scale(scheduler, sigma) for sigma in [*log.sigmas, 0.0]]
    states = torch.stack([x.flatten(1) / scale for x, scale in zip(log.states, scales, strict=True)], dim=1)
    times = np.minimum(log.times, noise.first)  # a shifted 1 may come out as 1.0000001
    kind = prediction_of(scheduler)
    x0 = eps = None
    if predictions:
        pairs = [
            x0_and_eps(kind, x, output.flatten(1), *noise.signal_and_sigma(t))
            for x, output, t in zip(states.unbind(1), log.outputs, times, strict=False)
        ]
        clip = clip_of(scheduler)
        x0 = torch.stack([x if clip is None else x.clamp(-clip, clip) for x, _ in pairs], dim=1)
        eps = torch.stack([e for _, e in pairs], dim=1)
    origin = Origin(
        model=str(getattr(pipe.config, "_name_or_path", "") or type(pipe).__name__),
        shape=tuple(log.states[0].shape[1:]),
        noise=noise,
        prediction=kind,
        clip=clip_of(scheduler),
        calls=max(1, round(log.calls / (len(seeds) * len(log.times)))),
        solver=solver if not is_flow(scheduler) else "euler",
        eta=eta,
        conditions={
            "pipeline": type(pipe).__name__,
            "scheduler": type(scheduler).__name__,
            "dtype": str(pipe.dtype).removeprefix("torch."),
            "thresholding": bool(scheduler.config.get("thresholding", False)),
            "shift_terminal": scheduler.config.get("shift_terminal"),
            **inputs.describe(pipe),
        },
    )
    return Trajectories(states, np.append(times, CLEAN), tuple(seeds), origin, log.calls, x0=x0, eps=eps)


def _own_guidance(pipe: Any) -> float | None:
    asked = inspect.signature(pipe.__call__).parameters.get("guidance_scale")
    return float(asked.default) if asked is not None and asked.default is not inspect.Parameter.empty else None


def _own_size(pipe: Any) -> tuple[int | None, int | None]:
    """Height and width that a pipeline draws unless told otherwise."""
    size = getattr(pipe, "default_sample_size", None) or denoiser_of(pipe).config.get("sample_size")
    if size is None:
        return None, None
    height, width = (size, size) if isinstance(size, int) else size
    scale = getattr(pipe, "vae_scale_factor", 1)
    return height * scale, width * scale


def _sigma_now(scheduler: Any, timestep: Any) -> float:
    """The sigma that a sigma-based scheduler is at; 0 for those that have none."""
    sigmas, index = getattr(scheduler, "sigmas", None), getattr(scheduler, "step_index", None)
    if sigmas is None:
        return 0.0
    if index is None:
        index = int((scheduler.timesteps == timestep).nonzero()[0])
    return float(sigmas[index])


def _vp_scale(scheduler: Any, sigma: float) -> float:
    """States of a variance-exploding sampler are too large by sqrt(1 + sigma²)."""
    explodes = not is_flow(scheduler) and not math.isclose(float(getattr(scheduler, "init_noise_sigma", 1.0)), 1.0)
    return math.sqrt(1 + sigma**2) if explodes else 1.0
