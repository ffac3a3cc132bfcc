"""Fit a solver to a model: record, choose where to step, fit how to step, and prove it on walks not seen before."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from geosprint.baselines import applicable_baselines, baseline_schedule
from geosprint.call_cache import caching_calls
from geosprint.errors import ScheduleError
from geosprint.fitting.formula import Coefficients, check_order, ddim_coefficients, dpmpp_coefficients
from geosprint.fitting.refinement import FEWEST, FEWEST_BLOCKS, JUDGES, MOST, Refined, refined, round_calls
from geosprint.fitting.solver import FittedSolver
from geosprint.fitting.stepwise import asker, followed, walked
from geosprint.metrics.estimates import bootstrap_mean
from geosprint.models.base import Model
from geosprint.noise import NoiseSchedule
from geosprint.runs.progress import Bar
from geosprint.sampling import Counted, for_samples
from geosprint.schedule import StepSchedule, check_steps
from geosprint.teacher import SOLVER, TeacherTrajectories, fine_steps, record_teacher
from geosprint.trajectory import Origin

Array = NDArray[np.float64]

ORDER = 4
WALKS = 48
UNSEEN = 32
BUDGET = 20_000
"""Network calls of one fit, everything included: as many as the paper's own recording takes."""

RIVALS = {"ddim": ddim_coefficients, "dpmpp-2m": dpmpp_coefficients}
SCOUTS = 48  # walks that a closed form is fitted to when one is to be chosen
FEWEST_SCOUTS = 8
SCOUTING = 0.45  # share of what is left of the budget that choosing may take
FINALISTS = 3  # closed forms that are fitted to all walks


def fit(
    model: Model,
    steps: int,
    schedule: StepSchedule | None = None,
    order: int = ORDER,
    seed: int = 0,
    walks: int = WALKS,
    unseen: int = UNSEEN,
    budget: int = BUDGET,
    progress: bool = False,
    work: Path | None = None,
) -> FittedSolver:
    """The solver of K steps whose numbers follow the model's fine walks best, on this schedule or on a closed form.

    Walks of the seeds from `seed` on are learnt from; the `unseen` ones after them only judge. Where DPM++ 2M or
    DDIM is better on those, its numbers are returned instead, with a warning. The budget is of network calls.
    `work` is a directory that keeps the model's answers: after a kill, the same call goes on to the same solver.
    """
    _check(model, steps, schedule, order, walks, unseen)
    least = calls_needed(model, steps, walks, unseen)
    if budget < least:
        raise ScheduleError(
            f"fitting {steps} steps to {walks} walks and judging them on {unseen} takes {least} network calls, "
            f"the budget is {budget}; allow more, or give fewer walks"
        )
    places = [schedule] if schedule else closed_forms(model.noise, steps)
    if schedule is None:
        _check_that_all_can_be_tried(model, places, walks, unseen, budget)
    job = {
        "steps": steps,
        "schedule": None if schedule is None else schedule.timesteps.tolist(),
        "order": order,
        "seed": seed,
        "walks": walks,
        "unseen": unseen,
        "budget": budget,
    }
    with (
        caching_calls(model, work, {"fit": job}) as known,
        Bar("fit, at most", budget, "call", progress) as bar,
    ):
        counted = Counted(Shown(known, bar))
        recorded = record_teacher(counted, range(seed, seed + walks + unseen))
        learning, judging = recorded.at(slice(0, walks)), recorded.at(slice(walks, None))
        return fitted_to(counted, learning, judging, places, order, seed, counted.nfe, budget)


def fitted_to(
    model: Counted,
    learning: TeacherTrajectories,
    judging: TeacherTrajectories,
    places: Sequence[StepSchedule],
    order: int,
    seed: int,
    spent: int,
    budget: int,
) -> FittedSolver:
    """A fit to fine walks that are there already; `spent` calls of the budget are.

    It is on the best of these places, or on the best of the first of them, as many as there are calls to try.
    """
    begun, steps = model.nfe - spent, len(places[0])
    last = begun + budget - _judging(model, steps, len(judging))
    for count in range(len(places), 1, -1):
        scouts = scouts_for(count, steps, len(learning), model.calls, last - model.nfe)
        if scouts >= FEWEST_SCOUTS:
            places = promising(model, learning, places[:count], order, scouts)
            break
    else:
        places = places[:1]
    place, numbers = best_fit(model, learning, places, order, last)
    errors = _judged(model, judging, place.timesteps, numbers, order)
    ships = _ships(errors)
    if ships != "fitted":
        numbers = _numbers_of_rivals(model.noise, place.timesteps, order)[ships]
    provenance = {
        "method": f"fitted on {place.provenance.get('method', 'a given schedule')}",
        "ships": ships,
        "order": order,
        "seed": seed,
        "walks": len(learning),
        "calls": model.nfe - begun,
        "origin": Origin.of(model, SOLVER, 0.0).to_dict(),
    }
    there = StepSchedule(place.timesteps, place.sigmas, place.log_snr, provenance)
    return FittedSolver(there, numbers, _validation(errors, ships))


def closed_forms(noise: NoiseSchedule, steps: int) -> list[StepSchedule]:
    """Where a fit may step that was given no schedule."""
    return [baseline_schedule(name, noise, steps) for name in applicable_baselines(noise)]


def promising(
    model: Counted, walks: TeacherTrajectories, places: Sequence[StepSchedule], order: int, scouts: int
) -> list[StepSchedule]:
    """The places on which a fit to so many walks follows them best, best first.

    The same walks judge: they have so many more dimensions than a step has numbers that all fits flatter alike, and
    twice as many walks tell more.
    """
    learning = walks.at(slice(0, scouts))
    ask = asker(model, learning.rows)

    def error(place: StepSchedule) -> float:
        return float(np.sqrt(followed(ask, learning, place.timesteps, order).errors(learning)).mean())

    return sorted(places, key=error)[:FINALISTS]


def scouts_for(places: int, steps: int, walks: int, calls: int, left: int) -> int:
    """On how many of the walks a fit can be tried on each of so many places, at `calls` a step, with `left` calls."""
    each = steps * places * calls
    reserved = (FINALISTS * walks + max(walks // JUDGES, 1)) * steps * calls
    spare = max(left - reserved, 0)
    return min(SCOUTS, walks, max(int(SCOUTING * spare) // each, min(spare // each, FEWEST_SCOUTS)))


def best_fit(
    model: Counted, walks: TeacherTrajectories, places: Sequence[StepSchedule], order: int, last: int
) -> tuple[StepSchedule, Coefficients]:
    """Fit to all walks on each schedule, refine the better ones, as many as the calls are enough for, keep the best."""
    ask = asker(model, walks.rows)
    some = places[: _affordable(model, walks, places, order, last)]
    begun = [(place, followed(ask, walks, place.timesteps, order)) for place in some]
    begun.sort(key=lambda one: float(one[1].errors(walks).mean()))
    judges = max(len(walks) // JUDGES, 1)
    a_round = round_calls(begun[0][1].coefficients, judges, min(len(walks) - judges, MOST)) * model.calls
    judging = judges * len(places[0]) * model.calls
    several = max(min((last - model.nfe) // (a_round + judging), len(begun)), 1)  # rather one well than all poorly
    found: list[tuple[StepSchedule, Refined]] = []
    for left, (place, start) in zip(range(several, 0, -1), begun, strict=False):
        calls = (last - model.nfe) // left - judging
        found.append((place, refined(model, walks, place.timesteps, start.coefficients, max(calls, 0))))
    place, best = min(found, key=lambda one: one[1].error)
    return place, best.coefficients


def _affordable(
    model: Counted, walks: TeacherTrajectories, places: Sequence[StepSchedule], order: int, last: int
) -> int:
    """On how many of the places all walks can be followed so that calls are left to refine one; on one at least."""
    steps, judges = len(places[0]), max(len(walks) // JUDGES, 1)
    alike = dpmpp_coefficients(model.noise, places[0].timesteps, order)
    refining = (judges * steps + round_calls(alike, judges, FEWEST, FEWEST_BLOCKS)) * model.calls
    return max((last - model.nfe - refining) // (len(walks) * steps * model.calls), 1)


def calls_needed(model: Model, steps: int, walks: int, unseen: int) -> int:
    """Network calls of recording, of the fit step by step and of judging; choosing and refining come on top."""
    return _recording(model, walks, unseen) + calls_to_fit(model, steps, walks, unseen)


def calls_to_fit(model: Model, steps: int, walks: int, unseen: int) -> int:
    """The same without recording."""
    return (walks + max(walks // JUDGES, 1)) * steps * model.calls + _judging(model, steps, unseen)


def _recording(model: Model, walks: int, unseen: int) -> int:
    return (walks + unseen) * len(fine_steps(model.noise)) * model.calls


def _judging(model: Model, steps: int, unseen: int) -> int:
    """Of the fit and of its rivals."""
    return (1 + len(RIVALS)) * unseen * steps * model.calls


class Shown:
    """A model that moves a progress bar with every network call."""

    def __init__(self, model: Model, bar: Bar) -> None:
        self._model, self._bar = model, bar

    def __call__(self, x: Tensor, t: float) -> Tensor:
        answer = self._model(x, t)
        self._bar.update(len(x) * self._model.calls)
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def for_samples(self, rows: Sequence[int]) -> Shown:
        return Shown(for_samples(self._model, rows), self._bar)


def _judged(
    model: Counted, walks: TeacherTrajectories, times: Array, numbers: Coefficients, order: int
) -> dict[str, Array]:
    """The error on each unseen walk, of the fit and of its rivals on the same schedule."""
    ask = asker(model, walks.rows)
    tried = {"fitted": numbers, **_numbers_of_rivals(model.noise, times, order)}
    return {name: walked(ask, walks.starts, times, some).errors(walks) for name, some in tried.items()}


def _numbers_of_rivals(noise: NoiseSchedule, times: Array, order: int) -> dict[str, Coefficients]:
    """Whole, also where the fit looks back at less than they do."""
    return {name: known(noise, times, max(order, 2)) for name, known in RIVALS.items()}


def _ships(errors: dict[str, Array]) -> str:
    """The fit, unless a rival is better on walks that the fit has not seen."""
    best = min(errors, key=lambda name: float(errors[name].mean()))
    if best != "fitted":
        warnings.warn(
            f"on unseen walks the fit errs by {errors['fitted'].mean():.4g} and {best} by {errors[best].mean():.4g}: "
            f"the numbers of {best} are returned; more walks may help",
            stacklevel=4,
        )
    return best


def _validation(errors: dict[str, Array], ships: str) -> dict[str, Any]:
    """What a file says of the unseen walks: mean errors, and what ships less each of them, with its interval."""
    gaps = {name: bootstrap_mean(errors[ships] - errors[name]) for name in errors if name != ships}
    return {
        "walks": len(errors[ships]),
        "ships": ships,
        "rmse": {name: float(own.mean()) for name, own in errors.items()},
        "gap": {name: [gap.value, gap.low, gap.high] for name, gap in gaps.items()},
    }


def _check(model: Model, steps: int, schedule: StepSchedule | None, order: int, walks: int, unseen: int) -> None:
    check_steps(steps, model.noise)
    check_order(order)
    if min(walks, unseen) < 2:
        raise ScheduleError(f"a fit needs at least 2 walks to learn from and 2 to judge it, got {walks} and {unseen}")
    if schedule is not None:
        if len(schedule) != steps:
            raise ScheduleError(f"the schedule has {len(schedule)} steps, asked were {steps}; they must agree")
        schedule.check_fits(model.noise, model.name)


def _check_that_all_can_be_tried(
    model: Model, places: Sequence[StepSchedule], walks: int, unseen: int, budget: int
) -> None:
    steps = len(places[0])
    left = budget - _recording(model, walks, unseen) - _judging(model, steps, unseen)
    if scouts_for(len(places), steps, walks, model.calls, left) < FEWEST_SCOUTS:
        raise ScheduleError(
            f"choosing among {len(places)} closed forms takes {FEWEST_SCOUTS} walks and "
            f"{FEWEST_SCOUTS * steps * len(places) * model.calls} network calls beside the fit, "
            f"there are {walks} walks and a budget of {budget}; allow more, or give a schedule"
        )
