"""A fitted solver: the formula of its steps, how known solvers are written in it, and the file that it travels in.

    x_next = c[0]·x + c[1]·x0 + c[2]·(x0' - x0) + c[3]·(x0'' - x0) + ...

x0 is the prediction at x, x0' that of the step before, x0'' that of two steps ago. Every step has its own coefficients
c, shared by all pixels and samples. DDIM, DPM-Solver++ and UniPC are of this form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from geosprint.errors import ScheduleError
from geosprint.files import finite, read_json, refusing_damage, write_json
from geosprint.models.base import Prediction
from geosprint.noise import CLEAN, NoiseSchedule
from geosprint.schedule import StepSchedule
from geosprint.solvers import Number, Step

Array = NDArray[np.float64]
Coefficients = tuple[tuple[float, ...], ...]
"""Of each step: of x, of x0 and of the differences to earlier x0, latest first."""

MOST_PREDICTIONS = 4
"""Of which one is the present one: a fifth changed no error in the second digit."""

FORMAT = "geosprint-solver"
FORMULA = "x_next = c[0]*x + c[1]*x0 + sum over k >= 1 of c[1+k]*(x0 of k steps ago - x0)"
SAME_TIME = 1e-6  # share of the first time: a continuous time may have been rounded to float32

Memory = tuple[int, tuple[Tensor, ...]]
"""Which step is next, and the predictions of earlier ones, latest first."""


@dataclass(frozen=True, eq=False, repr=False)
class FittedSolver:
    """Steps along its own schedule with fitted coefficients; `walk` and `sample` take it like any solver."""

    schedule: StepSchedule  # its provenance says what it was fitted to, and what that cost
    coefficients: Coefficients  # of each step, in the formula above
    validation: dict[str, Any] = field(default_factory=dict)  # errors on held-out noise

    def __post_init__(self) -> None:
        if len(self.coefficients) != len(self.schedule):
            raise ScheduleError(
                f"{len(self.schedule)} steps need as many lists of coefficients, got {len(self.coefficients)}"
            )
        for i, own in enumerate(self.coefficients):
            most = min(i + 1, MOST_PREDICTIONS) + 1
            if not 2 <= len(own) <= most:
                raise ScheduleError(f"step {i + 1} can have 2 to {most} coefficients, got {len(own)}")
            if not np.isfinite(own).all():
                raise ScheduleError(f"coefficients must be finite numbers, step {i + 1} has {list(own)}")

    def __len__(self) -> int:
        return len(self.schedule)

    def __repr__(self) -> str:
        times = self.schedule.timesteps
        return f"FittedSolver({len(self)} steps from t = {times[0]:g} to {times[-1]:g})"

    @property
    def order(self) -> int:
        """How many predictions a step looks at, at most."""
        return max(map(len, self.coefficients)) - 1

    def __call__(self, x: Tensor, p: Prediction, step: Step, memory: Memory | None) -> tuple[Tensor, Memory]:
        """One step; the solver protocol of solvers.py."""
        index, past = memory or (0, ())
        self._check_step(index, float(step.t), float(step.t_next))
        found = stepped(x, p.x0, past, self.coefficients[index])
        return found, (index + 1, remembered(p.x0, past, self.order))

    def _check_step(self, index: int, t: float, t_next: float) -> None:
        """The coefficients of a step are good for that step alone."""
        times = [*self.schedule.timesteps, CLEAN]
        near = SAME_TIME * abs(times[0])
        if index >= len(self) or abs(times[index] - t) > near or abs(times[index + 1] - t_next) > near:
            raise ScheduleError(
                f"this solver was fitted to the {len(self)} steps {', '.join(f'{t:g}' for t in times[:-1])} and takes "
                f"no others; step {index + 1} was asked from {t:g} to {t_next:g}: walk its own schedule.timesteps"
            )

    def save(self, path: Path) -> Path:
        """The JSON file that travels."""
        content = {
            "formula": FORMULA,
            "steps": len(self),
            "timesteps": self.schedule.timesteps.tolist(),
            "sigmas": self.schedule.sigmas.tolist(),
            "log_snr": self.schedule.log_snr.tolist(),
            "coefficients": [list(own) for own in self.coefficients],
            "validation": self.validation,
            "provenance": self.schedule.provenance,
        }
        return write_json(Path(path), FORMAT, content)

    @classmethod
    def load(cls, path: Path) -> FittedSolver:
        """The inverse of `save`."""
        content = read_json(Path(path), FORMAT)
        with refusing_damage(Path(path)):
            if content["steps"] != len(content["timesteps"]):
                raise ValueError(f"it says {content['steps']} steps but lists {len(content['timesteps'])}")
            for name in ("validation", "provenance"):
                if not isinstance(content[name], dict):
                    raise ValueError(f"its {name} must be an object")
            times, sigmas, log_snr = (np.array(finite(content[name])) for name in ("timesteps", "sigmas", "log_snr"))
            schedule = StepSchedule(times, sigmas, log_snr, content["provenance"])
            if not isinstance(content["coefficients"], list):
                raise ValueError("its coefficients must be a list of lists")
            return cls(schedule, tuple(tuple(finite(own)) for own in content["coefficients"]), content["validation"])


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
