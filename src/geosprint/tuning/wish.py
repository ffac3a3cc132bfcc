"""What tuning is asked for, and what it must be given for that."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from geosprint.errors import ScheduleError
from geosprint.fitted_solver import check_order
from geosprint.fitting.config import FitConfig
from geosprint.metrics.features import load_features
from geosprint.models.base import Model
from geosprint.noise import Flow
from geosprint.runs import BATCH
from geosprint.schedule import StepSchedule, check_steps, checked_times
from geosprint.solvers import SOLVERS
from geosprint.teacher import BUDGET
from geosprint.tuned import FITTED
from geosprint.tuning.config import DEFAULT, TuneConfig
from geosprint.tuning.problem import RMSE, walk_price
from geosprint.tuning.today import TodaysRun

MOST_CALLS = 10**12  # four thousand years of an A100 with SDXL; no clock can say how long more would take


@dataclass(frozen=True)
class Wish:
    """What is to be found, and all that the calls made for it depend on."""

    steps: tuple[int, ...]  # none: the fewest that are as good as today's
    today: TodaysRun
    solver: str = FITTED
    target_error: float | None = None
    measure: str = RMSE
    against: StepSchedule | None = None  # a schedule of the user's that must be beaten too
    schedules: tuple[StepSchedule, ...] = ()  # to fit on, instead of those that the surrogate proposes
    order: int = FitConfig.order
    budget_nfe: int = BUDGET
    seed: int = 0
    batch: int = BATCH

    def yours(self, steps: int) -> StepSchedule | None:
        """The schedule of the user's, where it has so many steps."""
        return self.against if self.against is not None and len(self.against) == steps else None

    def to_dict(self) -> dict[str, Any]:
        """For whoever resumes it."""
        given = {name: value for name, value in self.__dict__.items() if name not in ("today", "against", "schedules")}
        places = {
            "against": None if self.against is None else self.against.timesteps.tolist(),
            "schedules": [one.timesteps.tolist() for one in self.schedules],
        }
        return {**given, **places, "steps": list(self.steps), "today": self.today.today.__dict__}

    def check(self, model: Model, config: TuneConfig = DEFAULT) -> None:
        """Refuse what cannot be tuned before anything runs."""
        for steps in self.steps:
            check_steps(steps, model.noise)
        check_order(self.order)
        if self.solver == "ddpm":
            raise ScheduleError("ddpm draws fresh noise, so it follows no teacher trajectory; tune another solver")
        if self.solver not in (FITTED, *SOLVERS):
            raise ScheduleError(f"solver must be one of {FITTED}, {', '.join(SOLVERS)}, got {self.solver!r}")
        if self.solver == "dpmpp-2m-kdiffusion" and not isinstance(model.noise, Flow):
            raise ScheduleError(
                "dpmpp-2m-kdiffusion differs from dpmpp-2m on flows alone; tune this model for dpmpp-2m"
            )
        if self.target_error is not None and not 0 < self.target_error < math.inf:
            raise ScheduleError(f"the target error must be a number above 0, got {self.target_error:g}")
        if self.measure != RMSE:
            load_features(self.measure)
        if self.against is not None:
            if self.solver == FITTED:
                raise ScheduleError("a schedule of yours is for one solver: name that, as in --solver ddim, to keep it")
            checked_times(self.against.timesteps, model.noise, f"model {model.name!r}")
        for schedule in self.schedules:
            if len(schedule) != self.steps[0]:
                raise ScheduleError(
                    f"the schedule has {len(schedule)} steps, asked were {self.steps[0]}; they must agree"
                )
            schedule.check_fits(model.noise, model.name)
        if self.budget_nfe < (least := self.least_budget(model, config)):
            raise ScheduleError(
                f"this takes a budget of at least {least:,} network calls, got {self.budget_nfe:,}; allow more"
            )
        if self.budget_nfe > MOST_CALLS:
            raise ScheduleError(f"the budget may be up to {MOST_CALLS:,} network calls, got {self.budget_nfe:,}")

    def least_budget(self, model: Model, config: TuneConfig = DEFAULT) -> int:
        """Calls for the fewest trajectories, for today's steps on them, and for each number of steps at its least."""
        few, now = config.teacher.fewest, self.today.today.steps
        todays = few * (self.today.calls(now) + self.today.calls(config.fewer_of(now)))
        # For each trajectory walks to fit to and to prove by, some to choose among, and two to decide between.
        walks = sum(few * 6 * walk_price(model, steps, self.solver) for steps in self.steps or (config.unknown_steps,))
        return model.calls * (config.teacher.least_predictions + todays) + walks
