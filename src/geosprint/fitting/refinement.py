"""Refine all steps together on the error at the end: Gauss-Newton with measured slopes.

The stepwise fit weighs all errors alike. What counts is what is left of them at the end, and that is measured:
coefficients are moved a little and the remaining steps are taken again. No gradient of the network is needed.
Slopes are measured on some trajectories; how far to follow them is validated on others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geosprint.fitted_solver import Coefficients, dpmpp_coefficients, features, stepped
from geosprint.fitting.stepwise import (
    BOUND,
    PredictX0,
    StudentTrajectories,
    distance_weights,
    ridge_regression,
    student_trajectories,
    x0_predictor,
)
from geosprint.sampling import Counted
from geosprint.teacher import TeacherTrajectories

Array = NDArray[np.float64]
Move = dict[tuple[int, int], float]
"""Coefficients that are moved together, by (step, index), and by how much."""

NUDGE = 1e-2  # root mean square by which a state is moved: trained networks are not smooth on less
BLOCKS, FEWEST_BLOCKS = 10, 5  # of neighbouring steps moved together: slopes of every single step are expensive
FEWEST = 8  # trajectories that slopes are measured on: fewer would overfit
MOST = 32
VALIDATING = 3  # one trajectory in so many validates
PARTS = range(BLOCKS, FEWEST_BLOCKS - 1, -1)  # blocks that all steps are cut into: the most that can be afforded
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
ROUNDS = 4
ENOUGH = 0.01  # relative gain that a round must bring to be followed by another


@dataclass(frozen=True)
class Refined:
    """Coefficients, and their mean error on the trajectories that no slope was measured on."""

    coefficients: Coefficients
    error: float


def refine(model: Counted, teacher: TeacherTrajectories, times: Array, start: Coefficients, calls: int) -> Refined:
    """Better coefficients, for at most this many network calls beside those of validating the start."""
    most = len(teacher) - max(len(teacher) // VALIDATING, 1)
    held_out = teacher.at(slice(most, None))
    predict_x0 = x0_predictor(model, held_out.rows)

    def validated(numbers: Coefficients) -> Refined:
        student = student_trajectories(predict_x0, held_out.starts, times, numbers)
        return Refined(numbers, float(student.errors(held_out).mean()))

    best, last = validated(start), model.nfe + calls
    for _ in range(ROUNDS):
        left = (last - model.nfe) // model.calls
        parts = next((n for n in PARTS if trajectories_within(left, start, len(held_out), n) >= FEWEST), None)
        if parts is None or most < FEWEST:
            break
        count = min(most, MOST, trajectories_within(left, start, len(held_out), parts))
        candidates = _candidates(model, teacher.at(slice(0, count)), times, best.coefficients, parts)
        found = min(map(validated, candidates), key=lambda one: one.error, default=best)
        gained = best.error - found.error
        if gained > 0:
            best = found
        if gained <= ENOUGH * best.error:
            break
    return best


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
    indices = range(max(map(len, numbers)))
    found = [([int(i) for i in part if index < len(numbers[i])], index) for part in together for index in indices]
    return [(steps, index) for steps, index in found if steps]


@dataclass(frozen=True, eq=False)
class Slopes:
    """How the ends of some trajectories depend on the coefficients."""

    moves: list[Move]
    effects: Tensor  # (moves, trajectories, dimensions) on the ends
    missing: Tensor  # (trajectories, dimensions) from the ends to the teacher's

    def better(self, numbers: Coefficients, ridge: float) -> Coefficients:
        """The coefficients that would be best if the slopes held; the stronger the ridge, the smaller the move."""
        amounts = ridge_regression(self.effects, self.missing, distance_weights(self.missing), ridge)
        for move, amount in zip(self.moves, amounts.tolist(), strict=True):
            numbers = moved(numbers, move, amount)
        return numbers


@torch.no_grad()
def measured_slopes(
    predict_x0: PredictX0, teacher: TeacherTrajectories, times: Array, numbers: Coefficients, parts: int = BLOCKS
) -> Slopes:
    """Make every move, and take the remaining steps again."""
    here = student_trajectories(predict_x0, teacher.starts, times, numbers)
    moves = [
        {(step, index): NUDGE / _size(here, step, index) for step in steps} for steps, index in blocks(numbers, parts)
    ]
    effects = [(_ends_after(predict_x0, times, here, move) - here.ends).flatten(1) for move in moves]
    return Slopes(moves, torch.stack(effects), (teacher.ends - here.ends).flatten(1))


def moved(numbers: Coefficients, move: Move, amount: float = 1.0) -> Coefficients:
    """The coefficients after a move."""
    changed = [list(own) for own in numbers]
    for (step, index), by in move.items():
        changed[step][index] += amount * by
    return tuple(map(tuple, changed))


def _candidates(
    model: Counted, teacher: TeacherTrajectories, times: Array, numbers: Coefficients, parts: int
) -> list[Coefficients]:
    """Where the slopes lead with each ridge, if that is within the bound."""
    slopes = measured_slopes(x0_predictor(model, teacher.rows), teacher, times, numbers, parts)
    found = [slopes.better(numbers, ridge) for ridge in RIDGES]
    known = np.concatenate(dpmpp_coefficients(teacher.noise, times, len(numbers[-1]) - 1))
    return [some for some in found if np.abs(np.concatenate(some) - known).max() <= BOUND]


def _ends_after(predict_x0: PredictX0, times: Array, here: StudentTrajectories, move: Move) -> Tensor:
    """Where the trajectories end after a move; up to it they are as they were."""
    numbers = moved(here.coefficients, move)
    first = min(step for step, _ in move)
    x, past = here.states[first], here.x0[:first][::-1]
    for step in range(first, len(times)):
        x0 = here.x0[first] if step == first else predict_x0(x, float(times[step]))
        x, past = stepped(x, x0, past, numbers[step]), (x0, *past)
    return x


def _size(here: StudentTrajectories, step: int, index: int) -> float:
    """Root mean square of what a coefficient multiplies."""
    order = len(here.coefficients[step]) - 1
    part = features(here.states[step], here.x0[step], here.x0[:step][::-1], order)[index]
    return float(part.double().square().mean().sqrt()) or 1.0
