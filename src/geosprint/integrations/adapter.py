"""Any diffusers pipeline as a model: one call is one question to its network, guided as the pipeline guides it."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from geosprint.errors import ModelError
from geosprint.integrations.devices import AUTO, device_named
from geosprint.integrations.hooks import (
    conditional_part,
    denoiser_of,
    find_denoiser,
    hear,
    left_as_found,
    name_of,
    steps_twice,
)
from geosprint.models.base import Model, forwarded, naming_failure
from geosprint.models.networks import PretrainedModel
from geosprint.models.registry import PIPELINES, bundled_prompts, is_in_the_box, model_named, names_pipeline
from geosprint.models.wrappers import check_model, innermost
from geosprint.noise import NoiseSchedule
from geosprint.runs import BATCH
from geosprint.trajectory import Origin

if TYPE_CHECKING:
    from geosprint.integrations.pipelines import PipelineInputs

# diffusers takes seconds to import: it is left alone until there is a pipeline.


def load_model(
    name: str,
    label: int | None = None,
    guidance: float | None = None,
    inputs: PipelineInputs | None = None,
    dtype: str = AUTO,
    device: str = AUTO,
    trust_remote_code: bool = False,
) -> Model:
    """A model in the box, a pipeline from a directory or the hub, or your own as `package.module:factory`.

    A network of the box draws one class if it is told a label, and exaggerates it by `guidance`; a pipeline draws
    what `inputs` say. A factory is code that runs.
    """
    if not names_pipeline(name):
        if is_in_the_box(name) and (inputs is not None or dtype != AUTO):
            raise ModelError(
                f"prompts, guidance scale, sizes and dtype are for pipelines; {name!r} is none, leave them out"
            )
        return _on_device(model_named(name, label, guidance), device)
    if label is not None or guidance is not None:
        raise ModelError(
            f"label and guidance are for networks of the box; {name!r} is a pipeline: "
            "give it prompts and a guidance scale"
        )
    from geosprint.integrations.pipelines import load_pipeline

    pipe = load_pipeline(name, dtype, device, trust_remote_code=trust_remote_code)
    return as_model(pipe, with_bundled_prompts(name, inputs))


def with_bundled_prompts(name: str, inputs: PipelineInputs | None) -> PipelineInputs | None:
    """What was asked for; a pipeline in the box that was given no prompts draws its own."""
    if name not in PIPELINES or (inputs and inputs.prompts):
        return inputs
    from geosprint.integrations.pipelines import PipelineInputs

    return replace(inputs or PipelineInputs(), prompts=bundled_prompts(name))


def _on_device(model: Model, device: str) -> Model:
    """A network of the box there; any other model computes where it was made to."""
    if isinstance(model, PretrainedModel):
        model.network.to(device_named(device))
    elif device not in (AUTO, str(model.device)):
        raise ModelError(f"model {model.name!r} computes on {model.device} alone, and {device} was asked for")
    return model


def as_model(model: Model | Any, inputs: PipelineInputs | None = None) -> Model:
    """A model as it is, or a diffusers pipeline as a model that draws what `inputs` say.

    Two steps of one sample show what a pipeline is like, and one more what its guidance is.
    """
    if not is_pipeline(model):
        if inputs is not None:
            raise ModelError(
                f"inputs are for diffusers pipelines, and a {type(model).__name__} is none; leave them out"
            )
        return check_model(model, f"a {type(model).__name__}")
    from geosprint.integrations.pipelines import PipelineInputs, record_pipeline

    with naming_failure(f"pipeline {name_of(model)!r}", 1):
        _check_can_be_asked(model)
        inputs = inputs or PipelineInputs()
        seen = next(record_pipeline(model, seeds=[0], steps=2, inputs=inputs))
        return PipelineModel(model, inputs, seen.origin).tried()


def is_pipeline(candidate: Any) -> bool:
    """Whether this is a diffusers pipeline, told without importing diffusers."""
    return hasattr(candidate, "scheduler") and hasattr(candidate, "components")


@dataclass(frozen=True, eq=False)
class PipelineModel(Model):
    """A pipeline that is asked for one prediction at a time and stays as it is; sample i gets prompt i, cyclically."""

    pipe: Any = field(repr=False)
    inputs: PipelineInputs
    seen: Origin  # what a recording says of it
    encoded: dict[Any, Any] = field(default_factory=dict, repr=False)  # texts that were encoded before
    tells_conditional: bool = False  # whether its guided predictions are of the plain form
    answers: int = 1  # to a sample: 2 with the conditional prediction

    name = forwarded("seen.model")
    shape = forwarded("seen.shape")
    noise = forwarded("seen.noise")
    prediction = forwarded("seen.prediction")
    clip = forwarded("seen.clip")
    calls = forwarded("seen.calls")
    conditions = forwarded("seen.conditions")
    device = forwarded("pipe.device")

    def tried(self) -> PipelineModel:
        """The same, knowing whether the conditional prediction can be told from what its network says."""
        if self.calls > 1:
            x = torch.randn(1, *self.shape, generator=torch.Generator().manual_seed(0)).to(self.device)
            try:
                replace(self.for_samples([0]), answers=2)(x, self.noise.first)
            except _NotTold:
                return self
        return replace(self, tells_conditional=True)

    @property
    def network(self) -> Any:
        """What is called at every step."""
        return find_denoiser(self.pipe)

    @property
    def boundary(self) -> float | None:
        ratio = self.pipe.config.get("boundary_ratio")
        has_two = ratio is not None and getattr(self.pipe, "transformer_2", None) is not None
        return ratio * self.pipe.scheduler.config.num_train_timesteps if has_two else None

    def __call__(self, x: Tensor, t: float) -> Tensor:
        denoiser = denoiser_of(self.pipe)
        given = x.to(denoiser.dtype)
        wants_gradient = x.requires_grad and torch.is_grad_enabled()
        with torch.set_grad_enabled(wants_gradient), left_as_found(self.pipe):
            if _can_be_asked(self.pipe):
                answer = self._asked(given, t)
            else:
                answer = denoiser(given, torch.tensor(t, device=x.device), return_dict=False)[0]
                answer = answer if self.answers == 1 else torch.stack([answer, answer], dim=1)
        return answer.to(x)

    def for_samples(self, rows: Sequence[int]) -> PipelineModel:
        """The same model for some of the samples, each with its own prompt."""
        prompts = self.inputs.prompts
        if not prompts:
            return self
        own = tuple(prompts[row % len(prompts)] for row in rows)
        return replace(self, inputs=replace(self.inputs, prompts=own), encoded={})

    def with_conditional(self) -> PipelineModel:
        return replace(self, answers=2) if self.tells_conditional else self

    def pictures(self, samples: Tensor) -> Tensor:
        """Latents of one batch as pictures in -1..1, decoded by the pipeline; costs one network call each."""
        from diffusers.schedulers.scheduling_ddim import DDIMSchedulerOutput

        def stand_still(output: Tensor, timestep: Any, sample: Tensor, *_: Any, **__: Any) -> DDIMSchedulerOutput:
            return DDIMSchedulerOutput(prev_sample=sample, pred_original_sample=sample)

        decoder = f"the decoder of pipeline {self.name!r}"
        with naming_failure(decoder, len(samples)), torch.no_grad(), left_as_found(self.pipe):
            latents = samples.to(self.device, denoiser_of(self.pipe).dtype)
            drawn = self._run(latents, self.noise.first, stand_still, output_type="pt")
        if not hasattr(drawn, "images"):
            raise ModelError(f"a {type(self.pipe).__name__} draws no pictures; save the numbers, as .safetensors")
        return drawn.images.float().cpu() * 2 - 1

    def _asked(self, x: Tensor, t: float) -> Tensor:
        """What the pipeline would hand to its scheduler at this state and time; with the conditional part, if asked."""
        from geosprint.integrations.geosprint_scheduler import denoised, is_edm, size_of_states

        sigma = float(self.noise.sigma(t))
        x = x * size_of_states(self.pipe.scheduler, sigma)

        def answer(output: Tensor, timestep: Any, sample: Tensor, *given: Any, **named: Any) -> Any:
            scheduler = self.pipe.scheduler
            if steps_twice(self.pipe) and named.get("pred_original_sample") is None:
                return type(scheduler).step(scheduler, output, timestep, sample, *given, **named)
            if named.get("per_token_timesteps") is not None:  # LTX with conditions, which turns the sign around too
                raise ModelError(f"a {type(self.pipe).__name__} steps every token at a time of its own; {WRAP_IT}")
            raise _Answer(output, float(timestep), float(scheduler.timesteps[0]), sample)

        outputs, stop = hear(self.network) if self.answers == 2 else ([], lambda: None)
        try:
            self._run(x, t, answer)
        except _Answer as given:
            _check_question(self.name, given, x)
            output, beside = given.output, x
            if self.answers == 2:
                output, beside = _with_conditional(output, outputs), x.unsqueeze(1)
            if not is_edm(self.pipe.scheduler) or steps_twice(self.pipe):
                return output
            # Its output is preconditioned, and the pipeline has not made x0 of it.
            return denoised(self.pipe.scheduler, output.float(), beside.float(), sigma)
        finally:
            stop()
        raise ModelError(
            f"a {type(self.pipe).__name__} asked for one step made none; leave out a strength below 1 if you gave one, "
            f"else {WRAP_IT}"
        )

    def _run(self, x: Tensor, t: float, step: Callable[..., Any], **more: Any) -> Any:
        """One step of the pipeline at t, whatever a step may be."""
        from geosprint.integrations.pipelines import asked_of

        pipe, named = self.pipe, asked_of(self.pipe, len(x), 0, self.inputs)
        # For what else is drawn, such as the latents of an image: the same for a sample alone and beside others.
        named["generator"] = [torch.Generator().manual_seed(0) for _ in x]
        if hasattr(pipe, "prepare_latents"):  # which may pack, scale or mix what it is given
            pipe.prepare_latents = _preparing(pipe.prepare_latents, x)
        else:
            named["latents"] = x
        scheduler = _scheduler_at(pipe.scheduler, self.noise, t)
        scheduler.step = functools.wraps(scheduler.step)(step)  # pipelines read the signature for eta and generator
        pipe.scheduler = scheduler
        if hasattr(pipe, "encode_prompt"):
            pipe.encode_prompt = _encoding_once(pipe.encode_prompt, self.encoded)
        run = inspect.unwrap(type(pipe).__call__)  # without its no_grad: the caller decides
        return run(pipe, **{**named, **more, "num_inference_steps": 2})  # one is too few for some spacings


def decoder_of(model: Model, batch: int = BATCH) -> Callable[[Tensor], Tensor]:
    """What makes pictures of a model's samples; they are left as they are where no pipeline stands behind them."""
    model = innermost(model)
    if not isinstance(model, PipelineModel):
        return lambda samples: samples
    pipe, name = model.pipe, type(model.pipe).__name__
    if getattr(pipe, "vae", None) is None and not hasattr(pipe, "vqvae"):
        return lambda samples: samples
    if not _can_be_asked(pipe):
        raise ModelError(f"a {name} decodes no latents that it is given; save the numbers, as .safetensors")

    return lambda samples: torch.cat([model.pictures(some) for some in samples.split(batch)])


WRAP_IT = "wrap its network as a geosprint.Network instead"


class _Answer(BaseException):
    """Ends the pipeline's run with what we came for; no `except Exception` of a pipeline may swallow it."""

    def __init__(self, output: Tensor, timestep: float, asked: float, sample: Tensor) -> None:
        super().__init__()
        self.output, self.timestep, self.asked, self.sample = output, timestep, asked, sample


class _NotTold(ModelError):
    """The guided prediction is not of the plain form."""


def _with_conditional(guided: Tensor, outputs: Iterable[Tensor]) -> Tensor:
    conditional = conditional_part(guided, outputs)
    if conditional is None:
        raise _NotTold("the conditional prediction cannot be told from a guided one that was rescaled or left out")
    return torch.stack([guided, conditional], dim=1)


def _scheduler_at(scheduler: Any, noise: NoiseSchedule, t: float) -> Any:
    """A scheduler of the same noise that knows one time only; its step is never taken, so any solver will do."""
    from geosprint.integrations import schedulers
    from geosprint.integrations.geosprint_scheduler import is_edm, shift_of
    from geosprint.integrations.noise_of import edm_settings, is_flow, own_config

    kind, place, settings = schedulers.GeoSprintDDIMScheduler, _at_one_time, {}
    if is_flow(scheduler):
        kind, place = schedulers.GeoSprintFlowMatchEulerScheduler, schedulers.by_final_sigmas
        settings = {"shift": shift_of(scheduler)}
    elif is_edm(scheduler):
        kind, place, settings = schedulers.GeoSprintEDMEulerScheduler, schedulers.by_sigmas, edm_settings(scheduler)
    one = kind.from_config({**own_config(scheduler, kind), **settings}, geosprint=None)
    set_timesteps = one.set_timesteps

    @functools.wraps(set_timesteps)  # pipelines read the signature for sigmas and mu
    def set_one(*given: Any, **named: Any) -> None:
        asked = inspect.signature(set_timesteps).bind(*given, **named).arguments
        place(kind, one, {"timesteps": [t], "sigmas": [float(noise.sigma(t))]}, asked)

    one.set_timesteps = set_one
    one.add_noise = lambda clean, noise, timesteps: noise  # of an image, in whose place the state is put
    return one


def _at_one_time(stock: Any, scheduler: Any, steps: dict[str, Any], asked: dict[str, Any]) -> None:
    """For DDIM: whole timesteps as such, and Karras' sigmas stand between them."""
    (t,) = steps["timesteps"]
    scheduler.timesteps = torch.tensor([int(t) if t == int(t) else t], device=asked.get("device"))
    scheduler.num_inference_steps = 1


def _preparing(prepare: Callable[..., Any], x: Tensor) -> Callable[..., Any]:
    """The pipeline's prepare_latents, with this state in place of the noise; what comes with it stays."""

    @functools.wraps(prepare)
    def prepared(*given: Any, **named: Any) -> Any:
        made = prepare(*given, **named)
        if not isinstance(made, tuple):
            return x
        fits = [isinstance(part, Tensor) and part.shape == x.shape for part in made]
        return tuple(x if i == fits.index(True) else part for i, part in enumerate(made)) if any(fits) else made

    return prepared


def _encoding_once(encode: Callable[..., Any], encoded: dict[Any, Any]) -> Callable[..., Any]:
    """The pipeline's encode_prompt, which is asked again at every step but does its work once."""

    @functools.wraps(encode)
    def remembered(*given: Any, **named: Any) -> Any:
        said = (*given, *(part for item in sorted(named.items()) for part in item))
        key = tuple(tuple(part) if isinstance(part, list) else part for part in said)
        try:
            known = key in encoded
        except TypeError:  # an argument without a hash
            return encode(*given, **named)
        if not known:
            with torch.no_grad():
                encoded[key] = encode(*given, **named)
        return encoded[key]

    return remembered


def _check_can_be_asked(pipe: Any) -> None:
    name = type(pipe).__name__
    draws_without_words = _takes(pipe, "batch_size") and not _takes(pipe, "prompt")
    if not _can_be_asked(pipe) and not draws_without_words:
        raise ModelError(f"a {name} takes no latents, so it cannot be asked about a state; {WRAP_IT}")
    if pipe.scheduler.config.get("thresholding", False):
        raise ModelError(
            f"the scheduler of this {name} thresholds dynamically, which a model here does not; "
            "give it one with thresholding=False"
        )


def _check_question(name: str, given: _Answer, x: Tensor) -> None:
    """The pipeline must have asked its network what we asked."""
    if not math.isclose(given.timestep, given.asked, rel_tol=1e-5):
        raise ModelError(
            f"pipeline {name!r} was asked about t = {given.asked:g} and stepped at {given.timestep:g}; {WRAP_IT}"
        )
    if given.sample.shape != x.shape or not torch.equal(given.sample.to(x), x):
        raise ModelError(f"pipeline {name!r} changed the state that it was asked about before its step; {WRAP_IT}")
    if given.output.shape != x.shape:
        raise ModelError(
            f"the network of pipeline {name!r} answers {tuple(given.output.shape)} to {tuple(x.shape)}; {WRAP_IT}"
        )


def _can_be_asked(pipe: Any) -> bool:
    """Whether a state can be put into a run of the pipeline."""
    return hasattr(pipe, "prepare_latents") or _takes(pipe, "latents")


def _takes(pipe: Any, argument: str) -> bool:
    return argument in inspect.signature(pipe.__call__).parameters
