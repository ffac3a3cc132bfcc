"""Refine all steps together on the error at the end: Gauss and Newton's method with measured slopes.

A fit step by step takes all errors alike. What counts is what is left of them at the end, and that is measured:
the numbers are moved a little, and the rest of the way is walked again. No gradient of the network is needed.
Slopes are measured on some walks, and how far to follow them is judged on others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geosprint.fitting.formula import Coefficients, dpmpp_coefficients, features, stepped
from geosprint.fitting.stepwise import BOUND, Ask, Walked, asker, distances, nearness, solved, walked
from geosprint.sampling import Counted
from geosprint.teacher import TeacherTrajectories

Array = NDArray[np.float64]
Move = dict[tuple[int, int], float]
"""Numbers that are moved together, (step, place), and by how much."""

NUDGE = 1e-2  # root mean square by which a state is moved: trained networks jitter on less
BLOCKS, FEWEST_BLOCKS = 10, 5  # of neighbouring steps that are moved together: of every step of many, slopes are dear
FEWEST = 8  # walks that slopes are measured on: fewer would fit their own noise
MOST = 32
JUDGES = 3  # one walk in so many judges
PARTS = range(BLOCKS, FEWEST_BLOCKS - 1, -1)  # into how many blocks all steps are cut, the most that calls are left for
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
ROUNDS = 4
ENOUGH = 0.01  # share of the error that a round must gain to be followed by another


@dataclass(frozen=True)
class Refined:
    """Numbers, and their mean error on the walks that no slope was measured on."""

    coefficients: Coefficients
    error: float


def refined(model: Counted, walks: TeacherTrajectories, times: Array, start: Coefficients, calls: int) -> Refined:
    """Better numbers than these on fine walks, for at most so many network calls and those of judging the start."""
    most = len(walks) - max(len(walks) // JUDGES, 1)
    judging = walks.at(slice(most, None))
    ask_judges = asker(model, judging.rows)

    def judged(numbers: Coefficients) -> Refined:
        return Refined(
            numbers, float(distances(walked(ask_judges, judging.starts, times, numbers).ends, judging.ends).mean())
        )

    best, last = judged(start), model.nfe + calls
    for _ in range(ROUNDS):
        left, judges = (last - model.nfe) // model.calls, len(judging)
        parts = next((n for n in PARTS if walks_within(left, start, judges, n) >= FEWEST), None)
        if parts is None or most < FEWEST:
            break
        count = min(most, MOST, walks_within(left, start, judges, parts))
        promising = _promising(model, walks.at(slice(0, count)), times, best.coefficients, parts)
        found = min(map(judged, promising), key=lambda one: one.error, default=best)
        gained = best.error - found.error
        if gained > 0:
            best = found
        if gained <= ENOUGH * best.error:
            break
    return best


def walks_within(predictions: int, numbers: Coefficients, judges: int, parts: int = BLOCKS) -> int:
    """On how many walks the slopes of one round can be measured, the judges' walks paid."""
    judging = round_calls(numbers, judges, 0, parts)
    return (predictions - judging) // (round_calls(numbers, judges, 1, parts) - judging)


def round_calls(numbers: Coefficients, judges: int, walks: int, parts: int = BLOCKS) -> int:
    """Predictions that one round takes: slopes on some walks, and every ridge tried on the judges."""
    steps = len(numbers)
    per_walk = steps + sum(steps - 1 - together[0] for together, _ in blocks(numbers, parts))
    return len(RIDGES) * judges * steps + walks * per_walk


def blocks(numbers: Coefficients, parts: int = BLOCKS) -> list[tuple[list[int], int]]:
    """What is moved together: the numbers at one place of some neighbouring steps, as far as these have it."""
    together = np.array_split(np.arange(len(numbers)), min(parts, len(numbers)))
    places = range(max(map(len, numbers)))
    found = [([int(i) for i in part if place < len(numbers[i])], place) for part in together for place in places]
    return [(steps, place) for steps, place in found if steps]


@dataclass(frozen=True, eq=False)
class Slopes:
    """How the ends of some walks follow the numbers."""

    moves: list[Move]
    effects: Tensor  # (moves, walks, dimensions) on the ends
    missing: Tensor  # (walks, dimensions) from the ends to the fine ones

    def better(self, numbers: Coefficients, ridge: float) -> Coefficients:
        """The numbers that would be best if the slopes held; nearer by, the stronger the ridge."""
        amounts = solved(self.effects, self.missing, nearness(self.missing), ridge)
        for move, amount in zip(self.moves, amounts.tolist(), strict=True):
            numbers = moved(numbers, move, amount)
        return numbers


@torch.no_grad()
def measured_slopes(
    ask: Ask, walks: TeacherTrajectories, times: Array, numbers: Coefficients, parts: int = BLOCKS
) -> Slopes:
    """Make every move, and walk the rest of the way."""
    here = walked(ask, walks.starts, times, numbers)
    moves = [
        {(step, place): NUDGE / _size(here, step, place) for step in steps} for steps, place in blocks(numbers, parts)
    ]
    effects = [(_walked_on(ask, times, here, move) - here.ends).flatten(1) for move in moves]
    return Slopes(moves, torch.stack(effects), (walks.ends - here.ends).flatten(1))


def moved(numbers: Coefficients, move: Move, amount: float = 1.0) -> Coefficients:
    """The numbers after a move."""
    changed = [list(own) for own in numbers]
    for (step, place), by in move.items():
        changed[step][place] += amount * by
    return tuple(map(tuple, changed))


def _promising(
    model: Counted, walks: TeacherTrajectories, times: Array, numbers: Coefficients, parts: int
) -> list[Coefficients]:
    """Where the slopes lead to with each ridge, if that is within the bound."""
    slopes = measured_slopes(asker(model, walks.rows), walks, times, numbers, parts)
    found = [slopes.better(numbers, ridge) for ridge in RIDGES]
    known = np.concatenate(dpmpp_coefficients(walks.noise, times, len(numbers[-1]) - 1))
    return [some for some in found if np.abs(np.concatenate(some) - known).max() <= BOUND]


def _walked_on(ask: Ask, times: Array, here: Walked, move: Move) -> Tensor:
    """Where the walks end after a move; up to it they are as they were."""
    numbers = moved(here.coefficients, move)
    first = min(step for step, _ in move)
    x, past = here.states[first], here.x0[:first][::-1]
    for step in range(first, len(times)):
        x0 = here.x0[first] if step == first else ask(x, float(times[step]))
        x, past = stepped(x, x0, past, numbers[step]), (x0, *past)
    return x


def _size(here: Walked, step: int, place: int) -> float:
    """Root mean square of what a number is multiplied by."""
    order = len(here.coefficients[step]) - 1
    part = features(here.states[step], here.x0[step], here.x0[:step][::-1], order)[place]
    return float(part.double().square().mean().sqrt()) or 1.0
