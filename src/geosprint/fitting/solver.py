"""A fitted solver: a schedule, the coefficients of its steps, and the small file that both travel in."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from geosprint.errors import ScheduleError
from geosprint.files import finite, read_json, refusing_damage, write_json
from geosprint.fitting.formula import MOST_PREDICTIONS, Coefficients, remembered, stepped
from geosprint.models.base import Prediction
from geosprint.noise import CLEAN
from geosprint.schedule import StepSchedule
from geosprint.solvers import Step

FORMAT = "geosprint-solver"
FORMULA = "x_next = c[0]*x + c[1]*x0 + sum over k >= 1 of c[1+k]*(x0 of k steps ago - x0)"
SAME_TIME = 1e-6  # share of the first time: a continuous time may have been rounded to float32

Memory = tuple[int, tuple[Tensor, ...]]
"""Which step is next, and the predictions of earlier ones, latest first."""


@dataclass(frozen=True, eq=False)
class FittedSolver:
    """Steps along its own schedule with fitted coefficients; `walk` and `sample` take it like any solver."""

    schedule: StepSchedule  # its provenance says what it was fitted to, and what that cost
    coefficients: Coefficients  # of each step, as formula.py says
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

    def warn_of_another_model(self, name: str) -> None:
        """A solver fitted to one network may suit another less than a known solver does: say so."""
        origin = self.schedule.provenance.get("origin")
        fitted_to = origin.get("model") if isinstance(origin, dict) else None
        if fitted_to not in (None, name):
            warnings.warn(
                f"this solver was fitted to model {fitted_to!r} and is used with {name!r}; fit one to it, "
                "or compare the samples with those of a known solver",
                stacklevel=2,
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
