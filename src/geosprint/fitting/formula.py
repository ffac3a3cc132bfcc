"""The formula of a fitted step, and how known solvers are written in it.

    x_next = c[0]·x + c[1]·x0 + c[2]·(x0' - x0) + c[3]·(x0'' - x0) + ...

x0 is the prediction at x, x0' that of the step before, x0'' that of two steps ago. Every step has its own coefficients
c, shared by all pixels and samples. DDIM, DPM-Solver++ and UniPC are of this form.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from geosprint.errors import ScheduleError
from geosprint.noise import CLEAN, NoiseSchedule
from geosprint.solvers import Number, Step

Array = NDArray[np.float64]
Coefficients = tuple[tuple[float, ...], ...]
"""Of each step: of x, of x0 and of the differences to earlier x0, latest first."""

MOST_PREDICTIONS = 4
"""Of which one is the present one: a fifth changed no error in the second digit."""


def features(x: Tensor, x0: Tensor, past: Sequence[Tensor], order: int) -> list[Tensor]:
    """What a step of this order adds up: the state, the prediction there, and how it differs from earlier ones."""
    return [x, x0, *(before - x0 for before in past[: order - 1])]


def stepped(x: Tensor, x0: Tensor, past: Sequence[Tensor], coefficients: Sequence[float]) -> Tensor:
    """The formula."""
    parts = features(x, x0, past, len(coefficients) - 1)
    found = coefficients[0] * parts[0]
    for coefficient, part in zip(coefficients[1:], parts[1:], strict=True):
        found = found + coefficient * part
    return found


def remembered(x0: Tensor, past: Sequence[Tensor], order: int) -> tuple[Tensor, ...]:
    """Predictions that the next step may look back at, latest first."""
    return (x0, *past)[: order - 1]


def ddim_coefficients(noise: NoiseSchedule, times: ArrayLike, order: int) -> Coefficients:
    """DDIM: x0 is constant over the step."""
    return tuple(_ddim(step, min(order, i + 1)) for i, step in enumerate(steps_between(noise, times)))


def dpmpp_coefficients(noise: NoiseSchedule, times: ArrayLike, order: int) -> Coefficients:
    """DPM-Solver++(2M): x0 is extrapolated to the middle of the step; needs an order of 2."""
    found: list[tuple[float, ...]] = []
    before: Number = np.inf
    for i, step in enumerate(steps_between(noise, times)):
        coefficients = list(_ddim(step, min(order, i + 1)))
        h = step.half_log_snr_gain
        if len(coefficients) > 2 and np.isfinite(h):
            coefficients[2] = -coefficients[1] * float(h) / (2 * float(before))
        found.append(tuple(coefficients))
        before = h
    return tuple(found)


def steps_between(noise: NoiseSchedule, times: ArrayLike) -> list[Step]:
    """The steps of a schedule, the last one to the clean end."""
    falling = [*(float(t) for t in np.asarray(times)), CLEAN]
    return [Step.between(noise, t, t_next, _refuse, _refuse) for t, t_next in pairwise(falling)]


def check_order(order: int) -> None:
    """How many predictions a step may look at."""
    if not 1 <= order <= MOST_PREDICTIONS:
        raise ScheduleError(f"the order must be in 1..{MOST_PREDICTIONS}, the predictions a step looks at, got {order}")


def _ddim(step: Step, order: int) -> tuple[float, ...]:
    shrink = step.s_next / step.s if step.s else 0.0
    return (float(shrink), float(step.a_next - step.a * shrink), *[0.0] * (order - 1))


def _refuse(*_: Any) -> Any:
    raise AssertionError("a fitted step asks the model once and draws no noise")
