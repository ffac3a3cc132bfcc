"""Where to step and how to step, one after the other, on the same fine walks."""

from __future__ import annotations

import math
from pathlib import Path

from tqdm import tqdm

from geosprint.answers import keeping_answers
from geosprint.errors import ScheduleError
from geosprint.fitting.fit import ORDER, Shown, calls_to_fit, fitted_to
from geosprint.fitting.solver import FittedSolver
from geosprint.models.base import Model
from geosprint.sampling import BATCH, CountedModel
from geosprint.schedule import check_steps
from geosprint.tuning.run import BUDGET, FEWEST_WALKS, FineSets, least_budget, prepared, tuned_schedule

FITTED = "fitted"
TUNED_FOR = "dpmpp-2m"  # the known solver that a fitted one is most like
TUNING = 0.65  # share of the budget for fine walks and tuning
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
    """A solver fitted on the schedule that was tuned for DPM++ 2M.

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
        keeping_answers(model, work, {"tune and fit": job}) as known,
        tqdm(total=budget_nfe, desc="tune and fit, at most", unit="call", disable=not progress, delay=1) as bar,
    ):
        counted = CountedModel(Shown(known, bar))
        fine = FineSets.recorded(counted, budget_nfe, seed, batch)
        return tuned_and_fitted(counted, fine, steps, budget_nfe, batch)


def tuned_and_fitted(
    model: CountedModel, fine: FineSets, steps: int, budget: int = BUDGET, batch: int = BATCH
) -> FittedSolver:
    """The same on fine walks that are there already, and are part of the budget."""
    tuned = tuned_schedule(prepared(model, fine, TUNED_FOR, int(TUNING * budget), batch=batch), steps)
    learning = min(len(fine.for_search), _walks_within(model, steps, budget))
    sets = fine.for_search.at(slice(0, learning)), fine.for_validation.at(slice(0, _judges(learning)))
    return fitted_to(model, *sets, steps, tuned.schedule, ORDER, fine.seed, tuned.nfe, budget)


def _walks_within(model: Model, steps: int, budget: int) -> int:
    """To how many walks a fit is affordable after tuning."""
    return int((1 - TUNING) * budget / (calls_to_fit(model, steps, 30, _judges(30)) / 30))


def _least_budget(model: Model, steps: int) -> int:
    """Calls that pay for tuning, and for a fit to the fewest walks."""
    fitting = calls_to_fit(model, steps, FEWEST_WALKS, _judges(FEWEST_WALKS))
    return math.ceil(max(least_budget(model, steps, TUNED_FOR) / TUNING, fitting / (1 - TUNING)))


def _judges(walks: int) -> int:
    return round(UNSEEN * walks)
