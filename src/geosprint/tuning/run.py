"""Tuning from end to end: teacher trajectories, then one number of steps after another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geosprint.call_cache import caching_calls
from geosprint.errors import ScheduleError
from geosprint.fitting.fit import Shown
from geosprint.integrations.adapter import as_model
from geosprint.metrics.features import load_features
from geosprint.models.base import Model
from geosprint.runs.progress import Progress
from geosprint.sampling import BATCH, Counted, checked_timesteps
from geosprint.schedule import StepSchedule, check_steps
from geosprint.solvers import solver_named
from geosprint.teacher import BUDGET, TeacherSets
from geosprint.tuning.config import DEFAULT
from geosprint.tuning.joint import least_joint_budget, tune_solver
from geosprint.tuning.result import FITTED, Tuned, TunedSchedule, TunedSolver
from geosprint.tuning.schedules import RMSE, TuningProblem, least_budget, tune_schedule

if TYPE_CHECKING:
    from geosprint.integrations.pipelines import PipelineInputs


def tune(
    model: Model | Any,
    steps: int | Sequence[int],
    *,
    solver: str = "ddim",
    budget_nfe: int = BUDGET,
    measure: str = RMSE,
    against: StepSchedule | None = None,
    seed: int = 0,
    batch: int = BATCH,
    progress: bool = False,
    inputs: PipelineInputs | None = None,
    work: Path | None = None,
) -> Tuned:
    """The best schedule found for a number of steps, or for each of several, at most `budget_nfe` calls each.

    Where a closed form is surely better on held-out noise, it is that; docs/tune.md has how often this goes wrong.

    With solver="fitted" it is the best schedule and solver together. `measure` is rmse or the name of features
    (`load_features`) whose distance is to be small. `against` is a schedule of as many steps that must be beaten too.
    `inputs` are what a pipeline draws. `work` is a directory that keeps the model's answers: after a kill, the same
    call goes on and ends with the same schedules.
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
    with (
        caching_calls(asked, work, {"tune": job}) as known,
        Progress("tune, at most", budget_nfe * len(wanted), "call", progress) as bar,
    ):
        counted = Counted(Shown(known, bar))
        teacher = TeacherSets.recorded(counted, budget_nfe, seed, batch, config=DEFAULT.teacher)
        searched_for = DEFAULT.joint_solver if solver == FITTED else solver
        problem = TuningProblem.of(counted, teacher, searched_for, budget_nfe, measure, batch, DEFAULT)
        results: list[TunedSchedule | TunedSolver] = []
        for done, k in enumerate(wanted, start=1):
            bar.say(f"{k} steps")
            is_fitted = solver == FITTED
            results.append(TunedSolver(tune_solver(problem, k)) if is_fitted else tune_schedule(problem, k, against))
            bar.update(budget_nfe * done - bar.done)  # what was not needed
    return Tuned(tuple(results), solver, counted.nfe)


def _check(
    model: Model, wanted: Sequence[int], solver: str, budget: int, measure: str, against: StepSchedule | None
) -> None:
    """Refuse what cannot be tuned before anything runs."""
    if not wanted:
        raise ScheduleError("tuning needs at least one number of steps")
    for k in wanted:
        check_steps(k, model.noise)
    if solver == FITTED and (against is not None or measure != RMSE):
        raise ScheduleError("solver fitted takes neither against nor measure; leave them out")
    if solver != FITTED:
        solver_named(solver)
    if solver == "ddpm":
        raise ScheduleError("ddpm draws fresh noise, so it follows no teacher trajectory; tune another solver")
    if measure != RMSE:
        load_features(measure)
    if against is not None:
        checked_timesteps(model, against.timesteps)
    if solver == FITTED:
        least = max(least_joint_budget(model, k, DEFAULT) for k in wanted)
    else:
        least = max(least_budget(model, k, solver, DEFAULT) for k in wanted)
    if budget < least:
        doing = "tuning and fitting" if solver == FITTED else "tuning"
        raise ScheduleError(
            f"{doing} {max(wanted)} steps of this model needs a budget of at least {least} network calls, got {budget}"
        )
