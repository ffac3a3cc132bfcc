"""Schedules evaluated on the network: walks from the noise of teacher trajectories, and their errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from geosprint.errors import ModelError, ScheduleError
from geosprint.estimates import tempered_mean
from geosprint.metrics.features import Features
from geosprint.models.spread import Spread, shared_size
from geosprint.noise import Array
from geosprint.sampling import walk
from geosprint.solvers import Solver, refuse_to_draw
from geosprint.teacher import TeacherTrajectories
from geosprint.tuning.config import DEFAULT, TuneConfig
from geosprint.tuning.surrogate import Coordinates, Projection


@dataclass(frozen=True, eq=False)
class ErrorMeasure:
    """What an error is: the root mean square difference of samples, or of features that a user cares for."""

    shape: tuple[int, ...]
    features: Features | None = None  # None: the numbers themselves

    def __call__(self, samples: Tensor) -> Tensor:
        """Numbers (samples, numbers) whose Euclidean distance is the error."""
        numbers = samples.flatten(1) if self.features is None else self.features(samples)
        return numbers / numbers.shape[1] ** 0.5

    def errors(self, ends: Tensor, teacher_ends: Tensor) -> Array:
        """Of each end, against the teacher's."""
        return torch.linalg.vector_norm((self(ends) - self(teacher_ends)).double(), dim=1).numpy()

    def projection(self, trajectories: TeacherTrajectories, config: TuneConfig = DEFAULT) -> Projection:
        """Trajectories in as few coordinates as the measure needs."""
        if self.features is None:
            few = Coordinates.of(trajectories, config.coordinates)
            size = few.dimensions**0.5
            return Projection(few, few.of_trajectories(trajectories), lambda projected: projected / size, config)
        if trajectories.ends[0].numel() > config.feature_numbers:
            raise ScheduleError(
                f"features can be tuned for samples of up to {config.feature_numbers} numbers, this model's have "
                f"{trajectories.ends[0].numel()}; tune for rmse"
            )
        whole = Coordinates.of(trajectories, None)
        back = lambda projected: self(whole.samples_at(projected).unflatten(1, self.shape))  # noqa: E731
        return Projection(whole, whole.of_trajectories(trajectories), back, config)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What a schedule did on some teacher trajectories."""

    times: Array  # (K,)
    states: list[Tensor]  # K of (walks, coordinates)
    x0: list[Tensor]  # what the network predicted there, likewise
    end: Tensor  # (walks, coordinates)
    errors: Array  # (walks,) distance to the teacher's end

    @property
    def error(self) -> float:
        """The mean over walks: what schedules are judged by."""
        return float(self.errors.mean())

    @property
    def tempered(self) -> float:
        """What a search follows: it carries over better to other noise than the mean."""
        return tempered_mean(self.errors)

    def joined_with(self, other: Evaluation) -> Evaluation:
        """The same times on more walks."""
        states, x0 = (
            [torch.cat(both) for both in zip(mine, theirs, strict=True)]
            for mine, theirs in ((self.states, other.states), (self.x0, other.x0))
        )
        end, errors = torch.cat([self.end, other.end]), np.concatenate([self.errors, other.errors])
        return Evaluation(self.times, states, x0, end, errors)


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Teacher trajectories, and a model and a solver to follow them with fewer steps."""

    model: Spread
    solver: Solver
    trajectories: TeacherTrajectories
    measure: ErrorMeasure
    coordinates: Coordinates

    def evaluate(self, times: Array, rows: slice | None = None) -> Evaluation:
        """Walks of these times from the noise of some trajectories, or of all."""
        return self.evaluate_each([(times, rows or slice(None))])[0]

    def evaluate_each(self, asked: Sequence[tuple[Array, slice]]) -> list[Evaluation]:
        """The same of several schedules at once, so that many processes have work."""
        chosen = [(times, self.trajectories.at(rows)) for times, rows in asked]
        size = shared_size(self.model.batch, *(len(teacher) for _, teacher in chosen))
        parts = [[(times, some) for some in teacher.split(size)] for times, teacher in chosen]
        found = iter(self.model.each([partial(self.walked, *part) for own in parts for part in own]))
        return [reduce(Evaluation.joined_with, islice(found, len(own))) for own in parts]

    @torch.no_grad()
    def walked(self, times: Array, teacher: TeacherTrajectories) -> Evaluation:
        """One batch of walks, in this process."""
        model, project = self.model.for_samples(teacher.rows), self.coordinates.of_samples
        states, x0 = [], []
        for state in walk(model, teacher.starts.to(model.device), times, self.solver, refuse_to_draw):
            if state.prediction:
                states.append(project(state.x.cpu()))
                x0.append(project(state.prediction.x0.cpu()))
        end = state.x.cpu()
        if not torch.isfinite(end).all():
            shown = ", ".join(f"{t:g}" for t in times[:5]) + (", ..." if len(times) > 5 else "")
            raise ModelError(f"model {self.model.name!r} returned nan or infinity on the way along {shown}")
        return Evaluation(times, states, x0, project(end), self.measure.errors(end, teacher.ends))
