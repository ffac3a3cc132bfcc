"""Refine all steps together on the error at the end: Gauss-Newton with measured slopes.

The stepwise fit weighs errors by what Gaussian data would leave of them at the end. What the network leaves of them is
measured: coefficients are moved a little, and of few steps the times at which the network is asked. All moves that were
made before a step move its state in much the same few directions: the network is asked along these, and the rest is
answered for as Gaussian data would. No gradient of it is needed. How far to follow the slopes, the ridge, is decided by
two things: trajectories that are left out in turn show, without a call, how much of a gain carries over to others, and
walks show how far the slopes hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor

from geosprint.estimates import tempered_mean
from geosprint.fitted_solver import (
    MOST_PREDICTIONS,
    Coefficients,
    Predicted,
    known_coefficients,
    order_of,
    remembered,
    stepped,
)
from geosprint.fitting.config import FitConfig
from geosprint.fitting.stepwise import (
    StudentTrajectories,
    asking,
    ridge_solution,
    student_trajectories,
    weights_of_distances,
)
from geosprint.models.spread import Spread, shared_size
from geosprint.noise import Array, NoiseSchedule
from geosprint.principal_axes import PrincipalAxes
from geosprint.schedule import known_times
from geosprint.teacher import TeacherTrajectories

TIME = -1
"""The index of the time at which a step asks the network; others are those of its coefficients."""

MOST_NUMBERS = 2**24  # of what all moves do to the trajectories that are looked at together, which must be in memory


@dataclass(frozen=True)
class Move:
    """One number of one step, and by how much it is moved."""

    step: int
    index: int
    by: float


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

    def best_amounts(self, ridge: ArrayLike, config: FitConfig) -> Array:
        """How much of each move makes the mean distance least; the stronger the ridge, of all or of each, the less."""
        amounts = np.zeros(self.pulls.shape[1])
        for _ in range(config.end_reweightings):
            weights = weights_of_distances(self.distances(amounts))
            gram, moment = np.einsum("w,wmn->mn", weights, self.products), weights @ self.pulls
            amounts = ridge_solution(gram, moment, ridge)
        return amounts

    def left_out_distances(self, ridge: ArrayLike, config: FitConfig) -> Array:
        """Of each trajectory, with amounts that others led to."""
        found, folds = np.zeros(len(self)), np.arange(len(self)) % config.folds
        for fold in np.unique(folds):
            out = folds == fold
            found[out] = self.at(out).distances(self.at(~out).best_amounts(ridge, config))
        return found

    def flattery(self, ridge: ArrayLike, amounts: Array, config: FitConfig) -> float:
        """By how much the error is lower on the trajectories that led to these amounts than on others."""
        return tempered_mean(self.left_out_distances(ridge, config)) - tempered_mean(self.distances(amounts))


def refine(model: Spread, teacher: TeacherTrajectories, start: Refined, calls: int, config: FitConfig) -> Refined:
    """Better steps than those of a fit, for at most so many network calls; the schedule may stay as it is."""
    last, best = model.nfe + calls, start
    axes, steps = PrincipalAxes.of(teacher.ends.flatten(1)), len(start.student.times)
    for _ in range(config.rounds):
        left = last - model.nfe - judging_calls(model, teacher, steps, config)
        directions, count = affordable_slopes(steps, left // model.calls, len(teacher), config)
        if count < config.fewest_slopes:
            break
        moves, some = moves_of(best.student, teacher.noise, config), teacher.at(slice(0, count))
        slopes = measured_slopes(model, some, best.student, moves, directions, axes, config.nudge)
        before, best = best.error, _refined_once(model, teacher, best, moves, slopes, config)
        if before - best.error <= config.least_gain * best.error:
            break
    return best


def _refined_once(
    model: Spread,
    teacher: TeacherTrajectories,
    start: Refined,
    moves: Sequence[Move],
    slopes: Slopes,
    config: FitConfig,
) -> Refined:
    """The best of what some ridges make of the slopes, if it is better."""
    student, noise, ask = start.student, teacher.noise, asking(model, teacher.rows)
    is_time, best = np.array([move.index == TIME for move in moves]), start
    for of_coefficients, of_times in ridges_tried(len(student.times), config):
        ridge = np.where(is_time, of_times, of_coefficients)
        amounts = slopes.best_amounts(ridge, config)
        times, numbers = moved(student, moves, amounts, noise)
        if _can_be_walked(times, numbers, noise, config.end_bound):
            found = student_trajectories(ask, teacher.starts, times, numbers)
            # Trajectories without slopes flatter nobody.
            flattery = max(slopes.flattery(ridge, amounts, config), 0.0) * len(slopes) / len(teacher)
            best = min(best, Refined(found, found.errors(teacher), flattery), key=_error)
    return best


def _error(refined: Refined) -> float:
    return refined.error


def ridges_tried(steps: int, config: FitConfig) -> tuple[tuple[float, float], ...]:
    """Of coefficients and of times."""
    return (*config.ridges, *config.time_ridges) if steps <= config.moved_times else config.ridges


def judging_calls(model: Spread, teacher: TeacherTrajectories, steps: int, config: FitConfig) -> int:
    """Network calls of the walks by which the ridges of one round are judged."""
    return len(ridges_tried(steps, config)) * len(teacher) * steps * model.calls


def affordable_slopes(steps: int, predictions: int, most: int, config: FitConfig) -> tuple[int, int]:
    """Along the most directions that can be asked about on so many trajectories, or else the fewest on some of them."""
    for directions in range(config.directions, config.fewest_directions - 1, -1):
        count = min(predictions // slopes_price(steps, directions, config), most)
        if count == most:
            break
    return directions, max(count, 0)


def slopes_price(steps: int, directions: int, config: FitConfig) -> int:
    """Predictions that the slopes of one trajectory take: a walk, and at each step some beside it."""
    moves_time = int(steps <= config.moved_times)
    moves = [1 + moves_time + min(step + 1, config.order) for step in range(steps)]
    return sum(1 + moves_time + min(sum(moves[:step]), directions) for step in range(steps))


def moves_of(start: StudentTrajectories, noise: NoiseSchedule, config: FitConfig) -> list[Move]:
    """Of each step in turn: each moves the states after it by as much, or a time down by a share of the gap below."""
    apart = len(start.predicted[0])  # parts of a prediction: of what guidance adds, a fit is left as it is
    nudges = known_nudges(config.time_nudge * -np.diff(start.times, append=noise.last), noise)
    found = list[Move]()
    for step, own in enumerate(start.coefficients):
        if len(start.times) <= config.moved_times:
            found.append(Move(step, TIME, -float(nudges[step])))
        indices = (0, *range(1, len(own), apart))
        found += [Move(step, index, config.nudge / _size(start, step, index)) for index in indices]
    return found


def known_nudges(nudges: Array, noise: NoiseSchedule) -> Array:
    """Whole ones where the model knows whole timesteps only."""
    return nudges if noise.continuous else np.maximum(np.round(nudges), 1.0)


def measured_slopes(
    model: Spread,
    teacher: TeacherTrajectories,
    student: StudentTrajectories,
    moves: Sequence[Move],
    directions: int,
    axes: PrincipalAxes,
    nudge: float,
) -> Slopes:
    """What all moves do to the ends of these trajectories."""
    numbers = len(moves) * teacher.ends[0].numel()
    size = min(shared_size(model.batch, len(teacher)), max(MOST_NUMBERS // numbers, 1))
    given = (student.times, student.coefficients, moves, directions, axes, nudge)
    found = model.each([partial(_slopes_of, model, own, *given) for own in teacher.split(size)])
    return reduce(Slopes.joined_with, found)


@torch.no_grad()
def _slopes_of(
    model: Spread,
    teacher: TeacherTrajectories,
    times: Array,
    numbers: Coefficients,
    moves: Sequence[Move],
    directions: int,
    axes: PrincipalAxes,
    nudge: float,
) -> Slopes:
    here = student_trajectories(asking(model, teacher.rows), teacher.starts, times, numbers)
    effects = _Neighbourhood(model, teacher, here, directions, axes, nudge).effects(moves)
    size, found = effects.shape[-1] ** 0.5, list[tuple[Array, Array, float]]()
    for own, missing in zip(effects, (teacher.ends - here.ends).flatten(1), strict=True):
        own, missing = own.double() / size, missing.double() / size
        found.append(((own @ own.T).numpy(), (own @ missing).numpy(), float(missing.square().sum())))
    return Slopes(*(np.array(part) for part in zip(*found, strict=True)))


@dataclass(frozen=True, eq=False)
class _Neighbourhood:
    """What happens beside the trajectories of a student, which the network is asked about along few directions."""

    model: Spread
    teacher: TeacherTrajectories
    student: StudentTrajectories
    directions: int
    axes: PrincipalAxes
    nudge: float  # root mean square by which states are moved

    def effects(self, moves: Sequence[Move]) -> Tensor:
        """What each move does to the ends (trajectories, moves, dimensions)."""
        effects = self.student.ends.flatten(1)[:, None][:, :0]
        past: tuple[Predicted, ...] = ()
        for step, own in enumerate(_by_step(moves)):
            answers = self.answers(step, effects) if step else (effects,) * len(self.student.predicted[step])
            made, (effects, *others) = effects.shape[1], (_longer(one, len(own)) for one in (effects, *answers))
            answers, past = tuple(others), tuple(tuple(_longer(part, len(own)) for part in one) for one in past)
            for row, move in enumerate(own, start=made):
                if move.index == TIME:
                    for answer, shift in zip(answers, self.shifts(step, move.by), strict=True):
                        answer[:, row] = shift
            effects = stepped(effects, answers, past, self.student.coefficients[step])
            parts = self.student.parts(step)
            for row, move in enumerate(own, start=made):
                if move.index != TIME:
                    effects[:, row] += move.by * parts[move.index].flatten(1)
            past = remembered(answers, past, MOST_PREDICTIONS)
        return effects

    def answers(self, step: int, effects: Tensor) -> Predicted:
        """How the prediction of a step moves with the state: asked along the directions that the end will feel most."""
        a, s = self.teacher.noise.signal_and_sigma(float(self.student.times[step]))
        felt = self.axes.at_end(effects, a, s)
        _, mixes = torch.linalg.eigh((felt @ felt.mT).double())
        mix = mixes[..., -self.directions :].to(effects)  # (trajectories, moves, directions)
        along = mix.mT @ effects
        nudges = self.nudge / along.square().mean(dim=-1, keepdim=True).sqrt().clamp(min=torch.finfo(along.dtype).tiny)
        found = [mix @ (moved / nudges) for moved in self.asked_beside(step, nudges * along)]
        found[0] = found[0] + self.axes.answered(effects - mix @ along, a, s)
        return tuple(found)

    def asked_beside(self, step: int, by: Tensor) -> Predicted:
        """By how much the prediction differs where the states are moved (trajectories, directions, dimensions)."""
        state, t = self.student.states[step], float(self.student.times[step])
        rows = [row for row in self.teacher.rows for _ in range(by.shape[1])]
        x = (state.flatten(1)[:, None] + by).view(-1, *state.shape[1:])
        found, here = asking(self.model, rows)(x, t), self.student.predicted[step]
        return tuple(new.view_as(by) - old.flatten(1)[:, None] for new, old in zip(found, here, strict=True))

    def shifts(self, step: int, by: float) -> Predicted:
        """By how much the prediction differs at another time (trajectories, dimensions)."""
        state, t = self.student.states[step], float(self.student.times[step]) + by
        found = asking(self.model, self.teacher.rows)(state, t)
        return tuple((new - old).flatten(1) for new, old in zip(found, self.student.predicted[step], strict=True))


def _by_step(moves: Sequence[Move]) -> list[list[Move]]:
    return [[move for move in moves if move.step == step] for step in range(moves[-1].step + 1)]


def _longer(effects: Tensor, count: int) -> Tensor:
    """With room for so many more moves, which have had no effect yet."""
    return F.pad(effects, (0, 0, 0, count))


def moved(
    start: StudentTrajectories, moves: Sequence[Move], amounts: ArrayLike, noise: NoiseSchedule
) -> tuple[Array, Coefficients]:
    """Times and coefficients after so much of each move."""
    times, changed = start.times.copy(), [list(own) for own in start.coefficients]
    for move, amount in zip(moves, np.asarray(amounts).tolist(), strict=True):
        if move.index == TIME:
            times[move.step] += amount * move.by
        else:
            changed[move.step][move.index] += amount * move.by
    if (times != start.times).any():
        times = known_times(np.clip(times, noise.last, noise.first), noise)
    return times, tuple(map(tuple, changed))


def _can_be_walked(times: Array, numbers: Coefficients, noise: NoiseSchedule, bound: float) -> bool:
    """Times must fall, and coefficients keep to their bound."""
    if (np.diff(times) >= 0).any():
        return False
    parts = len(numbers[0]) - 1
    known = known_coefficients("dpmpp-2m", noise, times, order_of(numbers[-1], parts), parts > 1)
    return bool(np.abs(np.concatenate(numbers) - np.concatenate(known)).max() <= bound)


def _size(here: StudentTrajectories, step: int, index: int) -> float:
    """Root mean square of what a coefficient multiplies."""
    part = here.parts(step)[index]
    return float(part.double().square().mean().sqrt()) or 1.0
