"""Our own dynamic program: errors of single steps, weighted by how much of each is left at the end."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from geosprint.models.base import Predict
from geosprint.noise import Array, NoiseSchedule
from geosprint.rivals.base import Evidence
from geosprint.rivals.dynamic_programs import cheapest_path, one_step_errors, predictions_of
from geosprint.solvers import Step, ddim, refuse_to_draw
from geosprint.trajectory import Trajectories

POINTS = 12  # at which errors are put in; what lies between is interpolated
WALKS = 16
STEPS_TO_END = 25  # of a walk from pure noise; later points have fewer


def weighted_path(evidence: Evidence, steps: int, power: int = 2) -> Array:
    """The cheapest path with a free start; by default over squared errors, which hardly point the same way."""
    recorded = evidence.recorded
    gap = max(round((len(recorded.timesteps) - 1) / steps), 1)
    return cheapest_weighted_path(recorded, sensitivities(evidence, gap), steps, power)


@torch.no_grad()
def sensitivities(evidence: Evidence, gap: int) -> Array:
    """Final over initial size of the error that a ddim step over `gap` recorded points makes (points,).

    The disturbed and the undisturbed state take the same coarse steps to the end, so that only the error differs.
    """
    recorded = evidence.recorded
    (x0, eps), noise = predictions_of(recorded), recorded.origin.noise
    last = len(recorded.timesteps) - 1
    shape = (min(WALKS, len(recorded.states)), *recorded.origin.shape)
    predict = evidence.predictor(range(shape[0]))
    gap = min(max(gap, 2), last - 1)  # a step over one recorded point may be the recorded one, and make no error
    points = np.unique(np.round(np.linspace(gap, last - 1, POINTS)).astype(int))
    found = []
    for j in points:
        i = j - gap
        a, s = noise.signal_and_sigma(recorded.timesteps[j])
        undisturbed = recorded.states[: shape[0], j].reshape(shape)
        disturbed = (a * x0[: shape[0], i] + s * eps[: shape[0], i]).reshape(shape)
        times = _coarse_times(recorded.timesteps, int(j))
        ends = [_walked(predict, x, times, noise) for x in (disturbed, undisturbed)]
        found.append(float(_sizes(ends[0] - ends[1]).mean() / _sizes(disturbed - undisturbed).mean().clamp(min=1e-12)))
    return np.interp(np.arange(last + 1), [*points, last], [*found, 1.0])


def _coarse_times(timesteps: Array, first: int) -> Array:
    """About as many steps to the end as are due from here on."""
    last = len(timesteps) - 1
    steps = max(round(STEPS_TO_END * (last - first) / last), 1)
    return timesteps[np.unique(np.round(np.linspace(first, last, steps + 1)).astype(int))]


def _walked(predict: Predict, x: Tensor, times: Array, noise: NoiseSchedule) -> Tensor:
    for t, t_next in zip(times[:-1].tolist(), times[1:].tolist(), strict=True):
        step = Step.between(noise, t, t_next, predict, refuse_to_draw)
        x, _ = ddim(x, predict(x, t), step, None)
    return x


def _sizes(difference: Tensor) -> Tensor:
    return torch.linalg.vector_norm(difference.flatten(1), dim=1)


def cheapest_weighted_path(recorded: Trajectories, sensitivity: Array, steps: int, power: int) -> Array:
    """The K times whose errors, each times what is left of it at the end, add up to least in this power.

    Power 1 takes errors to point the same way, power 2 to have nothing to do with each other. Starting at a later
    state than the first costs the distance between the noise and that state.
    """
    cost = (one_step_errors(recorded) * sensitivity) ** power
    start = (start_distances(recorded) * sensitivity) ** power
    path = cheapest_path(cost.mean(axis=0), steps, start_cost=start.mean(axis=0))
    return recorded.timesteps[path]


def start_distances(recorded: Trajectories) -> Array:
    """Root mean square distance of every recorded state from the noise its walk began with (walks, points)."""
    off = recorded.states - recorded.states[:, :1]
    return torch.linalg.vector_norm(off, dim=2).double().numpy() / math.sqrt(recorded.states.shape[2])
