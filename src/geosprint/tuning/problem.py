"""What is the same for every number of steps: a model, its teacher, what an error is, and who is compared on it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from geosprint.fitted_solver import FittedSolver
from geosprint.metrics.features import load_features
from geosprint.models.base import Model
from geosprint.sampling import BATCH, Counted, batches_of
from geosprint.schedule import StepSchedule
from geosprint.solvers import Solver, predictions_of_walk, solver_named
from geosprint.teacher import TeacherSets, TeacherTrajectories
from geosprint.tuning.config import DEFAULT, TuneConfig
from geosprint.tuning.evaluation import ErrorMeasure, Evaluator
from geosprint.tuning.starts import SurrogateEvidence
from geosprint.tuning.surrogate import Projection
from geosprint.tuning.today import TodaysRun

Array = NDArray[np.float64]

RMSE = "rmse"


@dataclass(frozen=True, eq=False)
class Contender:
    """Steps that may be returned: by which name, and for which solver."""

    name: str
    made: StepSchedule | FittedSolver
    solver: str

    @property
    def schedule(self) -> StepSchedule:
        """Where it steps."""
        return self.made if isinstance(self.made, StepSchedule) else self.made.schedule


@dataclass(frozen=True, eq=False)
class TuningProblem:
    """A model and its teacher: trajectories to search on, some to choose by, and others to decide by."""

    model: Counted
    teacher: TeacherSets
    evidence: SurrogateEvidence
    measure: ErrorMeasure
    batch: int
    config: TuneConfig

    @classmethod
    def of(
        cls,
        model: Counted,
        teacher: TeacherSets,
        measure: str = RMSE,
        batch: int = BATCH,
        config: TuneConfig = DEFAULT,
    ) -> TuningProblem:
        """That of these teacher trajectories."""
        error = ErrorMeasure(model.shape, None if measure == RMSE else load_features(measure))
        evidence = SurrogateEvidence(model, teacher.for_search, error.projection(teacher.for_search, config))
        return cls(model, teacher, evidence, error, batch, config)

    @property
    def projection(self) -> Projection:
        """The teacher trajectories of the search in few coordinates."""
        return self.evidence.projection

    @cached_property
    def selecting(self) -> TeacherTrajectories:
        """Validation trajectories that choose among candidates."""
        return self.teacher.for_validation.at(slice(0, self._cut))

    @cached_property
    def deciding(self) -> TeacherTrajectories:
        """The others, by which nothing was chosen."""
        return self.teacher.for_validation.at(slice(self._cut, None))

    @cached_property
    def doubting(self) -> TeacherTrajectories:
        """Some of those that are learnt from: enough to show samples that land in another mode."""
        return self.teacher.for_search.at(slice(0, round(self.config.doubting_share * len(self.teacher.for_search))))

    @property
    def _cut(self) -> int:
        return max(round(self.config.selection_share * len(self.teacher.for_validation)), 1)

    def schedule(self, times: Array, method: str) -> StepSchedule:
        """These times of the model, and by which method they came about."""
        return StepSchedule.at(times, self.model.noise, {"method": method})

    def evaluator(self, solver: Solver | str, trajectories: TeacherTrajectories) -> Evaluator:
        """Of schedules for a solver, on these trajectories."""
        return Evaluator(self.model, solver_named(solver), trajectories, self.measure, self.batch)

    def errors_of(self, contender: Contender, trajectories: TeacherTrajectories) -> Array:
        """On each of these trajectories."""
        solver = contender.made if isinstance(contender.made, FittedSolver) else contender.solver
        return self.evaluator(solver, trajectories).evaluate(contender.schedule.timesteps).errors

    @torch.no_grad()
    def errors_of_today(self, today: TodaysRun, steps: int, trajectories: TeacherTrajectories) -> Array:
        """Of so many of the steps that are run today, on each of these trajectories."""
        errors = []
        for part in batches_of(len(trajectories), self.batch):
            some = trajectories.at(slice(part.start, part.stop))
            model = self.model.for_samples(some.rows)
            ends = today.ends(model, some.starts.to(model.device), steps).cpu()
            errors.append(self.measure.errors(ends, some.ends))
        return np.concatenate(errors)


def walk_price(model: Model, steps: int, solver: str) -> int:
    """Calls of one walk."""
    return model.calls * predictions_of_walk(solver, steps)
