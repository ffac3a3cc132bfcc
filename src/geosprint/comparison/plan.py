"""What to compare, decided before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from geosprint.errors import ScheduleError
from geosprint.models.base import Model
from geosprint.runs import BATCH
from geosprint.schedule import check_steps
from geosprint.solvers import solver_named
from geosprint.teacher import FINE_SOLVER, POWER
from geosprint.tuned import FITTED

FRESH_SEED = 10_000_000
"""Of the held-out noise that schedules are compared on, far from the seeds that they are made with."""

LISTS = {"steps", "solvers", "methods", "leave_out", "ruler"}


@dataclass(frozen=True)
class Plan:
    """Steps, solvers and methods to try, on how many samples and from how much recording."""

    steps: tuple[int, ...] = (5, 10, 20)
    solvers: tuple[str, ...] = ("ddim",)
    methods: tuple[str, ...] | None = None  # None: all that apply to the model
    leave_out: tuple[str, ...] = ()  # of all that apply
    samples: int = 256
    trajectories: int = 100  # recorded for the methods that look at them
    reference_steps: int = 200  # of each of these trajectories
    fine_steps: int = 100  # of the reference solve that samples are compared with, two calls each
    ruler: tuple[int, ...] = ()  # more numbers of steps, for uniform spacings alone: what a schedule is worth in them
    features: str | None = None  # of Fréchet distances; None: what suits the model
    seed: int = 0
    batch: int = BATCH

    def changed(self, options: Mapping[str, Any]) -> Plan:
        """This plan with these fields; None leaves a field as it is, and a single number or name is a list of one."""
        given = {name: value for name, value in options.items() if value is not None}
        for name in LISTS & given.keys():
            given[name] = (given[name],) if isinstance(given[name], int | str) else tuple(given[name])
        return replace(self, **given)

    def checked(self, model: Model) -> Plan:
        """This plan without repetitions, if all of it makes sense for the model."""
        if not self.steps or not self.solvers:
            raise ScheduleError("a comparison needs at least one number of steps and one solver")
        for steps in (*self.steps, *self.ruler):
            check_steps(steps, model.noise)
        for solver in self.solvers:
            if solver == FITTED:
                raise ScheduleError(
                    "fitted and tuned+fitted are methods of a comparison, which step in their own way whatever the "
                    "solver: ask for them among the methods"
                )
            solver_named(solver)
        if "ddpm" in self.solvers:
            raise ScheduleError("ddpm draws fresh noise, so no reference solve belongs to its samples; leave it out")
        if self.samples < 10:
            raise ScheduleError(f"the comparison needs at least 10 samples for its intervals, got {self.samples}")
        if self.trajectories < 2:
            raise ScheduleError(f"methods need at least 2 recorded trajectories, got {self.trajectories}")
        more = sorted(set(self.ruler) - set(self.steps))
        solvers = tuple(dict.fromkeys(self.solvers))
        return replace(self, steps=tuple(sorted(set(self.steps))), ruler=tuple(more), solvers=solvers)

    @property
    def fresh_seeds(self) -> range:
        """The seeds of the held-out noise."""
        return range(FRESH_SEED + self.seed, FRESH_SEED + self.seed + self.samples)

    @property
    def judged_by(self) -> dict[str, Any]:
        """What the reference solve depends on."""
        truth = [FINE_SOLVER, self.fine_steps, POWER]
        return {"samples": self.samples, "truth": truth, "features": self.features, "seed": self.seed}

    @property
    def made_from(self) -> dict[str, Any]:
        """What recorded trajectories depend on."""
        return {"trajectories": self.trajectories, "reference_steps": self.reference_steps, "seed": self.seed}


QUICK = Plan(
    leave_out=("s4s-alt", "dyweight", "neural-solver", "ld3-l2", "bns-l2", "tuned", "fitted", "tuned+fitted"),
    samples=48,
    trajectories=32,
    reference_steps=100,
    fine_steps=50,
)
"""A first look: a few minutes for a small network on two cores."""


def is_uniform(method: str) -> bool:
    """Whether a method is one of the uniform spacings: what a user has without any of this."""
    return method.startswith("uniform")
