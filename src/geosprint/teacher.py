"""Teacher trajectories: fine reference solves to learn from and to validate on, and the reference of comparisons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from geosprint.errors import GeometryError
from geosprint.models.base import Model, Prediction
from geosprint.models.spread import Spread, shared_size
from geosprint.noise import Array, NoiseSchedule
from geosprint.sampling import seeded_walk
from geosprint.schedule import check_steps, whole_steps
from geosprint.solvers import solver_named

BUDGET = 20_000
"""Network calls for one schedule, teacher trajectories included: what the paper's own recording costs."""

VALIDATION_SEED = 1_000_000  # of the first trajectory for validation, far from those of the search

FINE_SOLVER = "heun"
"""Of the reference that samples are compared with: second order, and not the solver of teacher trajectories."""

POWER = 1.5
"""Of the clock in which steps are equal: nearer together at low noise, where trajectories bend, but less so than in the
quadratic spacing, with which 100 steps have 1.5 times the error on trained networks (docs/choices.md, 29)."""


def fine_timesteps(noise: NoiseSchedule, steps: int) -> Array:
    """Where a fine solve steps."""
    check_steps(steps, noise)
    if noise.continuous:
        end = max(float(noise.clock(noise.last)), 0.0)
        return noise.time_at(end + (1 - end) * (np.arange(steps, 0, -1) / steps) ** POWER)
    return whole_steps(noise.time_at(np.linspace(1, 0, steps) ** POWER), int(noise.first))


SOLVER, GUIDED_SOLVER = "ipndm", "dpmpp-2m"  # high orders overshoot where guidance is strong (docs/fit.md)
STEPS = 60
"""Of a teacher trajectory. Whoever learns from it learns its errors: on `fashion` these are a quarter of those of
UniPC on the quadratic spacing, elsewhere both are small (docs/fit.md)."""


EXCHANGED = 2**28
"""Bytes of trajectories up to which processes exchange whole ones: of larger ones, all copies would not fit."""


@dataclass(frozen=True)
class TeacherConfig:
    """How many teacher trajectories a budget pays for."""

    share: float = 0.3  # of the budget
    fewest: int = 4  # to search on, and to validate on; what these few prove is little, and the interval says so
    enough: int = 8  # to search on, before those to validate on become more
    most: int = 96  # of both together
    searching: float = 1 / 3  # of them; fits learn from those that choose, too, 53 of 96: the rest is for the proof

    def counts(self, budget: int, calls: int) -> tuple[int, int]:
        """To search on, and to validate on."""
        both = min(max(int(self.share * budget / (STEPS * calls)), 2 * self.fewest), self.most)
        searched = min(max(int(self.searching * both), self.enough), both // 2)
        return searched, both - searched

    @property
    def least_predictions(self) -> int:
        """Predictions of the fewest."""
        return 2 * self.fewest * STEPS


@dataclass(frozen=True, eq=False)
class TeacherTrajectories:
    """Walks of many steps from known noise, in the model's own coordinates or in projected ones."""

    noise: NoiseSchedule
    rows: tuple[int, ...]  # which samples these are: a model may hold a label of each
    times: Array  # (N,) falling
    x0: Tensor  # (N, walks, *shape) what the model said of x0
    eps: Tensor  # (N, walks, *shape) and of eps
    starts: Tensor  # (walks, *shape) the noise they began with
    ends: Tensor  # (walks, *shape) where they ended
    boundary: float | None = None  # below it another network answered

    def __len__(self) -> int:
        return len(self.ends)

    def prediction_at(self, t: float) -> Prediction:
        """What the model would say on the way: between two recorded times, on the straight line between them.

        Where one network takes over from another in between, each goes on saying what it said last.
        """
        there = self.predictions_at(np.array([t]))
        return Prediction(there.x0[0], there.eps[0])

    def predictions_at(self, times: Array) -> Prediction:
        """The same at several times (times, walks, *shape)."""
        i = np.clip(np.searchsorted(-self.times, -times, side="right") - 1, 0, len(self.times) - 2)
        shares = np.clip((self.times[i] - times) / (self.times[i] - self.times[i + 1]), 0, 1)
        if self.boundary is not None:
            is_between = (self.times[i + 1] < self.boundary) & (self.boundary <= self.times[i])
            shares = np.where(is_between, np.where(times >= self.boundary, 0.0, 1.0), shares)
        weights = torch.from_numpy(shares).to(self.x0).view(-1, *[1] * (self.x0.ndim - 1))
        return Prediction(*(torch.lerp(part[i], part[i + 1], weights) for part in (self.x0, self.eps)))

    def state_at(self, t: float) -> Tensor:
        """Where the trajectories are at a time (walks, *shape)."""
        a, s = self.noise.signal_and_sigma(t)
        there = self.prediction_at(t)
        return a * there.x0 + s * there.eps

    def at(self, chosen: slice) -> TeacherTrajectories:
        """Some of the trajectories."""
        parts = (self.x0[:, chosen], self.eps[:, chosen], self.starts[chosen], self.ends[chosen])
        return TeacherTrajectories(self.noise, self.rows[chosen], self.times, *parts, self.boundary)

    def joined_with(self, other: TeacherTrajectories) -> TeacherTrajectories:
        """These and others."""
        x0, eps = (torch.cat(both, dim=1) for both in ((self.x0, other.x0), (self.eps, other.eps)))
        starts, ends = (torch.cat(both) for both in ((self.starts, other.starts), (self.ends, other.ends)))
        rows = self.rows + other.rows
        return TeacherTrajectories(self.noise, rows, self.times, x0, eps, starts, ends, self.boundary)

    def split(self, size: int) -> list[TeacherTrajectories]:
        """All of them, so many at a time."""
        return [self.at(slice(start, start + size)) for start in range(0, len(self), size)]


def record_teacher(model: Spread, seeds: Sequence[int], first_row: int = 0) -> TeacherTrajectories:
    """Solve finely from the noise of these seeds, which are the samples from `first_row` on."""
    if len(seeds) < 2:
        raise GeometryError(f"at least 2 teacher trajectories are needed, got {len(seeds)}")
    rows = range(first_row, first_row + len(seeds))
    if 8 * STEPS * len(seeds) * math.prod(model.shape) > EXCHANGED:
        return _recorded(model, seeds, rows)  # each call of which is divided
    size = shared_size(model.batch, len(seeds))
    jobs = [partial(_recorded, model, seeds[i : i + size], rows[i : i + size]) for i in range(0, len(seeds), size)]
    parts = model.each(jobs)
    x0, eps = (torch.cat(own, dim=1) for own in ([one.x0 for one in parts], [one.eps for one in parts]))
    starts, ends = (torch.cat(own) for own in ([one.starts for one in parts], [one.ends for one in parts]))
    return TeacherTrajectories(model.noise, tuple(rows), parts[0].times, x0, eps, starts, ends, parts[0].boundary)


def _recorded(model: Spread, seeds: Sequence[int], rows: range) -> TeacherTrajectories:
    """Of these seeds, which are these samples."""
    times = fine_steps(model.noise)
    x0, eps = (torch.empty(len(times), len(seeds), *model.shape) for _ in range(2))
    for i, state in enumerate(seeded_walk(model.for_samples(rows), times, seeds, solver_named(teacher_solver(model)))):
        if i == 0:
            starts = state.x.cpu()
        if state.prediction:
            x0[i], eps[i] = state.prediction.x0, state.prediction.eps
    return TeacherTrajectories(model.noise, tuple(rows), times, x0, eps, starts, state.x.cpu(), model.boundary)


def teacher_solver(model: Model) -> str:
    """The one whose trajectories can be learnt from: two calls for a prediction are guidance."""
    return SOLVER if model.calls == 1 else GUIDED_SOLVER


def fine_steps(noise: NoiseSchedule) -> Array:
    """Where teacher trajectories step, or all whole timesteps there are."""
    return fine_timesteps(noise, min(STEPS, most_steps(noise)))


def most_steps(noise: NoiseSchedule) -> int:
    """As many as a model of whole timesteps has."""
    return STEPS if noise.continuous else int(noise.first) + 1


@dataclass(frozen=True, eq=False)
class TeacherSets:
    """Teacher trajectories to search on, and others to validate on."""

    for_search: TeacherTrajectories
    for_validation: TeacherTrajectories
    seed: int
    nfe: int

    @classmethod
    def recorded(
        cls,
        model: Spread,
        budget: int = BUDGET,
        seed: int = 0,
        config: TeacherConfig | None = None,
    ) -> TeacherSets:
        """As many as a share of the budget pays for."""
        (searched, held_out), begun = (config or TeacherConfig()).counts(budget, model.calls), model.nfe
        for_search = record_teacher(model, range(seed, seed + searched))
        unseen = range(VALIDATION_SEED + seed, VALIDATION_SEED + seed + held_out)
        for_validation = record_teacher(model, unseen, searched)
        return cls(for_search, for_validation, seed, model.nfe - begun)
