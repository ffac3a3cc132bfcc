"""Hooks on a pipeline while it draws, and leaving it as it was found."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from geosprint.errors import ModelError
from geosprint.models.registry import PIPELINES, path_of


def find_denoiser(pipe: Any) -> torch.nn.Module | None:
    """The network that a pipeline calls at every step, if it has one; all of them, where their turn depends on t."""
    experts = _experts_of(pipe)
    return torch.nn.ModuleList(experts) if len(experts) > 1 else next(iter(experts), None)


def denoiser_of(pipe: Any) -> Any:
    """The network that is called at every step; where there are several, the first."""
    if not (experts := _experts_of(pipe)):
        raise ModelError(
            f"a {type(pipe).__name__} has neither a unet nor a transformer; wrap its network as a model instead"
        )
    return experts[0]


def _experts_of(pipe: Any) -> list[torch.nn.Module]:
    """The second is that of low noise, as in Wan 2.2."""
    parts = (getattr(pipe, name, None) for name in ("unet", "transformer", "transformer_2"))
    return [part for part in parts if isinstance(part, torch.nn.Module)]


def steps_twice(pipe: Any) -> bool:
    """Whether it lets its scheduler step to see x0, guides that, and steps again with it, as Cosmos 1 does."""
    return type(pipe).__name__ in ("CosmosTextToWorldPipeline", "CosmosVideoToWorldPipeline")


def name_of(pipe: Any) -> str:
    """Where it was loaded from, or what it is; a pipeline in the box by its name there."""
    path = str(getattr(pipe.config, "_name_or_path", ""))
    return next((name for name in PIPELINES if path == str(path_of(name))), path) or type(pipe).__name__


@dataclass
class StepLog:
    """What went through a scheduler's step, in order."""

    times: list[float] = field(default_factory=list)
    states: list[Tensor] = field(default_factory=list)  # one more than steps: the last one is the result
    outputs: list[Tensor] = field(default_factory=list)  # of the network, guided; empty unless asked for
    sigmas: list[float] = field(default_factory=list)
    mu: float | None = None
    calls: int = 0  # network calls, summed over samples


MOST_OUTPUTS = 2  # of a network in one step: guided pipelines ask both questions at once, or one after the other
NOT_GUIDANCE = 0.01  # of the guided prediction: half precision rounds by less, rescaled guidance differs by more


def hear(denoiser: torch.nn.Module) -> tuple[list[Tensor], Callable[[], None]]:
    """A list of the latest outputs of the network, or of its experts, that goes on, and what ends it."""
    outputs: list[Tensor] = []
    hooks = ExitStack()

    def note(module: torch.nn.Module, given: tuple[Any, ...], output: Any) -> None:
        if isinstance(output[0], Tensor):  # some answer in lists, one tensor for each sample
            outputs.append(output[0].clone())  # compiled networks answer in one buffer every time
            del outputs[:-MOST_OUTPUTS]

    for part in denoiser if isinstance(denoiser, torch.nn.ModuleList) else [denoiser]:
        hooks.callback(part.register_forward_hook(note).remove)
    return outputs, hooks.close


def conditional_part(guided: Tensor, outputs: Iterable[Tensor]) -> Tensor | None:
    """The conditional prediction among the outputs that a guided one was made of; None: it is not told by these.

    Guidance is u + g·(c - u) with g > 1. Pipelines order the two as they like, and the sign of g tells them apart.
    """
    heard = [output[:, : guided.shape[1]] for output in outputs]  # some predict a variance in further channels
    if sum(map(len, heard)) == len(guided):
        return guided  # which is not guided
    if sum(map(len, heard)) != 2 * len(guided):
        return None
    one, other = torch.cat(heard).to(guided).chunk(2)
    apart, added = (other - one).float(), (guided - one).float()
    g = (apart * added).sum() / apart.square().sum().clamp_min(1e-30)
    if (added - g * apart).norm() > NOT_GUIDANCE * guided.float().norm():
        return None
    return other if g > 0 else one


_LOCKS: WeakKeyDictionary[Any, RLock] = WeakKeyDictionary()


@contextmanager
def left_as_found(pipe: Any) -> Iterator[None]:
    """Evaluation mode and silence inside; afterwards modes and attributes are as before, whatever happens.

    One thread at a time: what another has put into the pipeline must not be taken for what was found.
    """
    with _LOCKS.setdefault(pipe, RLock()):
        modules = [part for part in pipe.components.values() if isinstance(part, torch.nn.Module)]
        modes = [(module, module.training) for part in modules for module in part.modules()]
        before = dict(vars(pipe))
        try:
            for part in modules:
                part.eval()
            pipe.set_progress_bar_config(disable=True)
            yield
        finally:
            for module, mode in modes:
                module.training = mode
            for name in vars(pipe).keys() - before.keys():  # what a run notes on its pipeline, and our hooks
                delattr(pipe, name)
            for name, value in before.items():
                if getattr(pipe, name) is not value:
                    object.__setattr__(pipe, name, value)  # the pipeline's own would write its config anew


@contextmanager
def recording_steps(pipe: Any, predictions: bool, notice: Callable[[int], None]) -> Iterator[StepLog]:
    """Note every state and network call, and predictions if wanted, changing nothing of what the pipeline sees.

    `notice` hears of every step how many network calls it took.
    """
    log, counted, scheduler = StepLog(), 0, pipe.scheduler
    step, set_timesteps = scheduler.step, scheduler.set_timesteps

    @functools.wraps(step)  # pipelines read the signature for eta and generator
    def recorded_step(model_output: Tensor, timestep: Any, sample: Tensor, *rest: Any, **named: Any) -> Any:
        nonlocal counted
        if steps_twice(pipe) and named.get("pred_original_sample") is None:
            return step(model_output, timestep, sample, *rest, **named)
        before = _sigma_now(scheduler, timestep)
        result = step(model_output, timestep, sample, *rest, **named)
        came = sample.detach().float().cpu()
        if not log.states:
            log.states.append(came)
        elif (came - log.states[-1]).abs().max() > 1e-2 * log.states[-1].abs().max():  # half precision rounds
            raise ModelError(
                f"a {type(pipe).__name__} changes what it draws between two steps of its scheduler, so it walks no "
                "trajectory of its network; wrap that as a model instead"
            )
        log.times.append(float(timestep))
        log.sigmas.append(before)
        if predictions:
            log.outputs.append(model_output.detach().float().cpu())
        following = result[0] if isinstance(result, tuple) else result.prev_sample
        log.states.append(following.detach().float().cpu())
        notice(log.calls - counted)
        counted = log.calls
        return result

    @functools.wraps(set_timesteps)
    def recorded_set_timesteps(*given: Any, **named: Any) -> Any:
        log.mu = named.get("mu")
        return set_timesteps(*given, **named)

    def count(module: torch.nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        first = given[0] if given else named.get("sample", named.get("hidden_states"))
        log.calls += len(first) if isinstance(first, Tensor) else 0

    handles = [part.register_forward_pre_hook(count, with_kwargs=True) for part in _experts_of(pipe)]
    scheduler.step, scheduler.set_timesteps = recorded_step, recorded_set_timesteps
    try:
        yield log
    finally:
        for handle in handles:
            handle.remove()
        del scheduler.step, scheduler.set_timesteps


def _sigma_now(scheduler: Any, timestep: Any) -> float:
    """The sigma that a sigma-based scheduler is at; 0 for those that have none."""
    sigmas, index = getattr(scheduler, "sigmas", None), getattr(scheduler, "step_index", None)
    if sigmas is None:
        return 0.0
    if index is None:
        index = int((scheduler.timesteps == timestep).nonzero()[0])
    return float(sigmas[index])
