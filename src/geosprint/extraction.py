"""Algorithm 1 from end to end, and the step-budget oracle (Section 5.2)."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from geosprint.errors import ScheduleError
from geosprint.files import refusing_damage
from geosprint.models.base import Model
from geosprint.profile import CurvatureProfile, Settings, mean_chord_scores
from geosprint.reference import (
    ReferencePass,
    gram_of,
    left_shards,
    made_shards,
    recorder_of,
    share_of,
    with_batch,
    work_directory,
)
from geosprint.schedule import BLEND, StepSchedule, build_schedule, place, profile_density
from geosprint.shards.store import Shard, Shards
from geosprint.shards.team import ALONE, Team
from geosprint.threshold import SEARCHES, Prunings
from geosprint.trajectory import Origin, Trajectories

if TYPE_CHECKING:
    from geosprint.integrations.pipelines import PipelineInputs

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


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
    team: Team = ALONE,
) -> CurvatureProfile:
    """Record a model or a diffusers pipeline and profile it, holding no more than one batch of raw states.

    `inputs` are the prompts and sizes that a pipeline is recorded with. `work` is a directory that keeps every
    batch as soon as it is done: after a kill, the same call goes on and ends with the same profile.
    `until_stable` is the agreement of two halves' schedules at which there are enough trajectories.
    `keep_states` leaves the raw states in `work`, in half precision. A team shares the batches out, and each
    process gets the profile.
    """
    asked = ReferencePass(
        trajectories, reference_steps, solver, eta, seed, batch, settings or Settings(), until_stable, keep_states
    )
    return extract_pass(model, asked, work, inputs, progress, team)


def extract_pass(
    model: Model | Any,
    asked: ReferencePass,
    work: Path | None = None,
    inputs: PipelineInputs | None = None,
    progress: bool = False,
    team: Team = ALONE,
) -> CurvatureProfile:
    """As `extract`, of a pass that was described before."""
    if asked.keep_states and work is None:
        raise ScheduleError("raw states are kept in the work directory, and got none: name one with work (--work)")
    record = recorder_of(model, inputs)
    asked = with_batch(asked, model, record)
    store = work_directory(work, record, asked) if work else None
    shards = made_shards(record, asked, asked.batches, store, team, progress)
    return _profile_of_shards(shards, asked, progress and team.leads)


def extract_share(
    model: Model | Any,
    asked: ReferencePass,
    work: Path,
    share: tuple[int, int],
    inputs: PipelineInputs | None = None,
    progress: bool = False,
    team: Team = ALONE,
) -> int:
    """Leave every n-th shard of a pass in `work`, from the i-th on (`share` is (i, n)); how many there are of these.

    Independent jobs, one for each i in 1..n, leave all shards; then `merge` makes the profile.
    """
    if asked.until_stable is not None:
        raise ScheduleError("independent jobs cannot know when there are enough trajectories; leave until_stable out")
    record = recorder_of(model, inputs)
    asked = with_batch(asked, model, record)
    mine = share_of(asked.batches, *share)
    store = work_directory(work, record, asked)
    return sum(1 for _ in made_shards(record, asked, mine, store, team, progress))


def merge(work: Path, progress: bool = False) -> CurvatureProfile:
    """The profile of a work directory that holds all shards of its pass, whoever made them."""
    store = Shards.found(Path(work))
    asked = ReferencePass.of(store)
    with refusing_damage(store.directory):
        return _profile_of_shards(left_shards(asked, store), asked, progress)


def profile_trajectories(
    trajectories: Trajectories, settings: Settings | None = None, progress: bool = False
) -> CurvatureProfile:
    """The profile of states that were recorded before."""
    settings = settings or Settings()
    recorded = (trajectories.timesteps, trajectories.seeds, trajectories.origin)
    return _profile_of_gram(gram_of(trajectories, settings), *recorded, settings, trajectories.nfe, progress)


def _profile_of_shards(shards: Iterator[Shard], asked: ReferencePass, progress: bool) -> CurvatureProfile:
    """The profile of all shards, or of the first so many that are enough."""
    settings = asked.settings
    if settings.normalisation == "pooled":  # over all trajectories: they must all be there
        parts = [Trajectories.put_together(shard.tensors, shard.about) for shard in shards]
        return profile_trajectories(Trajectories.joined(parts), settings, progress)
    taken: list[Shard] = []
    kept: list[Mask] = []
    for shard in shards:
        taken.append(shard)
        if asked.until_stable is not None:
            kept.append(_pruned(shard.tensors["gram"].numpy(), settings).kept)
            if _agreement_of_halves(np.concatenate(kept), shard.about, settings) >= asked.until_stable:
                break
    gram = np.concatenate([shard.tensors["gram"].numpy() for shard in taken])
    seeds = [seed for shard in taken for seed in shard.about["seeds"]]
    nfe = sum(shard.about["nfe"] for shard in taken)
    timesteps, origin = np.array(taken[0].about["timesteps"]), Origin.from_dict(taken[0].about["origin"])
    return _profile_of_gram(gram, timesteps, seeds, origin, settings, nfe, progress)


def _pruned(gram: Array, settings: Settings) -> Prunings:
    return SEARCHES[settings.search](gram, settings.target_score, settings.window, settings.levels)


def _agreement_of_halves(kept: Mask, about: dict[str, Any], settings: Settings) -> float:
    """How far the schedules of two halves of these trajectories agree, as the finished profile would tell."""
    count, points = kept.shape
    if count < 2:
        return 0.0
    without_chords = CurvatureProfile(
        kept=kept,
        timesteps=np.array(about["timesteps"]),
        thresholds=np.zeros(count),
        scores=np.zeros(count),
        seeds=tuple(range(count)),
        origin=Origin.from_dict(about["origin"]),
        settings=settings,
        chord_scores=np.zeros((2, 2)),
        chord_points=np.array([0, points - 1]),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a few trajectories, hardly any step may be retained yet
        return without_chords.stability().fuzzy_jaccard


def _profile_of_gram(
    gram: Array,
    timesteps: Array,
    seeds: Sequence[int],
    origin: Origin,
    settings: Settings,
    nfe: int,
    progress: bool = False,
) -> CurvatureProfile:
    prunings = _pruned(gram, settings)
    chord_scores, chord_points = mean_chord_scores(gram, progress and sys.stderr.isatty())
    return CurvatureProfile(
        kept=prunings.kept,
        timesteps=timesteps,
        thresholds=prunings.thresholds,
        scores=prunings.scores,
        seeds=tuple(seeds),
        origin=origin,
        settings=settings,
        chord_scores=chord_scores,
        chord_points=chord_points,
        nfe=nfe,
        versions={name: version(name) for name in ("geosprint", "torch", "numpy")},
    )


@dataclass(frozen=True)
class Budget:
    """The smallest K that meets a target score, and how the score falls with K."""

    schedule: StepSchedule
    score: float
    target_score: float
    settled: int | None  # from this K on, every larger K that was tried meets the target too; None: not even the last
    curve_steps: NDArray[np.intp]  # (tried,) every K from 2 up
    curve_scores: Array  # (tried,)

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
    scores = np.array([profile.score_of_steps(place(density, int(k), profile.noise)) for k in steps])
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


def score_of_kept(gram: Array, kept: Sequence[int], causal: bool = False) -> Array:
    """alpha_traj of keeping these states of every trajectory, straight from the definition.

    Skipped states are measured to the chord between the kept ones around them; `causal` measures to the
    line through the last two kept before, as Algorithm 2 does (in the first gap there is only the chord).
    """
    kept = sorted({0, *kept, gram.shape[1] - 1})
    lost = np.zeros(len(gram))
    for j in set(range(gram.shape[1])) - set(kept):
        after = int(np.searchsorted(kept, j))
        first = max(after - 2, 0) if causal else after - 1
        lost += _squared_distance_to_line(gram, kept[first], kept[first + 1], j)
    return lost / np.trace(gram, axis1=1, axis2=2)


def _squared_distance_to_line(gram: Array, i: int, l: int, j: int) -> Array:  # noqa: E741
    about = [gram[:, p, q] - gram[:, p, i] - gram[:, i, q] + gram[:, i, i] for p, q in ((j, j), (j, l), (l, l))]
    return np.maximum(about[0] - about[1] ** 2 / np.where(about[2] > 0, about[2], np.inf), 0)
