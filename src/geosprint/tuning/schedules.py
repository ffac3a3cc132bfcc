"""One schedule for one number of steps: search on one part of the teacher, choose and decide on the other."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from geosprint.baselines import applicable_baselines, closed_forms
from geosprint.metrics.distances import frechet_distance
from geosprint.metrics.features import Features, default_features, load_features
from geosprint.models.base import Model
from geosprint.sampling import BATCH, Counted
from geosprint.schedule import StepSchedule
from geosprint.solvers import solver_named
from geosprint.teacher import BUDGET, TeacherSets, TeacherTrajectories
from geosprint.trajectory import Origin
from geosprint.tuning.config import DEFAULT, TuneConfig
from geosprint.tuning.evaluation import ErrorMeasure, Evaluator
from geosprint.tuning.result import TunedSchedule
from geosprint.tuning.search import ScheduleSearch, SearchResult
from geosprint.tuning.starts import SurrogateEvidence, starts_of
from geosprint.tuning.surrogate import Projection
from geosprint.tuning.validation import Validation, validate

Array = NDArray[np.float64]

RMSE = "rmse"


@dataclass(frozen=True, eq=False)
class TuningProblem:
    """All that does not depend on the number of steps."""

    model: Counted
    solver: str
    teacher: TeacherSets
    evidence: SurrogateEvidence
    measure_name: str
    measure: ErrorMeasure
    features: Features  # of the Fréchet distances beside
    budget: int
    batch: int
    config: TuneConfig

    @classmethod
    def of(
        cls,
        model: Counted,
        teacher: TeacherSets,
        solver: str,
        budget: int = BUDGET,
        measure: str = RMSE,
        batch: int = BATCH,
        config: TuneConfig = DEFAULT,
    ) -> TuningProblem:
        """That of these teacher trajectories."""
        features = load_features(measure if measure != RMSE else default_features(model.name, model.shape))
        error = ErrorMeasure(model.shape, None if measure == RMSE else features)
        evidence = SurrogateEvidence(model, teacher.for_search, error.projection(teacher.for_search, config))
        return cls(model, solver, teacher, evidence, measure, error, features, budget, batch, config)

    @property
    def projection(self) -> Projection:
        """The teacher trajectories of the search in few coordinates."""
        return self.evidence.projection

    def closed_forms(self, steps: int) -> dict[str, Array]:
        """What users have."""
        return closed_forms(self.model.noise, steps)

    def evaluator(self, trajectories: TeacherTrajectories) -> Evaluator:
        """Of schedules for the solver, on these trajectories."""
        return Evaluator(self.model, solver_named(self.solver), trajectories, self.measure, self.batch)


@torch.no_grad()
def tune_schedule(problem: TuningProblem, steps: int, against: StepSchedule | None = None) -> TunedSchedule:
    """Search and validation for one number of steps."""
    model, config, begun = problem.model, problem.config, problem.model.nfe
    left = problem.budget - problem.teacher.nfe
    named = {"yours": against.timesteps} if against and len(against) == steps else {}
    found = search(problem, steps, int((1 - config.validation_share) * left), named)
    walks = (left - (model.nfe - begun)) / walk_price(model, steps, problem.solver)  # also what the search left over
    validation = _validated(problem, found, problem.closed_forms(steps), named, walks)
    nfe = problem.teacher.nfe + model.nfe - begun
    return TunedSchedule(
        _with_provenance(problem, validation, nfe),
        problem.solver,
        problem.measure_name,
        validation,
        found.origin_of(validation.evaluations["tuned"].times),
        _frechet_distances(problem, validation),
        nfe,
    )


def search(problem: TuningProblem, steps: int, allowance: int, named: dict[str, Array] | None = None) -> SearchResult:
    """The search alone, from all starts and those named."""
    price = walk_price(problem.model, steps, problem.solver)
    count = max(int(allowance / (problem.config.evaluations * price)), problem.config.teacher.fewest)
    evaluator = problem.evaluator(problem.teacher.for_search.at(slice(0, count)))
    starts = {**starts_of(problem.evidence, steps), **(named or {})}
    return ScheduleSearch(evaluator, problem.projection, price, allowance).best_of(starts)


def _validated(
    problem: TuningProblem, found: SearchResult, forms: dict[str, Array], named: dict[str, Array], walks: float
) -> Validation:
    """On as many of the validation trajectories as so many walks are enough for."""
    config = problem.config
    looks = min(max(int(config.look_share * walks / len(forms)), config.fewest_looks), config.most_looks)
    affordable = int((walks - looks * len(forms)) / config.walks_per_validation)
    some = problem.teacher.for_validation.at(slice(0, max(affordable, config.teacher.fewest)))
    cut = round(config.selection_share * len(some))
    selecting, deciding = (problem.evaluator(some.at(part)) for part in (slice(0, cut), slice(cut, None)))
    return validate(selecting, deciding, found.finalists, forms, named, found.predictor, looks)


def least_budget(model: Model, steps: int, solver: str, config: TuneConfig = DEFAULT) -> int:
    """Calls that pay for the fewest trajectories that can be judged by."""
    looks = config.fewest_looks * len(applicable_baselines(model.noise))
    walks = config.teacher.fewest * config.walks_per_validation + looks
    validation = walk_price(model, steps, solver) * walks / config.validation_share
    return math.ceil(max(config.teacher.least_budget(model.calls), validation / (1 - config.teacher.share)))


def walk_price(model: Model, steps: int, solver: str) -> int:
    """Calls of one walk."""
    return model.calls * (2 * steps - 1 if solver == "heun" else steps)


def _with_provenance(problem: TuningProblem, validation: Validation, nfe: int) -> StepSchedule:
    provenance = {
        "method": validation.chosen,
        "solver": problem.solver,
        "measure": problem.measure_name,
        "seed": problem.teacher.seed,
        "nfe": nfe,
        "error": validation.error(validation.chosen).value,
        "old": validation.old,
        "old_error": validation.error(validation.old).value,
        "origin": Origin.of(problem.model, problem.solver, 0.0).to_dict(),
    }
    return StepSchedule.at(validation.evaluations[validation.chosen].times, problem.model.noise, provenance)


def _frechet_distances(problem: TuningProblem, validation: Validation) -> dict[str, float]:
    """Of the chosen and the old schedule to the teacher's ends."""
    teacher = problem.features(validation.teacher_ends)
    names = dict.fromkeys((validation.chosen, validation.old))
    return {name: frechet_distance(problem.features(validation.evaluations[name].end), teacher) for name in names}
