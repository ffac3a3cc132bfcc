"""A linear solver: every state is a sum of the first noise and of all predictions so far.

    x[i] = c[i][0]·noise + c[i][1]·x0[0] + ... + c[i][i]·x0[i - 1]

x0[j] is the prediction at state x[j], and the last x is the sample. Whatever adds up states, slopes and predictions
with numbers of its own is of this form, in any coordinates (Shaul et al. 2024): a fitted solver is, and so are those
that keep more of the past than a file of `tune` holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from geosprint.errors import ScheduleError
from geosprint.fitted_solver import Coefficients, OwnSteps, summed
from geosprint.models.base import Prediction
from geosprint.solvers import Step


@dataclass(frozen=True, eq=False, repr=False)
class LinearSolver(OwnSteps):
    """Steps along its own schedule; `walk` and `sample` take it like any solver."""

    rows: Coefficients  # of each state, the first and the sample included, in the formula above

    def __post_init__(self) -> None:
        lengths, expected = [len(row) for row in self.rows], list(range(1, len(self.schedule) + 2))
        if lengths != expected:
            raise ScheduleError(f"the states of {len(self.schedule)} steps are sums of {expected} parts, got {lengths}")
        if not all(np.isfinite(row).all() for row in self.rows) or not self.rows[0][0]:
            raise ScheduleError("coefficients must be finite numbers, and that of the first state other than 0")

    def begun(self, noise: Tensor) -> Tensor:
        """The first state: a model that is asked at another time than that of its state sees it scaled."""
        return self.rows[0][0] * noise

    def __call__(
        self, x: Tensor, p: Prediction, step: Step, memory: tuple[Tensor, ...] | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """One step; the solver protocol of solvers.py."""
        parts = (*(memory or (x / self.rows[0][0],)), p.x0)
        index = len(parts) - 2
        if not self.is_own(index, step.t):
            raise ScheduleError(f"this solver takes its own {len(self)} steps alone: walk its schedule.timesteps")
        return summed(self.rows[index + 1], parts), parts
