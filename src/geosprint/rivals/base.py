"""What a method is given, and what it must give: K falling times for one model and one solver."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from geosprint.extraction import profile_trajectories
from geosprint.fitted_solver import FittedSolver
from geosprint.linear_solver import LinearSolver
from geosprint.models.base import Model, Predict, Prediction, forwarded, predict
from geosprint.models.spread import Spread
from geosprint.noise import Array
from geosprint.profile import CurvatureProfile
from geosprint.sampling import record, record_in_files
from geosprint.schedule import StepSchedule, check_steps
from geosprint.teacher import TeacherSets
from geosprint.trajectory import Trajectories

OwnSolver = FittedSolver | LinearSolver
"""How a method steps that does not leave it to a known solver."""


class Evidence(Protocol):
    """What published schedules are made from: recorded trajectories, and a way to predict x0 and eps elsewhere.

    A comparison asks the network; `tune` hands over its surrogate instead, and no call is made.
    """

    @property
    def recorded(self) -> Trajectories:
        """Reference trajectories with the predictions along them."""

    @property
    def profile(self) -> CurvatureProfile:
        """Where they bend."""

    def predictor(self, rows: Sequence[int]) -> Predict:
        """What predicts for these samples, in this order; states and predictions are on the CPU."""


@dataclass(eq=False)
class Recording:
    """Reference trajectories that are recorded when somebody first looks, once for all methods and solvers."""

    model: Spread
    trajectories: int = 100
    steps: int = 200
    seed: int = 0
    progress: bool = False
    directory: Path | None = None  # that all processes see, in which they share what they have recorded

    @cached_property
    def walks(self) -> Trajectories:
        """States and the predictions along them, in raw coordinates."""
        seeds = range(self.seed, self.seed + self.trajectories)
        if self.directory:
            return record_in_files(self.model, seeds, self.steps, self.model.batch, self.directory, self.progress)
        return record(self.model, seeds, self.steps, batch=self.model.batch, predictions=True, progress=self.progress)

    @property
    def is_made(self) -> bool:
        """Whether somebody has looked."""
        return "walks" in self.__dict__

    @cached_property
    def teacher(self) -> TeacherSets:
        """Teacher trajectories, to learn from and to validate on."""
        return TeacherSets.recorded(self.model, seed=self.seed)

    @cached_property
    def profile(self) -> CurvatureProfile:
        """Where the walks bend."""
        return profile_trajectories(self.walks)


@dataclass(frozen=True)
class Task:
    """A model, the solver that schedules are made for, and what was recorded of the model."""

    model: Spread
    solver: str
    recording: Recording

    @classmethod
    def of(cls, model: Model, solver: str, trajectories: int = 100, reference_steps: int = 200, seed: int = 0) -> Task:
        """The task of making schedules for this model and this solver."""
        spread = Spread(model)
        return cls(spread, solver, Recording(spread, trajectories, reference_steps, seed))

    recorded = forwarded("recording.walks")
    profile = forwarded("recording.profile")

    def predictor(self, rows: Sequence[int]) -> Predict:
        """The model itself, as it is for these samples."""
        own = self.model.for_samples(rows)

        def asked(x: Tensor, t: float) -> Prediction:
            found = predict(own, x.to(own.device), t)
            return Prediction(found.x0.cpu(), found.eps.cpu())

        return asked


@dataclass(frozen=True)
class Method:
    """One way to choose K times, and perhaps how to step from one to the next."""

    name: str
    build: Callable[[Any, int], Array | OwnSolver]  # from a Task: K strictly falling known times, or its own way
    source: str  # who published it
    from_recording: bool = False  # looks at `Task.recorded`, whose calls are then part of its cost
    is_start: bool = False  # looks at `Evidence` alone, so that `tune` can start from it without a call
    from_teacher: bool = False  # looks at `Recording.teacher`, likewise
    for_solver: bool = False  # makes other schedules for other solvers
    is_limit: bool = False  # a bound on what schedules can reach rather than a rival
    applies: Callable[[Task], bool] = lambda task: True


@dataclass(frozen=True)
class Built:
    """A schedule and what it cost to make."""

    schedule: StepSchedule
    nfe: int  # network calls on one sample, the recording included if the method looked at it
    seconds: float  # without the recording
    backprops: int = 0  # of these calls, those that a gradient went back through
    solver: OwnSolver | None = None  # instead of the task's, if the method says how to step


def build(method: Method, task: Task, steps: int) -> Built:
    """Let a method make its schedule, and count."""
    check_steps(steps, task.model.noise)
    recording = task.recorded.nfe if method.from_recording else 0
    recording += task.recording.teacher.nfe if method.from_teacher else 0
    tally = task.model.tally
    before, backprops, begun = tally.nfe, tally.backprops, time.monotonic()
    made = method.build(task, steps)
    spent, seconds = tally.nfe - before, time.monotonic() - begun
    solver = made if isinstance(made, OwnSolver) else None
    times = made.schedule.timesteps if isinstance(made, OwnSolver) else made
    schedule = StepSchedule.at(times, task.model.noise, {"method": method.name})
    return Built(schedule, recording + spent, seconds, tally.backprops - backprops, solver)
