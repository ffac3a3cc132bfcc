"""The surrogate: few-step trajectories predicted from teacher trajectories, without asking the network.

For Gaussian data the response of x0 to a displacement is linear and known: a displacement d along a principal axis of
variance v moves x0 by a·v / (a²·v + s²)·d. Trained networks follow it closely enough to put schedules in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geosprint.models.base import Prediction
from geosprint.noise import CLEAN, Flow
from geosprint.solvers import Solver, Step, refuse_to_draw
from geosprint.teacher import TeacherTrajectories
from geosprint.tuning.config import DEFAULT, TuneConfig

Array = NDArray[np.float64]
Measure = Callable[[Tensor], Tensor]
"""From samples to numbers (samples, numbers) whose Euclidean distance is the error."""

REMEMBERED = 64  # times at which a surrogate keeps what it needs: slopes ask for the same times again and again


@dataclass(frozen=True, eq=False)
class Coordinates:
    """An orthonormal basis, or the part of it that was drawn, its random rows stretched to stand for all."""

    basis: Tensor  # (coordinates, dimensions); the principal axes come first
    variances: Tensor  # (axes,) of the data along its principal axes, falling

    @classmethod
    def of(cls, trajectories: TeacherTrajectories, most: int | None) -> Coordinates:
        """Made for the ends of these trajectories, with so many coordinates at most; None: all of them."""
        ends = trajectories.ends.flatten(1).double()
        dimensions = ends.shape[1]
        _, lengths, axes = torch.linalg.svd(ends - ends.mean(dim=0), full_matrices=False)
        known = lengths > 1e-6 * lengths[0].clamp(min=1e-12)  # n ends have at most n - 1 axes
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

    def of_trajectories(self, full: TeacherTrajectories) -> TeacherTrajectories:
        """The same trajectories in coordinates: solvers and responses are linear, so that nothing else changes."""
        x0, eps = (torch.stack([self.of_samples(part) for part in parts]) for parts in (full.x0, full.eps))
        ends = (self.of_samples(full.starts), self.of_samples(full.ends))
        return TeacherTrajectories(full.noise, full.rows, full.times, x0, eps, *ends)

    def samples_at(self, coordinates: Tensor) -> Tensor:
        """Back to (samples, dimensions); exact if all coordinates were kept."""
        return coordinates @ self.basis


@dataclass(frozen=True, eq=False)
class Projection:
    """Teacher trajectories in coordinates, and the error of what is given in them."""

    coordinates: Coordinates
    trajectories: TeacherTrajectories
    measure: Measure
    config: TuneConfig = DEFAULT


@dataclass(frozen=True, eq=False)
class _Near:
    """What is known near the teacher trajectories at one time."""

    a: float
    s: float
    x0: Tensor  # (walks, coordinates) on the trajectories themselves
    state: Tensor  # (walks, coordinates)
    gains: Tensor  # (coordinates,) by how much x0 moves with a displacement


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A solver on what the network would predict near the teacher trajectories."""

    trajectories: TeacherTrajectories
    variances: Tensor  # (axes,) of the first coordinates, falling; the rest has the last of them
    solver: Solver
    config: TuneConfig = DEFAULT

    def predict(self, x: Tensor, t: float) -> Prediction:
        """The teacher's own x0, moved as that of Gaussian data would be."""
        near = self._near(t)
        x0 = near.x0 + (x - near.state) * near.gains
        return Prediction(x0, (x - near.a * x0) / near.s if near.s else torch.zeros_like(x))

    def end(self, times: Sequence[float]) -> Tensor:
        """Where the walk of these times ends (walks, *shape)."""
        return self._walked(times, 0, (self.trajectories.starts, None))[-1][0]

    def slopes(self, times: Sequence[float]) -> tuple[Tensor, Tensor]:
        """The end, and how it moves with each time (steps, walks, *shape); what lies before a step is walked once."""
        states = self._walked(times, 0, (self.trajectories.starts, None))
        end, moved = states[-1][0], []
        for i, nudge in enumerate(self._nudges(times)):
            nudged = [*times[:i], times[i] + nudge, *times[i + 1 :]]
            before = max(i - 1, 0)
            moved.append((self._walked(nudged, before, states[before])[-1][0] - end) / nudge)
        return end, torch.stack(moved)

    def _nudges(self, times: Sequence[float]) -> Array:
        """A little down, or up where there is more room."""
        noise = self.trajectories.noise
        gaps = -np.diff([noise.first, *times, noise.last]) / 2
        most = self.config.time_nudge * (noise.first - noise.last)
        above, below = np.minimum(gaps[:-1], most), np.minimum(gaps[1:], most)
        return np.where(below >= above, -below, above)

    def _walked(self, times: Sequence[float], first: int, state: tuple[Tensor, Any]) -> list[tuple[Tensor, Any]]:
        """States and the solver's memories from step `first` on."""
        found, is_flow = [state], isinstance(self.trajectories.noise, Flow)
        for i in range(first, len(times)):
            t, t_next = times[i], times[i + 1] if i + 1 < len(times) else CLEAN
            x, memory = found[-1]
            step = Step(t, t_next, *self._level(t), *self._level(t_next), is_flow, self.predict, refuse_to_draw)
            found.append(self.solver(x, self.predict(x, t), step, memory))
        return found

    @cached_property
    def _level(self) -> Callable[[float], tuple[float, float]]:
        return lru_cache(REMEMBERED)(self.trajectories.noise.signal_and_sigma)

    @cached_property
    def _near(self) -> Callable[[float], _Near]:
        return lru_cache(REMEMBERED)(self._known_at)

    def _known_at(self, t: float) -> _Near:
        (a, s), there = self._level(t), self.trajectories.prediction_at(t)
        on_axes = a * self.variances / (a**2 * self.variances + s**2)
        gains = torch.full(there.x0.shape[1:], float(on_axes[-1]))
        gains[: len(on_axes)] = on_axes
        return _Near(a, s, there.x0, a * there.x0 + s * there.eps, gains)
