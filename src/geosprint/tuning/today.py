"""What is run today: so many steps of a known solver on a spacing, or whatever the pipeline's own scheduler does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from geosprint.baselines import BASELINES, applicable_baselines
from geosprint.errors import ScheduleError
from geosprint.integrations.adapter import PipelineModel
from geosprint.models.base import Model
from geosprint.noise import Flow, NoiseSchedule
from geosprint.sampling import walk
from geosprint.schedule import check_steps
from geosprint.solvers import predictions_of_walk, refuse_to_draw, solver_named
from geosprint.tuned import Today

STEPS = 50  # what diffusers' pipelines of DDIM and Stable Diffusion take if nobody says how many
SPACING = "uniform-trailing"  # begins at the first time, and every noise schedule has it, flows too


class TodaysRun(Protocol):
    """Walks as they are made today."""

    @property
    def today(self) -> Today:
        """In words."""

    def calls(self, steps: int) -> int:
        """How often a walk of so many steps asks the network."""

    def ends(self, model: Model, starts: Tensor, steps: int) -> Tensor:
        """Where so many steps lead from this noise."""


@dataclass(frozen=True)
class KnownRun:
    """A known solver on the spacing of a closed form."""

    today: Today
    noise: NoiseSchedule

    def calls(self, steps: int) -> int:
        """How often a walk of so many steps asks the network."""
        return predictions_of_walk(self.today.solver, steps)

    def ends(self, model: Model, starts: Tensor, steps: int) -> Tensor:
        """Where so many steps lead from this noise."""
        times = BASELINES[self.today.spacing](self.noise, steps)
        *_, end = walk(model, starts, times, solver_named(self.today.solver), refuse_to_draw)
        return end.x


def todays_run(model: Model, described: str | None) -> TodaysRun:
    """What is described as solver:steps or solver:steps:spacing; else what a pipeline runs, or 50 uniform steps."""
    if described is None and isinstance(model, PipelineModel):
        from geosprint.integrations.today import today_of

        own = today_of(model.pipe, model.inputs)
        if own.is_deterministic:
            return own
        # A sampler that draws fresh noise has no end to be compared with: its steps are taken without.
        described = f"{_plain_solver(model)}:{own.today.steps}:{own.today.spacing}"
    if described is None:
        described = f"{_plain_solver(model)}:{_most(STEPS, model.noise)}"
    return _described(described, model.noise)


def _described(text: str, noise: NoiseSchedule) -> KnownRun:
    solver, steps, spacing, *more = [*text.split(":"), SPACING] if text.count(":") == 1 else [*text.split(":"), "", ""]
    if not steps.isdecimal() or any(more):
        raise ScheduleError(f"today must be solver:steps or solver:steps:spacing, as in ddim:50, got {text!r}")
    if solver == "ddpm":
        raise ScheduleError("ddpm draws fresh noise, so it has no error against a reference solve; say ddim")
    solver_named(solver)
    check_steps(int(steps), noise)
    if spacing not in applicable_baselines(noise):
        raise ScheduleError(f"the spacing must be one of {', '.join(applicable_baselines(noise))}, got {spacing!r}")
    return KnownRun(Today(solver, int(steps), spacing), noise)


def _plain_solver(model: Model) -> str:
    return "euler" if isinstance(model.noise, Flow) else "ddim"


def _most(steps: int, noise: NoiseSchedule) -> int:
    return steps if noise.continuous else min(steps, int(noise.first) + 1)
