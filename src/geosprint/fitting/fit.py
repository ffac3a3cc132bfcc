"""Fit how to step to teacher trajectories: choose where, fit stepwise, and refine, within so many network calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from torch import Tensor

from geosprint.estimates import tempered_mean
from geosprint.fitted_solver import Coefficients, FittedSolver, known_coefficients
from geosprint.fitting.refinement import (
    BLOCKS,
    ENOUGH,
    FEWEST,
    FEWEST_BLOCKS,
    Refined,
    judging_calls,
    refine,
    slopes_price,
)
from geosprint.fitting.stepwise import asking, stepwise_fit
from geosprint.models.spread import Spread
from geosprint.schedule import StepSchedule
from geosprint.teacher import TeacherTrajectories

ORDER = 4
SCREENED = 16  # trajectories that a schedule is fitted to when some are to be chosen: eight are nearly enough
FEWEST_SCREENED = 8
SCREENING_SHARE = 0.45  # of what a fit and a round of refinement leave
FINALISTS = 8  # schedules that are fitted to all trajectories, as far as calls last: fewer cannot tell which is best
FEWEST_FINALISTS = 3  # of them at least, or refining the best with enough slopes is not worth it
HEATS = 3  # of them are refined a little before the best is refined with all calls that are left, if these last
SLOPES_IN_A_HEAT = 16  # trajectories behind the slopes
FLATTERY = 0.04  # share by which the error of a stepwise fit is lower on what it was fitted to than on other noise


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
    model: Spread,
    teacher: TeacherTrajectories,
    trials: Sequence[Trial],
    order: int,
    calls: int,
    times_move: bool = False,
) -> list[Fit]:
    """Fits on the best of these schedules, or of the first of them, as many as the calls can screen; best first.

    Times may move with the coefficients, unless there is a fallback for who is not told the conditional prediction.
    """
    last = model.nfe + calls
    times_move = times_move and len(forms_of(model)) == 1
    fewest, spare = min(FEWEST_SCREENED, len(teacher)), spare_calls(model, teacher, trials, order, calls, times_move)
    for count in range(len(trials), 1, -1):
        screened = screening_size(model, teacher, trials[:count], spare)
        if screened >= fewest:
            trials = best_suited(model, teacher, trials[:count], order, screened)
            break
    else:
        trials = trials[:1]
    return best_fits(model, teacher, trials, order, last, times_move)


@dataclass(frozen=True, eq=False)
class _Start:
    """A schedule and the fit on it; of a guided model with the conditional prediction, if that is better."""

    trial: Trial
    asked: Spread
    found: Refined  # to begin with, the stepwise fit itself
    joint: Coefficients  # of a fit to the guided prediction alone, for who is not told the conditional one

    @property
    def error(self) -> float:
        """As it is expected on other trajectories, with the handicap."""
        return self.found.error + self.trial.handicap

    def refined(self, teacher: TeacherTrajectories, calls: int, times_move: bool) -> _Start:
        """With at most so many network calls."""
        return replace(self, found=refine(self.asked, teacher, self.found, calls, times_move))

    @property
    def fitted(self) -> Fit:
        """The solver, and where it leads."""
        student, begun = self.found.student, self.trial.schedule
        made = f"fitted on {begun.provenance.get('method', 'a given schedule')}"
        provenance = {**begun.provenance, "method": made}
        if np.array_equal(student.times, begun.timesteps):
            schedule = replace(begun, provenance=provenance)
        else:
            schedule = StepSchedule.at(student.times, self.asked.noise, provenance)
        is_guided = len(student.predicted[0]) == 2
        numbers = (self.joint, student.coefficients) if is_guided else (student.coefficients,)
        return Fit(FittedSolver(schedule, *numbers), student.ends)


def best_suited(
    model: Spread, teacher: TeacherTrajectories, trials: Sequence[Trial], order: int, screened: int
) -> list[Trial]:
    """Those with the lowest error of a stepwise fit to so many trajectories, best first.

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


def spare_calls(
    model: Spread,
    teacher: TeacherTrajectories,
    trials: Sequence[Trial],
    order: int,
    calls: int,
    times_move: bool = False,
) -> int:
    """Beyond a fit to all trajectories and a round of refinement; without the latter, if they screen too little."""
    step = len(trials[0].schedule) * model.calls
    left, screening = calls - len(teacher) * step * len(forms_of(model)), len(trials) * FEWEST_SCREENED * step
    refining = refining_calls(model, teacher, trials[0].schedule, order, times_move)
    return max(left - refining if left >= refining + screening else left, 0)


def screening_size(model: Spread, teacher: TeacherTrajectories, trials: Sequence[Trial], spare: int) -> int:
    """To how many trajectories each schedule can be fitted with these calls, some of them left for better things."""
    each = len(trials[0].schedule) * len(trials) * model.calls
    affordable = max(int(SCREENING_SHARE * spare) // each, min(spare // each, FEWEST_SCREENED))
    return min(SCREENED, len(teacher), affordable)


def best_fits(
    model: Spread,
    teacher: TeacherTrajectories,
    trials: Sequence[Trial],
    order: int,
    last: int,
    times_move: bool = False,
) -> list[Fit]:
    """Fit to all trajectories on each schedule, and refine the best as far as calls last; refined ones come first."""
    forms = forms_of(model)
    steps, refining = len(trials[0].schedule), refining_calls(model, teacher, trials[0].schedule, order, times_move)
    fitting = len(teacher) * steps * model.calls * len(forms)
    left, well = last - model.nfe, refining_calls(model, teacher, trials[0].schedule, order, times_move, BLOCKS, ENOUGH)
    affordable = (left - refining if left >= fitting + refining else left) // fitting
    beside_a_good_one = (left - well) // fitting
    count = min(affordable, beside_a_good_one) if beside_a_good_one >= FEWEST_FINALISTS else affordable
    begun = sorted((_start(forms, teacher, one, order) for one in trials[: max(count, 1)]), key=_error)
    a_little, in_full = (
        refining_calls(model, teacher, trials[0].schedule, order, times_move, slopes=some)
        for some in (SLOPES_IN_A_HEAT, len(teacher))
    )
    heats = min((last - model.nfe - in_full) // a_little, HEATS, len(begun))
    if heats > 1:
        begun[:heats] = sorted((one.refined(teacher, a_little, times_move) for one in begun[:heats]), key=_error)
    refined = [one.refined(teacher, last - model.nfe, times_move) for one in begun]  # the first as long as it gains
    return [one.fitted for one in sorted(refined, key=_error)]


def _error(start: _Start) -> float:
    return start.error


def forms_of(model: Spread) -> list[Spread]:
    """What a fit can learn from: the guided prediction, and that with the conditional one beside it, if it is told."""
    both = model.with_conditional()
    return [model] if model.calls == 1 or both is model else [model, both]


def _start(forms: Sequence[Spread], teacher: TeacherTrajectories, trial: Trial, order: int) -> _Start:
    """The better of the stepwise fits, and the coefficients of the first."""
    times = trial.schedule.timesteps
    fits = [stepwise_fit(asking(asked, teacher.rows), teacher, times, order) for asked in forms]
    errors = [fit.errors(teacher) for fit in fits]
    begun = [Refined(fit, own, FLATTERY * tempered_mean(own)) for fit, own in zip(fits, errors, strict=True)]
    best = min(range(len(forms)), key=lambda i: begun[i].error)
    return _Start(trial, forms[best], begun[best], fits[0].coefficients)


def refining_calls(
    model: Spread,
    teacher: TeacherTrajectories,
    schedule: StepSchedule,
    order: int,
    times_move: bool = False,
    parts: int = FEWEST_BLOCKS,
    slopes: int = FEWEST,
) -> int:
    """Network calls of a round of refinement; of the cheapest, unless more blocks or trajectories are named."""
    alike = known_coefficients("dpmpp-2m", model.noise, schedule.timesteps, order)
    predictions = min(slopes, max(len(teacher), FEWEST)) * slopes_price(alike, parts, times_move)
    return predictions * model.calls + judging_calls(model, teacher, len(schedule), times_move)
