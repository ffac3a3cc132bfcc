"""Fitted solvers: how to step, besides where."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial

from geosprint.fitting.fit import fit
from geosprint.fitting.solver import FittedSolver
from geosprint.methods.base import Method, Task
from geosprint.tuning.both import tuned_and_fitted as tuned_and_fitted_to


def fitted(task: Task, steps: int) -> FittedSolver:
    """Fitted to fine walks of its own on the closed form that suits it best, whatever the solver of the task."""
    return _quietly(partial(fit, task.model, steps, seed=task.recording.seed))


def tuned_and_fitted(task: Task, steps: int) -> FittedSolver:
    """Fitted to the fine walks of a search for DPM++ 2M, on the best of what it found."""
    recording = task.recording
    return _quietly(partial(tuned_and_fitted_to, task.model, recording.fine, steps, batch=recording.batch))


def _quietly(fit_it: Callable[[], FittedSolver]) -> FittedSolver:
    """Where a known solver is returned instead, the row beside it shows so; a comparison needs no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return fit_it()


FITTED = Method("fitted", fitted, source="this package")
TUNED_AND_FITTED = Method("tuned+fitted", tuned_and_fitted, source="this package", from_fine_walks=True)
