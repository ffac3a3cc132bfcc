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


@dataclass(frozen=True, eq=False)
class Lesson:
    """What fits learn from, and what they may change: so many earlier predictions a step, and when to ask."""

    model: Spread
    teacher: TeacherTrajectories
    order: int = ORDER
    times_move: bool = False

    @property
    def forms(self) -> list[Spread]:
        """What predictions a fit can learn to use."""
        return forms_of(self.model)

    def fitting_calls(self, steps: int) -> int:
        """Network calls of a stepwise fit to all trajectories, in each form."""
        return len(self.teacher) * steps * self.model.calls * len(self.forms)

    def refining_calls(self, schedule: StepSchedule, parts: int = FEWEST_BLOCKS, slopes: int = FEWEST) -> int:
        """Of a round of refinement; of the cheapest, unless more blocks or trajectories are named."""
        alike = known_coefficients("dpmpp-2m", self.model.noise, schedule.timesteps, self.order)
        predictions = min(slopes, max(len(self.teacher), FEWEST)) * slopes_price(alike, parts, self.times_move)
        judging = judging_calls(self.model, self.teacher, len(schedule), self.times_move)
        return predictions * self.model.calls + judging


def fit_to_teacher(lesson: Lesson, trials: Sequence[Trial], calls: int) -> list[Fit]:
    """Fits on the best of these schedules, or of the first of them, as many as the calls can screen; best first.

    Times may move with the coefficients, unless there is a fallback for who is not told the conditional prediction.
    """
    last = lesson.model.nfe + calls
    lesson = replace(lesson, times_move=lesson.times_move and len(lesson.forms) == 1)
    fewest, spare = min(FEWEST_SCREENED, len(lesson.teacher)), spare_calls(lesson, trials, calls)
    for count in range(len(trials), 1, -1):
        screened = screening_size(lesson, trials[:count], spare)
        if screened >= fewest:
            trials = best_suited(lesson, trials[:count], screened)
            break
    else:
        trials = trials[:1]
    return best_fits(lesson, trials, last)


@dataclass(frozen=True, eq=False)
class _Tried:
    """A schedule and the fit on it; of a guided model with the conditional prediction, if that is better."""

    trial: Trial
    asked: Spread
    found: Refined  # to begin with, the stepwise fit itself
    joint: Coefficients  # of a fit to the guided prediction alone, for who is not told the conditional one

    @property
    def error(self) -> float:
        """As it is expected on other trajectories, with the handicap."""
        return self.found.error + self.trial.handicap

    def refined(self, lesson: Lesson, calls: int) -> _Tried:
        """With at most so many network calls."""
        return replace(self, found=refine(self.asked, lesson.teacher, self.found, calls, lesson.times_move))

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


def best_suited(lesson: Lesson, trials: Sequence[Trial], screened: int) -> list[Trial]:
    """Those with the lowest error of a stepwise fit to so many trajectories, best first.

    Errors are those on the trajectories fitted to: they have so many more dimensions than a step has coefficients
    that all fits flatter alike, and twice as many trajectories tell more.
    """
    learnt_from = lesson.teacher.at(slice(0, screened))
    ask = asking(lesson.model, learnt_from.rows)

    def error(trial: Trial) -> float:
        fit = stepwise_fit(ask, learnt_from, trial.schedule.timesteps, lesson.order)
        return float(fit.errors(learnt_from).mean()) + trial.handicap

    errors = lesson.model.each([partial(error, trial) for trial in trials])
    return [trials[i] for i in np.argsort(errors, kind="stable")[:FINALISTS]]


def spare_calls(lesson: Lesson, trials: Sequence[Trial], calls: int) -> int:
    """Beyond a fit to all trajectories and a round of refinement; without the latter, if they screen too little."""
    steps, refining = len(trials[0].schedule), lesson.refining_calls(trials[0].schedule)
    left = calls - lesson.fitting_calls(steps)
    screening = len(trials) * FEWEST_SCREENED * steps * lesson.model.calls
    return max(left - refining if left >= refining + screening else left, 0)


def screening_size(lesson: Lesson, trials: Sequence[Trial], spare: int) -> int:
    """To how many trajectories each schedule can be fitted with these calls, some of them left for better things."""
    each = len(trials[0].schedule) * len(trials) * lesson.model.calls
    affordable = max(int(SCREENING_SHARE * spare) // each, min(spare // each, FEWEST_SCREENED))
    return min(SCREENED, len(lesson.teacher), affordable)


def best_fits(lesson: Lesson, trials: Sequence[Trial], last: int) -> list[Fit]:
    """Fit to all trajectories on each schedule, and refine the best as far as calls last; refined ones come first."""
    model, schedule = lesson.model, trials[0].schedule
    count = worth_fitting(lesson, schedule, last - model.nfe)
    tried = sorted((_tried(lesson, one) for one in trials[:count]), key=_error)
    in_full = lesson.refining_calls(schedule, slopes=len(lesson.teacher))
    a_little = lesson.refining_calls(schedule, slopes=SLOPES_IN_A_HEAT)
    heats = min((last - model.nfe - in_full) // a_little, HEATS, len(tried))
    if heats > 1:
        tried[:heats] = sorted((one.refined(lesson, a_little) for one in tried[:heats]), key=_error)
    refined = [one.refined(lesson, last - model.nfe) for one in tried]  # the first as long as it gains
    return [one.fitted for one in sorted(refined, key=_error)]


def worth_fitting(lesson: Lesson, schedule: StepSchedule, calls: int) -> int:
    """On how many schedules like this one: as many as leave calls for a good refinement, or for the cheapest."""
    fitting, refining = lesson.fitting_calls(len(schedule)), lesson.refining_calls(schedule)
    affordable = (calls - refining if calls >= fitting + refining else calls) // fitting
    beside_a_good_one = (calls - lesson.refining_calls(schedule, BLOCKS, ENOUGH)) // fitting
    count = min(affordable, beside_a_good_one) if beside_a_good_one >= FEWEST_FINALISTS else affordable
    return max(count, 1)


def _error(tried: _Tried) -> float:
    return tried.error


def forms_of(model: Spread) -> list[Spread]:
    """What a fit can learn from: the guided prediction, and that with the conditional one beside it, if it is told."""
    both = model.with_conditional()
    return [model] if model.calls == 1 or both is model else [model, both]


def _tried(lesson: Lesson, trial: Trial) -> _Tried:
    """The better of the stepwise fits, and the coefficients of the first."""
    teacher, forms = lesson.teacher, lesson.forms
    fits = [stepwise_fit(asking(one, teacher.rows), teacher, trial.schedule.timesteps, lesson.order) for one in forms]
    errors = [fit.errors(teacher) for fit in fits]
    found = [Refined(fit, own, FLATTERY * tempered_mean(own)) for fit, own in zip(fits, errors, strict=True)]
    best = min(range(len(forms)), key=lambda i: found[i].error)
    return _Tried(trial, forms[best], found[best], fits[0].coefficients)
