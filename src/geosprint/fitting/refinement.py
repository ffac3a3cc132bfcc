"""Refine all steps together on the error at the end: Gauss-Newton with measured slopes.

The stepwise fit weighs errors by what Gaussian data would leave of them at the end. What the network leaves of them is
measured: coefficients are moved a little and the remaining steps are taken again; of few steps, the times as well, at
which the network is asked. No gradient of it is needed. How far to follow the slopes, the ridge, is decided by two
things: trajectories that are left out in turn show, without a call, how much of a gain carries over to others, and
walks show how far the slopes hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from geosprint.estimates import tempered_mean
from geosprint.fitted_solver import Coefficients, known_coefficients, order_of, stepped
from geosprint.fitting.stepwise import (
    Ask,
    StudentTrajectories,
    asking,
    ridge_solution,
    student_trajectories,
    weights_of_distances,
)
from geosprint.models.spread import Spread, shared_size
from geosprint.noise import Array, NoiseSchedule
from geosprint.schedule import known_times
from geosprint.teacher import TeacherTrajectories

Move = dict[tuple[int, int], float]
"""Numbers that are moved together, by (step, index), and by how much."""

TIME = -1
"""The index of the time at which a step asks the network; others are those of its coefficients."""

NUDGE = 1e-2  # root mean square by which a state is moved: trained networks are not smooth on less
TIME_NUDGE = 0.1  # share of the gap to the next time by which one is moved, for the same reason
MOVED_TIMES = 6  # steps up to which times are moved, too: with more, schedules are near enough to the best
BLOCKS, FEWEST_BLOCKS = 10, 5  # of neighbouring steps moved together: slopes of every single step are expensive
ENOUGH = 24  # trajectories behind slopes: with fewer, larger blocks are the lesser evil
FEWEST = 12  # six are learnt by heart, and make four steps of digits half as bad again
FOLDS = 6  # of trajectories that are left out in turn
REWEIGHTINGS = 3  # from squares to distances
RIDGES = ((1e-3, 1.0), (1e-1, 1.0))  # of coefficients and of times; weaker ones lead beyond where the slopes hold
TIME_RIDGES = (*RIDGES, (1e-1, 1e-1), (1e-1, 1e-2))  # where times are moved, too
BOUND = 4.0  # on the distance of a coefficient from that of DPM++ 2M; slopes tell more of it than a step does
ROUNDS = 4
LEAST_GAIN = 0.01  # of a round, relative to the error, that is followed by another


@dataclass(frozen=True, eq=False)
class Refined:
    """Steps from the noise of the teacher trajectories, and by how much they flatter themselves there."""

    student: StudentTrajectories
    errors: Array  # (trajectories,)
    flattery: float = 0.0

    @property
    def error(self) -> float:
        """As it is expected on other trajectories."""
        return tempered_mean(self.errors) + self.flattery


@dataclass(frozen=True, eq=False)
class Slopes:
    """How the ends of some trajectories depend on moves: the normal equations of each trajectory.

    The effects of all moves on all pixels of all trajectories would not fit into memory.
    """

    products: Array  # (trajectories, moves, moves) of the effects of two moves
    pulls: Array  # (trajectories, moves) products of the effects with what is missing
    squares: Array  # (trajectories,) of what is missing; all are means over dimensions

    def __len__(self) -> int:
        return len(self.squares)

    def joined_with(self, other: Slopes) -> Slopes:
        """On more trajectories."""
        pairs = zip(self._parts, other._parts, strict=True)
        return Slopes(*(np.concatenate(both) for both in pairs))

    def at(self, rows: Array) -> Slopes:
        """On some of the trajectories."""
        return Slopes(*(part[rows] for part in self._parts))

    @property
    def _parts(self) -> tuple[Array, Array, Array]:
        return self.products, self.pulls, self.squares

    def distances(self, amounts: Array) -> Array:
        """Root mean square errors after so much of each move, if the slopes hold."""
        curved = np.einsum("wmn,m,n->w", self.products, amounts, amounts)
        return np.sqrt(np.maximum(self.squares - 2 * self.pulls @ amounts + curved, 0))

    def best_amounts(self, ridge: ArrayLike) -> Array:
        """How much of each move makes the mean distance least; the stronger the ridge, of all or of each, the less."""
        amounts = np.zeros(self.pulls.shape[1])
        for _ in range(REWEIGHTINGS):
            weights = weights_of_distances(self.distances(amounts))
            gram, moment = np.einsum("w,wmn->mn", weights, self.products), weights @ self.pulls
            amounts = ridge_solution(gram, moment, ridge)
        return amounts

    def left_out_distances(self, ridge: ArrayLike) -> Array:
        """Of each trajectory, with amounts that others led to."""
        found, folds = np.zeros(len(self)), np.arange(len(self)) % FOLDS
        for fold in np.unique(folds):
            out = folds == fold
            found[out] = self.at(out).distances(self.at(~out).best_amounts(ridge))
        return found

    def flattery(self, ridge: ArrayLike, amounts: Array) -> float:
        """By how much the error is lower on the trajectories that led to these amounts than on others."""
        return tempered_mean(self.left_out_distances(ridge)) - tempered_mean(self.distances(amounts))


def refine(
    model: Spread,
    teacher: TeacherTrajectories,
    start: Refined,
    calls: int,
    times_move: bool = False,
) -> Refined:
    """Better steps than those of a fit, for at most so many network calls; the schedule may stay as it is."""
    last, best = model.nfe + calls, start
    for _ in range(ROUNDS):
        left = last - model.nfe - judging_calls(model, teacher, len(best.student.times), times_move)
        parts, count = affordable_slopes(best.student.coefficients, left // model.calls, len(teacher), times_move)
        if count < FEWEST:
            break
        moves = moves_of(best.student, teacher.noise, parts, times_move)
        before, best = best.error, _refined_once(model, teacher, best, moves, count)
        if before - best.error <= LEAST_GAIN * best.error:
            break
    return best


def _refined_once(
    model: Spread, teacher: TeacherTrajectories, start: Refined, moves: Sequence[Move], count: int
) -> Refined:
    """The best of what some ridges make of the slopes of so many trajectories, if it is better."""
    student, noise, ask = start.student, teacher.noise, asking(model, teacher.rows)
    slopes = measured_slopes(model, teacher.at(slice(0, count)), student, moves)
    is_time, best = np.array([TIME in (index for _, index in move) for move in moves]), start
    for of_coefficients, of_times in TIME_RIDGES if is_time.any() else RIDGES:
        ridge = np.where(is_time, of_times, of_coefficients)
        amounts = slopes.best_amounts(ridge)
        times, numbers = moved(student, moves, amounts, noise)
        if _can_be_walked(times, numbers, noise):
            found = student_trajectories(ask, teacher.starts, times, numbers)
            flattery = max(slopes.flattery(ridge, amounts), 0.0) * count / len(teacher)  # the others flatter nobody
            best = min(best, Refined(found, found.errors(teacher), flattery), key=_error)
    return best


def _error(refined: Refined) -> float:
    return refined.error


def judging_calls(model: Spread, teacher: TeacherTrajectories, steps: int, times_move: bool = False) -> int:
    """Network calls of the walks by which the ridges of one round are judged."""
    ridges = TIME_RIDGES if times_move and steps <= MOVED_TIMES else RIDGES
    return len(ridges) * len(teacher) * steps * model.calls


def affordable_slopes(numbers: Coefficients, predictions: int, most: int, times_move: bool = False) -> tuple[int, int]:
    """The most blocks of steps whose slopes can be measured on enough of so many trajectories, or else the fewest."""
    for parts in range(BLOCKS, FEWEST_BLOCKS - 1, -1):
        count = min(predictions // slopes_price(numbers, parts, times_move), most)
        if count >= min(ENOUGH, most):
            break
    return parts, max(count, 0)


def slopes_price(numbers: Coefficients, parts: int = BLOCKS, times_move: bool = False) -> int:
    """Predictions that the slopes of one trajectory take."""
    steps, together = len(numbers), blocks(numbers, parts, times_move)
    return steps + sum(steps - 1 - some[0] + (index == TIME) for some, index in together)


def blocks(numbers: Coefficients, parts: int = BLOCKS, times_move: bool = False) -> list[tuple[list[int], int]]:
    """What is moved together: the numbers at one index of neighbouring steps, where they have it."""
    together = np.array_split(np.arange(len(numbers)), min(parts, len(numbers)))
    apart = len(numbers[0]) - 1  # parts of a prediction: a first step has no earlier ones
    indices = [0, *range(1, max(map(len, numbers)), apart)]  # of what guidance adds, a fit is left as it is
    found = [([int(i) for i in part if index < len(numbers[i])], index) for part in together for index in indices]
    times = [([i], TIME) for i in range(len(numbers))] if times_move and len(numbers) <= MOVED_TIMES else []
    return [(steps, index) for steps, index in found if steps] + times


def moves_of(
    start: StudentTrajectories, noise: NoiseSchedule, parts: int = BLOCKS, times_move: bool = False
) -> list[Move]:
    """Each moves the states after its steps by as much, or a time down by a share of the gap below it."""
    gaps = -np.diff(start.times, append=noise.last)
    nudges = known_nudges(TIME_NUDGE * gaps, noise)
    return [
        {(step, index): -nudges[step] if index == TIME else NUDGE / _size(start, step, index) for step in steps}
        for steps, index in blocks(start.coefficients, parts, times_move)
    ]


def known_nudges(nudges: Array, noise: NoiseSchedule) -> Array:
    """Whole ones where the model knows whole timesteps only."""
    return nudges if noise.continuous else np.maximum(np.round(nudges), 1.0)


def measured_slopes(
    model: Spread, teacher: TeacherTrajectories, student: StudentTrajectories, moves: Sequence[Move]
) -> Slopes:
    """Make every move, and take the remaining steps again."""
    some = teacher.split(shared_size(model.batch, len(teacher)))
    found = model.each([partial(_slopes_of, model, own, student.times, student.coefficients, moves) for own in some])
    return reduce(Slopes.joined_with, found)


@torch.no_grad()
def _slopes_of(
    model: Spread, teacher: TeacherTrajectories, times: Array, numbers: Coefficients, moves: Sequence[Move]
) -> Slopes:
    ask = asking(model, teacher.rows)
    here = student_trajectories(ask, teacher.starts, times, numbers)  # in the same batches as what is moved
    ends = [_ends_after(ask, here, move, teacher.noise) for move in moves]
    effects = torch.stack([(end - here.ends).flatten(1) for end in ends], dim=1)
    size, found = effects.shape[-1] ** 0.5, list[tuple[Array, Array, float]]()
    for own, missing in zip(effects, (teacher.ends - here.ends).flatten(1), strict=True):
        own, missing = own.double() / size, missing.double() / size
        found.append(((own @ own.T).numpy(), (own @ missing).numpy(), float(missing.square().sum())))
    return Slopes(*(np.array(part) for part in zip(*found, strict=True)))


def moved(
    start: StudentTrajectories, moves: Sequence[Move], amounts: ArrayLike, noise: NoiseSchedule
) -> tuple[Array, Coefficients]:
    """Times and coefficients after so much of each move."""
    times, changed = start.times.copy(), [list(own) for own in start.coefficients]
    for move, amount in zip(moves, np.asarray(amounts).tolist(), strict=True):
        for (step, index), by in move.items():
            if index == TIME:
                times[step] += amount * by
            else:
                changed[step][index] += amount * by
    if (times != start.times).any():
        times = known_times(np.clip(times, noise.last, noise.first), noise)
    return times, tuple(map(tuple, changed))


def _can_be_walked(times: Array, numbers: Coefficients, noise: NoiseSchedule) -> bool:
    """Times must fall, and coefficients keep to their bound."""
    if (np.diff(times) >= 0).any():
        return False
    parts = len(numbers[0]) - 1
    known = known_coefficients("dpmpp-2m", noise, times, order_of(numbers[-1], parts), parts > 1)
    return bool(np.abs(np.concatenate(numbers) - np.concatenate(known)).max() <= BOUND)


def _ends_after(ask: Ask, here: StudentTrajectories, move: Move, noise: NoiseSchedule) -> Tensor:
    """Where the trajectories end after a move; up to it they are as they were."""
    times, numbers = moved(here, [move], [1.0], noise)
    first = min(step for step, _ in move)
    x, past = here.states[first], here.predicted[:first][::-1]
    for step in range(first, len(times)):
        is_known = step == first and times[step] == here.times[step]
        predicted = here.predicted[first] if is_known else ask(x, float(times[step]))
        x, past = stepped(x, predicted, past, numbers[step]), (predicted, *past)
    return x


def _size(here: StudentTrajectories, step: int, index: int) -> float:
    """Root mean square of what a coefficient multiplies."""
    part = here.parts(step)[index]
    return float(part.double().square().mean().sqrt()) or 1.0
