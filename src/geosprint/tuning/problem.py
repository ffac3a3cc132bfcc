"""What is the same for every number of steps: a model, its teacher, what an error is, and who is compared on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice

import numpy as np
import torch

from geosprint.fitted_solver import FittedSolver
from geosprint.metrics.features import load_features
from geosprint.models.base import Model
from geosprint.models.spread import Spread, shared_size
from geosprint.noise import Array
from geosprint.schedule import StepSchedule
from geosprint.solvers import Solver, predictions_of_walk, solver_named
from geosprint.teacher import TeacherSets, TeacherTrajectories
from geosprint.tuning.config import DEFAULT, TuneConfig
from geosprint.tuning.evaluation import ErrorMeasure, Evaluator
from geosprint.tuning.starts import SurrogateEvidence
from geosprint.tuning.surrogate import Projection
from geosprint.tuning.today import TodaysRun

RMSE = "rmse"


@dataclass(frozen=True, eq=False)
class Contender:
    """Steps that may be returned: by which name, and for which solver."""

    name: str
    made: StepSchedule | FittedSolver
    solver: str
    learnt: Array = field(default_factory=lambda: np.zeros(0))  # errors of a fit on all that does not decide

    @property
    def schedule(self) -> StepSchedule:
        """Where it steps."""
        return self.made if isinstance(self.made, StepSchedule) else self.made.schedule

    @property
    def stepping(self) -> FittedSolver | str:
        """How it steps."""
        return self.made if isinstance(self.made, FittedSolver) else self.solver


@dataclass(frozen=True, eq=False)
class TuningProblem:
    """A model and its teacher: trajectories to search on, some to choose by, and others to decide by."""

    model: Spread
    teacher: TeacherSets
    evidence: SurrogateEvidence
    measure: ErrorMeasure
    config: TuneConfig

    @classmethod
    def of(
        cls,
        model: Spread,
        teacher: TeacherSets,
        measure: str = RMSE,
        config: TuneConfig = DEFAULT,
    ) -> TuningProblem:
        """That of these teacher trajectories."""
        error = ErrorMeasure(model.shape, None if measure == RMSE else load_features(measure))
        evidence = SurrogateEvidence(model, teacher.for_search, error.projection(teacher.for_search, config))
        return cls(model, teacher, evidence, error, config)

    @property
    def projection(self) -> Projection:
        """The teacher trajectories of the search in few coordinates."""
        return self.evidence.projection

    @cached_property
    def selecting(self) -> TeacherTrajectories:
        """Validation trajectories that choose among candidates."""
        return self.teacher.for_validation.at(slice(0, self._cut))

    @cached_property
    def undecided(self) -> TeacherTrajectories:
        """All but those that decide: fits learn from them, and are chosen by them."""
        return self.teacher.for_search.joined_with(self.selecting)

    @cached_property
    def deciding(self) -> TeacherTrajectories:
        """The others, by which nothing was chosen."""
        return self.teacher.for_validation.at(slice(self._cut, None))

    @property
    def _cut(self) -> int:
        return max(round(self.config.selection_share * len(self.teacher.for_validation)), 1)

    def schedule(self, times: Array, method: str) -> StepSchedule:
        """These times of the model, and by which method they came about."""
        return StepSchedule.at(times, self.model.noise, {"method": method})

    def evaluator(self, solver: Solver | str, trajectories: TeacherTrajectories) -> Evaluator:
        """Of schedules for a solver, on these trajectories."""
        return Evaluator(self.model, solver_named(solver), trajectories, self.measure, self.projection.coordinates)

    def errors_of(self, contender: Contender, trajectories: TeacherTrajectories) -> Array:
        """On each of these trajectories."""
        return self.errors_of_each([contender], trajectories)[contender.name]

    def errors_of_each(self, contenders: Sequence[Contender], trajectories: TeacherTrajectories) -> dict[str, Array]:
        """By name, of several at once."""
        parts = trajectories.split(shared_size(self.model.batch, *[len(trajectories)] * len(contenders)))
        evaluators = [self.evaluator(one.stepping, trajectories) for one in contenders]
        jobs = [
            partial(evaluator.walked, one.schedule.timesteps, some)
            for one, evaluator in zip(contenders, evaluators, strict=True)
            for some in parts
        ]
        found = iter(self.model.each(jobs))
        return {one.name: np.concatenate([part.errors for part in islice(found, len(parts))]) for one in contenders}

    def errors_of_today(self, today: TodaysRun, steps: int, trajectories: TeacherTrajectories) -> Array:
        """Of so many of the steps that are run today, on each of these trajectories."""

        @torch.no_grad()
        def errors(some: TeacherTrajectories) -> Array:
            model = self.model.for_samples(some.rows)
            ends = today.ends(model, some.starts.to(model.device), steps).cpu()
            return self.measure.errors(ends, some.ends)

        parts = trajectories.split(shared_size(self.model.batch, len(trajectories)))
        return np.concatenate(self.model.each([partial(errors, some) for some in parts]))


def walk_price(model: Model, steps: int, solver: str) -> int:
    """Calls of one walk."""
    return model.calls * predictions_of_walk(solver, steps)
