"""Refine all steps together on the error at the end: Gauss-Newton with measured slopes.

The stepwise fit weighs all errors alike. What counts is what is left of them at the end, and that is measured:
coefficients are moved a little and the remaining steps are taken again. No gradient of the network is needed.
Slopes are measured on some trajectories; how far to follow them is validated on others, by the same mean of roots that
a search follows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geosprint.estimates import tempered_mean
from geosprint.fitted_solver import Coefficients, known_coefficients, order_of, stepped
from geosprint.fitting.stepwise import (
    BOUND,
    Ask,
    StudentTrajectories,
    asking,
    distance_weights,
    ridge_regression,
    student_trajectories,
)
from geosprint.models.spread import Spread
from geosprint.noise import NoiseSchedule
from geosprint.teacher import TeacherTrajectories

Array = NDArray[np.float64]
Move = dict[tuple[int, int], float]
"""Coefficients that are moved together, by (step, index), and by how much."""

NUDGE = 1e-2  # root mean square by which a state is moved: trained networks are not smooth on less
BLOCKS, FEWEST_BLOCKS = 10, 5  # of neighbouring steps moved together: slopes of every single step are expensive
FEWEST = 8  # trajectories that slopes are measured on: fewer would overfit
SLOPES_SHARE = 3  # one trajectory in so many; the others validate, because few of them refuse what is better on many
PARTS = range(BLOCKS, FEWEST_BLOCKS - 1, -1)  # blocks that all steps are cut into: the most that can be afforded
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
ROUNDS = 4
ENOUGH = 0.01  # relative gain that a round must bring to be followed by another


@dataclass(frozen=True)
class Refined:
    """Coefficients, and their error on the trajectories that no slope was measured on, as a search counts it."""

    coefficients: Coefficients
    error: float


def measured_on(trajectories: int) -> int:
    """Of so many trajectories, those that slopes are measured on."""
    return min(max(trajectories // SLOPES_SHARE, FEWEST), trajectories - 1)


def refine(model: Spread, teacher: TeacherTrajectories, times: Array, start: Coefficients, calls: int) -> Refined:
    """Better coefficients, for at most this many network calls beside those of validating the start."""
    most = measured_on(len(teacher))
    held_out = teacher.at(slice(most, None))
    ask_held_out = asking(model, held_out.rows)

    def validated(numbers: Coefficients) -> Refined:
        student = student_trajectories(ask_held_out, held_out.starts, times, numbers)
        return Refined(numbers, tempered_mean(student.errors(held_out)))

    best, last = validated(start), model.nfe + calls
    for _ in range(ROUNDS):
        before = best.error
        left = (last - model.nfe) // model.calls
        parts = next((n for n in PARTS if trajectories_within(left, start, len(held_out), n) >= FEWEST), None)
        if parts is None or most < FEWEST:
            break
        some = teacher.at(slice(0, min(most, trajectories_within(left, start, len(held_out), parts))))
        ask_some = asking(model, some.rows)
        slopes = measured_slopes(model, some, times, best.coefficients, parts)
        a_look = (len(some) + len(RIDGES) * len(held_out)) * len(times) * model.calls
        while True:  # slopes are expensive and change little: they lead on for as long as they gain
            found = min(map(validated, _within_bound(slopes, best, teacher.noise, times)), key=_error, default=best)
            gained = best.error - found.error
            best = min(best, found, key=_error)
            if gained <= ENOUGH * best.error or model.nfe + a_look > last:
                break
            slopes = slopes.seen_from(student_trajectories(ask_some, some.starts, times, best.coefficients).ends, some)
        if before - best.error <= ENOUGH * best.error:
            break
    return best


def _error(refined: Refined) -> float:
    return refined.error


def trajectories_within(predictions: int, numbers: Coefficients, held_out: int, parts: int = BLOCKS) -> int:
    """On how many trajectories the slopes of one round can be measured, validation paid."""
    validation = round_calls(numbers, held_out, 0, parts)
    return (predictions - validation) // (round_calls(numbers, held_out, 1, parts) - validation)


def round_calls(numbers: Coefficients, held_out: int, trajectories: int, parts: int = BLOCKS) -> int:
    """Predictions that one round takes: slopes on some trajectories, every ridge validated on others."""
    steps = len(numbers)
    per_trajectory = steps + sum(steps - 1 - together[0] for together, _ in blocks(numbers, parts))
    return len(RIDGES) * held_out * steps + trajectories * per_trajectory


def blocks(numbers: Coefficients, parts: int = BLOCKS) -> list[tuple[list[int], int]]:
    """What is moved together: the coefficients at one index of neighbouring steps, where they have it."""
    together = np.array_split(np.arange(len(numbers)), min(parts, len(numbers)))
    apart = len(numbers[0]) - 1  # parts of a prediction: a first step has no earlier ones
    indices = [0, *range(1, max(map(len, numbers)), apart)]  # of what guidance adds, a fit is left as it is
    found = [([int(i) for i in part if index < len(numbers[i])], index) for part in together for index in indices]
    return [(steps, index) for steps, index in found if steps]


@dataclass(frozen=True, eq=False)
class Slopes:
    """How the ends of some trajectories depend on the coefficients."""

    moves: list[Move]
    effects: Tensor  # (moves, trajectories, dimensions) on the ends
    missing: Tensor  # (trajectories, dimensions) from the ends to the teacher's

    def seen_from(self, ends: Tensor, teacher: TeacherTrajectories) -> Slopes:
        """The same slopes for coefficients that lead to these ends."""
        return replace(self, missing=(teacher.ends - ends).flatten(1))

    def better(self, numbers: Coefficients, ridge: float) -> Coefficients:
        """The coefficients that would be best if the slopes held; the stronger the ridge, the smaller the move."""
        amounts = ridge_regression(self.effects, self.missing, distance_weights(self.missing), ridge)
        for move, amount in zip(self.moves, amounts.tolist(), strict=True):
            numbers = moved(numbers, move, amount)
        return numbers


@torch.no_grad()
def measured_slopes(
    model: Spread, teacher: TeacherTrajectories, times: Array, numbers: Coefficients, parts: int = BLOCKS
) -> Slopes:
    """Make every move, and take the remaining steps again."""
    ask = asking(model, teacher.rows)
    here = student_trajectories(ask, teacher.starts, times, numbers)
    moves = [
        {(step, index): NUDGE / _size(here, step, index) for step in steps} for steps, index in blocks(numbers, parts)
    ]
    ends = model.each([partial(_ends_after, ask, times, here, move) for move in moves])
    return Slopes(
        moves, torch.stack([(end - here.ends).flatten(1) for end in ends]), (teacher.ends - here.ends).flatten(1)
    )


def moved(numbers: Coefficients, move: Move, amount: float = 1.0) -> Coefficients:
    """The coefficients after a move."""
    changed = [list(own) for own in numbers]
    for (step, index), by in move.items():
        changed[step][index] += amount * by
    return tuple(map(tuple, changed))


def _within_bound(slopes: Slopes, best: Refined, noise: NoiseSchedule, times: Array) -> list[Coefficients]:
    """Where the slopes lead with each ridge, if that is within the bound."""
    numbers = best.coefficients
    found = [slopes.better(numbers, ridge) for ridge in RIDGES]
    parts = len(numbers[0]) - 1
    order = order_of(numbers[-1], parts)
    known = np.concatenate(known_coefficients("dpmpp-2m", noise, times, order, parts > 1))
    return [some for some in found if np.abs(np.concatenate(some) - known).max() <= BOUND]


def _ends_after(ask: Ask, times: Array, here: StudentTrajectories, move: Move) -> Tensor:
    """Where the trajectories end after a move; up to it they are as they were."""
    numbers = moved(here.coefficients, move)
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
