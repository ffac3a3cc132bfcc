"""Where fits and searches begin: closed forms, the paper's blends and published schedules, which cost no call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from geosprint.baselines import closed_forms, closed_forms_begun_late, reference_timesteps
from geosprint.errors import ScheduleError
from geosprint.extraction import profile_trajectories
from geosprint.models.base import Model, Predict
from geosprint.noise import CLEAN, Array
from geosprint.profile import CurvatureProfile
from geosprint.rivals.gits import one_step_path
from geosprint.rivals.paper import geosprint
from geosprint.rivals.registry import RIVALS
from geosprint.rivals.weighted_path import weighted_path
from geosprint.runs.team import this_team
from geosprint.solvers import ddim
from geosprint.teacher import TeacherTrajectories, most_steps, teacher_solver
from geosprint.trajectory import Origin, Trajectories
from geosprint.tuning.surrogate import Projection, Surrogate


@dataclass(frozen=True, eq=False)
class SurrogateEvidence:
    """Teacher trajectories as published schedules want them, with the surrogate in the network's place."""

    model: Model  # is not asked
    trajectories: TeacherTrajectories
    projection: Projection

    @cached_property
    def recorded(self) -> Trajectories:
        """In the coordinates of the projection."""
        projected = self.projection.trajectories
        return self._on_grid(projected, replace(self._origin, shape=tuple(projected.ends.shape[1:])))

    @cached_property
    def profile(self) -> CurvatureProfile:
        """From all coordinates: angles between states need them."""
        return profile_trajectories(self._on_grid(self.trajectories, self._origin))

    def predictor(self, rows: Sequence[int]) -> Predict:
        """The surrogate of these trajectories."""
        some = self.projection.trajectories.at(slice(rows[0], rows[-1] + 1))
        return Surrogate(some, self.projection.response, ddim).predict

    def _on_grid(self, trajectories: TeacherTrajectories, origin: Origin) -> Trajectories:
        return read_on_grid(trajectories, origin, self.projection.config.grid)

    @property
    def _origin(self) -> Origin:
        return Origin.of(self.model, teacher_solver(self.model), 0.0)


def starts_of(evidence: SurrogateEvidence, steps: int) -> dict[str, Array]:
    """All schedules that are known without a search, by name, K known times each."""
    noise, config = evidence.model.noise, evidence.projection.config
    forms = {**closed_forms(noise, steps), **closed_forms_begun_late(noise, steps)}
    if not config.published_starts:
        return forms
    blends = {f"geosprint, blend {blend:g}": geosprint(evidence, steps, blend) for blend in config.blends}
    published: dict[str, Callable[[Any, int], Any]] = {
        method.name: method.build for method in RIVALS.values() if method.is_start
    }
    variants: dict[str, Callable[[SurrogateEvidence, int], Array]] = {
        "weighted-path, plain errors": partial(weighted_path, power=1),
        "gits-plain, raw states": lambda seen, k: one_step_path(seen.recorded, k, decay=1.0, space="vp"),
    }

    def built(build: Callable[[Any, int], Any]) -> Array | None:
        with suppress(ScheduleError):  # a path over fewer recorded times than steps is none
            return np.asarray(build(evidence, steps))
        return None

    named = {**published, **variants}
    found = zip(named, this_team().each([partial(built, build) for build in named.values()]), strict=True)
    return {**forms, **blends, **{name: times for name, times in found if times is not None}}


def read_on_grid(teacher: TeacherTrajectories, origin: Origin, points: int) -> Trajectories:
    """Teacher trajectories at the uniform times that the paper records, with the predictions there."""
    times = reference_timesteps(teacher.noise, min(points, most_steps(teacher.noise)))
    there = [teacher.prediction_at(t) for t in times.tolist()]
    along = [*(teacher.state_at(t) for t in times.tolist()), teacher.ends]
    states, x0, eps = (
        torch.stack([part.flatten(1) for part in parts], dim=1)
        for parts in (along, [p.x0 for p in there], [p.eps for p in there])
    )
    return Trajectories(states, np.append(times, CLEAN), teacher.rows, origin, 0, x0=x0, eps=eps)
