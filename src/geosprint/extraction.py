"""Algorithm 1 from end to end, and the step-budget oracle (Section 5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from geosprint.errors import GeometryError, ScheduleError
from geosprint.models.base import Model
from geosprint.profile import CurvatureProfile, Settings, mean_chord_scores
from geosprint.sampling import BATCH, record_batches
from geosprint.schedule import BLEND, StepSchedule, build_schedule, place, profile_density
from geosprint.threshold import SEARCHES
from geosprint.trajectory import Origin, Trajectories

if TYPE_CHECKING:
    from geosprint.integrations.pipelines import PipelineInputs

Array = NDArray[np.float64]


def extract(
    model: Model | Any,
    trajectories: int = 100,
    reference_steps: int = 200,
    solver: str = "ddim",
    settings: Settings | None = None,
    seed: int = 0,
    eta: float = 0.0,
    batch: int = BATCH,
    progress: bool = False,
    inputs: PipelineInputs | None = None,
) -> CurvatureProfile:
    """Record a model or a diffusers pipeline and profile it, holding no more than one batch of raw states.

    `inputs` are the prompts and sizes that a pipeline is recorded with.
    """
    settings = settings or Settings()
    if trajectories < 1:
        raise GeometryError(f"at least one trajectory is needed, got {trajectories}")
    seeds = range(seed, seed + trajectories)
    asked = (seeds, reference_steps, solver, eta, batch, settings.space == "x0", progress)
    if is_pipeline(model):
        from geosprint.integrations.pipelines import record_pipeline

        parts = record_pipeline(model, *asked, inputs)
    else:
        parts = record_batches(model, *asked)
    if settings.normalisation == "pooled":  # over all trajectories: they must all be there
        return profile_trajectories(Trajectories.joined(list(parts)), settings, progress)
    grams, nfe = [], 0
    for part in parts:
        grams.append(_gram(part, settings))
        nfe += part.nfe
    return _profile_of_gram(np.concatenate(grams), part.timesteps, seeds, part.origin, settings, nfe, progress)


def is_pipeline(candidate: Any) -> bool:
    """Whether this is a diffusers pipeline, told without importing diffusers."""
    return hasattr(candidate, "scheduler") and hasattr(candidate, "components")


def profile_trajectories(
    trajectories: Trajectories, settings: Settings | None = None, progress: bool = False
) -> CurvatureProfile:
    """The profile of states that were recorded before."""
    settings = settings or Settings()
    recorded = (trajectories.timesteps, trajectories.seeds, trajectories.origin)
    return _profile_of_gram(_gram(trajectories, settings), *recorded, settings, trajectories.nfe, progress)


def _gram(trajectories: Trajectories, settings: Settings) -> Array:
    beyond_lines = settings.window > 2 or settings.levels > 1
    return trajectories.in_space(settings.space).gram(settings.normalisation, precise=beyond_lines)


def _profile_of_gram(
    gram: Array,
    timesteps: Array,
    seeds: Sequence[int],
    origin: Origin,
    settings: Settings,
    nfe: int,
    progress: bool = False,
) -> CurvatureProfile:
    prunings = SEARCHES[settings.search](gram, settings.target_score, settings.window, settings.levels)
    chord_scores, chord_points = mean_chord_scores(gram, progress)
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
