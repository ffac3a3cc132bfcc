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
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from geosprint.models.base import Prediction
from geosprint.noise import CLEAN, Array, Flow, NoiseSchedule
from geosprint.principal_axes import PrincipalAxes
from geosprint.solvers import Number, Solver, Step, refuse_to_draw
from geosprint.teacher import TeacherTrajectories
from geosprint.tuning.config import DEFAULT, TuneConfig

Measure = Callable[[Tensor], Tensor]
"""From samples to numbers (samples, numbers) whose Euclidean distance is the error."""

# No result depends on these: slopes ask for the same times again and again.
REMEMBERED = 64  # times at which a surrogate keeps what it needs, which is as large as its trajectories
LEVELS = 4096  # times of which two numbers are kept: more than whole timesteps there are


@dataclass(frozen=True, eq=False)
class Coordinates:
    """An orthonormal basis, or the part of it that was drawn, its random rows stretched to stand for all."""

    basis: Tensor  # (coordinates, dimensions); the principal axes come first
    data: PrincipalAxes

    @classmethod
    def of(cls, trajectories: TeacherTrajectories, most: int | None) -> Coordinates:
        """Made for the ends of these trajectories, with so many coordinates at most; None: all of them."""
        data = PrincipalAxes.of(trajectories.ends.flatten(1).double())
        axes, dimensions = data.axes, data.axes.shape[1]
        count = min(dimensions, most or dimensions) - len(axes)
        if count <= 0:
            return cls(axes.float(), data)
        drawn = torch.randn(count, dimensions, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        rest, _ = torch.linalg.qr((drawn - drawn @ axes.T @ axes).T)
        stretch = math.sqrt((dimensions - len(axes)) / count)
        return cls(torch.cat([axes, stretch * rest.T]).float(), data)

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
        return Response(self.trajectories.noise, self.coordinates.data, config=self.config)


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
    data: PrincipalAxes  # whose axes are the first coordinates
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
        found = (moments + config.response_trust) / (sizes + config.response_trust)
        return np.asarray(np.clip(found, 0, config.largest_factor))

    def gains(self, times: ArrayLike, coordinates: int) -> Tensor:
        """By how much x0 moves with each coordinate of a displacement (*times, coordinates)."""
        nodes = np.linspace(0, 1, len(self.factors))
        on_axes, on_rest = (np.interp(self._position(times), nodes, factor)[..., None] for factor in self.factors.T)
        slopes = self._slopes(times)
        return self._of_coordinates(
            np.concatenate([on_axes * slopes[..., :-1], on_rest * slopes[..., -1:]], axis=-1), coordinates
        )

    def left_at_end(self, times: ArrayLike, coordinates: int) -> Tensor:
        """How much of a displacement of each coordinate the end still has (*times, coordinates)."""
        return self._of_coordinates(self._shares(times), coordinates)

    def _of_coordinates(self, numbers: Array, coordinates: int) -> Tensor:
        """From one of each axis and, last, of the rest, to one of each coordinate."""
        axes = len(self.data.variances)
        rest = np.repeat(numbers[..., -1:], coordinates - axes, axis=-1)
        return torch.from_numpy(np.concatenate([numbers[..., :-1], rest], axis=-1)).float()

    def updated(
        self, teacher: TeacherTrajectories, times: Sequence[float], states: Sequence[Tensor], x0: Sequence[Tensor]
    ) -> Response:
        """With what an evaluation shows: the states it went through and what the network predicted there."""
        found, there = list(self.observations), teacher.predictions_at(np.array(times))
        a, s = torch.from_numpy(_levels(self.noise, np.array(times)).T).float()[..., None, None]
        displaced = torch.stack(list(states)) - (a * there.x0 + s * there.eps)
        moved, sizes = torch.stack(list(x0)) - there.x0, displaced.square().mean(dim=(1, 2)).tolist()
        for t, size, one, by in zip(times, sizes, displaced.double(), moved.double(), strict=True):
            if size > self.config.smallest_displacement:
                found.append(self._observed(t, one, by))
        return replace(self, observations=tuple(found))

    def _observed(self, t: float, displaced: Tensor, moved: Tensor) -> Observation:
        slopes = torch.from_numpy(self._slopes(t))
        axes = len(self.data.variances)
        gaussian = (displaced[:, :axes] * slopes[:-1], displaced[:, axes:] * slopes[-1])
        sizes = np.array([float(part.square().sum()) for part in gaussian])
        moments = np.array(
            [float((part * real).sum()) for part, real in zip(gaussian, moved.tensor_split([axes], 1), strict=True)]
        )
        whole, floor = sizes.sum(), self.config.response_floor**2 * float(displaced.square().sum())
        counts = whole / (whole + floor) ** 2  # 1 / whole, and next to nothing where Gaussian data would not respond
        return Observation(float(self._position(t)), counts * sizes, counts * moments)

    def _slopes(self, times: ArrayLike) -> Array:
        """The Gaussian response of each axis and, last, of the rest (*times, axes + 1)."""
        a = _levels(self.noise, np.ravel(times))[:, 0].reshape(*np.shape(times), 1)
        return np.asarray(a * self._shares(times) ** 2)

    def _shares(self, times: ArrayLike) -> Array:
        """Of errors that are left at the end, likewise."""
        a, s = torch.from_numpy(_levels(self.noise, np.ravel(times)).T.reshape(2, *np.shape(times), 1))
        return self.data.left_at_end(a, s).numpy()

    def _position(self, times: ArrayLike) -> Array:
        return self.noise.clock(np.maximum(times, self.noise.last)) ** 0.5


def _levels(noise: NoiseSchedule, times: Array) -> Array:
    """a and s at these times (times, 2)."""
    return np.array([_level(noise, t) for t in times.tolist()])


@lru_cache(maxsize=LEVELS)
def _level(noise: NoiseSchedule, t: float) -> tuple[float, float]:
    return noise.signal_and_sigma(t)


@dataclass(frozen=True, eq=False)
class _Near:
    """What is known near the teacher trajectories at a time, or at one for each of several schedules."""

    a: Number
    s: Number
    offset: Tensor  # (*schedules, walks, coordinates) the x0 that is predicted where the state is 0
    gains: Tensor  # (*schedules, 1, coordinates) how it grows with the state

    def predict(self, x: Tensor, t: Any = None) -> Prediction:
        """The teacher's own x0, moved by the response; solvers that look ahead name the time, which is known."""
        x0 = torch.addcmul(self.offset, x, self.gains)
        is_clean = isinstance(self.s, float) and not self.s
        return Prediction(x0, torch.zeros_like(x) if is_clean else (x - self.a * x0) / self.s)


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A solver on what the network would predict near the teacher trajectories."""

    trajectories: TeacherTrajectories
    response: Response
    solver: Solver
    config: TuneConfig = field(default=DEFAULT)

    def predict(self, x: Tensor, t: float) -> Prediction:
        """The teacher's own x0, moved by the response."""
        return self._near(t).predict(x)

    def end(self, times: Sequence[float]) -> Tensor:
        """Where the walk of these times ends (walks, *shape)."""
        return self.ends(np.array([times]))[0]

    def ends(self, schedules: Array) -> Tensor:
        """Where the walks of several schedules of as many steps end (schedules, walks, *shape).

        They are walked together: for small tensors, most of the time is that of starting an operation.
        """
        noise, starts = self.trajectories.noise, self.trajectories.starts
        along = self._along(schedules)
        if along is None:
            return torch.cat([self.ends(one[None]) for one in schedules])
        clean = _Near(*noise.signal_and_sigma(CLEAN), torch.zeros(0), torch.zeros(0))  # nobody predicts there
        times = [*schedules[0].tolist(), CLEAN]  # of a time, solvers ask whether it is the clean end
        x, memory = starts.expand(len(schedules), *starts.shape), None
        for (t, here), (t_next, there) in pairwise(zip(times, [*along, clean], strict=True)):
            levels = (here.a, here.s, there.a, there.s)
            step = Step(t, t_next, *levels, isinstance(noise, Flow), there.predict, refuse_to_draw)
            x, memory = self.solver(x, here.predict(x), step, memory)
        return x

    def slopes(self, times: Sequence[float]) -> tuple[Tensor, Tensor]:
        """The end, and how it moves with each time (steps, walks, *shape)."""
        nudges = self._nudges(times)
        end, *moved = self.ends(np.array(times) + np.concatenate([np.zeros((1, len(times))), np.diag(nudges)]))
        return end, torch.stack([(one - end) / nudge for one, nudge in zip(moved, nudges, strict=True)])

    def _nudges(self, times: Sequence[float]) -> Array:
        """A little down, or up where there is more room."""
        noise = self.trajectories.noise
        gaps = -np.diff([noise.first, *times, noise.last]) / 2
        most = self.config.time_nudge * (noise.first - noise.last)
        above, below = np.minimum(gaps[:-1], most), np.minimum(gaps[1:], most)
        return np.where(below >= above, -below, above)

    def _along(self, schedules: Array) -> list[_Near] | None:
        """What is known at each step; None where only some have a factor of 0, from which solvers step otherwise."""
        times, which = np.unique(schedules, return_inverse=True)  # schedules that differ in one time share the others
        which = which.reshape(schedules.shape)
        levels, offset, gains = self.known_at(times)
        differ = (which != which[0]).any(axis=0)
        if (levels[which[:, differ]] == 0).any():
            return None
        rows = torch.from_numpy(which.T[differ])
        factors = torch.from_numpy(levels).to(offset)[rows][..., None, None].unbind(2)
        each = zip(*factors, offset[rows], gains[rows], strict=True)
        one = list(zip(*levels.T.tolist(), offset, gains, strict=True))
        return [_Near(*(next(each) if own else one[row])) for own, row in zip(differ, which[0], strict=True)]

    @cached_property
    def _near(self) -> Callable[[float], _Near]:
        return lru_cache(REMEMBERED)(lambda t: self._along(np.array([[t]]))[0])  # type: ignore[index]

    def known_at(self, times: Array) -> tuple[Array, Tensor, Tensor]:
        """a and s (times, 2), the x0 that is predicted where the state is 0 (times, walks, coordinates), its gains."""
        levels = _levels(self.trajectories.noise, times)
        there, (a, s) = self.trajectories.predictions_at(times), torch.from_numpy(levels.T).float()[..., None, None]
        gains = self.response.gains(times, there.x0.shape[-1])[:, None]
        return levels, there.x0 - (a * there.x0 + s * there.eps) * gains, gains
