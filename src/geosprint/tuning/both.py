"""Where to step and how to step, one after the other."""

from __future__ import annotations

from pathlib import Path

from geosprint.answers import keeping_answers
from geosprint.fitting.fit import fit
from geosprint.fitting.solver import FittedSolver
from geosprint.models.base import Model
from geosprint.sampling import BATCH
from geosprint.tuning.run import BUDGET, tune

FITTED = "fitted"
TUNED_FOR = "dpmpp-2m"  # the known solver that a fitted one is most like


def tune_and_fit(
    model: Model,
    steps: int,
    budget_nfe: int = BUDGET,
    seed: int = 0,
    batch: int = BATCH,
    progress: bool = False,
    work: Path | None = None,
) -> FittedSolver:
    """A solver fitted on the schedule that was tuned for DPM++ 2M, half of the calls for each.

    `work` is a directory that keeps the model's answers: after a kill, the same call goes on.
    """
    job = {"steps": steps, "budget_nfe": budget_nfe, "seed": seed, "batch": batch}
    with keeping_answers(model, work, {"tune and fit": job}) as known:
        place = tune(known, steps, TUNED_FOR, budget_nfe // 2, seed=seed, batch=batch, progress=progress)
        return fit(known, steps, place.schedule, seed=seed, budget=budget_nfe - place.nfe, progress=progress)
