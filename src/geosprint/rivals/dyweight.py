"""DyWeight (Zhao et al. 2026): weights of the last slopes that need not sum to 1, and the times at which to ask.

In variance exploding coordinates, or in a flow's own, x += (sigma' - level) sum_j w_j d_j over the last three slopes.
What the weights sum to says how far a step really goes: the noise level of the state follows it instead of the
schedule, which stays as it is. The network is asked at a learnt multiple of that level. Different here: the loss is L2
and there are 144 updates on 64 trajectories, where the paper compares features on 10,000 images; the last step goes to
the clean end.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from geosprint.baselines import closed_forms, closed_forms_begun_late
from geosprint.linear_solver import LinearSolver
from geosprint.noise import CLEAN, Array, Flow, NoiseSchedule
from geosprint.rivals.base import Task
from geosprint.rivals.ld3 import FACTOR_NUDGE, factors_at, leaning
from geosprint.rivals.learnt import Family, Free, numbers, units, weighted
from geosprint.solvers import ADAMS_BASHFORTH

NAME = "dyweight"
SLOPES = 3
WEIGHT_RATE, SCALE_RATE = 0.015, 0.015  # the authors take 0.03 to 0.0005 for both, with batches of 16


def dyweight(task: Task, steps: int) -> LinearSolver:
    """The solver with the least held-out error, on the closed form that suits iPNDM best."""
    noise = task.model.noise
    made = family(noise, steps)
    return made.solver(made.learnt(task), noise)


def applies(task: Task) -> bool:
    """Where pure noise holds no signal there is no such coordinate, but a flow has its own."""
    noise = task.model.noise
    return isinstance(noise, Flow) or noise.signal_and_sigma(noise.first)[0] > 0


def family(noise: NoiseSchedule, steps: int) -> Family:
    """From iPNDM on closed forms, also begun late, asked where the state is; no turn moves the times."""
    forms = [*closed_forms(noise, steps).values(), *closed_forms_begun_late(noise, steps).values()]
    starts = [free_of(times) for times in forms]
    return Family(NAME, walked, starts, [[0.0, SCALE_RATE, *[WEIGHT_RATE] * steps]])


def free_of(times: Array) -> Free:
    """iPNDM of third order on these times, in numbers of this family; to the clean end it is of first order."""
    orders = [min(i + 1, SLOPES) for i in range(len(times))]
    weights = [*(ADAMS_BASHFORTH[order] for order in orders[:-1]), np.eye(orders[-1])[0]]
    return [torch.tensor(times.copy()), torch.ones(len(times), dtype=torch.float64), *numbers(weights)]


def walked(free: Free, noise: NoiseSchedule) -> tuple[Tensor, list[Tensor]]:
    """Of the schedule, of the scale of each time, and of the weights of each step, latest slope first."""
    schedule, scales, *weights = free
    is_flow = isinstance(noise, Flow)
    first, *predictions = units(len(schedule))
    a_end, s_end = noise.signal_and_sigma(CLEAN)
    levels = [*noise.sigma(schedule.numpy()).tolist(), s_end / a_end]
    x = first if is_flow else first / noise.signal_and_sigma(float(schedule[0]))[0]
    level, times, states, slopes = torch.tensor(levels[0], dtype=x.dtype), [], [], list[Tensor]()
    for x0, scale, own, target in zip(predictions, scales, weights, levels[1:], strict=True):
        times.append(time_of_sigma((scale * level).abs(), noise))
        a, s = factors_at(times[-1], noise)
        states.append(x if is_flow else a * x)
        slopes.insert(0, (x - x0) / (s if is_flow else level))
        x = x + (target - level) * weighted(own, slopes)
        level = level + own.sum() * (target - level)
    return torch.stack(times), [*states, a_end * x]


def time_of_sigma(sigma: Tensor, noise: NoiseSchedule) -> Tensor:
    """The time of a noise level, a known one, with the gradient of the exact one."""
    now = sigma.item()
    lowest = noise.last or FACTOR_NUDGE * noise.first * noise.continuous  # a flow does not know its last time itself
    below, here, above = np.clip(noise.time_of_sigma(now * np.array([0.999, 1, 1.001])), lowest, noise.first)
    here = here if noise.continuous else np.round(here)
    return leaning(torch.tensor(here, dtype=torch.float64), (above - below) / (0.002 * now), sigma)
