"""Refine all steps together on the error at the end: Gauss-Newton with measured slopes.

The stepwise fit weighs errors by what Gaussian data would leave of them at the end. What the network leaves of them is
measured: coefficients are moved a little and the remaining steps are taken again. No gradient of it is needed. How far
to follow the slopes, the ridge, is decided by two things: trajectories that are left out in turn show, without a call,
how much of a gain carries over to others, and walks show how far the slopes hold.
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
from geosprint.teacher import TeacherTrajectories

Move = dict[tuple[int, int], float]
"""Coefficients that are moved together, by (step, index), and by how much."""

NUDGE = 1e-2  # root mean square by which a state is moved: trained networks are not smooth on less
BLOCKS, FEWEST_BLOCKS = 10, 5  # of neighbouring steps moved together: slopes of every single step are expensive
FEWEST = 12  # trajectories that slopes are measured on, or all of them if there are no more
LEAST = 6  # of which one is left out at a time
FOLDS = 6  # of trajectories that are left out in turn
REWEIGHTINGS = 3  # from squares to distances
RIDGES = (1e-3, 1e-2, 1e-1)  # weaker ones lead beyond where the slopes hold (docs/fit.md)
JUDGES = 16  # trajectories that ridges are tried on, the last ones: slopes are measured on the first
BOUND = 4.0  # on the distance of a coefficient from that of DPM++ 2M; slopes tell more of it than a step does
ROUNDS = 2
ENOUGH = 0.01  # relative gain that a round must bring to be followed by another


@dataclass(frozen=True)
class Refined:
    """Coefficients, how far the moves led to them, and their error as it is expected on other trajectories."""

    coefficients: Coefficients
    error: float
    amounts: Array


@dataclass(frozen=True, eq=False)
class Slopes:
    """How the ends of some trajectories depend on moves away from a start: the normal equations of each trajectory.

    The effects of all moves on all pixels of all trajectories would not fit into memory.
    """

    products: Array  # (trajectories, moves, moves) of the effects of two moves
    pulls: Array  # (trajectories, moves) products of the effects with what is missing at the start
    squares: Array  # (trajectories,) of what is missing there; all are means over dimensions

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

    def best_amounts(self, ridge: float) -> Array:
        """How much of each move makes the mean distance least; the stronger the ridge, the less."""
        amounts = np.zeros(self.pulls.shape[1])
        for _ in range(REWEIGHTINGS):
            weights = weights_of_distances(self.distances(amounts))
            gram, moment = np.einsum("w,wmn->mn", weights, self.products), weights @ self.pulls
            amounts = ridge_solution(gram, moment, ridge)
        return amounts

    def left_out_distances(self, ridge: float) -> Array:
        """Of each trajectory, with amounts that others led to."""
        found, folds = np.zeros(len(self)), np.arange(len(self)) % FOLDS
        for fold in np.unique(folds):
            out = folds == fold
            found[out] = self.at(out).distances(self.at(~out).best_amounts(ridge))
        return found

    def flattery(self, ridge: float, amounts: Array) -> float:
        """By how much the error is lower on the trajectories that led to these amounts than on others."""
        return tempered_mean(self.left_out_distances(ridge)) - tempered_mean(self.distances(amounts))


def refine(
    model: Spread, teacher: TeacherTrajectories, times: Array, start: StudentTrajectories, calls: int
) -> Refined:
    """Better coefficients than those of a fit, for at most so many network calls."""
    last, walks = model.nfe + calls, judging_calls(model, teacher, len(times))
    parts, count = affordable_slopes(start.coefficients, (calls - walks) // model.calls, len(teacher))
    moves, price = moves_of(start, parts), slopes_price(start.coefficients, parts) * model.calls
    some, judges = teacher.at(slice(0, count)), teacher.at(slice(-JUDGES, None))
    best = Refined(start.coefficients, tempered_mean(start.errors(teacher)[-JUDGES:]), np.zeros(len(moves)))
    ask, both = asking(model, judges.rows), max(count + len(judges) - len(teacher), 0)  # learnt from, and judging
    for _ in range(ROUNDS):
        if count < fewest_slopes(len(teacher)) or model.nfe + count * price + walks > last:
            break
        slopes, before = measured_slopes(model, some, times, start, moves, best.amounts), best.error
        for ridge in RIDGES:
            amounts = slopes.best_amounts(ridge)
            numbers = moved(start.coefficients, moves, amounts)
            if _is_within_bound(numbers, teacher.noise, times):
                walked = student_trajectories(ask, judges.starts, times, numbers).errors(judges)
                flattered = slopes.flattery(ridge, amounts) * both / len(judges)
                best = min(best, Refined(numbers, tempered_mean(walked) + max(flattered, 0), amounts), key=_error)
        if before - best.error <= ENOUGH * best.error:
            break
    return best


def judging_calls(model: Spread, teacher: TeacherTrajectories, steps: int) -> int:
    """Network calls of the walks by which the ridges of one round are judged."""
    return len(RIDGES) * min(JUDGES, len(teacher)) * steps * model.calls


def affordable_slopes(numbers: Coefficients, predictions: int, most: int) -> tuple[int, int]:
    """The most blocks of steps whose slopes can be measured on enough trajectories, and on how many of so many."""
    for parts in range(BLOCKS, FEWEST_BLOCKS - 1, -1):
        count = min(predictions // slopes_price(numbers, parts), most)
        if count >= fewest_slopes(most):
            break
    return parts, max(count, 0)


def fewest_slopes(trajectories: int) -> int:
    """On how many of so many trajectories slopes are measured at least."""
    return max(min(FEWEST, trajectories), LEAST)


def _error(refined: Refined) -> float:
    return refined.error


def slopes_price(numbers: Coefficients, parts: int = BLOCKS) -> int:
    """Predictions that the slopes of one trajectory take."""
    steps = len(numbers)
    return steps + sum(steps - 1 - together[0] for together, _ in blocks(numbers, parts))


def blocks(numbers: Coefficients, parts: int = BLOCKS) -> list[tuple[list[int], int]]:
    """What is moved together: the coefficients at one index of neighbouring steps, where they have it."""
    together = np.array_split(np.arange(len(numbers)), min(parts, len(numbers)))
    apart = len(numbers[0]) - 1  # parts of a prediction: a first step has no earlier ones
    indices = [0, *range(1, max(map(len, numbers)), apart)]  # of what guidance adds, a fit is left as it is
    found = [([int(i) for i in part if index < len(numbers[i])], index) for part in together for index in indices]
    return [(steps, index) for steps, index in found if steps]


def moves_of(start: StudentTrajectories, parts: int = BLOCKS) -> list[Move]:
    """Each moves the states after its steps by as much."""
    return [
        {(step, index): NUDGE / _size(start, step, index) for step in steps}
        for steps, index in blocks(start.coefficients, parts)
    ]


def measured_slopes(
    model: Spread,
    teacher: TeacherTrajectories,
    times: Array,
    start: StudentTrajectories,
    moves: Sequence[Move],
    amounts: Array,
) -> Slopes:
    """At so much of each move away from the start: make every move, and take the remaining steps again."""
    numbers = moved(start.coefficients, moves, amounts)
    some = teacher.split(shared_size(model.batch, len(teacher)))
    found = model.each([partial(_slopes_of, model, own, times, numbers, moves, amounts) for own in some])
    return reduce(Slopes.joined_with, found)


@torch.no_grad()
def _slopes_of(
    model: Spread,
    teacher: TeacherTrajectories,
    times: Array,
    numbers: Coefficients,
    moves: Sequence[Move],
    amounts: Array,
) -> Slopes:
    ask = asking(model, teacher.rows)
    here = student_trajectories(ask, teacher.starts, times, numbers)
    effects = torch.stack([(_ends_after(ask, times, here, move) - here.ends).flatten(1) for move in moves], dim=1)
    size, found = effects.shape[-1] ** 0.5, list[tuple[Array, Array, float]]()
    for own, missing in zip(effects, (teacher.ends - here.ends).flatten(1), strict=True):
        own = own.double() / size
        from_start = missing.double() / size + torch.from_numpy(amounts) @ own
        found.append(((own @ own.T).numpy(), (own @ from_start).numpy(), float(from_start.square().sum())))
    return Slopes(*(np.array(part) for part in zip(*found, strict=True)))


def moved(numbers: Coefficients, moves: Sequence[Move], amounts: ArrayLike) -> Coefficients:
    """The coefficients after so much of each move."""
    changed = [list(own) for own in numbers]
    for move, amount in zip(moves, np.asarray(amounts).tolist(), strict=True):
        for (step, index), by in move.items():
            changed[step][index] += amount * by
    return tuple(map(tuple, changed))


def _is_within_bound(numbers: Coefficients, noise: NoiseSchedule, times: Array) -> bool:
    parts = len(numbers[0]) - 1
    known = known_coefficients("dpmpp-2m", noise, times, order_of(numbers[-1], parts), parts > 1)
    return bool(np.abs(np.concatenate(numbers) - np.concatenate(known)).max() <= BOUND)


def _ends_after(ask: Ask, times: Array, here: StudentTrajectories, move: Move) -> Tensor:
    """Where the trajectories end after a move; up to it they are as they were."""
    numbers = moved(here.coefficients, [move], [1.0])
    first = min(step for step, _ in move)
    x, past = here.states[first], here.predicted[:first][::-1]
    for step in range(first, len(times)):
        predicted = here.predicted[first] if step == first else ask(x, float(times[step]))
        x, past = stepped(x, predicted, past, numbers[step]), (predicted, *past)
    return x


def _size(here: StudentTrajectories, step: int, index: int) -> float:
    """Root mean square of what a coefficient multiplies."""
    part = here.parts(step)[index]
    return float(part.double().square().mean().sqrt()) or 1.0
