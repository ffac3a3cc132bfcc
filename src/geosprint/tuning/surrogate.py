"""The surrogate: few-step trajectories predicted from teacher trajectories, without asking the network.

For Gaussian data the response of x0 to a displacement is linear and known: a displacement d along a principal axis of
variance v moves x0 by a·v / (a²·v + s²)·d. Trained networks follow it up to two factors that change with time, one for
the axes and one for what lies outside of them. Evaluations on the network show the factors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geosprint.models.base import Prediction
from geosprint.noise import CLEAN, Flow, NoiseSchedule
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
        known[0] = True  # of equal ends, one of no length
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
        return TeacherTrajectories(full.noise, full.rows, full.times, x0, eps, *ends, full.boundary)

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

    @property
    def response(self) -> Response:
        """That of Gaussian data, as nothing has been observed yet."""
        return Response(self.trajectories.noise, self.coordinates.variances, config=self.config)


@dataclass(frozen=True, eq=False)
class Observation:
    """What one step on the network shows of the two factors, the axes and the rest being orthogonal."""

    position: float  # square root of the clock
    sizes: Array  # (2,) share of the squared Gaussian response
    moments: Array  # (2,) the same times the factor that suits best


@dataclass(frozen=True, eq=False)
class Response:
    """How far x0 moves when the state is displaced: as for Gaussian data, times two factors, as far as known."""

    noise: NoiseSchedule
    variances: Tensor  # (axes,) of the first coordinates, falling
    observations: tuple[Observation, ...] = ()
    config: TuneConfig = DEFAULT

    @cached_property
    def factors(self) -> Array:
        """(nodes, 2) of the axes and of the rest: least squares over observations around, drawn toward 1."""
        config, nodes = self.config, np.linspace(0, 1, self.config.response_nodes)
        if not self.observations:
            return np.ones((len(nodes), 2))
        positions = np.array([one.position for one in self.observations])
        felt = np.exp(-(((nodes[:, None] - positions) / config.response_reach) ** 2))
        sizes, moments = (
            felt @ np.stack(parts)
            for parts in zip(*((one.sizes, one.moments) for one in self.observations), strict=True)
        )
        return (moments + config.response_trust) / (sizes + config.response_trust)

    def gains(self, t: float, coordinates: int) -> Tensor:
        """By how much x0 moves with each coordinate of a displacement (coordinates,)."""
        node = self._position(t) * (len(self.factors) - 1)
        below = min(int(node), len(self.factors) - 2)
        on_axes, on_rest = self.factors[below] + (node - below) * (self.factors[below + 1] - self.factors[below])
        slopes = self._slopes(t)
        gains = torch.full((coordinates,), float(on_rest) * float(slopes[-1]))
        gains[: len(slopes)] = float(on_axes) * slopes
        return gains

    def updated(
        self, teacher: TeacherTrajectories, times: Sequence[float], states: Sequence[Tensor], x0: Sequence[Tensor]
    ) -> Response:
        """With what an evaluation shows: the states it went through and what the network predicted there."""
        found = list(self.observations)
        for t, state, predicted in zip(times, states, x0, strict=True):
            displaced = state - teacher.state_at(t)
            if float(displaced.square().mean()) > self.config.smallest_displacement:
                found.append(self._observed(t, displaced.double(), (predicted - teacher.prediction_at(t).x0).double()))
        return replace(self, observations=tuple(found))

    def _observed(self, t: float, displaced: Tensor, moved: Tensor) -> Observation:
        slopes = self._slopes(t).double()
        axes = len(slopes)
        gaussian = (displaced[:, :axes] * slopes, displaced[:, axes:] * slopes[-1])
        sizes = np.array([float(part.square().sum()) for part in gaussian])
        moments = np.array(
            [float((part * real).sum()) for part, real in zip(gaussian, moved.tensor_split([axes], 1), strict=True)]
        )
        return Observation(self._position(t), sizes / sizes.sum(), moments / sizes.sum())

    def _slopes(self, t: float) -> Tensor:
        """The Gaussian response of each axis; the rest has the variance of the last one."""
        a, s = self.noise.signal_and_sigma(t)
        return a * self.variances / (a**2 * self.variances + s**2)

    def _position(self, t: float) -> float:
        return float(self.noise.clock(max(t, self.noise.last))) ** 0.5


@dataclass(frozen=True, eq=False)
class _Near:
    """What is known near the teacher trajectories at one time."""

    a: float
    s: float
    x0: Tensor  # (walks, coordinates) on the trajectories themselves
    state: Tensor  # (walks, coordinates)
    gains: Tensor  # (coordinates,)


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A solver on what the network would predict near the teacher trajectories."""

    trajectories: TeacherTrajectories
    response: Response
    solver: Solver
    config: TuneConfig = field(default=DEFAULT)

    def predict(self, x: Tensor, t: float) -> Prediction:
        """The teacher's own x0, moved by the response."""
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
        gains = self.response.gains(t, there.x0.shape[1])
        return _Near(a, s, there.x0, a * there.x0 + s * there.eps, gains)
