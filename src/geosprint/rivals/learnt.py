"""What published solvers that are learnt by back-propagation have in common.

A family has free numbers, and says where they ask the network and what each state is a sum of. It walks over unit
vectors, which stand for the first noise and for the prediction of each step, so that one walk through the network, and
one `LinearSolver`, serve all families. The loss is the yardstick, the distance to where teacher trajectories end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter

import numpy as np
import torch
from torch import Tensor

from geosprint.fitted_solver import summed
from geosprint.linear_solver import LinearSolver
from geosprint.noise import NoiseSchedule
from geosprint.rivals.base import Task
from geosprint.rivals.ld3 import LOOKS, EndPairs, TimeLever, adam_descent
from geosprint.schedule import StepSchedule

Free = Sequence[Tensor]
"""The numbers of a family, in parts that are learnt at rates of their own."""

UPDATES = 144
"""Of every number, on 8 samples each: 64 trajectories come 18 times. The authors of DyWeight take 625 of 16 samples."""

JUDGES = 3  # one held-out trajectory in this many judges the starts: there are many, and they differ much


@dataclass(frozen=True)
class Family:
    """Solvers that differ in some numbers, and how these are learnt."""

    name: str
    walked: Callable[[Free, NoiseSchedule], tuple[Tensor, list[Tensor]]]  # times (K,), and K + 1 states over the units
    starts: Sequence[Free]  # known solvers
    turns: Sequence[Sequence[float]]  # one after another, with a rate for each part; 0 leaves it as it is

    def learnt(self, task: Task) -> Free:
        """The numbers whose held-out error is least along a descent from the best start."""
        teacher = task.recording.teacher
        training, held_out = EndPairs.of(teacher.for_validation), EndPairs.of(teacher.for_search)  # gradients take more

        def judged(free: Free) -> tuple[float, Free]:
            return self.error(task, free, held_out), [part.clone() for part in free]

        few = held_out.at(slice(None, None, JUDGES))
        best = judged(min(self.starts, key=lambda free: self.error(task, free, few)))
        for rates in self.turns:
            best = min([best, *map(judged, self._descent(task, best[1], rates, training))], key=itemgetter(0))
        return best[1]

    def error(self, task: Task, free: Free, pairs: EndPairs) -> float:
        """The mean error of these numbers; infinite where the times do not fall, which is no schedule."""
        times, _ = self.walked(free, task.model.noise)
        if not bool((times.diff() < 0).all()):
            return math.inf
        with torch.no_grad():
            error = float(pairs.errors(self.end(task, free, pairs)).cpu().double().mean())
        return error if math.isfinite(error) else math.inf

    def _descent(self, task: Task, begun: Free, rates: Sequence[float], training: EndPairs) -> Iterator[Free]:
        updates, looks = UPDATES // sum(turn == rates for turn in self.turns), LOOKS // len(self.turns)
        parts = list(zip(begun, rates, strict=True))
        return adam_descent(task, self.name, parts, partial(self.end, task), training, updates, looks)

    def end(self, task: Task, free: Free, pairs: EndPairs) -> Tensor:
        """Where walks with these numbers end, with gradients to them."""
        model = task.model.for_samples(pairs.rows.tolist())
        times, states = self.walked(free, model.noise)
        lever, parts = TimeLever(model), [pairs.noise.to(model.device)]
        rows = [list(row[: i + 1].to(parts[0])) for i, row in enumerate(states)]
        for t, row in zip(times, rows[:-1], strict=True):
            parts.append(lever.predict(summed(row, parts), t).x0)
        return summed(rows[-1], parts)

    def solver(self, free: Free, noise: NoiseSchedule) -> LinearSolver:
        """What to walk with."""
        times, states = self.walked(free, noise)
        schedule = StepSchedule.at(times.numpy(), noise, {"method": self.name})
        return LinearSolver(schedule, tuple(tuple(row[: i + 1].tolist()) for i, row in enumerate(states)))


def units(steps: int) -> list[Tensor]:
    """What stands for the first noise, and for the prediction of each step."""
    return list(torch.eye(steps + 1, dtype=torch.float64))


def weighted(weights: Tensor, latest_first: Sequence[Tensor]) -> Tensor:
    """The sum of as many as there are weights for."""
    return (weights[:, None] * torch.stack(list(latest_first[: len(weights)]))).sum(dim=0)


def numbers(rows: Sequence[Sequence[float]]) -> list[Tensor]:
    """A part for each step."""
    return [torch.tensor(np.array(row), dtype=torch.float64) for row in rows]
