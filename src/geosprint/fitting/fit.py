"""Fit a solver to a model: record a teacher, choose where to step, fit how to step, and validate on held-out noise."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from geosprint.baselines import applicable_baselines, baseline_schedule
from geosprint.call_cache import caching_calls
from geosprint.errors import ScheduleError
from geosprint.estimates import bootstrap_mean
from geosprint.fitted_solver import Coefficients, FittedSolver, check_order, ddim_coefficients, dpmpp_coefficients
from geosprint.fitting.refinement import FEWEST, FEWEST_BLOCKS, MOST, VALIDATING, Refined, refine, round_calls
from geosprint.fitting.stepwise import stepwise_fit, student_trajectories, x0_predictor
from geosprint.integrations.adapter import as_model
from geosprint.models.base import Model
from geosprint.models.wrappers import Wrapped
from geosprint.noise import NoiseSchedule
from geosprint.runs.progress import Progress
from geosprint.sampling import Counted
from geosprint.schedule import StepSchedule, check_steps
from geosprint.teacher import BUDGET, SOLVER, TeacherTrajectories, fine_steps, record_teacher
from geosprint.trajectory import Origin

if TYPE_CHECKING:
    from geosprint.integrations.pipelines import PipelineInputs

Array = NDArray[np.float64]

ORDER = 4
TRAJECTORIES = 48
HELD_OUT = 32
KNOWN_SOLVERS = {"ddim": ddim_coefficients, "dpmpp-2m": dpmpp_coefficients}
SCREENED = 48  # trajectories that a closed form is fitted to when one is to be chosen
FEWEST_SCREENED = 8
SCREENING_SHARE = 0.45  # of what is left of the budget
FINALISTS = 3  # closed forms that are fitted to all trajectories


def fit(
    model: Model | Any,
    steps: int,
    schedule: StepSchedule | None = None,
    order: int = ORDER,
    seed: int = 0,
    trajectories: int = TRAJECTORIES,
    held_out: int = HELD_OUT,
    budget_nfe: int = BUDGET,
    progress: bool = False,
    inputs: PipelineInputs | None = None,
    work: Path | None = None,
) -> FittedSolver:
    """The solver of K steps that follows the teacher best, on this schedule or on the closed form that suits it.

    Teacher trajectories of the seeds from `seed` on are learnt from; the `held_out` ones after them only validate.
    Where DPM++ 2M or DDIM has a lower error on those, its coefficients are returned instead, with a warning. `inputs`
    are what a pipeline draws. `work` is a directory that keeps the model's answers: after a kill, the same call goes
    on to the same solver.
    """
    asked = as_model(model, inputs)
    _check(asked, steps, schedule, order, trajectories, held_out)
    least = calls_needed(asked, steps, trajectories, held_out)
    if budget_nfe < least:
        raise ScheduleError(
            f"fitting {steps} steps to {trajectories} trajectories and validating on {held_out} takes {least} network "
            f"calls, the budget is {budget_nfe}; allow more, or give fewer trajectories"
        )
    schedules = [schedule] if schedule else closed_forms(asked.noise, steps)
    if schedule is None:
        _check_that_all_can_be_screened(asked, schedules, trajectories, held_out, budget_nfe)
    job = {
        "steps": steps,
        "schedule": None if schedule is None else schedule.timesteps.tolist(),
        "order": order,
        "seed": seed,
        "walks": trajectories,
        "unseen": held_out,
        "budget": budget_nfe,
    }
    with (
        caching_calls(asked, work, {"fit": job}) as known,
        Progress("fit, at most", budget_nfe, "call", progress) as bar,
    ):
        counted = Counted(Shown(known, bar))
        recorded = record_teacher(counted, range(seed, seed + trajectories + held_out))
        learnt_from, validated_on = recorded.at(slice(0, trajectories)), recorded.at(slice(trajectories, None))
        return fit_to_teacher(counted, learnt_from, validated_on, schedules, order, seed, counted.nfe, budget_nfe)


def fit_to_teacher(
    model: Counted,
    teacher: TeacherTrajectories,
    held_out: TeacherTrajectories,
    schedules: Sequence[StepSchedule],
    order: int,
    seed: int,
    spent: int,
    budget_nfe: int,
) -> FittedSolver:
    """A fit to teacher trajectories that are there already; they took `spent` calls of the budget.

    It is on the best of these schedules, or on the best of the first of them, as many as can be screened.
    """
    begun, steps = model.nfe - spent, len(schedules[0])
    last = begun + budget_nfe - _validation_calls(model, steps, len(held_out))
    for count in range(len(schedules), 1, -1):
        screened = screening_size(count, steps, len(teacher), model.calls, last - model.nfe)
        if screened >= FEWEST_SCREENED:
            schedules = best_suited_schedules(model, teacher, schedules[:count], order, screened)
            break
    else:
        schedules = schedules[:1]
    schedule, numbers = best_fit(model, teacher, schedules, order, last)
    errors = _held_out_errors(model, held_out, schedule.timesteps, numbers, order)
    ships = _chosen(errors)
    if ships != "fitted":
        numbers = _known_coefficients(model.noise, schedule.timesteps, order)[ships]
    provenance = {
        "method": f"fitted on {schedule.provenance.get('method', 'a given schedule')}",
        "ships": ships,
        "order": order,
        "seed": seed,
        "walks": len(teacher),
        "calls": model.nfe - begun,
        "origin": Origin.of(model, SOLVER, 0.0).to_dict(),
    }
    there = StepSchedule(schedule.timesteps, schedule.sigmas, schedule.log_snr, provenance)
    return FittedSolver(there, numbers, _validation(errors, ships))


def closed_forms(noise: NoiseSchedule, steps: int) -> list[StepSchedule]:
    """Where a fit may step that was given no schedule."""
    return [baseline_schedule(name, noise, steps) for name in applicable_baselines(noise)]


def best_suited_schedules(
    model: Counted, teacher: TeacherTrajectories, schedules: Sequence[StepSchedule], order: int, screened: int
) -> list[StepSchedule]:
    """The schedules with the lowest error of a stepwise fit to so many trajectories, best first.

    Errors are those on the trajectories fitted to: they have so many more dimensions than a step has coefficients
    that all fits flatter alike, and twice as many trajectories tell more.
    """
    learnt_from = teacher.at(slice(0, screened))
    predict_x0 = x0_predictor(model, learnt_from.rows)

    def error(schedule: StepSchedule) -> float:
        fitted = stepwise_fit(predict_x0, learnt_from, schedule.timesteps, order)
        return float(np.sqrt(fitted.errors(learnt_from)).mean())

    return sorted(schedules, key=error)[:FINALISTS]


def screening_size(schedules: int, steps: int, trajectories: int, calls: int, left: int) -> int:
    """To how many trajectories each of so many schedules can be fitted, at `calls` a step, with `left` calls."""
    each = steps * schedules * calls
    reserved = (FINALISTS * trajectories + max(trajectories // VALIDATING, 1)) * steps * calls
    spare = max(left - reserved, 0)
    affordable = max(int(SCREENING_SHARE * spare) // each, min(spare // each, FEWEST_SCREENED))
    return min(SCREENED, trajectories, affordable)


def best_fit(
    model: Counted, teacher: TeacherTrajectories, schedules: Sequence[StepSchedule], order: int, last: int
) -> tuple[StepSchedule, Coefficients]:
    """Fit to all trajectories on each schedule, refine the best of them as far as calls last, and keep the best."""
    predict_x0 = x0_predictor(model, teacher.rows)
    some = schedules[: _affordable_schedules(model, teacher, schedules, order, last)]
    begun = [(schedule, stepwise_fit(predict_x0, teacher, schedule.timesteps, order)) for schedule in some]
    begun.sort(key=lambda one: float(one[1].errors(teacher).mean()))
    validating = max(len(teacher) // VALIDATING, 1)
    most = min(len(teacher) - validating, MOST)
    a_round = round_calls(begun[0][1].coefficients, validating, most) * model.calls
    validation = validating * len(schedules[0]) * model.calls
    several = max(min((last - model.nfe) // (a_round + validation), len(begun)), 1)  # rather one well than all poorly
    found: list[tuple[StepSchedule, Refined]] = []
    for left, (schedule, start) in zip(range(several, 0, -1), begun, strict=False):
        calls = (last - model.nfe) // left - validation
        found.append((schedule, refine(model, teacher, schedule.timesteps, start.coefficients, max(calls, 0))))
    schedule, best = min(found, key=lambda one: one[1].error)
    return schedule, best.coefficients


def _affordable_schedules(
    model: Counted, teacher: TeacherTrajectories, schedules: Sequence[StepSchedule], order: int, last: int
) -> int:
    """On how many schedules a fit to all trajectories leaves calls to refine one; one at least."""
    steps, validating = len(schedules[0]), max(len(teacher) // VALIDATING, 1)
    alike = dpmpp_coefficients(model.noise, schedules[0].timesteps, order)
    refining = (validating * steps + round_calls(alike, validating, FEWEST, FEWEST_BLOCKS)) * model.calls
    return max((last - model.nfe - refining) // (len(teacher) * steps * model.calls), 1)


def calls_needed(model: Model, steps: int, trajectories: int, held_out: int) -> int:
    """Network calls of the teacher, of the stepwise fit and of validation; screening and refining come on top."""
    return _teacher_calls(model, trajectories, held_out) + calls_to_fit(model, steps, trajectories, held_out)


def calls_to_fit(model: Model, steps: int, trajectories: int, held_out: int) -> int:
    """The same without the teacher."""
    fitting = (trajectories + max(trajectories // VALIDATING, 1)) * steps * model.calls
    return fitting + _validation_calls(model, steps, held_out)


def _teacher_calls(model: Model, trajectories: int, held_out: int) -> int:
    return (trajectories + held_out) * len(fine_steps(model.noise)) * model.calls


def _validation_calls(model: Model, steps: int, held_out: int) -> int:
    """Of the fit and of the known solvers."""
    return (1 + len(KNOWN_SOLVERS)) * held_out * steps * model.calls


@dataclass(frozen=True, eq=False)
class Shown(Wrapped):
    """A model that moves a progress bar with every network call."""

    bar: Progress

    def __call__(self, x: Tensor, t: float) -> Tensor:
        answer = self.inner(x, t)
        self.bar.update(len(x) * self.calls)
        return answer


def _held_out_errors(
    model: Counted, held_out: TeacherTrajectories, times: Array, numbers: Coefficients, order: int
) -> dict[str, Array]:
    """The error on each held-out trajectory, of the fit and of known solvers on the same schedule."""
    predict_x0 = x0_predictor(model, held_out.rows)
    tried = {"fitted": numbers, **_known_coefficients(model.noise, times, order)}
    return {
        name: student_trajectories(predict_x0, held_out.starts, times, some).errors(held_out)
        for name, some in tried.items()
    }


def _known_coefficients(noise: NoiseSchedule, times: Array, order: int) -> dict[str, Coefficients]:
    """Whole, also where the fit looks back at less than they do."""
    return {name: known(noise, times, max(order, 2)) for name, known in KNOWN_SOLVERS.items()}


def _chosen(errors: dict[str, Array]) -> str:
    """The fit, unless a known solver has a lower error on held-out noise."""
    best = min(errors, key=lambda name: float(errors[name].mean()))
    if best != "fitted":
        warnings.warn(
            f"on held-out noise the fit has error {errors['fitted'].mean():.4g} and {best} {errors[best].mean():.4g}: "
            f"the coefficients of {best} are returned; more trajectories may help",
            stacklevel=4,
        )
    return best


def _validation(errors: dict[str, Array], ships: str) -> dict[str, Any]:
    """What a file says of the held-out noise: mean errors, and what ships minus each of them, with its interval."""
    gaps = {name: bootstrap_mean(errors[ships] - errors[name]) for name in errors if name != ships}
    return {
        "walks": len(errors[ships]),
        "ships": ships,
        "rmse": {name: float(own.mean()) for name, own in errors.items()},
        "gap": {name: [gap.value, gap.low, gap.high] for name, gap in gaps.items()},
    }


def _check(
    model: Model, steps: int, schedule: StepSchedule | None, order: int, trajectories: int, held_out: int
) -> None:
    check_steps(steps, model.noise)
    check_order(order)
    if min(trajectories, held_out) < 2:
        raise ScheduleError(
            f"a fit needs at least 2 trajectories to learn from and 2 to validate on, got {trajectories} and {held_out}"
        )
    if schedule is not None:
        if len(schedule) != steps:
            raise ScheduleError(f"the schedule has {len(schedule)} steps, asked were {steps}; they must agree")
        schedule.check_fits(model.noise, model.name)


def _check_that_all_can_be_screened(
    model: Model, schedules: Sequence[StepSchedule], trajectories: int, held_out: int, budget_nfe: int
) -> None:
    steps = len(schedules[0])
    left = budget_nfe - _teacher_calls(model, trajectories, held_out) - _validation_calls(model, steps, held_out)
    if screening_size(len(schedules), steps, trajectories, model.calls, left) < FEWEST_SCREENED:
        raise ScheduleError(
            f"choosing among {len(schedules)} closed forms takes {FEWEST_SCREENED} trajectories and "
            f"{FEWEST_SCREENED * steps * len(schedules) * model.calls} network calls beside the fit, "
            f"there are {trajectories} trajectories and a budget of {budget_nfe}; allow more, or give a schedule"
        )
