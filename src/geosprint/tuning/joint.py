"""Where to step and how to step, on the same teacher: a search for a known solver, and fits on what it found."""

from __future__ import annotations

import math

from geosprint.fitted_solver import FittedSolver
from geosprint.fitting.fit import ORDER, calls_to_fit, fit_to_teacher
from geosprint.models.base import Model
from geosprint.schedule import StepSchedule
from geosprint.tuning.config import DEFAULT, TuneConfig
from geosprint.tuning.schedules import Array, TuningProblem, least_budget, search
from geosprint.tuning.search import SearchResult, best_of_each_start


def tune_solver(problem: TuningProblem, steps: int) -> FittedSolver:
    """A solver fitted where a search for DPM++ 2M led, or on another schedule whose fit is better."""
    model, teacher, config = problem.model, problem.teacher, problem.config
    begun = model.nfe
    found = search(problem, steps, int(config.joint_share * problem.budget) - teacher.nfe)
    schedules = schedules_worth_a_fit(found, problem.closed_forms(steps), config)
    affordable = int((1 - config.joint_share) * problem.budget / (_calls_to_fit(model, steps, 30, config) / 30))
    learning = min(len(teacher.for_search), affordable)
    held_out = teacher.for_validation.at(slice(0, _held_out(learning, config)))
    learnt_from = teacher.for_search.at(slice(0, learning))
    spent = teacher.nfe + model.nfe - begun
    return fit_to_teacher(model, learnt_from, held_out, schedules, ORDER, teacher.seed, spent, problem.budget)


def schedules_worth_a_fit(
    found: SearchResult, forms: dict[str, Array], config: TuneConfig = DEFAULT
) -> list[StepSchedule]:
    """What was found and its full-range variant, the best other candidates and the closed forms, best first, once."""
    others = best_of_each_start(found.candidates)[: config.joint_candidates]
    predicted = sorted(forms, key=lambda name: found.predictor.tempered(forms[name]))
    named = {
        "tuned": found.best.times,
        "tuned, full-range variant": found.variant.times,
        **{f"{one.name}, halved": one.evaluation.times for one in others},
        **{name: forms[name] for name in predicted},
    }
    noise, schedules = found.predictor.surrogate.trajectories.noise, dict[bytes, StepSchedule]()
    for name, times in named.items():
        schedules.setdefault(times.tobytes(), StepSchedule.at(times, noise, {"method": name}))
    return list(schedules.values())


def least_joint_budget(model: Model, steps: int, config: TuneConfig = DEFAULT) -> int:
    """Calls that pay for tuning, and for a fit to the fewest trajectories."""
    tuning = least_budget(model, steps, config.joint_solver, config) / config.joint_share
    fitting = _calls_to_fit(model, steps, config.teacher.fewest, config) / (1 - config.joint_share)
    return math.ceil(max(tuning, fitting))


def _calls_to_fit(model: Model, steps: int, trajectories: int, config: TuneConfig) -> int:
    return calls_to_fit(model, steps, trajectories, _held_out(trajectories, config))


def _held_out(trajectories: int, config: TuneConfig) -> int:
    return round(config.joint_held_out * trajectories)
