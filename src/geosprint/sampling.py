"""The one loop over timesteps, and what is done with it: sample, and record."""

from __future__ import annotations

import math
import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from safetensors.torch import save_file
from torch import Tensor

from geosprint.baselines import reference_timesteps
from geosprint.errors import ModelError, ScheduleError
from geosprint.files import write_whole
from geosprint.fitted_solver import FittedSolver
from geosprint.integrations.adapter import as_model
from geosprint.linear_solver import LinearSolver
from geosprint.models.base import Model, Prediction, predict
from geosprint.models.fingerprint import network_of, warn_of_another_model
from geosprint.models.spread import Counted, batches_of
from geosprint.noise import CLEAN, Array
from geosprint.runs import BATCH
from geosprint.runs.progress import Progress
from geosprint.runs.store import Shard, shards_in_order
from geosprint.runs.team import this_team
from geosprint.schedule import StepSchedule, checked_times
from geosprint.solvers import Draw, Solver, Step, solver_named
from geosprint.trajectory import Origin, Trajectories
from geosprint.tuned import FITTED, Tuned, as_tuned, warn_of_another_solver

if TYPE_CHECKING:
    from geosprint.integrations.pipelines import PipelineInputs


@dataclass(frozen=True)
class State:
    """One point of a walk, and what the model says there; nothing is asked of the clean end."""

    t: float
    x: Tensor  # (batch, *shape)
    prediction: Prediction | None


class SeededNoise:
    """Standard normal noise with a generator per sample: a seed gives its sample at any batch size."""

    def __init__(self, seeds: Sequence[int], shape: tuple[int, ...], device: torch.device) -> None:
        self._generators = [_generator(seed) for seed in seeds]
        self._shape, self._device = shape, device

    def draw(self) -> Tensor:
        """The next noise of every sample (batch, *shape)."""
        noise = [torch.randn(self._shape, generator=generator) for generator in self._generators]
        return torch.stack(noise).to(self._device)


def walk(model: Model, x: Tensor, timesteps: ArrayLike, solver: Solver, draw: Draw) -> Iterator[State]:
    """Yield every state from noise to sample: len(timesteps) + 1 of them."""
    memory = None
    if isinstance(solver, FittedSolver) and solver.guided:
        model = model.with_conditional()
    if isinstance(solver, LinearSolver):
        x = solver.begun(x)
    for t, t_next in pairwise([*(float(t) for t in np.asarray(timesteps)), CLEAN]):
        prediction = predict(model, x, t)
        yield State(t, x, prediction)
        step = Step.between(model.noise, t, t_next, lambda x, t: predict(model, x, t), draw)
        x, memory = solver(x, prediction, step, memory)
    yield State(CLEAN, x, None)


def sample(
    model: Model | Any,
    made: ArrayLike | StepSchedule | FittedSolver | Tuned,
    seeds: Sequence[int],
    solver: str | Solver | None = None,
    eta: float = 0.0,
    batch: int = BATCH,
    progress: bool = False,
    inputs: PipelineInputs | None = None,
    steps: int | None = None,
) -> Tensor:
    """One sample per seed (seeds, *shape) of a model or a diffusers pipeline, on the CPU; of a pipeline, its latents.

    `made` is a list of timesteps, a schedule, a fitted solver, or what `tune` returned: `steps` then picks one of its
    numbers of steps, if not the proved one. The solver is the one that it was made for, or else ddim; you may give
    another, by name or as a function that takes one step. `inputs` are what a pipeline shall draw.
    """
    asked = as_model(model, inputs)
    counted = asked if isinstance(asked, Counted) else Counted(asked)
    timesteps, how = where_and_how(counted, made, steps, solver)
    return torch.cat(list(sample_batches(counted, timesteps, seeds, how, eta, batch, progress)))


def sample_batches(
    model: Counted, timesteps: Array, seeds: Sequence[int], solver: str | Solver, eta: float, batch: int, progress: bool
) -> Iterator[Tensor]:
    """As `sample`, a batch at a time, so that nobody needs all samples in memory."""

    def draw(batches: Sequence[range]) -> Iterator[Shard]:
        for _, walking in _walks("sample", model, timesteps, seeds, solver_named(solver, eta), batches, progress):
            begun = model.nfe
            (last,) = deque(walking, maxlen=1)
            yield {"samples": last.x.cpu()}, {"nfe": model.nfe - begun}

    nfe = model.nfe
    for tensors, about in shards_in_order(batches_of(len(seeds), batch), draw):
        yield tensors["samples"]
        nfe += about["nfe"]
    model.tally.nfe = nfe  # whoever made them


def where_and_how(
    model: Model, made: ArrayLike | StepSchedule | FittedSolver | Tuned, steps: int | None, solver: str | Solver | None
) -> tuple[Array, str | Solver]:
    """Timesteps, and the solver that they were made for, unless another is asked for; what does not suit is told."""
    if isinstance(made, StepSchedule | FittedSolver | Tuned):
        tuned = as_tuned(made)
        one = tuned.result(steps)
        one.schedule.check_fits(model.noise, model.name)
        one.schedule.warn_of_other_conditions(model.conditions)
        warn_of_another_model(tuned.made_for, model.name, network_of(model))
        if solver is not None:
            known = FITTED if isinstance(solver, FittedSolver) else "a solver of your own"
            name = solver if isinstance(solver, str) else known
            warn_of_another_solver(one.solver, name, f"you sample with {name}", "leave the solver out")
        made, own = one.schedule.timesteps, one.made if isinstance(one.made, FittedSolver) else one.solver
        solver = solver or own
    elif steps is not None:
        raise ScheduleError("steps picks one of the results of `tune`; leave it out where the timesteps are given")
    return checked_times(made, model.noise, f"model {model.name!r}"), solver or "ddim"


def save_samples(samples: Tensor, path: Path) -> Path:
    """The numbers themselves, as safetensors."""
    return write_whole(path, lambda to: save_file({"samples": samples.contiguous()}, to))


def record(
    model: Model | Any,
    seeds: Sequence[int],
    steps: int = 200,
    solver: str = "ddim",
    eta: float = 0.0,
    batch: int = BATCH,
    predictions: bool = False,
    progress: bool = False,
    inputs: PipelineInputs | None = None,
) -> Trajectories:
    """Reference trajectories (Section 3.2): every state of an N-step walk of a model or pipeline, one per seed.

    `inputs` are what a pipeline shall draw.
    """
    asked = as_model(model, inputs)

    def walked(batches: Sequence[range]) -> Iterator[Shard]:
        parts = record_batches(asked, seeds, steps, solver, eta, predictions, progress, batches=batches)
        return map(Trajectories.taken_apart, parts)

    shards = shards_in_order(batches_of(len(seeds), batch), walked)
    return Trajectories.joined([Trajectories.put_together(*shard) for shard in shards])


def record_in_files(
    model: Model, seeds: Sequence[int], steps: int, batch: int, directory: Path, progress: bool = False
) -> Trajectories:
    """As `record` with predictions; many processes that see one directory exchange no states, and hold none in memory.

    Each writes those it has recorded into one file, which is gone as soon as nobody looks at it any more.
    """
    team = this_team()
    path = team.told(lambda: Path(directory).absolute() / f".{secrets.token_hex(8)}.unfinished")
    counts = (steps + 1, steps, steps)  # of states, and of predicted x0 and eps
    shape = (len(seeds), sum(counts), math.prod(model.shape))
    if team.size > 1 and team.leads:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as whole:
            whole.truncate(4 * math.prod(shape))
    team.gather(None)
    if team.size == 1 or not all(team.gather(path.exists())):
        path.unlink(missing_ok=True)
        return record(model, seeds, steps, batch=batch, predictions=True, progress=progress)

    batches = batches_of(len(seeds), batch)
    own = batches[team.rank :: team.size]
    recorded = record_batches(model, seeds, steps, predictions=True, progress=progress, batches=own)

    def write(rows: range) -> int:
        part, whole = next(recorded), np.memmap(path, np.float32, "r+", shape=shape)
        whole[rows.start : rows.stop] = np.concatenate([part.states, part.x0, part.eps], axis=1)
        whole.flush()
        return part.nfe

    try:
        nfe = sum(team.each([partial(write, rows) for rows in batches]))
        states, x0, eps = torch.from_numpy(np.memmap(path, np.float32, "c", shape=shape)).split(counts, dim=1)
        team.gather(None)  # all have opened it
    finally:
        if team.leads:
            path.unlink(missing_ok=True)
    times = np.append(reference_timesteps(model.noise, steps), CLEAN)
    return Trajectories(states, times, tuple(seeds), Origin.of(model, "ddim", 0.0), nfe, x0=x0, eps=eps)


def record_batches(
    model: Model,
    seeds: Sequence[int],
    steps: int = 200,
    solver: str = "ddim",
    eta: float = 0.0,
    predictions: bool = False,
    progress: bool = False,
    batch: int = BATCH,
    batches: Sequence[range] | None = None,
) -> Iterator[Trajectories]:
    """As `record`, a batch at a time, so that nobody needs all states in memory; of all batches, or of these."""
    timesteps = reference_timesteps(model.noise, steps)
    origin = Origin.of(model, solver, eta)
    counted = Counted(model)
    batches = batches_of(len(seeds), batch) if batches is None else batches
    for some, walking in _walks("record", counted, timesteps, seeds, solver_named(solver, eta), batches, progress):
        states = torch.empty(len(some), steps + 1, math.prod(model.shape))
        asked = torch.empty(2 if predictions else 0, len(some), steps, states.shape[-1])
        begun = counted.nfe
        for i, state in enumerate(walking):
            states[:, i] = state.x.flatten(1)
            if predictions and state.prediction:
                asked[0, :, i] = state.prediction.x0.flatten(1)
                asked[1, :, i] = state.prediction.eps.flatten(1)
        x0, eps = asked if predictions else (None, None)
        nfe = counted.nfe - begun
        yield Trajectories(states, np.append(timesteps, CLEAN), tuple(some), origin, nfe, x0=x0, eps=eps)
        del states, asked, x0, eps  # the next batch may need their place


def _walks(
    name: str,
    model: Counted,
    timesteps: Array,
    seeds: Sequence[int],
    solver: Solver,
    batches: Sequence[range],
    progress: bool,
) -> Iterator[tuple[list[int], Iterator[State]]]:
    """The seeds of every batch and its walk, which is taken before the next is asked for; a bar shows how far it is."""

    def shown(rows: range, some: Sequence[int]) -> Iterator[State]:
        before = model.nfe
        for state in seeded_walk(model.for_samples(rows), timesteps, some, solver):
            bar.update(len(some) if state.prediction else 0, model.nfe - before)
            before = model.nfe
            yield state
        bar.finish(len(some))

    count = sum(map(len, batches))
    with Progress(name, count * len(timesteps), "step", progress, count) as bar:
        for rows in batches:
            some = [seeds[row] for row in rows]
            yield some, shown(rows, some)


@torch.no_grad()
def seeded_walk(model: Model, timesteps: np.ndarray, seeds: Sequence[int], solver: Solver) -> Iterator[State]:
    """A walk from each seed's own noise that stops where the model returns nonsense."""
    noise = SeededNoise(seeds, model.shape, model.device)
    for state in walk(model, noise.draw(), timesteps, solver, noise.draw):
        if state.prediction:
            _require_finite(state.prediction, state.t, seeds, model.name)
        yield state


def _require_finite(prediction: Prediction, t: float, seeds: Sequence[int], name: str) -> None:
    both = (prediction.x0, prediction.eps)
    if all(torch.isfinite(tensor.sum(dtype=torch.float32)) for tensor in both):
        return
    wrong = ~torch.stack([torch.isfinite(tensor).flatten(1).all(dim=1) for tensor in both]).all(dim=0)
    if wrong.any():
        seed = seeds[int(torch.nonzero(wrong)[0])]
        raise ModelError(
            f"model {name!r} returned nan or infinity for seed {seed} at t = {t:g}; "
            "check its dtype (half precision overflows) and that the noise schedule is its own"
        )


def _generator(seed: int) -> torch.Generator:
    if not 0 <= seed < 2**63:
        raise ScheduleError(f"seeds must be in 0..2^63 - 1, got {seed}")
    return torch.Generator().manual_seed(int(seed))
