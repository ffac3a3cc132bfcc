"""NeuralSolver of differentiable solver search (Wang et al. 2025), for flows: weights of all velocities, and the times.

x += (s' - s) sum_j c_j v_j over all velocities so far, the c of a step summing to 1. With up to six steps the last two
look back at one velocity alone, as the authors have it. Different here: the loss is L2 at the end, where the authors
add the distances of states on the way, Adam instead of Lion, and 144 updates on 64 trajectories.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from geosprint.baselines import baseline_schedule
from geosprint.linear_solver import LinearSolver
from geosprint.noise import CLEAN, Array, Flow, NoiseSchedule
from geosprint.rivals.base import Task
from geosprint.rivals.ld3 import factors_at, known_times
from geosprint.rivals.learnt import Family, Free, numbers, units, weighted
from geosprint.schedule import gaps_of
from geosprint.solvers import ADAMS_BASHFORTH

NAME = "neural-solver"
TIME_RATE, COEFFICIENT_RATE = 0.03, 0.02
FEW_STEPS = 6


def neural_solver(task: Task, steps: int) -> LinearSolver:
    """The solver with the least held-out error."""
    noise = task.model.noise
    made = family(noise, steps)
    return made.solver(made.learnt(task), noise)


def applies(task: Task) -> bool:
    """It is for flows."""
    return isinstance(task.model.noise, Flow)


def family(noise: NoiseSchedule, steps: int) -> Family:
    """From Euler's method, as the authors, and from Adams and Bashforth's of second order, both on uniform times."""
    times = baseline_schedule("uniform-trailing", noise, steps).timesteps
    starts = [free_of(order, noise, times) for order in (1, 2)]
    return Family(NAME, walked, starts, [[TIME_RATE, *[COEFFICIENT_RATE] * steps]])


def free_of(order: int, noise: NoiseSchedule, times: Array) -> Free:
    """Adams and Bashforth's solver of this order for equal steps, on these times."""
    known = [ADAMS_BASHFORTH[min(i + 1, order)][1:] for i in range(len(times))]
    weights = [[*own, *[0.0] * (looks_back(i, len(times)) - len(own))] for i, own in enumerate(known)]
    return [torch.from_numpy(gaps_of(times, noise)[1:]), *numbers(weights)]


def looks_back(index: int, steps: int) -> int:
    """At how many earlier velocities a step looks."""
    return min(index, 1) if steps <= FEW_STEPS and index >= steps - 2 else index


def walked(free: Free, noise: NoiseSchedule) -> tuple[Tensor, list[Tensor]]:
    """Of the gap after each time, the first time being that of pure noise, and of the weights of earlier velocities."""
    gaps, *weights = free
    times = known_times(torch.cat([gaps.new_tensor([-math.inf]), gaps]), noise)
    x, *predictions = units(len(times))
    sigmas = [factors_at(t, noise)[1] for t in [*times, torch.tensor(CLEAN, dtype=times.dtype)]]
    states, velocities = [x], list[Tensor]()
    for i, (x0, own) in enumerate(zip(predictions, weights, strict=True)):
        velocities.insert(0, (x - x0) / sigmas[i])
        mean = weighted(torch.cat([1 - own.sum(dim=0, keepdim=True), own]), velocities)
        x = x + (sigmas[i + 1] - sigmas[i]) * mean
        states.append(x)
    return times, states
