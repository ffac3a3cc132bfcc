"""The limit of fitted solvers: gradient descent on all times and coefficients through the solver itself.

The family of Shaul et al. (2024), with as many earlier predictions as a fitted solver looks at. The time at which the
network is asked and the noise that the state really holds are free of each other: coefficients decide the latter.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import itemgetter

import torch
from torch import Tensor

from geosprint.fitted_solver import FittedSolver, stepped
from geosprint.rivals.base import Task
from geosprint.rivals.ld3 import EndPairs, TimeLever, adam_descent, known_times
from geosprint.schedule import StepSchedule, gaps_of

UPDATES = 240
TIME_RATE, COEFFICIENT_RATE = 0.03, 0.004  # of Adam: coefficients of 0.05 decide much, times of 0.05 little
STEPS_OF_RATES = 5  # for which these are; they fall as steps become more: at 15, thrice as high, nothing is found


def bns_l2(task: Task, start: FittedSolver) -> FittedSolver:
    """The solver whose error is least along a descent from this one.

    All teacher trajectories are learnt from, and judge: they have so many more dimensions than a solver has numbers
    that it flatters little, and a few held-out ones do not show how many samples land in another mode.
    """
    teacher, noise = task.recording.teacher, task.model.noise
    pairs = EndPairs.of(teacher.for_search).joined_with(EndPairs.of(teacher.for_validation))

    def judged(free: Sequence[Tensor]) -> tuple[float, Sequence[Tensor]]:
        with torch.no_grad():
            return float(pairs.errors(end_of_walk(task, free, pairs)).mean()), [part.clone() for part in free]

    share = STEPS_OF_RATES / max(len(start), STEPS_OF_RATES)
    begun = [(torch.from_numpy(gaps_of(start.schedule.timesteps, noise)), share * TIME_RATE)]
    begun += [(torch.tensor(own, dtype=torch.float64), share * COEFFICIENT_RATE) for own in start.coefficients]
    descent = adam_descent(task, "bns-l2", begun, partial(end_of_walk, task), pairs, UPDATES)
    _, (gaps, *rows) = min([judged([part for part, _ in begun]), *map(judged, descent)], key=itemgetter(0))
    schedule = StepSchedule.at(known_times(gaps, noise).numpy(), noise, {"method": "bns-l2"})
    return FittedSolver(schedule, tuple(tuple(own.tolist()) for own in rows))


def end_of_walk(task: Task, free: Sequence[Tensor], pairs: EndPairs) -> Tensor:
    """Where the walks of a fitted solver end, with gradients to its gaps and to the coefficients of every step."""
    gaps, *rows = free
    model = task.model.for_samples(pairs.rows.tolist())
    lever, x = TimeLever(model), pairs.noise.to(model.device)
    past: tuple[tuple[Tensor, ...], ...] = ()
    for t, own in zip(known_times(gaps, model.noise), rows, strict=True):
        predicted = (lever.predict(x, t).x0,)
        x = stepped(x, predicted, past, list(own.to(x)))
        past = (predicted, *past)
    return x
