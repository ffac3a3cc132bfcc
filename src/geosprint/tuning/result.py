"""What tuning returns, and its record as a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geosprint.errors import ScheduleError
from geosprint.estimates import Estimate
from geosprint.files import finite, read_json, refusing_damage, write_json
from geosprint.fitted_solver import FittedSolver
from geosprint.schedule import StepSchedule
from geosprint.trajectory import Origin
from geosprint.tuning.config import DEFAULT
from geosprint.tuning.validation import TUNED, Validation

Array = NDArray[np.float64]

FITTED = "fitted"
FORMAT = "geosprint-tuning"


@dataclass(frozen=True, eq=False)
class TunedSchedule:
    """A schedule for one number of steps, the evidence it was chosen by, and what it cost."""

    schedule: StepSchedule
    solver: str
    measure: str
    validation: Validation
    grown_from: str  # the start that the tuned schedule comes from, also where it was not chosen
    frechet: dict[str, float]  # of the chosen and the old schedule, to the teacher's ends
    nfe: int  # network calls, what several numbers of steps share counted in full

    @property
    def made(self) -> StepSchedule:
        """What to sample with."""
        return self.schedule

    @property
    def chosen(self) -> str:
        """ "tuned", or the schedule that displaced it."""
        return self.validation.chosen

    @property
    def is_tuned(self) -> bool:
        """Whether what the search found is returned."""
        return self.chosen == TUNED

    @property
    def errors(self) -> dict[str, Estimate]:
        """Of every schedule that was decided among, on held-out noise."""
        return {name: self.validation.error(name) for name in self.validation.evaluations}

    @property
    def gain(self) -> Estimate:
        """How many times lower the error is than that of what users have."""
        return self.validation.gain

    def summary(self) -> dict[str, Any]:
        """For a file: everything but the trajectories."""
        validation = self.validation
        return {
            "steps": len(self.schedule),
            "solver": self.solver,
            "measure": self.measure,
            "chosen": validation.chosen,
            "old": validation.old,
            "errors": {name: _plain(error) for name, error in self.errors.items()},
            "gain": _plain(self.gain),
            "uniform": validation.uniform,
            "uniform_steps": _plain(validation.uniform_steps),
            "frechet": self.frechet,
            "grown_from": self.grown_from,
            "nfe": self.nfe,
        }

    @property
    def headline(self) -> str:
        """One sentence for people."""
        k, validation, gain, errors = len(self.schedule), self.validation, self.gain, self.errors
        error, old, steps = errors[self.chosen].value, errors[validation.old].value, validation.uniform_steps
        if not self.is_tuned:
            return f"{k} steps: nothing found beats {self.chosen} (error {error:.4f}), so take that"
        if gain.value < 1:
            return f"{k} tuned steps: error {error:.4f}, no sure difference to {k} steps of {validation.old}, {old:.4f}"
        worth = (
            f"{steps.value:.1f} ({steps.low:.1f} to {steps.high:.1f})" if steps else f"more than {DEFAULT.longest * k}"
        )
        return (
            f"{k} tuned steps: {gain.value:.2f}× lower error ({gain.low:.2f} to {gain.high:.2f}) than {k} steps of "
            f"{validation.old}, {error:.4f} instead of {old:.4f}; {validation.uniform} needs {worth} steps for that"
        )


@dataclass(frozen=True, eq=False)
class TunedSolver:
    """A schedule and a solver fitted on it, for one number of steps; the evidence is in the solver."""

    made: FittedSolver

    @property
    def schedule(self) -> StepSchedule:
        """Where it steps."""
        return self.made.schedule

    @property
    def chosen(self) -> str:
        """ "fitted", or the known solver whose coefficients were better on held-out noise."""
        return str(self.made.validation["ships"])

    @property
    def errors(self) -> dict[str, float]:
        """Of the fit and of known solvers on the same schedule, on held-out noise."""
        return dict(self.made.validation["rmse"])

    @property
    def gain(self) -> Estimate:
        """How many times lower the error is than DPM++ 2M's on the same schedule; the interval is of the difference."""
        if self.chosen == "dpmpp-2m":
            return Estimate(1.0, 1.0, 1.0)
        old, (gap, low, high) = self.errors["dpmpp-2m"], self.made.validation["gap"]["dpmpp-2m"]
        return Estimate(*(old / max(old + difference, 1e-12) for difference in (gap, high, low)))

    @property
    def nfe(self) -> int:
        """Network calls, what several numbers of steps share counted in full."""
        return int(self.schedule.provenance["calls"])

    def summary(self) -> dict[str, Any]:
        """For a file."""
        return {"steps": len(self.made), "nfe": self.nfe, **self.made.validation}

    @property
    def headline(self) -> str:
        """One sentence for people."""
        error, gain = self.errors[self.chosen], self.gain
        than = f"{gain.value:.2f}× lower ({gain.low:.2f} to {gain.high:.2f}) than DPM++ 2M's on the same schedule"
        return f"{len(self.made)} steps, {self.schedule.provenance['method']}: error {error:.4f}, {than}"


@dataclass(frozen=True, eq=False)
class Tuned:
    """One result for each number of steps, ascending."""

    results: tuple[TunedSchedule | TunedSolver, ...]
    solver: str  # what they were tuned for, or "fitted"
    nfe: int  # network calls of all together

    @property
    def steps(self) -> tuple[int, ...]:
        """The numbers of steps."""
        return tuple(len(one.schedule) for one in self.results)

    def __getitem__(self, steps: int) -> StepSchedule | FittedSolver:
        if steps not in self.steps:
            raise ScheduleError(f"tuned were {', '.join(map(str, self.steps))} steps, not {steps}; tune them")
        return self.results[self.steps.index(steps)].made

    @property
    def headline(self) -> str:
        """A line for each number of steps."""
        return "\n".join(one.headline for one in self.results)

    def save(self, path: str | Path) -> list[Path]:
        """A schedule.json or solver.json: `path` itself, or one with the number of steps for each of several."""
        path, is_one = Path(path), len(self.results) == 1
        return [self[k].save(path if is_one else path.with_stem(f"{path.stem}-{k}")) for k in self.steps]


def _plain(estimate: Estimate | None) -> dict[str, float] | None:
    return None if estimate is None else {"value": estimate.value, "low": estimate.low, "high": estimate.high}


@dataclass(frozen=True, eq=False)
class StepRecord:
    """One number of steps: which schedules were compared on which samples, and what was chosen."""

    steps: int
    solver: str
    measure: str
    chosen: str
    uniform: str
    uniform_steps: Estimate | None  # None: more than were looked at
    errors: dict[str, Array]  # (walks,) by schedule
    timesteps: dict[str, Array]  # (steps,) by schedule
    nfe: int


@dataclass(frozen=True, eq=False)
class TuningRecord:
    """What one run of `geosprint tune` found."""

    command: str
    machine: str
    seed: int
    origin: Origin
    judged: list[StepRecord]


def save_record(found: Sequence[TunedSchedule], path: Path, command: str, machine: str) -> Path:
    """Write down what the schedules were chosen by."""
    made = found[0].schedule.provenance
    content = {
        "command": command,
        "machine": machine,
        "seed": made["seed"],
        "origin": made["origin"],
        "judged": [_record_content(one) for one in found],
    }
    return write_json(path, FORMAT, content)


def load_record(path: Path) -> TuningRecord:
    """The inverse of `save_record`."""
    content = read_json(path, FORMAT)
    with refusing_damage(path):
        if not isinstance(content["command"], str) or not isinstance(content["machine"], str):
            raise ValueError("command and machine must be texts")
        return TuningRecord(
            content["command"],
            content["machine"],
            int(content["seed"]),
            Origin.from_dict(content["origin"]),
            [_step_record(one) for one in content["judged"]],
        )


def _record_content(tuned: TunedSchedule) -> dict[str, Any]:
    found = tuned.validation.evaluations
    return {
        **{name: value for name, value in tuned.summary().items() if name not in ("errors", "gain")},
        "errors": {name: one.errors.tolist() for name, one in found.items()},
        "timesteps": {name: one.times.tolist() for name, one in found.items()},
    }


def _step_record(one: dict[str, Any]) -> StepRecord:
    words = {name: one[name] for name in ("solver", "measure", "chosen", "uniform")}
    errors = {name: np.array(finite(of_walks)) for name, of_walks in one["errors"].items()}
    times = {name: np.array(finite(of_steps)) for name, of_steps in one["timesteps"].items()}
    steps = int(one["steps"])
    if not all(isinstance(word, str) for word in words.values()):
        raise ValueError("solver, measure, chosen and uniform must be texts")
    if words["chosen"] not in errors or words["uniform"] not in errors or errors.keys() != times.keys():
        raise ValueError("the chosen and the uniform schedule must have errors, and all errors must have timesteps")
    if {len(of_walks) for of_walks in errors.values()} != {len(errors[words["chosen"]])} - {0}:
        raise ValueError("all schedules must be judged on the same samples")
    if steps < 1 or any(len(of_steps) != steps for of_steps in times.values()):
        raise ValueError(f"every schedule must have the same number of steps, {steps}")
    worth = one["uniform_steps"]
    estimate = Estimate(*finite([worth[part] for part in ("value", "low", "high")])) if worth else None
    return StepRecord(steps, **words, uniform_steps=estimate, errors=errors, timesteps=times, nfe=int(one["nfe"]))
