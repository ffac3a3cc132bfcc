"""What one number of steps could be: fits on proposed schedules, schedules for a kept solver, and what is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, zip_longest

import numpy as np

from geosprint.baselines import closed_forms, closed_forms_begun_late
from geosprint.fitted_solver import MOST_PREDICTIONS, FittedSolver, known_coefficients
from geosprint.fitting.fit import Fit, Lesson, fit_to_teacher
from geosprint.noise import Array
from geosprint.runs.team import this_team
from geosprint.schedule import StepSchedule, known_times
from geosprint.solvers import solver_named
from geosprint.tuned import FITTED
from geosprint.tuning.descent import PredictedError, descended
from geosprint.tuning.problem import Contender, TuningProblem, walk_price
from geosprint.tuning.search import ScheduleSearch, SearchResult
from geosprint.tuning.starts import starts_of
from geosprint.tuning.surrogate import Surrogate
from geosprint.tuning.surrogate_fits import SurrogateFits
from geosprint.tuning.wish import Wish

KNOWN_SOLVERS = ("ddim", "dpmpp-2m", "unipc")
"""What a fitted solver is compared with: they can be written in its form."""


@dataclass(frozen=True, eq=False)
class Found:
    """Schedules for one number of steps, and what was learnt about their errors."""

    finalists: list[StepSchedule]  # best first
    predictor: PredictedError


def contenders(problem: TuningProblem, wish: Wish, steps: int, calls: int) -> tuple[list[Contender], list[Contender]]:
    """What may be returned for this number of steps, found with so many calls; and what is known, best first."""
    solver, config, last = wish.solver, problem.config, problem.model.nfe + calls
    if solver != FITTED:
        yours = wish.yours(steps)
        found = schedules_found(problem, solver, steps, calls, {"yours": yours.timesteps} if yours else {})
        ours = [Contender(str(one.provenance["method"]), one, solver) for one in found.finalists[: config.finalists]]
        return ours, known_contenders(problem, found.predictor, steps, (solver,))
    moved_times = 0 if wish.schedules else config.fit.moved_times
    lesson = Lesson(problem.model, problem.undecided, replace(config.fit, order=wish.order, moved_times=moved_times))
    proposed = best_predicted(problem, wish.schedules) if wish.schedules else schedules_proposed(problem, steps)
    fits = fit_to_teacher(lesson, proposed, last - problem.model.nfe)
    ours = [
        Contender(str(fit.solver.schedule.provenance["method"]), fit.solver, FITTED, errors_learnt(problem, fit))
        for fit in fits
    ]
    predictor = plain_predictor(problem, config.joint_solver)
    return ours, known_contenders(problem, predictor, steps, KNOWN_SOLVERS)


def errors_learnt(problem: TuningProblem, fit: Fit) -> Array:
    """On what it was fitted to."""
    return problem.measure.errors(fit.ends, problem.undecided.ends)


def schedules_proposed(problem: TuningProblem, steps: int) -> list[StepSchedule]:
    """What a fit is tried on: starts that are predicted to suit it, and where descents of these lead, without a call.

    They come in the order in which they are tried as long as calls last: one of each start, then a second, and so on.
    """
    config, starts = problem.config, starts_of(problem.evidence, steps)
    predictors = {
        "a fit": (fit_predictor(problem), config.fit_starts, config.moved_starts),
        "a refined fit": (fit_predictor(problem, refined=True), config.other_starts, config.moved_starts // 2),
    }
    if steps >= config.joint_from:
        joint = plain_predictor(problem, config.joint_solver)
        predictors[config.joint_solver] = (joint, config.other_starts, config.moved_starts)
    radii = config.radii if config.moved_starts else ()
    always = [name for name in config.always_tried if name in starts]
    families, begun = {name: [(name, starts[name])] for name in always}, list[tuple[str, str, PredictedError, float]]()
    for aim, (predictor, count, moved) in predictors.items():
        order = _best_predicted_first(predictor, starts)
        families |= {name: [(name, starts[name])] for name in order[:count]}
        begun += [
            (name, f"{name}, moved by up to {radius:g} for {aim}", predictor, radius)
            for name in dict.fromkeys([*order[:moved], *always])
            for radius in radii
        ]
    grown = this_team().each([partial(descended, one, starts[name], radius) for name, _, one, radius in begun])
    for (name, method, *_), times in zip(begun, grown, strict=True):
        families[name].append((method, known_times(times, problem.model.noise)))
    each = [
        best_predicted(problem, [problem.schedule(times, name) for name, times in own]) for own in families.values()
    ]
    return distinct([*chain(*each[: len(always)]), *in_turns(each[len(always) :])])


def in_turns(families: Sequence[Sequence[StepSchedule]]) -> list[StepSchedule]:
    """The first of each, then the second of each that has one, and so on."""
    return [one for turn in zip_longest(*families) for one in turn if one is not None]


def distinct(schedules: Sequence[StepSchedule]) -> list[StepSchedule]:
    """Each under its first name."""
    found = dict[bytes, StepSchedule]()
    for one in schedules:
        found.setdefault(one.timesteps.tobytes(), one)
    return list(found.values())


def best_predicted(problem: TuningProblem, schedules: Sequence[StepSchedule]) -> list[StepSchedule]:
    """First, by what is predicted for a fit."""
    errors = fit_predictor(problem).tempered_each([one.timesteps for one in schedules])
    return [schedules[i] for i in np.argsort(errors, kind="stable")]


def schedules_found(
    problem: TuningProblem, solver: str, steps: int, calls: int, named: dict[str, Array] | None = None
) -> Found:
    """By a search on the network, or, where calls are too few for one, by the surrogate alone."""
    price = walk_price(problem.model, steps, solver)
    if calls < problem.config.evaluations * problem.config.teacher.fewest * price:
        return _predicted(problem, solver, steps, named or {})
    found = search(problem, solver, steps, calls, named)
    best = {"tuned": found.best, "tuned, full-range variant": found.variant}
    best[found.best_start.name] = found.best_start.evaluation
    return Found(distinct([problem.schedule(one.times, name) for name, one in best.items()]), found.predictor)


def search(
    problem: TuningProblem, solver: str, steps: int, calls: int, named: dict[str, Array] | None = None
) -> SearchResult:
    """The search on the network, from all starts and those named."""
    price = walk_price(problem.model, steps, solver)
    count = max(int(calls / (problem.config.evaluations * price)), problem.config.teacher.fewest)
    evaluator = problem.evaluator(solver, problem.teacher.for_search.at(slice(0, count)))
    starts = {**starts_of(problem.evidence, steps), **(named or {})}
    return ScheduleSearch(evaluator, problem.projection, price, calls).best_of(starts)


def _predicted(problem: TuningProblem, solver: str, steps: int, named: dict[str, Array]) -> Found:
    """The best starts by their predicted error, and where a descent of it leads from them."""
    config, noise, predictor = problem.config, problem.model.noise, plain_predictor(problem, solver)
    starts = {**closed_forms(noise, steps), **closed_forms_begun_late(noise, steps), **named}
    order = _best_predicted_first(predictor, starts)
    best = order[: config.fewest_starts]
    grown = this_team().each([partial(descended, predictor, starts[name], config.largest_radius) for name in best])
    first = min((known_times(times, noise) for times in grown), key=predictor.tempered)
    found = {"tuned": first, best[0]: starts[best[0]]}
    return Found(distinct([problem.schedule(times, name) for name, times in found.items()]), predictor)


def plain_predictor(problem: TuningProblem, solver: str) -> PredictedError:
    """What the surrogate predicts before anything was evaluated."""
    parts, config = problem.projection, problem.config
    return PredictedError(
        Surrogate(parts.trajectories, parts.response, solver_named(solver), config), parts.measure, config=config
    )


def fit_predictor(problem: TuningProblem, refined: bool = False) -> PredictedError:
    """What the surrogate predicts for fits on its own predictions, stepwise or refined on the end."""
    parts, config = problem.projection, problem.config
    given = (parts.trajectories, parts.response, solver_named(config.joint_solver), config)
    return PredictedError(SurrogateFits(*given, refined=refined), parts.measure, config=config)


def known_contenders(
    problem: TuningProblem, predictor: PredictedError, steps: int, solvers: tuple[str, ...]
) -> list[Contender]:
    """Known solvers on every closed form, best predicted first; several of them in the form of a fitted one."""
    noise, found = problem.model.noise, list[tuple[float, Contender]]()
    for solver in solvers:
        plain = replace(predictor, surrogate=replace(predictor.surrogate, solver=solver_named(solver)), correction=None)
        forms = closed_forms(noise, steps)
        for (form, times), error in zip(forms.items(), plain.tempered_each(list(forms.values())), strict=True):
            if len(solvers) == 1:
                known = Contender(form, problem.schedule(times, form), solver)
            else:
                schedule = problem.schedule(times, f"{solver}, {form}")
                numbers = known_coefficients(solver, noise, times, MOST_PREDICTIONS)
                known = Contender(f"{solver}, {form}", FittedSolver(schedule, numbers), FITTED)
            found.append((error, known))
    return [one for _, one in sorted(found, key=lambda pair: (pair[0], pair[1].name))]


def _best_predicted_first(predictor: PredictedError, named: dict[str, Array]) -> list[str]:
    errors = dict(zip(named, predictor.tempered_each(list(named.values())), strict=True))
    return sorted(named, key=errors.__getitem__)
