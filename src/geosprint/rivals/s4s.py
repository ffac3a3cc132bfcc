"""S4S-Alt (Frankel et al. 2025): all coefficients of a multistep solver and its times, learnt in turns.

A step is DPM-Solver++'s, with learnt weights of the last predictions in place of x0, which need not sum to 1:
x' = (s'/s) x + (a' - a s'/s) sum_j b_j x0_j. The authors published no code: this form of the step, the four predictions
that it looks at, the turns and their rates are our choice. The loss is L2 at the end; 288 updates on 64 trajectories.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from geosprint.baselines import closed_forms, closed_forms_begun_late
from geosprint.fitted_solver import MOST_PREDICTIONS, FittedSolver, known_coefficients
from geosprint.noise import CLEAN, Array, NoiseSchedule
from geosprint.rivals.base import Task
from geosprint.rivals.ld3 import factors_at, known_times
from geosprint.rivals.learnt import Family, Free, numbers, units, weighted
from geosprint.schedule import StepSchedule, gaps_of

NAME = "s4s-alt"
COEFFICIENT_RATE, TIME_RATE = 0.02, 0.015  # of Adam: with 0.03 the times leave what the coefficients were learnt for
ROUNDS = 2  # of a turn of the coefficients and a turn of the times


def s4s_alt(task: Task, steps: int) -> FittedSolver:
    """The solver with the least held-out error; it is of the fitted form."""
    noise = task.model.noise
    gaps, *weights = family(noise, steps).learnt(task)
    times = known_times(gaps, noise)
    factors = zip(_factors(times, noise), weights, strict=True)
    rows = [(kept, reach * float(own.sum()), *(reach * own[1:]).tolist()) for (kept, reach), own in factors]
    schedule = StepSchedule.at(times.numpy(), noise, {"method": NAME})
    return FittedSolver(schedule, tuple(tuple(map(float, row)) for row in rows))


def family(noise: NoiseSchedule, steps: int) -> Family:
    """From DPM++ 2M and UniPC on closed forms, also begun late."""
    forms = [*closed_forms(noise, steps).values(), *closed_forms_begun_late(noise, steps).values()]
    starts = [free_of(solver, noise, times) for solver in ("dpmpp-2m", "unipc") for times in forms]
    turns = [[0.0, *[COEFFICIENT_RATE] * steps], [TIME_RATE, *[0.0] * steps]] * ROUNDS
    return Family(NAME, walked, starts, turns)


def free_of(solver: str, noise: NoiseSchedule, times: Array) -> Free:
    """A known solver in numbers of this family, on these times with no gap so narrow that it could never open."""
    gaps = torch.from_numpy(gaps_of(times, noise))
    known = known_coefficients(solver, noise, known_times(gaps, noise).numpy(), MOST_PREDICTIONS)
    weights = [[(own[1] - sum(own[2:])) / own[1], *(c / own[1] for c in own[2:])] for own in known]
    return [gaps, *numbers(weights)]


def walked(free: Free, noise: NoiseSchedule) -> tuple[Tensor, list[Tensor]]:
    """Of a gap for each time and one more, and of the weights of each step, latest prediction first."""
    gaps, *weights = free
    times = known_times(gaps, noise)
    x, *predictions = units(len(times))
    states = [x]
    for i, ((kept, reach), own) in enumerate(zip(_factors(times, noise), weights, strict=True)):
        x = kept * x + reach * weighted(own, predictions[i::-1])
        states.append(x)
    return times, states


def _factors(times: Tensor, noise: NoiseSchedule) -> list[tuple[Tensor, Tensor]]:
    """What each step keeps of x, and how far it goes to x0."""
    ends = [*times, torch.tensor(CLEAN, dtype=times.dtype)]
    factors = [(factors_at(t, noise), factors_at(t_next, noise)) for t, t_next in pairwise(ends)]
    return [(s_next / s, a_next - a * s_next / s) for (a, s), (a_next, s_next) in factors]
