"""The reference pass of Algorithm 1: which trajectories are recorded, and what is kept of each as soon as it ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from geosprint.errors import FileError, GeometryError, ScheduleError
from geosprint.files import refusing_damage
from geosprint.models.base import Model
from geosprint.profile import Settings
from geosprint.sampling import BATCH, batches_of, record_batches
from geosprint.shards.sharing import shards_in_order
from geosprint.shards.store import MANIFEST, Shard, Shards
from geosprint.shards.team import ALONE, Team
from geosprint.trajectory import Trajectories

if TYPE_CHECKING:
    from geosprint.integrations.pipelines import PipelineInputs

Array = NDArray[np.float64]

HELD_BYTES = 512 * 2**20
"""The raw states of one batch take no more than this, unless a batch size is asked for."""

MOST_TRAJECTORIES = 100_000
PROBE_STEPS, PROBE_NUMBERS = 4, 512
"""A short walk of the first sample; so many numbers of it tell weights apart."""


@dataclass(frozen=True)
class ReferencePass:
    """What is recorded and how it is looked at: all that the shards of a pass depend on, besides the model."""

    trajectories: int = 100
    steps: int = 200
    solver: str = "ddim"
    eta: float = 0.0
    seed: int = 0
    batch: int | None = None  # None: as many as fit, see `with_batch`
    settings: Settings = field(default_factory=Settings)
    until_stable: float | None = None  # enough when the schedules of two halves agree so far
    keep_states: bool = False  # raw states too, in half precision, beside the shards

    def __post_init__(self) -> None:
        if self.trajectories < 1:
            raise GeometryError(f"at least one trajectory is needed, got {self.trajectories}")
        if self.trajectories > MOST_TRAJECTORIES:
            raise GeometryError(f"a pass has up to {MOST_TRAJECTORIES} trajectories, got {self.trajectories}")
        if self.until_stable is None:
            return
        if not 0 < self.until_stable <= 1:
            raise GeometryError(f"until_stable is an agreement, above 0 and up to 1, got {self.until_stable}")
        if self.settings.normalisation == "pooled":
            raise GeometryError(
                "until_stable looks at trajectories as they come, but the pooled normalisation needs them all; "
                "normalise over time, or leave until_stable out"
            )

    @property
    def seeds(self) -> range:
        """One per trajectory."""
        return range(self.seed, self.seed + self.trajectories)

    @property
    def batches(self) -> list[range]:
        """The rows of each shard, which go through the model together."""
        return batches_of(self.trajectories, BATCH if self.batch is None else self.batch)

    @property
    def wants_predictions(self) -> bool:
        """Whether the predicted clean samples are looked at."""
        return self.settings.space == "x0"

    @classmethod
    def of(cls, store: Shards) -> ReferencePass:
        """The pass that a work directory was begun for."""
        if "pass" not in store.job:
            raise FileError(
                f"{store.directory} was not begun by `geosprint extract`: the command that began it goes on"
            )
        with refusing_damage(store.directory / MANIFEST):
            described = store.job["pass"]
            if not all(isinstance(described[name], int) for name in ("trajectories", "steps", "seed", "batch")):
                raise ValueError("trajectories, steps, seed and batch must be whole numbers")
            return cls(**{**described, "settings": Settings(**described["settings"])})


Recorder = Callable[[ReferencePass, Sequence[range], bool], Iterator[Trajectories]]
"""Records these batches of a pass one after another, with or without a word on its progress."""


def recorder_of(model: Model | Any, inputs: PipelineInputs | None = None) -> Recorder:
    """How this model, or this diffusers pipeline with these inputs, is recorded."""
    if is_pipeline(model):
        from geosprint.integrations.pipelines import record_pipeline

        model_recorder = partial(record_pipeline, model, inputs=inputs)
    else:
        model_recorder = partial(record_batches, model)

    def record(asked: ReferencePass, batches: Sequence[range], progress: bool) -> Iterator[Trajectories]:
        walk = (asked.seeds, asked.steps, asked.solver, asked.eta)
        return model_recorder(*walk, predictions=asked.wants_predictions, progress=progress, batches=batches)

    return record


def is_pipeline(candidate: Any) -> bool:
    """Whether this is a diffusers pipeline, told without importing diffusers."""
    return hasattr(candidate, "scheduler") and hasattr(candidate, "components")


def with_batch(asked: ReferencePass, model: Model | Any, record: Recorder) -> ReferencePass:
    """This pass with its batch size decided: as many trajectories as HELD_BYTES can hold, at most BATCH.

    It depends on the model and on the pass alone, so that every machine cuts the same shards.
    """
    if asked.batch is not None:
        return asked
    shape = _short_walk(record, asked).origin.shape if is_pipeline(model) else model.shape
    states = asked.steps + 1 + (2 * asked.steps if asked.wants_predictions else 0)
    fits = HELD_BYTES // max(1, 4 * states * math.prod(shape))
    return replace(asked, batch=max(1, min(BATCH, fits)))


def work_directory(directory: Path, record: Recorder, asked: ReferencePass) -> Shards:
    """Where the finished shards of this pass over this model are kept, from earlier runs too."""
    return begun_work(directory, {"pass": asdict(asked)}, _short_walk(record, asked))


def begun_work(directory: Path, job: dict[str, Any], walk: Trajectories) -> Shards:
    """The work directory of a job on the model that this short walk is of; refuses another job and other weights."""
    versions = {name: version(name) for name in ("geosprint", "torch", "numpy")}
    every = max(1, walk.states.numel() // PROBE_NUMBERS)
    answers = walk.states.flatten()[::every].double().tolist()
    return Shards.begun(directory, {**job, "model": walk.origin.to_dict(), "versions": versions}, answers)


def made_shards(
    record: Recorder,
    asked: ReferencePass,
    batches: Sequence[range],
    store: Shards | None = None,
    team: Team = ALONE,
    progress: bool = False,
) -> Iterator[Shard]:
    """The shards of these batches, in order: recorded now, or read where an earlier run has left them."""
    states = store.directory if store and asked.keep_states else None

    def make(wanted: Sequence[range]) -> Iterator[Shard]:
        # `map` lets go of a batch before it asks for the next; a loop over them would hold two.
        return map(partial(_compressed, asked, states), wanted, record(asked, wanted, progress and team.leads))

    return shards_in_order(batches, make, store, team)


def left_shards(asked: ReferencePass, store: Shards) -> Iterator[Shard]:
    """The shards of a pass that earlier runs have left, in order, up to one that is missing."""
    batches = asked.batches
    for rows in batches:
        shard = store.read(rows)
        if shard is None:
            raise FileError(
                f"{store.directory} lacks the shards {_listed(asked, store, batches)} of {len(batches)}; "
                "make them with the command that made the others"
            )
        yield shard


def share_of(batches: Sequence[range], number: int, count: int) -> Sequence[range]:
    """The batches of job `number` of 1..`count`, when independent jobs share them out."""
    if not 1 <= number <= count:
        raise ScheduleError(f"the share must be i/n with i in 1..n, got {number}/{count}")
    return batches[number - 1 :: count]


def gram_of(part: Trajectories, settings: Settings) -> Array:
    """The inner products that pruning looks at; one trajectory after another, so that only one is ever copied."""
    beyond_lines = settings.window > 2 or settings.levels > 1
    together = [part] if settings.normalisation == "pooled" else part.one_by_one()
    return np.concatenate(
        [some.in_space(settings.space).gram(settings.normalisation, precise=beyond_lines) for some in together]
    )


def _compressed(asked: ReferencePass, states: Path | None, rows: range, part: Trajectories) -> Shard:
    """What a profile needs of a batch: its inner products, or the raw states where the normalisation is pooled."""
    if states is not None:
        part.save_states(states / f"states-{part.seeds[0]:06d}-{part.seeds[-1]:06d}.safetensors")
    tensors, about = part.taken_apart()
    if asked.settings.normalisation != "pooled":
        tensors = {"gram": torch.from_numpy(gram_of(part, asked.settings))}
    return Shard(rows, tensors, about)


def _short_walk(record: Recorder, asked: ReferencePass) -> Trajectories:
    return next(record(replace(asked, steps=PROBE_STEPS), [range(1)], False))


def _listed(asked: ReferencePass, store: Shards, batches: Sequence[range], most: int = 20) -> str:
    """Which shards are missing, the first of them if they are many."""
    absent = [i for i, rows in enumerate(batches) if store.read(rows) is None]
    ends = [(i + 1, asked.seeds[batches[i].start], asked.seeds[batches[i].stop - 1]) for i in absent[:most]]
    return ", ".join(f"{number} (seeds {first}..{last})" for number, first, last in ends) + (
        f" and {len(absent) - most} more" if len(absent) > most else ""
    )
