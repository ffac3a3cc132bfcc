"""Tuning from end to end: fine walks, starts, search, validation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch
from numpy.typing import NDArray

from geosprint.baselines import applicable_baselines
from geosprint.call_cache import caching_calls
from geosprint.errors import ScheduleError
from geosprint.integrations.adapter import as_model
from geosprint.metrics.distances import frechet_distance
from geosprint.metrics.features import Features, default_features, load_features
from geosprint.models.base import Model
from geosprint.runs.progress import Bar
from geosprint.sampling import BATCH, Counted, checked_timesteps
from geosprint.schedule import StepSchedule, check_steps
from geosprint.solvers import solver_named
from geosprint.teacher import BUDGET, FEWEST_WALKS, FINE_SHARE, STEPS, TeacherSets, TeacherTrajectories
from geosprint.trajectory import Origin
from geosprint.tuning.evaluation import Course, Trial
from geosprint.tuning.measures import Telling, Yardstick
from geosprint.tuning.result import Tuned
from geosprint.tuning.search import Found, Search
from geosprint.tuning.starts import Starts
from geosprint.tuning.validation import OPPONENTS, Verdict, validated

if TYPE_CHECKING:
    from geosprint.integrations.pipelines import PipelineInputs

Array = NDArray[np.float64]

VALIDATION_SHARE = 0.37  # of what the fine walks leave
TRIALS = 12  # on all walks that a search shall be able to pay for
FULL_WALKS = OPPONENTS + 6  # schedules judged on all walks: three found, opponents, yours, uniform, a dearer uniform
LOOK_SHARE, FEWEST_LOOKS, MOST_LOOKS = 0.25, 2, 8  # walks that sort the closed forms before
RMSE = "rmse"


@dataclass(frozen=True, eq=False)
class Ground:
    """All that does not depend on the number of steps."""

    model: Counted
    solver: str
    fine: TeacherSets
    starts: Starts
    telling: Telling
    measure: str
    yardstick: Yardstick
    features: Features  # of the Fréchet distances beside
    budget: int
    batch: int


@overload
def tune(model: Model | Any, steps: int, *asked: Any, **named: Any) -> Tuned: ...


@overload
def tune(model: Model | Any, steps: Sequence[int], *asked: Any, **named: Any) -> list[Tuned]: ...


def tune(
    model: Model | Any,
    steps: int | Sequence[int],
    solver: str = "ddim",
    budget_nfe: int = BUDGET,
    measure: str = RMSE,
    against: StepSchedule | None = None,
    seed: int = 0,
    batch: int = BATCH,
    progress: bool = False,
    inputs: PipelineInputs | None = None,
    work: Path | None = None,
) -> Tuned | list[Tuned]:
    """The best schedule found for a number of steps, or for each of several, at most `budget_nfe` calls each.

    `measure` is rmse or the name of features (`load_features`) whose distance is to be small. `against` is a schedule
    that the tuned one of as many steps must beat too. `inputs` are what a pipeline shall draw. `work` is a directory
    that keeps the model's answers: after a kill, the same call goes on and ends with the same schedules.
    """
    wanted = [steps] if isinstance(steps, int) else sorted(set(steps))
    asked = as_model(model, inputs)
    _check(asked, wanted, solver, budget_nfe, measure, against)
    job = {
        "steps": wanted,
        "solver": solver,
        "budget_nfe": budget_nfe,
        "measure": measure,
        "against": None if against is None else against.timesteps.tolist(),
        "seed": seed,
        "batch": batch,
    }
    with caching_calls(asked, work, {"tune": job}) as known:
        counted = Counted(known)
        fine = TeacherSets.recorded(counted, budget_nfe, seed, batch, progress)
        ground = prepared(counted, fine, solver, budget_nfe, measure, batch)
        found = _tuned_schedules(ground, wanted, against, progress)
    return found[0] if isinstance(steps, int) else found


def _tuned_schedules(
    ground: Ground, wanted: Sequence[int], against: StepSchedule | None, progress: bool
) -> list[Tuned]:
    """One after another, with a bar."""
    left, found = ground.budget - ground.fine.nfe, []
    with Bar("tune", left * len(wanted), "call", progress) as bar:
        for done, k in enumerate(wanted, start=1):
            bar.say(f"{k} steps")
            found.append(tuned_schedule(ground, k, against, bar.update))
            bar.update(left * done - bar.done)  # what was not needed
    return found


def prepared(
    model: Counted, fine: TeacherSets, solver: str, budget: int = BUDGET, measure: str = RMSE, batch: int = BATCH
) -> Ground:
    """The ground of these fine walks."""
    features = load_features(measure if measure != RMSE else default_features(model.name, model.shape))
    yardstick = Yardstick(model.shape, None if measure == RMSE else features)
    telling = yardstick.told(fine.for_search)
    starts = Starts(model, fine.for_search, telling)
    return Ground(model, solver, fine, starts, telling, measure, yardstick, features, budget, batch)


def _check(
    model: Model, wanted: Sequence[int], solver: str, budget: int, measure: str, against: StepSchedule | None
) -> None:
    """Refuse what cannot be tuned before anything runs."""
    if not wanted:
        raise ScheduleError("tuning needs at least one number of steps")
    for k in wanted:
        check_steps(k, model.noise)
    solver_named(solver)
    if solver == "ddpm":
        raise ScheduleError("ddpm draws fresh noise, so no fine walk belongs to its samples; tune another solver")
    if measure != RMSE:
        load_features(measure)
    if against is not None:
        checked_timesteps(model, against.timesteps)
    least = max(least_budget(model, k, solver) for k in wanted)
    if budget < least:
        raise ScheduleError(
            f"tuning {max(wanted)} steps of this model needs a budget of at least {least} network calls, got {budget}"
        )


def least_budget(model: Model, steps: int, solver: str) -> int:
    """Calls that pay for the fewest walks that can be judged by."""
    fine = 2 * FEWEST_WALKS * STEPS * model.calls / FINE_SHARE
    looks = FEWEST_LOOKS * len(applicable_baselines(model.noise))
    judged = _price(model, steps, solver) * (FEWEST_WALKS * FULL_WALKS + looks) / VALIDATION_SHARE
    return math.ceil(max(fine, judged / (1 - FINE_SHARE)))


@torch.no_grad()
def tuned_schedule(
    ground: Ground, steps: int, against: StepSchedule | None = None, tell: Callable[[int], object] = lambda calls: None
) -> Tuned:
    """Search and validation for one number of steps."""
    begun, price = ground.model.nfe, _price(ground.model, steps, ground.solver)
    left = ground.budget - ground.fine.nfe
    allowance = int((1 - VALIDATION_SHARE) * left)
    named = {"yours": against.timesteps} if against and len(against) == steps else {}
    search, found = searched(ground, steps, allowance, named, tell)
    forms = ground.starts.closed_forms(steps)
    judged = (left - (ground.model.nfe - begun)) / price  # walks that are left, also those that the search did not need
    looks = min(max(int(LOOK_SHARE * judged / len(forms)), FEWEST_LOOKS), MOST_LOOKS)
    for_validation = _course(ground, ground.fine.for_validation, (judged - looks * len(forms)) / FULL_WALKS, tell)
    verdict = validated(for_validation, found.candidates, forms, named, search.law, looks)
    nfe = ground.fine.nfe + ground.model.nfe - begun
    schedule = _with_provenance(ground, verdict, nfe)
    frechet = {name: _frechet(ground, verdict.trials[name]) for name in dict.fromkeys((verdict.chosen, verdict.old))}
    return Tuned(schedule, ground.solver, ground.measure, verdict, found, frechet, nfe)


def searched(
    ground: Ground,
    steps: int,
    allowance: int,
    named: dict[str, Array] | None = None,
    tell: Callable[[int], object] = lambda calls: None,
) -> tuple[Search, Found]:
    """The search alone, from all starts and those named."""
    price = _price(ground.model, steps, ground.solver)
    course = _course(ground, ground.fine.for_search, allowance / (TRIALS * price), tell)
    search = Search(course, ground.telling, price, allowance)
    return search, search.best_of({**ground.starts.of(steps), **(named or {})})


def _course(ground: Ground, walks: TeacherTrajectories, affordable: float, tell: Callable[[int], object]) -> Course:
    """As many of the walks as calls are there for."""
    some = walks.at(slice(0, max(int(affordable), FEWEST_WALKS)))
    return Course(ground.model, solver_named(ground.solver), some, ground.yardstick, ground.batch, tell)


def _with_provenance(ground: Ground, verdict: Verdict, nfe: int) -> StepSchedule:
    error, old = verdict.error(verdict.chosen), verdict.error(verdict.old)
    provenance = {
        "method": verdict.chosen,
        "solver": ground.solver,
        "measure": ground.measure,
        "seed": ground.fine.seed,
        "nfe": nfe,
        "error": error.value,
        "old": verdict.old,
        "old_error": old.value,
        "origin": Origin.of(ground.model, ground.solver, 0.0).to_dict(),
    }
    return StepSchedule.at(verdict.trials[verdict.chosen].times, ground.model.noise, provenance)


def _frechet(ground: Ground, trial: Trial) -> float:
    fine = ground.fine.for_validation.ends[: len(trial.end)]
    return frechet_distance(ground.features(trial.end), ground.features(fine))


def _price(model: Model, steps: int, solver: str) -> int:
    """Calls of one walk."""
    return model.calls * (2 * steps - 1 if solver == "heun" else steps)
