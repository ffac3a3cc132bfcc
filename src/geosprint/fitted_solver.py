"""A fitted solver: the formula of its steps, and how known solvers are written in it.

    x_next = c[0]·x + c[1]·x0 + c[2]·(x0' - x0) + c[3]·(x0'' - x0) + ...

x0 is the prediction at x, x0' that of the step before, x0'' that of two steps ago. Every step has its own coefficients
c, shared by all pixels and samples. DDIM, DPM-Solver++ and UniPC are of this form. Where a guided model tells the
conditional x0, too, a prediction has two parts, x0 and what guidance added to it, each with coefficients of its own:

    x_next = c[0]·x + c[1]·x0 + c[2]·g + c[3]·(x0' - x0) + c[4]·(g' - g) + ...    where g = x0 - conditional x0
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from geosprint.errors import ScheduleError
from geosprint.models.base import Prediction
from geosprint.noise import CLEAN, NoiseSchedule
from geosprint.schedule import StepSchedule
from geosprint.solvers import SOLVERS, Number, Step

Coefficients = tuple[tuple[float, ...], ...]
"""Of each step: of x, of x0 and of the differences to earlier x0, latest first."""

MOST_PREDICTIONS = 4
"""Of which one is the present one: a fifth changed no error in the second digit."""

SAME_TIME = 1e-6  # share of the first time: a continuous time may have been rounded to float32

UNHEARD = (
    "these steps have coefficients of their own for what guidance adds, and the conditional prediction is not known "
    "here: those of the guided prediction alone are used, with a higher error than was measured"
)

Predicted = tuple[Tensor, ...]
"""x0, and what guidance added to it where that is known."""

Memory = tuple[int, tuple[Predicted, ...]]
"""Which step is next, and the predictions of earlier ones, latest first."""


@dataclass(frozen=True, eq=False, repr=False)
class OwnSteps:
    """What steps along its own schedule alone."""

    schedule: StepSchedule  # where the model is asked

    def __len__(self) -> int:
        return len(self.schedule)

    def __repr__(self) -> str:
        times = self.schedule.timesteps
        return f"{type(self).__name__}({len(self)} steps from t = {times[0]:g} to {times[-1]:g})"

    def is_own(self, index: int, *ends: Number) -> bool:
        """Whether the step of this index begins, and ends, at these times."""
        times = [*self.schedule.timesteps, CLEAN][index:]
        near = SAME_TIME * abs(self.schedule.timesteps[0])
        return index < len(self) and all(abs(own - float(t)) <= near for own, t in zip(times, ends, strict=False))


@dataclass(frozen=True, eq=False, repr=False)
class FittedSolver(OwnSteps):
    """Steps along its own schedule with fitted coefficients; `walk` and `sample` take it like any solver."""

    coefficients: Coefficients  # of each step, in the formula above
    guided: Coefficients = ()  # better ones, of the second formula, for models that tell the conditional x0

    def __post_init__(self) -> None:
        self._check(self.coefficients, 1)
        if self.guided:
            self._check(self.guided, 2)

    def _check(self, coefficients: Coefficients, parts: int) -> None:
        if len(coefficients) != len(self.schedule):
            raise ScheduleError(
                f"{len(self.schedule)} steps need as many lists of coefficients, got {len(coefficients)}"
            )
        for i, own in enumerate(coefficients):
            can_have = [1 + parts * order for order in range(1, min(i + 1, MOST_PREDICTIONS) + 1)]
            if len(own) not in can_have:
                expected = " or ".join(map(str, can_have))
                raise ScheduleError(f"step {i + 1} can have {expected} coefficients, got {len(own)}")
            if not np.isfinite(own).all():
                raise ScheduleError(f"coefficients must be finite numbers, step {i + 1} has {list(own)}")

    @property
    def order(self) -> int:
        """How many predictions a step looks at, at most."""
        return max(*map(order_of, self.coefficients), *(order_of(own, 2) for own in self.guided))

    def __call__(self, x: Tensor, p: Prediction, step: Step, memory: Memory | None) -> tuple[Tensor, Memory]:
        """One step; the solver protocol of solvers.py."""
        index, past = memory or (0, ())
        if not self.is_own(index, step.t, step.t_next):
            own = ", ".join(f"{t:g}" for t in self.schedule.timesteps)
            raise ScheduleError(
                f"this solver was fitted to the {len(self)} steps {own} and takes no others; step {index + 1} was "
                f"asked from {float(step.t):g} to {float(step.t_next):g}: walk its own schedule.timesteps"
            )
        if self.guided and p.added is None and index == 0:
            warnings.warn(UNHEARD, stacklevel=2)
        predicted: Predicted = (p.x0,) if p.added is None or not self.guided else (p.x0, p.added)
        found = stepped(x, predicted, past, (self.guided if len(predicted) == 2 else self.coefficients)[index])
        return found, (index + 1, remembered(predicted, past, self.order))


def features(x: Tensor, predicted: Predicted, past: Sequence[Predicted], order: int) -> list[Tensor]:
    """What a step of this order adds up: the state, what is predicted there, and how that differs from earlier ones."""
    earlier = ((before - now) for one in past[: order - 1] for before, now in zip(one, predicted, strict=True))
    return [x, *predicted, *earlier]


def stepped(x: Tensor, predicted: Predicted, past: Sequence[Predicted], coefficients: Sequence[float]) -> Tensor:
    """The formula."""
    return summed(coefficients, features(x, predicted, past, order_of(coefficients, len(predicted))))


def summed(coefficients: Sequence[Any], parts: Sequence[Tensor]) -> Tensor:
    """As many parts as there are coefficients, each times its own."""
    found = coefficients[0] * parts[0]
    for coefficient, part in zip(coefficients[1:], parts[1:], strict=True):
        found = found + coefficient * part
    return found


def order_of(coefficients: Sequence[float], parts: int = 1) -> int:
    """How many predictions a step with these coefficients looks at, if each has so many parts."""
    return (len(coefficients) - 1) // parts


def remembered(predicted: Predicted, past: Sequence[Predicted], order: int) -> tuple[Predicted, ...]:
    """Predictions that the next step may look back at, latest first."""
    return (predicted, *past)[: order - 1]


def known_coefficients(
    solver: str, noise: NoiseSchedule, times: ArrayLike, order: int, guided: bool = False
) -> Coefficients:
    """A known solver in this form: ddim with any order, dpmpp-2m with 2 or more, unipc with 3 or more.

    Read off from its own walk over unit vectors, which stand for the first state and the prediction of each step. An
    order that is too low leaves out what the solver looks back at.
    """
    steps = steps_between(noise, times)
    first, *predictions = torch.eye(len(steps) + 1, dtype=torch.float64)
    x, memory, found = first, None, list[tuple[float, ...]]()
    for i, (step, x0) in enumerate(zip(steps, predictions, strict=True)):
        eps = (x - step.a * x0) / step.s if step.s else torch.zeros_like(x)
        x_next, memory = SOLVERS[solver](x, Prediction(x0, eps), step, memory)
        kept = float(x_next[0] / x[0]) if x[0] else 0.0
        rest = (x_next - kept * x)[1 : i + 2].flip(0).tolist()  # of this prediction and of earlier ones, latest first
        own = [sum(rest), *rest[1:order]]
        found.append((kept, *(c for one in own for c in ((one, 0.0) if guided else (one,)))))
        x = x_next
    return tuple(found)


def steps_between(noise: NoiseSchedule, times: ArrayLike) -> list[Step]:
    """The steps of a schedule, the last one to the clean end."""
    falling = [*(float(t) for t in np.asarray(times)), CLEAN]
    return [Step.between(noise, t, t_next, _refuse, _refuse) for t, t_next in pairwise(falling)]


def check_order(order: int) -> None:
    """How many predictions a step may look at."""
    if not 1 <= order <= MOST_PREDICTIONS:
        raise ScheduleError(f"the order must be in 1..{MOST_PREDICTIONS}, the predictions a step looks at, got {order}")


def _refuse(*_: Any) -> Any:
    raise AssertionError("a fitted step asks the model once and draws no noise")
