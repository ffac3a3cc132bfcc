"""Fit how to step to teacher trajectories: choose where, fit stepwise, and refine, within so many network calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from torch import Tensor

from geosprint.fitted_solver import Coefficients, FittedSolver, known_coefficients
from geosprint.fitting.refinement import FEWEST_BLOCKS, Refined, fewest_slopes, judging_calls, refine, slopes_price
from geosprint.fitting.stepwise import StudentTrajectories, asking, stepwise_fit, student_trajectories
from geosprint.models.spread import Spread
from geosprint.schedule import StepSchedule
from geosprint.teacher import TeacherTrajectories

ORDER = 4
SCREENED = 16  # trajectories that a schedule is fitted to when some are to be chosen: eight are nearly enough
FEWEST_SCREENED = 8
SCREENING_SHARE = 0.45  # of what a fit and a round of refinement leave
FINALISTS = 8  # schedules that are fitted to all trajectories, as far as calls last: fewer cannot tell which is best
ENOUGH_SLOPES = 16  # trajectories behind the slopes of one that is refined beside others


@dataclass(frozen=True, eq=False)
class Trial:
    """A schedule that a fit is tried on, and what is added to the error of that fit when the best are chosen."""

    schedule: StepSchedule
    handicap: float = 0.0


@dataclass(frozen=True, eq=False)
class Fit:
    """A solver, and where it leads from the starts of the trajectories that it was fitted to."""

    solver: FittedSolver
    ends: Tensor  # (trajectories, *shape)


def fit_to_teacher(
    model: Spread, teacher: TeacherTrajectories, trials: Sequence[Trial], order: int, calls: int
) -> list[Fit]:
    """Fits on the best of these schedules, or of the first of them, as many as the calls can screen; best first."""
    last = model.nfe + calls
    fewest, spare = min(FEWEST_SCREENED, len(teacher)), spare_calls(model, teacher, trials, order, calls)
    for count in range(len(trials), 1, -1):
        screened = screening_size(model, teacher, trials[:count], spare)
        if screened >= fewest:
            trials = best_suited(model, teacher, trials[:count], order, screened)
            break
    else:
        trials = trials[:1]
    return best_fits(model, teacher, trials, order, last)


@dataclass(frozen=True, eq=False)
class _Start:
    """A schedule and the stepwise fit on it; of a guided model with the conditional prediction, if that is better."""

    schedule: StepSchedule
    asked: Spread
    fit: StudentTrajectories
    joint: Coefficients  # of a fit to the guided prediction alone, for who is not told the conditional one
    error: float  # with the trial's handicap

    def fitted(self, numbers: Coefficients, ends: Tensor) -> Fit:
        """The solver with these coefficients, which leads to these ends."""
        made = f"fitted on {self.schedule.provenance.get('method', 'a given schedule')}"
        schedule = replace(self.schedule, provenance={**self.schedule.provenance, "method": made})
        is_guided = len(self.fit.predicted[0]) == 2
        solver = FittedSolver(schedule, self.joint, numbers) if is_guided else FittedSolver(schedule, numbers)
        return Fit(solver, ends)

    def as_begun(self) -> Fit:
        """The stepwise fit itself."""
        return self.fitted(self.fit.coefficients, self.fit.ends)


def best_suited(
    model: Spread, teacher: TeacherTrajectories, trials: Sequence[Trial], order: int, screened: int
) -> list[Trial]:
    """The trials with the lowest error of a stepwise fit to so many trajectories, best first.

    Errors are those on the trajectories fitted to: they have so many more dimensions than a step has coefficients
    that all fits flatter alike, and twice as many trajectories tell more.
    """
    learnt_from = teacher.at(slice(0, screened))
    ask = asking(model, learnt_from.rows)

    def error(trial: Trial) -> float:
        fit = stepwise_fit(ask, learnt_from, trial.schedule.timesteps, order)
        return float(fit.errors(learnt_from).mean()) + trial.handicap

    errors = model.each([partial(error, trial) for trial in trials])
    return [trials[i] for i in np.argsort(errors, kind="stable")[:FINALISTS]]


def spare_calls(model: Spread, teacher: TeacherTrajectories, trials: Sequence[Trial], order: int, calls: int) -> int:
    """Beyond a fit to all trajectories and a round of refinement; without the latter, if they screen too little."""
    schedule = trials[0].schedule
    step = len(schedule) * model.calls
    left, screening = calls - len(teacher) * step * len(forms_of(model)), len(trials) * FEWEST_SCREENED * step
    refining = _refining(model, teacher, schedule, order)
    return max(left - refining if left >= refining + screening else left, 0)


def screening_size(model: Spread, teacher: TeacherTrajectories, trials: Sequence[Trial], spare: int) -> int:
    """To how many trajectories each schedule can be fitted with these calls, some of them left for better things."""
    each = len(trials[0].schedule) * len(trials) * model.calls
    affordable = max(int(SCREENING_SHARE * spare) // each, min(spare // each, FEWEST_SCREENED))
    return min(SCREENED, len(teacher), affordable)


def best_fits(model: Spread, teacher: TeacherTrajectories, trials: Sequence[Trial], order: int, last: int) -> list[Fit]:
    """Fit to all trajectories on each schedule, and refine the best as far as calls last; refined ones come first."""
    forms = forms_of(model)
    steps, refining = len(trials[0].schedule), _refining(model, teacher, trials[0].schedule, order)
    fitting = len(teacher) * steps * model.calls * len(forms)
    left = last - model.nfe
    some = trials[: max((left - refining if left >= fitting + refining else left) // fitting, 1)]
    begun = sorted((_start(forms, teacher, one, order) for one in some), key=lambda start: start.error)
    if last - model.nfe < refining:
        return [start.as_begun() for start in begun]
    walks = len(teacher) * steps * model.calls  # that show where what was refined leads
    enough = ENOUGH_SLOPES * slopes_price(begun[0].fit.coefficients) * model.calls + walks
    enough += judging_calls(model, teacher, steps)
    several = max(min((last - model.nfe) // enough, len(begun)), 1)  # rather one well than all poorly
    found: list[tuple[_Start, Refined]] = []
    for left, start in zip(range(several, 0, -1), begun, strict=False):
        calls = (last - model.nfe - several * walks) // left
        found.append((start, refine(start.asked, teacher, start.schedule.timesteps, start.fit, calls)))
    found.sort(key=lambda one: one[1].error)
    refined = [start.fitted(best.coefficients, _ends(start, teacher, best.coefficients)) for start, best in found]
    return refined + [start.as_begun() for start in begun[several:]]


def forms_of(model: Spread) -> list[Spread]:
    """What a fit can learn from: the guided prediction, and that with the conditional one beside it, if it is told."""
    both = model.with_conditional()
    return [model] if model.calls == 1 or both is model else [model, both]


def _start(forms: Sequence[Spread], teacher: TeacherTrajectories, trial: Trial, order: int) -> _Start:
    """The better of the stepwise fits, and the coefficients of the first."""
    times = trial.schedule.timesteps
    fits = [stepwise_fit(asking(asked, teacher.rows), teacher, times, order) for asked in forms]
    errors = [float(fit.errors(teacher).mean()) for fit in fits]
    best = int(np.argmin(errors))
    return _Start(trial.schedule, forms[best], fits[best], fits[0].coefficients, errors[best] + trial.handicap)


def _ends(start: _Start, teacher: TeacherTrajectories, numbers: Coefficients) -> Tensor:
    """Where these coefficients lead."""
    ask = asking(start.asked, teacher.rows)
    return student_trajectories(ask, teacher.starts, start.schedule.timesteps, numbers).ends


def _refining(model: Spread, teacher: TeacherTrajectories, schedule: StepSchedule, order: int) -> int:
    """Network calls of the cheapest round of refinement."""
    alike = known_coefficients("dpmpp-2m", model.noise, schedule.timesteps, order)
    predictions = fewest_slopes(len(teacher)) * slopes_price(alike, FEWEST_BLOCKS) + len(teacher) * len(schedule)
    return predictions * model.calls + judging_calls(model, teacher, len(schedule))
