"""What tuning returns, and its record as a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geosprint.files import finite, read_json, refusing_damage, write_json
from geosprint.metrics.estimates import Estimate
from geosprint.schedule import StepSchedule
from geosprint.trajectory import Origin
from geosprint.tuning.search import Found
from geosprint.tuning.validation import LONGEST, TUNED, Verdict


@dataclass(frozen=True, eq=False)
class Tuned:
    """A schedule for one number of steps, the figures it was chosen by, and what it cost."""

    schedule: StepSchedule
    solver: str
    measure: str
    verdict: Verdict
    found: Found
    frechet: dict[str, float]  # of the chosen and the old schedule, to the fine walks' ends
    nfe: int  # network calls, what several numbers of steps share counted in full

    @property
    def is_tuned(self) -> bool:
        """Whether the search beat every closed form."""
        return self.verdict.chosen == TUNED

    @property
    def error(self) -> Estimate:
        """Of the schedule, on walks that it was not made from."""
        return self.verdict.error(self.verdict.chosen)

    @property
    def old_error(self) -> Estimate:
        """Of what users have."""
        return self.verdict.error(self.verdict.old)

    def summary(self) -> dict[str, Any]:
        """For a file: everything but the walks."""
        verdict, gain, steps = self.verdict, self.verdict.gain, self.verdict.uniform_steps
        return {
            "steps": len(self.schedule),
            "solver": self.solver,
            "measure": self.measure,
            "chosen": verdict.chosen,
            "old": verdict.old,
            "errors": {name: _plain(verdict.error(name)) for name in verdict.errors},
            "gain": _plain(gain),
            "uniform": verdict.uniform,
            "uniform_steps": _plain(steps),
            "frechet": self.frechet,
            "grown_from": self.found.origin_of(self.verdict.trials[TUNED].times),
            "nfe": self.nfe,
        }

    @property
    def headline(self) -> str:
        """One sentence for people."""
        k, verdict, gain, steps = len(self.schedule), self.verdict, self.verdict.gain, self.verdict.uniform_steps
        if not self.is_tuned:
            return f"{k} steps: nothing was surely nearer than {verdict.chosen} ({self.error.value:.4f}), so take that"
        worth = f"{steps.value:.1f} ({steps.low:.1f} to {steps.high:.1f})" if steps else f"more than {LONGEST * k}"
        return (
            f"{k} tuned steps err {gain.value:.2f} times less ({gain.low:.2f} to {gain.high:.2f}) than {k} of "
            f"{verdict.old}, {self.error.value:.4f} against {self.old_error.value:.4f}, "
            f"and as little as {worth} of {verdict.uniform}"
        )


def _plain(estimate: Estimate | None) -> dict[str, float] | None:
    return None if estimate is None else {"value": estimate.value, "low": estimate.low, "high": estimate.high}


Array = NDArray[np.float64]

FORMAT = "geosprint-tuning"


@dataclass(frozen=True, eq=False)
class Judged:
    """One number of steps: who was judged on which samples, and what was chosen."""

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
class Figures:
    """What one run of `geosprint tune` found."""

    command: str
    machine: str
    seed: int
    origin: Origin
    judged: list[Judged]


def save_figures(found: Sequence[Tuned], path: Path, command: str, machine: str) -> Path:
    """Write down what the schedules were chosen by."""
    told = found[0].schedule.provenance
    content = {
        "command": command,
        "machine": machine,
        "seed": told["seed"],
        "origin": told["origin"],
        "judged": [_judged_content(one) for one in found],
    }
    return write_json(path, FORMAT, content)


def load_figures(path: Path) -> Figures:
    """The inverse of `save_figures`."""
    content = read_json(path, FORMAT)
    with refusing_damage(path):
        if not isinstance(content["command"], str) or not isinstance(content["machine"], str):
            raise ValueError("command and machine must be texts")
        return Figures(
            content["command"],
            content["machine"],
            int(content["seed"]),
            Origin.from_dict(content["origin"]),
            [_judged(one) for one in content["judged"]],
        )


def _judged_content(tuned: Tuned) -> dict[str, Any]:
    verdict = tuned.verdict
    return {
        **{name: value for name, value in tuned.summary().items() if name not in ("errors", "gain")},
        "errors": {name: errors.tolist() for name, errors in verdict.errors.items()},
        "timesteps": {name: trial.times.tolist() for name, trial in verdict.trials.items()},
    }


def _judged(one: dict[str, Any]) -> Judged:
    words = {name: one[name] for name in ("solver", "measure", "chosen", "uniform")}
    errors = {name: np.array(finite(of_walks)) for name, of_walks in one["errors"].items()}
    times = {name: np.array(finite(of_steps)) for name, of_steps in one["timesteps"].items()}
    steps = int(one["steps"])
    if not all(isinstance(word, str) for word in words.values()):
        raise ValueError("solver, measure, chosen and uniform must be texts")
    if words["chosen"] not in errors or words["uniform"] not in errors or errors.keys() != times.keys():
        raise ValueError("the chosen and the uniform schedule must have errors, and all errors must have timesteps")
    if {len(of_walks) for of_walks in errors.values()} != {len(errors[words["chosen"]])} - {0}:
        raise ValueError("all schedules must be judged on the same walks")
    if steps < 1 or any(len(of_steps) != steps for of_steps in times.values()):
        raise ValueError(f"every schedule must have the same number of steps, {steps}")
    worth = one["uniform_steps"]
    estimate = Estimate(*finite([worth[part] for part in ("value", "low", "high")])) if worth else None
    return Judged(steps, **words, uniform_steps=estimate, errors=errors, timesteps=times, nfe=int(one["nfe"]))
