"""The figures of tuning as a file: every schedule that was judged, sample by sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geosprint.files import finite, read_json, refusing_damage, write_json
from geosprint.metrics.endpoint import Estimate
from geosprint.trajectory import Origin
from geosprint.tuning.result import Tuned

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
        "judged": [_plain(one) for one in found],
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


def _plain(tuned: Tuned) -> dict[str, Any]:
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
