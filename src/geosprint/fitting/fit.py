"""Fit how to step to teacher trajectories: choose where, fit stepwise, and refine, within so many network calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from torch import Tensor

from geosprint.estimates import tempered_mean
from geosprint.fitted_solver import Coefficients, FittedSolver
from geosprint.fitting.config import FitConfig
from geosprint.fitting.refinement import Refined, judging_calls, refine, slopes_price
from geosprint.fitting.stepwise import asking, stepwise_fit
from geosprint.models.spread import Spread
from geosprint.schedule import StepSchedule
from geosprint.teacher import TeacherTrajectories


@dataclass(frozen=True, eq=False)
class Fit:
    """A solver, and where it leads from the starts of the trajectories that it was fitted to."""

    solver: FittedSolver
    ends: Tensor  # (trajectories, *shape)


@dataclass(frozen=True, eq=False)
class Lesson:
    """What fits learn from, and how."""

    model: Spread
    teacher: TeacherTrajectories
    config: FitConfig = field(default_factory=FitConfig)

    @property
    def forms(self) -> list[Spread]:
        """What predictions a fit can learn to use."""
        return forms_of(self.model)

    def fitting_calls(self, steps: int) -> int:
        """Network calls of a stepwise fit to all trajectories, in each form."""
        return len(self.teacher) * steps * self.model.calls * len(self.forms)

    def refining_calls(self, steps: int, slopes: int) -> int:
        """Of a round of refinement along the fewest directions, with slopes of so many trajectories."""
        config = self.config
        if not config.rounds:
            return 0
        price = slopes_price(steps, config.fewest_directions, config)
        predictions = min(slopes, max(len(self.teacher), config.fewest_slopes)) * price
        return predictions * self.model.calls + judging_calls(self.model, self.teacher, steps, config)


def fit_to_teacher(lesson: Lesson, schedules: Sequence[StepSchedule], calls: int) -> list[Fit]:
    """Fits on the best of these schedules, or of the first of them, as many as the calls can screen; best first.

    Times may move with the coefficients, unless there is a fallback for who is not told the conditional prediction.
    """
    last = lesson.model.nfe + calls
    if len(lesson.forms) > 1:
        lesson = replace(lesson, config=replace(lesson.config, moved_times=0))
    count = min(worth_screening(lesson, len(schedules[0]), calls), len(schedules))
    screened = best_suited(lesson, schedules[:count], lesson.config.screened_on) if count > 1 else schedules[:1]
    return best_fits(lesson, screened, last)


@dataclass(frozen=True, eq=False)
class _Tried:
    """A schedule and the fit on it; of a guided model with the conditional prediction, if that is better."""

    schedule: StepSchedule
    asked: Spread
    found: Refined  # to begin with, the stepwise fit itself
    joint: Coefficients  # of a fit to the guided prediction alone, for who is not told the conditional one

    @property
    def error(self) -> float:
        """As it is expected on other trajectories."""
        return self.found.error

    def refined(self, lesson: Lesson, calls: int) -> _Tried:
        """With at most so many network calls."""
        return replace(self, found=refine(self.asked, lesson.teacher, self.found, calls, lesson.config))

    @property
    def fitted(self) -> Fit:
        """The solver, and where it leads."""
        student, begun = self.found.student, self.schedule
        made = f"fitted on {begun.provenance.get('method', 'a given schedule')}"
        provenance = {**begun.provenance, "method": made}
        if np.array_equal(student.times, begun.timesteps):
            schedule = replace(begun, provenance=provenance)
        else:
            schedule = StepSchedule.at(student.times, self.asked.noise, provenance)
        is_guided = len(student.predicted[0]) == 2
        numbers = (self.joint, student.coefficients) if is_guided else (student.coefficients,)
        return Fit(FittedSolver(schedule, *numbers), student.ends)


def best_suited(lesson: Lesson, schedules: Sequence[StepSchedule], screened: int) -> list[StepSchedule]:
    """By the error of a stepwise fit to the first so many trajectories, best first.

    Errors are those on the trajectories fitted to: they have so many more dimensions than a step has coefficients
    that all fits flatter alike, and twice as many trajectories tell more.
    """
    learnt_from = lesson.teacher.at(slice(0, screened))
    ask = asking(lesson.model, learnt_from.rows)

    def error(schedule: StepSchedule) -> float:
        fit = stepwise_fit(ask, learnt_from, schedule.timesteps, lesson.config)
        return float(fit.errors(learnt_from).mean())

    errors = lesson.model.each([partial(error, one) for one in schedules])
    return [schedules[i] for i in np.argsort(errors, kind="stable")]


def worth_screening(lesson: Lesson, steps: int, calls: int) -> int:
    """How many schedules calls last for beside a fit to all trajectories and a round of refinement on all of them."""
    each = min(lesson.config.screened_on, len(lesson.teacher)) * steps * lesson.model.calls
    left = calls - lesson.fitting_calls(steps)
    beside_refinement = (left - lesson.refining_calls(steps, len(lesson.teacher))) // each
    enough = beside_refinement >= lesson.config.fewest_screened
    return max(beside_refinement if enough else left // each, 0)


def best_fits(lesson: Lesson, schedules: Sequence[StepSchedule], last: int) -> list[Fit]:
    """Fit to all trajectories on each schedule, and refine the best as far as calls last; refined ones come first."""
    model, config, steps = lesson.model, lesson.config, len(schedules[0])
    count = worth_fitting(lesson, steps, last - model.nfe)
    tried = sorted((_tried(lesson, one) for one in schedules[:count]), key=_error)
    in_full, a_little = (lesson.refining_calls(steps, slopes) for slopes in (len(lesson.teacher), config.first_slopes))
    first = min((last - model.nfe - in_full) // max(a_little, 1), config.refined_first, len(tried))
    if first > 1:
        tried[:first] = sorted((one.refined(lesson, a_little) for one in tried[:first]), key=_error)
    refined = [one.refined(lesson, last - model.nfe) for one in tried]  # the first as long as it gains
    return [one.fitted for one in sorted(refined, key=_error)]


def worth_fitting(lesson: Lesson, steps: int, calls: int) -> int:
    """On how many schedules: as many as leave calls for a good refinement, or for the cheapest, or for none.

    Of many steps on a few at least, as long as the cheapest can be paid: which samples land in another mode differs.
    """
    config, fitting = lesson.config, lesson.fitting_calls(steps)
    good, cheapest = (lesson.refining_calls(steps, count) for count in (len(lesson.teacher), config.fewest_slopes))
    beside = [(calls - refining) // fitting for refining in (good, cheapest, 0)]
    count = next((count for count in beside if count >= 1), 1)
    if steps >= config.many_steps:
        count = max(count, min(beside[1], config.fewest_finalists))
    return min(count, config.finalists)


def _error(tried: _Tried) -> float:
    return tried.error


def forms_of(model: Spread) -> list[Spread]:
    """What a fit can learn from: the guided prediction, and that with the conditional one beside it, if it is told."""
    both = model.with_conditional()
    return [model] if model.calls == 1 or both is model else [model, both]


def _tried(lesson: Lesson, schedule: StepSchedule) -> _Tried:
    """The better of the stepwise fits, and the coefficients of the first."""
    teacher, forms, config = lesson.teacher, lesson.forms, lesson.config
    fits = [stepwise_fit(asking(one, teacher.rows), teacher, schedule.timesteps, config) for one in forms]
    errors = [fit.errors(teacher) for fit in fits]
    found = [Refined(fit, own, config.flattery * tempered_mean(own)) for fit, own in zip(fits, errors, strict=True)]
    best = min(range(len(forms)), key=lambda i: found[i].error)
    return _Tried(schedule, forms[best], found[best], fits[0].coefficients)
