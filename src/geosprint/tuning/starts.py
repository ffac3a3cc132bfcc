"""Where a search begins: closed forms, the paper's blends and dynamic programs, none of which costs a call."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from geosprint.baselines import closed_forms, closed_forms_begun_late, reference_timesteps
from geosprint.extraction import profile_trajectories
from geosprint.models.base import Model
from geosprint.noise import CLEAN
from geosprint.profile import CurvatureProfile
from geosprint.rivals.dynamic_programs import cheapest_path, one_step_errors
from geosprint.rivals.gits import DECAY, one_step_path
from geosprint.rivals.local_errors import error_density, sharpness_density
from geosprint.rivals.oss import student_path
from geosprint.rivals.weighted_path import WALKS, cheapest_weighted_path, sensitivities
from geosprint.schedule import build_schedule, place
from geosprint.solvers import ddim
from geosprint.teacher import SOLVER, TeacherTrajectories, most_steps
from geosprint.trajectory import Origin, Trajectories
from geosprint.tuning.measures import Telling
from geosprint.tuning.surrogate import Shadow

Array = NDArray[np.float64]

BLENDS = (0.2, 0.4, 0.6, 0.8, 1.0)
GRID = 100  # times that the fine walks are read at for blends and programs


class Starts:
    """All schedules that are known without a search."""

    def __init__(self, model: Model, walks: TeacherTrajectories, telling: Telling) -> None:
        self._model, self._walks, self._telling = model, walks, telling

    def of(self, steps: int) -> dict[str, Array]:
        """By name, K known times each."""
        free = (self.closed_forms, self.stretched, self.blends, self.even_errors, self.programs)
        return {name: times for of in free for name, times in of(steps).items()}

    def closed_forms(self, steps: int) -> dict[str, Array]:
        """What users have."""
        return closed_forms(self._model.noise, steps)

    def stretched(self, steps: int) -> dict[str, Array]:
        """Closed forms over less than all of time."""
        return closed_forms_begun_late(self._model.noise, steps)

    def blends(self, steps: int) -> dict[str, Array]:
        """The paper's schedule at several blends: the one that suits the model is found on the way."""
        return {
            f"geosprint, blend {blend:g}": build_schedule(self._profile, steps, blend).timesteps for blend in BLENDS
        }

    def programs(self, steps: int) -> dict[str, Array]:
        """Dynamic programs over the errors of single steps, plain and as they survive to the end, and over students."""
        told, noise = self._told, self._model.noise
        if steps >= len(told.timesteps) - 1:
            return {}
        shadow = Shadow(self._telling.walks.at(slice(0, WALKS)), self._telling.response, ddim)
        left = sensitivities(told, shadow.predict, noise, gap=max(round(GRID / steps), 1))
        return {
            "weighted path": cheapest_weighted_path(told, left, steps, power=1),
            "weighted path, squared": cheapest_weighted_path(told, left, steps, power=2),
            "one-step path": told.timesteps[cheapest_path(one_step_errors(told).mean(axis=0), steps)],
            "one-step path over sigma": one_step_path(told, steps, decay=1.0),
            "one-step path over sigma, later steps heavier": one_step_path(told, steps, DECAY),
            "student path": student_path(shadow.predict, noise, [told.states[:WALKS]], told.timesteps, steps),
        }

    def even_errors(self, steps: int) -> dict[str, Array]:
        """Steps that all err alike, by what two rivals take for the error."""
        densities = {"even local errors": error_density(self._told), "even sharpness": sharpness_density(self._told)}
        return {name: place(density, steps, self._model.noise) for name, density in densities.items()}

    @cached_property
    def _profile(self) -> CurvatureProfile:
        return profile_trajectories(read_on_grid(self._walks, self._origin))

    @cached_property
    def _told(self) -> Trajectories:
        walks = self._telling.walks
        return read_on_grid(walks, replace(self._origin, shape=tuple(walks.ends.shape[1:])))

    @property
    def _origin(self) -> Origin:
        return Origin.of(self._model, SOLVER, 0.0)


def read_on_grid(walks: TeacherTrajectories, origin: Origin) -> Trajectories:
    """Fine walks at the uniform times that the paper records, with the predictions there."""
    times = reference_timesteps(walks.noise, min(GRID, most_steps(walks.noise)))
    there = [walks.prediction_at(t) for t in times.tolist()]
    along = [*(walks.state_at(t) for t in times.tolist()), walks.ends]
    states, x0, eps = (
        torch.stack([part.flatten(1) for part in parts], dim=1)
        for parts in (along, [p.x0 for p in there], [p.eps for p in there])
    )
    return Trajectories(states, np.append(times, CLEAN), walks.rows, origin, 0, x0=x0, eps=eps)
