"""Algorithm 1 from end to end, in memory or not, and the step-budget oracle (Section 5.2)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geosprint.errors import FileError, GeometryError, ScheduleError
from geosprint.files import finite, refusing_damage
from geosprint.geometry import mean_chord_scores
from geosprint.integrations.adapter import as_model, is_pipeline
from geosprint.integrations.hooks import denoiser_of
from geosprint.models.base import Model
from geosprint.models.fingerprint import PROBE_STEPS, begun_store, network_of, versions
from geosprint.models.spread import batches_of
from geosprint.models.wrappers import require_repeatable
from geosprint.noise import Array
from geosprint.profile import CurvatureProfile, Settings, stability_of
from geosprint.runs import BATCH
from geosprint.runs.store import MANIFEST, Shard, Store, shards_in_order
from geosprint.sampling import record_batches
from geosprint.schedule import BLEND, StepSchedule, build_schedule, profile_density, quantile_times
from geosprint.threshold import SEARCHES, Mask, Prunings
from geosprint.trajectory import Origin, Trajectories

if TYPE_CHECKING:
    from geosprint.integrations.pipelines import PipelineInputs


HELD_BYTES = 512 * 2**20
"""The raw states of one batch take no more than this, unless a batch size is asked for."""

MOST_TRAJECTORIES = 100_000


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

    def with_batch(self, shape: Sequence[int]) -> ReferencePass:
        """This pass with its batch size decided: as many samples of this shape as HELD_BYTES can hold, at most BATCH.

        It depends on the model and on the pass alone, so that every machine cuts the same shards.
        """
        states = self.steps + 1 + (2 * self.steps if self.settings.space == "x0" else 0)
        fits = HELD_BYTES // max(1, 4 * states * math.prod(shape))
        return replace(self, batch=max(1, min(BATCH, fits)))

    @classmethod
    def of(cls, store: Store) -> ReferencePass:
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


def extract(
    model: Model | Any,
    trajectories: int = 100,
    reference_steps: int = 200,
    solver: str = "ddim",
    settings: Settings | None = None,
    seed: int = 0,
    eta: float = 0.0,
    batch: int | None = None,
    progress: bool = False,
    inputs: PipelineInputs | None = None,
    work: Path | None = None,
    until_stable: float | None = None,
    keep_states: bool = False,
) -> CurvatureProfile:
    """Record a model or a diffusers pipeline and profile it, holding no more than one batch of raw states.

    `inputs` are the prompts and sizes that a pipeline is recorded with. `work` is a directory that keeps every
    batch as soon as it is done: after a kill, the same call goes on and ends with the same profile.
    `until_stable` is the agreement of two halves' schedules at which there are enough trajectories.
    `keep_states` leaves the raw states in `work`, in half precision.
    """
    asked = ReferencePass(
        trajectories, reference_steps, solver, eta, seed, batch, settings or Settings(), until_stable, keep_states
    )
    if asked.keep_states and work is None:
        raise ScheduleError("raw states are kept in the work directory, and got none: name one with work (--work)")
    asked, shards = _recorded_shards(model, asked, work, inputs, progress)
    return _profile_of_shards(shards, asked.settings, asked.until_stable)


def extract_share(
    model: Model | Any,
    asked: ReferencePass,
    work: Path,
    share: tuple[int, int],
    inputs: PipelineInputs | None = None,
    progress: bool = False,
) -> int:
    """Leave every n-th shard of a pass in `work`, from the i-th on (`share` is (i, n)); how many there are of these.

    Independent jobs, one for each i in 1..n, leave all shards; then `merge` makes the profile.
    """
    number, count = share
    if asked.until_stable is not None:
        raise ScheduleError("independent jobs cannot know when there are enough trajectories; leave until_stable out")
    if not 1 <= number <= count:
        raise ScheduleError(f"the share must be i/n with i in 1..n, got {number}/{count}")
    _, shards = _recorded_shards(model, asked, work, inputs, progress, slice(number - 1, None, count))
    return sum(1 for _ in shards)


def merge(work: Path) -> CurvatureProfile:
    """The profile of a work directory that holds all shards of its pass, whoever made them."""
    store = Store.found(Path(work))
    asked = ReferencePass.of(store)
    store = replace(store, check=partial(_check_shard, asked))

    def refuse(missing: Sequence[range]) -> Iterator[Shard]:
        raise FileError(
            f"{store.directory} lacks the shards {_named(missing, asked)} of {len(asked.batches)}; "
            "make them with the command that made the others"
        )

    with refusing_damage(store.directory):
        return _profile_of_shards(shards_in_order(asked.batches, refuse, store), asked.settings, asked.until_stable)


def _named(batches: Sequence[range], asked: ReferencePass, most: int = 20) -> str:
    """The numbers and seeds of shards, of the first if they are many."""
    said = [
        f"{asked.batches.index(rows) + 1} (seeds {asked.seeds[rows.start]}..{asked.seeds[rows.stop - 1]})"
        for rows in batches[:most]
    ]
    return ", ".join(said) + (f" and {len(batches) - most} more" if len(batches) > most else "")


def profile_trajectories(trajectories: Trajectories, settings: Settings | None = None) -> CurvatureProfile:
    """The profile of states that were recorded before."""
    settings = settings or Settings()
    return _profile_of_shards(iter([_compressed(settings, trajectories)]), settings)


def _recorded_shards(
    model: Model | Any,
    asked: ReferencePass,
    work: Path | None,
    inputs: PipelineInputs | None,
    progress: bool,
    chosen: slice = slice(None),
) -> tuple[ReferencePass, Iterator[Shard]]:
    """The pass with its batch size, and its shards in order: recorded now, or read where an earlier run left them."""
    if not is_pipeline(model):  # which is recorded in evaluation mode
        require_repeatable(as_model(model, inputs), BATCH if asked.batch is None else asked.batch)
    probed = work is not None or (is_pipeline(model) and asked.batch is None)
    short_pass = replace(asked, steps=PROBE_STEPS)
    walk = next(_recorded(model, inputs, short_pass, [range(1)])) if probed else None
    if asked.batch is None:
        asked = asked.with_batch(walk.origin.shape if walk else model.shape)
    network = denoiser_of(model) if is_pipeline(model) else network_of(model)
    job = {"pass": asdict(asked), "versions": versions()}
    store = begun_store(work, job, walk, network) if work and walk else None

    def check(tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
        _check_shard(asked, tensors, about)
        if work and asked.keep_states and not _states_file(work, about["seeds"]).is_file():
            raise FileError("its raw states are lost")

    def compressed(part: Trajectories) -> Shard:
        if work and asked.keep_states:
            part.save_states(_states_file(work, part.seeds))
        return _compressed(asked.settings, part)

    def make(wanted: Sequence[range]) -> Iterator[Shard]:
        # `map` lets go of a batch before it asks for the next; a loop over them would hold two.
        return map(compressed, _recorded(model, inputs, asked, wanted, progress))

    ahead = len(asked.batches) if asked.until_stable is None else 1
    return asked, shards_in_order(asked.batches[chosen], make, store and replace(store, check=check), ahead)


def _recorded(
    model: Model | Any,
    inputs: PipelineInputs | None,
    asked: ReferencePass,
    batches: Sequence[range],
    progress: bool = False,
) -> Iterator[Trajectories]:
    """These batches of a pass, one after another; a pipeline is recorded as it draws, by its own loop."""
    walk = (asked.seeds, asked.steps, asked.solver, asked.eta)
    how: dict[str, Any] = {"predictions": asked.settings.space == "x0", "progress": progress, "batches": batches}
    if is_pipeline(model):
        from geosprint.integrations.pipelines import record_pipeline

        return record_pipeline(model, *walk, inputs=inputs, **how)
    return record_batches(as_model(model, inputs), *walk, **how)


def _states_file(work: Path, seeds: Sequence[int]) -> Path:
    return work / f"states-{seeds[0]:06d}-{seeds[-1]:06d}.safetensors"


def _check_shard(asked: ReferencePass, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Refuse what is no shard of this pass, whatever its checksum says."""
    times, seeds = finite(about["timesteps"]), finite(about["seeds"])
    Origin.from_dict(about["origin"])
    if not isinstance(about["nfe"], int) or not set(seeds) <= set(asked.seeds) or len(times) != asked.steps + 1:
        raise ValueError("a shard has seeds and steps of its pass, and counts")
    if asked.settings.normalisation == "pooled":
        Trajectories.put_together(tensors, about)
    elif tensors["gram"].shape != (len(seeds), len(times), len(times)) or not torch.isfinite(tensors["gram"]).all():
        raise ValueError("a shard has finite inner products of each trajectory")


def _compressed(settings: Settings, part: Trajectories) -> Shard:
    """What a profile needs of a batch: its inner products, or the raw states where the normalisation is pooled."""
    tensors, about = part.taken_apart()
    if settings.normalisation != "pooled":
        tensors = {"gram": torch.from_numpy(_inner_products(part, settings))}
    return tensors, about


def _inner_products(part: Trajectories, settings: Settings) -> Array:
    """All that pruning looks at; the test against planes needs them in double precision."""
    beyond_lines = settings.window > 2 or settings.levels > 1
    return part.gram(settings.normalisation, settings.space, precise=beyond_lines)


def _profile_of_shards(
    shards: Iterator[Shard], settings: Settings, until_stable: float | None = None
) -> CurvatureProfile:
    """Algorithm 1 on all shards, or on the first so many that are enough."""
    taken = list(shards if until_stable is None else _enough(shards, settings, until_stable))
    if settings.normalisation == "pooled":  # over all trajectories: they must all be there
        parts = [Trajectories.put_together(*shard) for shard in taken]
        gram = _inner_products(Trajectories.joined(parts), settings)
    else:
        grams = [tensors["gram"].numpy() for tensors, _ in taken]
        gram = np.concatenate(grams) if len(grams) > 1 else grams[0]
    prunings = _pruned(gram, settings)
    chord_scores, chord_points = mean_chord_scores(gram)
    recorded = [about for _, about in taken]
    return CurvatureProfile(
        kept=prunings.kept,
        timesteps=np.array(recorded[0]["timesteps"]),
        thresholds=prunings.thresholds,
        scores=prunings.scores,
        seeds=tuple(seed for about in recorded for seed in about["seeds"]),
        origin=Origin.from_dict(recorded[0]["origin"]),
        settings=settings,
        chord_scores=chord_scores,
        chord_points=chord_points,
        nfe=sum(about["nfe"] for about in recorded),
        versions=versions(),
    )


def _pruned(gram: Array, settings: Settings) -> Prunings:
    return SEARCHES[settings.search](gram, settings.target_score, settings.window, settings.levels)


def _enough(shards: Iterator[Shard], settings: Settings, agreement: float) -> Iterator[Shard]:
    """Shards until the schedules of two halves of all their trajectories agree so far."""
    kept: list[Mask] = []
    for tensors, about in shards:
        yield tensors, about
        kept.append(_pruned(tensors["gram"].numpy(), settings).kept)
        if sum(map(len, kept)) > 1:
            times, noise = np.array(about["timesteps"])[:-1], Origin.from_dict(about["origin"]).noise
            if stability_of(np.concatenate(kept), times, noise, settings.window).fuzzy_jaccard >= agreement:
                return


@dataclass(frozen=True, repr=False)
class Budget:
    """The smallest K that meets a target score, and how the score falls with K."""

    schedule: StepSchedule
    score: float
    target_score: float
    settled: int | None  # from this K on, every larger K that was tried meets the target too; None: not even the last
    curve_steps: NDArray[np.intp]  # (tried,) every K from 2 up
    curve_scores: Array  # (tried,)

    def __repr__(self) -> str:
        return f"Budget({len(self.schedule)} steps, score {self.score:.3g} for a target of {self.target_score:g})"

    @property
    def curve(self) -> dict[int, float]:
        """Score by K."""
        return {int(k): float(score) for k, score in zip(self.curve_steps, self.curve_scores, strict=True)}


def find_budget(profile: CurvatureProfile, target_score: float, blend: float = BLEND, literal: bool = False) -> Budget:
    """The step-budget oracle: raise K until the schedule's score falls to the target."""
    if not target_score > 0:
        raise ScheduleError(f"the target score must be positive, got {target_score}")
    density = profile_density(profile, blend, literal)
    steps = np.arange(2, len(profile.chord_points))
    scores = np.array([profile.score_of_steps(quantile_times(density, int(k), profile.noise)) for k in steps])
    meets = scores <= target_score
    if not meets.any():
        raise ScheduleError(
            f"no schedule of up to {steps[-1]} steps has a score of {target_score:g} or less; the lowest is "
            f"{scores.min():.3g}: ask for more than that, or record with more reference steps"
        )
    chosen = int(steps[np.argmax(meets)])
    misses = np.nonzero(~meets)[0]
    first_settled = misses[-1] + 1 if len(misses) else 0
    settled = int(steps[first_settled]) if first_settled < len(steps) else None
    schedule = build_schedule(profile, chosen, blend, literal)
    verified = profile.score_of_steps(schedule.timesteps)
    return Budget(schedule, verified, target_score, settled, steps, scores)
