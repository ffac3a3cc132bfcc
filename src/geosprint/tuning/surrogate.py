"""The surrogate: few-step trajectories predicted from teacher trajectories, without asking the network.

For Gaussian data the answer of x0 to a displacement is linear and known: a displacement d along a principal axis of
variance v moves x0 by a·v / (a²·v + s²)·d. Trained networks follow that law up to two factors that change with time,
one for the axes and one for what lies outside of them. Real trajectories tell the factors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geosprint.models.base import Prediction
from geosprint.noise import CLEAN, NoiseSchedule
from geosprint.solvers import Solver, Step, refuse_to_draw
from geosprint.teacher import TeacherTrajectories

FEW = 256  # as many coordinates tell a root mean square over 48 samples to about a hundredth


@dataclass(frozen=True, eq=False)
class Coordinates:
    """An orthonormal basis, or the part of it that was drawn, its random rows stretched to stand for all."""

    basis: Tensor  # (coordinates, dimensions); the principal axes come first
    variances: Tensor  # (axes,) of the data along its principal axes, falling

    @classmethod
    def of(cls, walks: TeacherTrajectories, most: int | None = FEW) -> Coordinates:
        """Made for the ends of these walks, with so many coordinates at most; None: all of them."""
        ends = walks.ends.flatten(1).double()
        dimensions = ends.shape[1]
        _, lengths, axes = torch.linalg.svd(ends - ends.mean(dim=0), full_matrices=False)
        known = lengths > 1e-6 * lengths[0].clamp(min=1e-12)  # of n walks there are at most n - 1
        axes, variances = axes[known], (lengths[known] ** 2 / (len(ends) - 1))
        count = min(dimensions, most or dimensions) - len(axes)
        if count <= 0:
            return cls(axes.float(), variances.float())
        drawn = torch.randn(count, dimensions, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        rest, _ = torch.linalg.qr((drawn - drawn @ axes.T @ axes).T)
        stretch = math.sqrt((dimensions - len(axes)) / count)
        return cls(torch.cat([axes, stretch * rest.T]).float(), variances.float())

    @property
    def dimensions(self) -> int:
        """Of the samples."""
        return self.basis.shape[1]

    def of_samples(self, samples: Tensor) -> Tensor:
        """(samples, *shape) as (samples, coordinates)."""
        return samples.flatten(1) @ self.basis.T

    def of_walks(self, walks: TeacherTrajectories) -> TeacherTrajectories:
        """The same walks, told in coordinates: solvers and responses are linear, so that nothing else changes."""
        x0, eps = (torch.stack([self.of_samples(part) for part in parts]) for parts in (walks.x0, walks.eps))
        ends = (self.of_samples(walks.starts), self.of_samples(walks.ends))
        return TeacherTrajectories(walks.noise, walks.rows, walks.times, x0, eps, *ends)

    def samples_at(self, coordinates: Tensor) -> Tensor:
        """Back to (samples, dimensions); exact if all coordinates were kept."""
        return coordinates @ self.basis


Array = NDArray[np.float64]

PLACES = 65  # of the clock's square root, at which the factors are known
REACH = 0.05  # how far, in the clock's square root, a lesson is felt
TRUST_IN_LAW = 0.05  # the law counts as much as so many lessons
SMALLEST = 1e-6  # mean square of a displacement from which something can be learnt


@dataclass(frozen=True, eq=False)
class Lesson:
    """What one real step taught of the two factors, the axes and the rest being orthogonal."""

    place: float  # square root of the clock
    sizes: Array  # (2,) share of the law's squared answer
    moments: Array  # (2,) the same times the factor that suits best


@dataclass(frozen=True, eq=False)
class Response:
    """The law, and the factors as far as they are known, for walks told in `Coordinates`."""

    noise: NoiseSchedule
    variances: Tensor  # (axes,) of the first coordinates, falling
    lessons: tuple[Lesson, ...] = ()
    factors: Array = field(default_factory=lambda: np.ones((PLACES, 2)))  # of the axes and of the rest

    def __call__(self, displaced: Tensor, t: float) -> Tensor:
        """By how much x0 moves (walks, coordinates)."""
        place = self._place(t) * (PLACES - 1)
        below = min(int(place), PLACES - 2)
        on_axes, on_rest = self.factors[below] + (place - below) * (self.factors[below + 1] - self.factors[below])
        slopes = self._slopes(t)
        moved = displaced * (float(on_rest) * float(slopes[-1]))
        moved[:, : len(slopes)] = displaced[:, : len(slopes)] * (float(on_axes) * slopes)
        return moved

    def taught(
        self, walks: TeacherTrajectories, times: Sequence[float], states: Sequence[Tensor], x0: Sequence[Tensor]
    ) -> Response:
        """With what a walk that was really taken says: its states and what the model answered there."""
        lessons = list(self.lessons)
        for t, state, answer in zip(times, states, x0, strict=True):
            displaced = state - walks.state_at(t)
            if float(displaced.square().mean()) > SMALLEST:
                lessons.append(self._lesson(t, displaced.double(), (answer - walks.prediction_at(t).x0).double()))
        return replace(self, lessons=tuple(lessons), factors=fitted_factors(lessons))

    def _lesson(self, t: float, displaced: Tensor, moved: Tensor) -> Lesson:
        slopes = self._slopes(t).double()
        axes = len(slopes)
        told = (displaced[:, :axes] * slopes, displaced[:, axes:] * slopes[-1])
        sizes = np.array([float(part.square().sum()) for part in told])
        moments = np.array(
            [float((part * real).sum()) for part, real in zip(told, moved.tensor_split([axes], 1), strict=True)]
        )
        return Lesson(self._place(t), sizes / sizes.sum(), moments / sizes.sum())

    def _slopes(self, t: float) -> Tensor:
        """What the law says of each axis; the rest has the variance of the last one."""
        a, s = self.noise.signal_and_sigma(t)
        return a * self.variances / (a**2 * self.variances + s**2)

    def _place(self, t: float) -> float:
        return float(self.noise.clock(max(t, self.noise.last))) ** 0.5


def fitted_factors(lessons: Sequence[Lesson]) -> Array:
    """Least squares at every place over the lessons around it, drawn toward the law."""
    if not lessons:
        return np.ones((PLACES, 2))
    places = np.linspace(0, 1, PLACES)
    felt = np.exp(-(((places[:, None] - np.array([lesson.place for lesson in lessons])) / REACH) ** 2))
    sizes, moments = (
        felt @ np.stack(parts) for parts in zip(*((one.sizes, one.moments) for one in lessons), strict=True)
    )
    return (moments + TRUST_IN_LAW) / (sizes + TRUST_IN_LAW)


NUDGE = 1e-3  # share of all time by which a step is moved to see what follows


@dataclass(frozen=True, eq=False)
class Shadow:
    """A solver on what the model would say near the fine walks."""

    walks: TeacherTrajectories
    response: Response
    solver: Solver

    def predict(self, x: Tensor, t: float) -> Prediction:
        """The fine walk's own x0, moved as the response says."""
        a, s = self.walks.noise.signal_and_sigma(t)
        there = self.walks.prediction_at(t)
        x0 = there.x0 + self.response(x - (a * there.x0 + s * there.eps), t)
        return Prediction(x0, (x - a * x0) / s if s else torch.zeros_like(x))

    def end(self, times: Sequence[float]) -> Tensor:
        """Where the walk of these times ends (walks, *shape)."""
        return self._walked(times, 0, (self.walks.starts, None))[-1][0]

    def slopes(self, times: Sequence[float]) -> tuple[Tensor, Tensor]:
        """The end, and how it moves with each time (steps, walks, *shape); what lies before a step is walked once."""
        states = self._walked(times, 0, (self.walks.starts, None))
        end, moved = states[-1][0], []
        for i, nudge in enumerate(self._nudges(times)):
            nudged = [*times[:i], times[i] + nudge, *times[i + 1 :]]
            before = max(i - 1, 0)
            moved.append((self._walked(nudged, before, states[before])[-1][0] - end) / nudge)
        return end, torch.stack(moved)

    def _nudges(self, times: Sequence[float]) -> Array:
        """A little down, or up where there is more room."""
        noise = self.walks.noise
        gaps = -np.diff([noise.first, *times, noise.last]) / 2
        most = NUDGE * (noise.first - noise.last)
        above, below = np.minimum(gaps[:-1], most), np.minimum(gaps[1:], most)
        return np.where(below >= above, -below, above)

    def _walked(self, times: Sequence[float], first: int, state: tuple[Tensor, Any]) -> list[tuple[Tensor, Any]]:
        """States and the solver's memories from step `first` on."""
        found = [state]
        for i in range(first, len(times)):
            t, t_next = times[i], times[i + 1] if i + 1 < len(times) else CLEAN
            x, memory = found[-1]
            step = Step.between(self.walks.noise, t, t_next, self.predict, refuse_to_draw)
            found.append(self.solver(x, self.predict(x, t), step, memory))
        return found
