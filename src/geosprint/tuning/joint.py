"""Where to step and how to step, on the same fine walks: a search for a known solver, and fits on what it found."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from geosprint.call_cache import caching_calls
from geosprint.errors import ScheduleError
from geosprint.fitted_solver import FittedSolver
from geosprint.fitting.fit import ORDER, Shown, calls_to_fit, fit_to_teacher
from geosprint.models.base import Model
from geosprint.noise import NoiseSchedule
from geosprint.runs.progress import Bar
from geosprint.sampling import BATCH, Counted
from geosprint.schedule import StepSchedule, check_steps
from geosprint.tuning.descent import Foretold
from geosprint.tuning.run import BUDGET, FEWEST_WALKS, TeacherSets, least_budget, prepared, searched
from geosprint.tuning.search import Found, best_of_each_start

Array = NDArray[np.float64]

FITTED = "fitted"
TUNED_FOR = "dpmpp-2m"  # the known solver that a fitted one is most like
TUNING = 0.5  # share of the budget for fine walks and the search
RACED = 4  # racers that a fit is tried on too, beside all closed forms
UNSEEN = 2 / 3  # judges of a fit, for each walk that it learns from


def tune_and_fit(
    model: Model,
    steps: int,
    budget_nfe: int = BUDGET,
    seed: int = 0,
    batch: int = BATCH,
    progress: bool = False,
    work: Path | None = None,
) -> FittedSolver:
    """A solver fitted where a search for DPM++ 2M led, or on another place whose fit is nearer.

    `work` is a directory that keeps the model's answers: after a kill, the same call goes on.
    """
    check_steps(steps, model.noise)
    least = _least_budget(model, steps)
    if budget_nfe < least:
        raise ScheduleError(
            f"tuning and fitting {steps} steps of this model needs a budget of at least {least} network calls, "
            f"got {budget_nfe}"
        )
    job = {"steps": steps, "budget_nfe": budget_nfe, "seed": seed, "batch": batch}
    with (
        caching_calls(model, work, {"tune and fit": job}) as known,
        Bar("tune and fit, at most", budget_nfe, "call", progress) as bar,
    ):
        counted = Counted(Shown(known, bar))
        fine = TeacherSets.recorded(counted, budget_nfe, seed, batch)
        return tuned_and_fitted(counted, fine, steps, budget_nfe, batch)


def tuned_and_fitted(
    model: Counted, fine: TeacherSets, steps: int, budget: int = BUDGET, batch: int = BATCH
) -> FittedSolver:
    """The same on fine walks that are there already, and are part of the budget."""
    begun = model.nfe
    ground = prepared(model, fine, TUNED_FOR, batch=batch)
    search, found = searched(ground, steps, int(TUNING * budget) - fine.nfe)
    places = places_worth_a_fit(found, ground.starts.closed_forms(steps), search.law, model.noise)
    learning = min(len(fine.for_search), _walks_within(model, steps, budget))
    sets = fine.for_search.at(slice(0, learning)), fine.for_validation.at(slice(0, _judges(learning)))
    spent = fine.nfe + model.nfe - begun
    return fit_to_teacher(model, *sets, places, ORDER, fine.seed, spent, budget)


def places_worth_a_fit(
    found: Found, forms: dict[str, Array], law: Foretold, noise: NoiseSchedule
) -> list[StepSchedule]:
    """What the search found and its twin, the best of what else raced, and the closed forms, best first, each once."""
    raced = {f"{racer.name}, raced": racer.trial.times for racer in best_of_each_start(found.racers)[:RACED]}
    foretold = sorted(forms, key=lambda name: law.tempered(forms[name]))
    grown = {"tuned": found.trial.times, "tuned, its twin": found.twin.times}
    named = {**grown, **raced, **{name: forms[name] for name in foretold}}
    places: dict[bytes, StepSchedule] = {}
    for name, times in named.items():
        places.setdefault(times.tobytes(), StepSchedule.at(times, noise, {"method": name}))
    return list(places.values())


def _walks_within(model: Model, steps: int, budget: int) -> int:
    """To how many walks a fit is affordable after tuning."""
    return int((1 - TUNING) * budget / (calls_to_fit(model, steps, 30, _judges(30)) / 30))


def _least_budget(model: Model, steps: int) -> int:
    """Calls that pay for tuning, and for a fit to the fewest walks."""
    fitting = calls_to_fit(model, steps, FEWEST_WALKS, _judges(FEWEST_WALKS))
    return math.ceil(max(least_budget(model, steps, TUNED_FOR) / TUNING, fitting / (1 - TUNING)))


def _judges(walks: int) -> int:
    return round(UNSEEN * walks)
