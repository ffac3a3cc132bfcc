"""Recording any diffusers pipeline by hooks on its scheduler's steps."""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import torch
from diffusers import DiffusionPipeline, FlowMatchEulerDiscreteScheduler
from packaging.version import Version

from geosprint.baselines import reference_timesteps
from geosprint.errors import GeoSprintError, ModelError
from geosprint.files import CONTROL, read_text
from geosprint.integrations.apply import apply, scheduler_with
from geosprint.integrations.devices import AUTO, device_named
from geosprint.integrations.geosprint_scheduler import denoised, is_edm, shift_of
from geosprint.integrations.hooks import StepLog, denoiser_of, left_as_found, name_of, recording_steps, steps_twice
from geosprint.integrations.noise_of import clip_of, is_flow, noise_of, prediction_of, settings_of
from geosprint.integrations.payload import Payload, Steps
from geosprint.integrations.schedulers import GeoSprintDDIMScheduler, GeoSprintEDMEulerScheduler
from geosprint.models.base import naming_failure, x0_and_eps
from geosprint.models.registry import PIPELINES, path_of
from geosprint.models.spread import batches_of
from geosprint.noise import CLEAN
from geosprint.runs.progress import Progress
from geosprint.runs.team import this_team
from geosprint.trajectory import Origin, Trajectories

MOST_LAYERS, MOST_TOKENS = 1000, 10**6  # of a block, and of a prompt: the largest have a hundred, and 10**5
NO_LENGTH = int(1e30)  # what transformers writes for a tokenizer that knows no longest prompt

# diffusers 0.42 warns of the old word, and older ones do not know the new one.
DTYPE = "dtype" if Version(diffusers.__version__) >= Version("0.42") else "torch_dtype"


@dataclass(frozen=True)
class PipelineInputs:
    """What a pipeline is asked to draw while it is recorded; trajectory i gets prompt i, again from the first."""

    prompts: tuple[str, ...] = ()
    negative_prompt: str | None = None
    guidance_scale: float | None = None  # None: the pipeline's own default
    height: int | None = None
    width: int | None = None
    call: Mapping[str, Any] = field(default_factory=dict)  # all else that `pipe(...)` is called with: image, num_frames

    def __post_init__(self) -> None:
        if isinstance(self.prompts, str):
            raise ModelError(f"prompts must be a list of texts, got one text: ({self.prompts!r},) is a list of it")
        object.__setattr__(self, "prompts", tuple(self.prompts))
        for text in (*self.prompts, self.negative_prompt or ""):
            if not isinstance(text, str) or CONTROL.search(text):  # no file that names it could be read again
                raise ModelError(f"prompts must be texts without control characters, got {text!r}")
        if taken := sorted(_SAID_ELSEWHERE & self.call.keys()):
            raise ModelError(
                f"call is for arguments of the pipeline that nothing else says, got {', '.join(taken)}; leave that out"
            )

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
            **({"call": {name: _digest(value) for name, value in self.call.items()}} if self.call else {}),
        }


_SAID_ELSEWHERE = {field.name for field in fields(PipelineInputs)} | {
    *("prompt", "num_inference_steps", "timesteps", "sigmas", "latents", "generator", "output_type", "return_dict"),
    *("batch_size", "eta"),
}


def _digest(value: Any) -> Any:
    """Numbers and words as they are, pictures and arrays by their content."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_digest(part) for part in value]
    value = value.detach().float().cpu() if isinstance(value, torch.Tensor) else value
    array = np.ascontiguousarray(value)
    if array.dtype == object:
        return type(value).__name__
    return f"sha256:{hashlib.sha256(f'{array.dtype} {array.shape} '.encode() + array.tobytes()).hexdigest()}"


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
    batches: Sequence[range] | None = None,
) -> Iterator[Trajectories]:
    """Trajectories of a pipeline, a batch at a time: with DDIM, or with the scheduler it has (solver="pipeline").

    `batches` are the rows of the seeds that go through together; if left out, `batch` after `batch` of all.
    Flow and EDM pipelines are recorded with Euler, which is DDIM for them (the paper's Eq. 2).
    """
    inputs = inputs or PipelineInputs()
    if batch < 1:
        raise ModelError(f"the batch size must be at least 1, got {batch}")
    batches = batches_of(len(seeds), batch) if batches is None else batches
    who = f"pipeline {name_of(pipe)!r}"
    with naming_failure(who, 1):
        reference = _reference_scheduler(pipe.scheduler, steps, solver)
    if eta and not isinstance(reference, GeoSprintDDIMScheduler):
        raise ModelError(
            "eta belongs to ddim; flow and EDM pipelines and solver='pipeline' do not take it, leave it out"
        )
    if eta and "eta" not in inspect.signature(pipe.__call__).parameters:
        raise ModelError(f"a {type(pipe).__name__} does not take eta; leave that out")
    how: dict[str, Any] = {"num_inference_steps": steps, **({"eta": eta} if eta else {})}
    count = sum(map(len, batches))
    with Progress("record", count * steps, "step", progress, count) as bar:
        for rows in batches:
            some = seeds[rows.start : rows.stop]
            # Whoever takes the batch finds the pipeline whole, and may stop here.
            with naming_failure(who, len(rows)), left_as_found(pipe):
                pipe.scheduler = reference
                named = asked_of(pipe, len(some), rows.start, inputs)
                generators = [torch.Generator().manual_seed(int(seed)) for seed in some]
                with torch.no_grad(), recording_steps(pipe, predictions, partial(bar.update, len(some))) as log:
                    pipe(**named, **how, generator=generators)
                _check_log(pipe, log, some, steps)
                bar.finish(len(some))
                recorded = _as_trajectories(pipe, log, some, solver, eta, inputs)
            yield recorded
            del recorded, log  # the next batch may need their place


def load_pipeline(
    path_or_id: str | Path,
    dtype: str = AUTO,
    device: str = AUTO,
    revision: str | None = None,
    token: str | None = None,
    cache_dir: Path | None = None,
    trust_remote_code: bool = False,
) -> Any:
    """A pipeline from the box, a directory or the hub, through diffusers' own `from_pretrained`.

    Weights are read from safetensors alone, because unpickling can run anything. Code that a repository brings
    along runs only if it is trusted. The payload that the scheduler was saved with is in use again, also in
    pipelines that put a stock scheduler in. `auto` is cuda or mps in float16 where there is one, else cpu in float32.
    """
    kinds = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
    if dtype not in (AUTO, *kinds):
        raise ModelError(f"dtype must be one of {AUTO}, {', '.join(kinds)}, got {dtype!r}")
    where = device_named(device)
    if dtype == AUTO:
        dtype = "float32" if where == "cpu" else "float16"
        if where != "cpu" and this_team().leads:  # nobody asked for half precision, so it is said
            print(f"geosprint: {path_or_id} runs on {where} in {dtype}; dtype and device change that", file=sys.stderr)
    found = path_of(str(path_or_id)) if path_or_id in PIPELINES else path_or_id
    try:
        _refuse_endless_configs(Path(found))
        pipe = DiffusionPipeline.from_pretrained(
            found,
            revision=revision,
            token=token,
            cache_dir=cache_dir,
            use_safetensors=True,
            trust_remote_code=trust_remote_code,
            **{DTYPE: kinds[dtype]},
        )
        pipe.to(where)
        return apply(pipe) if pipe.scheduler.config.get("geosprint") else pipe
    except GeoSprintError:
        raise
    except ImportError as wrong:  # diffusers says how to install what it misses
        reason = " ".join(str(wrong).split())
        raise ModelError(f"the pipeline {str(path_or_id)!r} needs a package that is not installed: {reason}") from wrong
    except Exception as wrong:  # what damaged files provoke in diffusers has no end
        reason = str(wrong).strip().split("\n")[0]
        if "custom code" in reason:
            raise ModelError(
                f"the pipeline {str(path_or_id)!r} brings code along; read it, and say --trust-remote-code, in Python "
                "trust_remote_code=True, to run it"
            ) from wrong
        raise ModelError(
            f"cannot load a diffusers pipeline from {str(path_or_id)!r}: {reason}; it must be a directory with a "
            "model_index.json or a hub id, and models in the box are listed by `geosprint models`"
        ) from wrong


def _refuse_endless_configs(directory: Path) -> None:
    """All layers that a config names are built, and prompts padded to any length, before weights are looked for."""
    for path in sorted([*directory.glob("*/config.json"), *directory.glob("*/tokenizer_config.json")]):
        named = re.findall(r'"(\w*layers\w*|model_max_length)":\s*([\d\s,\[\]]+)', read_text(path))
        for name, numbers in named:
            most = MOST_TOKENS if name == "model_max_length" else MOST_LAYERS
            if most < max(map(int, re.findall(r"\d+", numbers)), default=0) < NO_LENGTH:
                raise ModelError(f"the {name} of {path} may be up to {most}, and is {numbers[:40].strip()}")


def _reference_scheduler(scheduler: Any, steps: int, solver: str) -> Any:
    """A scheduler that walks the fine uniform grid: DDIM (Euler for a flow), or one of the pipeline's own kind."""
    if solver not in ("ddim", "pipeline"):
        raise ModelError(f"a pipeline is recorded with solver ddim or pipeline (its own), got {solver!r}")
    name, order = type(scheduler).__name__, getattr(scheduler, "order", 1)
    order = scheduler.config.solver_order if "Singlestep" in name else order
    if solver == "pipeline" and order > 1:
        raise ModelError(
            f"{name} is of order {order}: some of its states are trials that it takes back, so they are no trajectory; "
            "record with solver ddim, and apply the schedule to it afterwards"
        )
    noise = noise_of(scheduler)
    if is_flow(scheduler):
        return _reference_flow(scheduler, solver)
    times = reference_timesteps(noise, steps)
    payload = Payload((Steps(tuple(times.tolist()), tuple(noise.sigma(times).tolist())),))
    if solver == "pipeline":
        return scheduler_with(scheduler, payload)
    told = {"geosprint": payload.to_dict(), **settings_of(scheduler)}
    if is_edm(scheduler):
        return GeoSprintEDMEulerScheduler.from_config(scheduler.config, **told)
    # A variance that the network predicts too is cut off by its pipeline, unless the scheduler says that it is learnt.
    return _ReferenceDDIM.from_config({**scheduler.config, "variance_type": "fixed_small"}, **told)


class _ReferenceDDIM(GeoSprintDDIMScheduler):
    """DDIM with the eps that belongs to the clipped x0: with the predicted one, a fine walk drifts away."""

    @functools.wraps(GeoSprintDDIMScheduler.step)  # pipelines read the signature for eta and generator
    def step(self, *given: Any, **named: Any) -> Any:
        return super().step(*given, **{**named, "use_clipped_model_output": True})


def _reference_flow(scheduler: Any, solver: str) -> Any:
    """Flows walk the pipeline's own spacing, which is uniform in their clock."""
    if solver == "pipeline" and not isinstance(scheduler, FlowMatchEulerDiscreteScheduler):
        raise ModelError(
            f"the states of a {type(scheduler).__name__} are not recorded here; record with solver ddim, "
            "which is Euler for a flow, and apply the schedule to it afterwards"
        )
    own_spacing_off = dict.fromkeys(("use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas"), False)
    return FlowMatchEulerDiscreteScheduler.from_config(
        scheduler.config, shift=shift_of(scheduler), stochastic_sampling=False, **own_spacing_off
    )


def asked_of(pipe: Any, count: int, start: int, inputs: PipelineInputs) -> dict[str, Any]:
    """What the pipeline is told to draw, in its own words."""
    accepted = inspect.signature(pipe.__call__).parameters
    sizes = ("guidance_scale", "height", "width")
    named = {name: getattr(inputs, name) for name in sizes if getattr(inputs, name) is not None} | dict(inputs.call)
    if "strength" in accepted:
        named.setdefault("strength", 1.0)  # the whole way from noise, of which image to image walks the end
    name = type(pipe).__name__
    if "prompt" in accepted:
        if not inputs.prompts:
            raise ModelError(f"a {name} needs prompts; give some, as varied as what you will draw")
        named["prompt"] = [inputs.prompts[(start + i) % len(inputs.prompts)] for i in range(count)]
        if inputs.negative_prompt is not None:
            named["negative_prompt"] = [inputs.negative_prompt] * count
        named["output_type"] = "latent"
    elif inputs.prompts or inputs.negative_prompt is not None:
        raise ModelError(f"a {name} takes no prompts; leave them out")
    elif "batch_size" not in accepted:
        image = named.get("image")
        if image is None or isinstance(image, list | torch.Tensor):
            raise ModelError(
                f"a {name} takes neither prompts nor a batch size, so it cannot be asked for a number of samples; give "
                "it one PIL image in call if it draws from that, else wrap its network as a model"
            )
        named |= {"image": [image] * count, "output_type": "latent"}
    else:
        if pipe.dtype is torch.bfloat16:
            raise ModelError(f"a {name} cannot return bfloat16 images; use float32 or float16")
        named |= {"batch_size": count, "output_type": "np"}
    if unknown := [name for name in named if name not in accepted]:
        raise ModelError(f"a {name} does not take {', '.join(unknown)}; leave that out")
    return named


def _check_log(pipe: Any, log: StepLog, seeds: Sequence[int], steps: int) -> None:
    """One step for every one asked for, and numbers at its end."""
    if len(log.times) != steps:
        raise ModelError(
            f"a {type(pipe).__name__} asked for {steps} steps made {len(log.times)}; it cannot be recorded, leave out "
            "a strength below 1 if you gave one, else wrap its network as a model"
        )
    if len(log.states[0]) != len(seeds):
        raise ModelError(
            f"a {type(pipe).__name__} makes one step for {len(log.states[0])} parts of {len(seeds)} samples; it cannot "
            "be recorded, wrap its network as a model instead"
        )
    if is_edm(pipe.scheduler) and not getattr(pipe.scheduler, "is_scale_input_called", False):
        raise ModelError(
            f"a {type(pipe).__name__} does not scale what its network sees, which a {type(pipe.scheduler).__name__} "
            "relies on; give it another scheduler"
        )
    if not torch.isfinite(log.states[-1]).all():
        wrong = seeds[int(torch.nonzero(~torch.isfinite(log.states[-1]).flatten(1).all(dim=1))[0])]
        at = next(t for t, x in zip(log.times, log.states[1:], strict=True) if not torch.isfinite(x).all())
        raise ModelError(
            f"the pipeline returned nan or infinity for seed {wrong} at t = {at:g}; half precision overflows, "
            "try float32 or bfloat16"
        )


def _as_trajectories(
    pipe: Any, log: StepLog, seeds: Sequence[int], solver: str, eta: float, inputs: PipelineInputs
) -> Trajectories:
    scheduler = pipe.scheduler
    noise = noise_of(scheduler, log.mu)
    shape = tuple(log.states[0].shape[1:])
    states = torch.empty(len(seeds), len(log.states), math.prod(shape))
    for i, sigma in enumerate([*log.sigmas, 0.0]):
        states[:, i] = log.states[i].flatten(1) / _vp_scale(scheduler, sigma)
        log.states[i] = states[:0]  # one copy of all states is enough
    # Some tell their network another time than that of the state; a shifted 1 may come out as 1.0000001.
    by_sigma = is_flow(scheduler) or is_edm(scheduler)
    times = np.clip(noise.time_of_sigma(log.sigmas) if by_sigma else log.times, noise.last, noise.first)
    kind = prediction_of(scheduler)
    x0 = eps = None
    if log.outputs:
        if is_edm(scheduler) and not steps_twice(pipe):
            for i, sigma in enumerate(log.sigmas):
                x = states[:, i] * _vp_scale(scheduler, sigma)
                log.outputs[i] = denoised(scheduler, log.outputs[i].flatten(1), x, sigma)
        pairs = [
            x0_and_eps(kind, x, output.flatten(1), *noise.signal_and_sigma(t), clip_of(scheduler))
            for x, output, t in zip(states.unbind(1), log.outputs, times, strict=False)
        ]
        x0, eps = (torch.stack(parts, dim=1) for parts in zip(*pairs, strict=True))
    origin = Origin(
        model=name_of(pipe),
        shape=shape,
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


def _vp_scale(scheduler: Any, sigma: float) -> float:
    """States of a variance-exploding sampler are too large by sqrt(1 + sigma²)."""
    explodes = not is_flow(scheduler) and not math.isclose(float(getattr(scheduler, "init_noise_sigma", 1.0)), 1.0)
    return math.sqrt(1 + sigma**2) if explodes else 1.0
