"""How much of an error made on the way is left at the end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geosprint.models.base import Prediction
from geosprint.noise import NoiseSchedule
from geosprint.search.one_step import predictions_of
from geosprint.solvers import Step, ddim, refuse_to_draw
from geosprint.trajectory import Trajectories

Array = NDArray[np.float64]
Predict = Callable[[Tensor, float], Prediction]

POINTS = 12  # at which errors are put in; what lies between is interpolated
WALKS = 16
STEPS_TO_END = 25  # of a walk from pure noise; later points have fewer


@torch.no_grad()
def sensitivities(recorded: Trajectories, predict: Predict, noise: NoiseSchedule, gap: int) -> Array:
    """Final over initial size of the error that a ddim step over `gap` recorded points makes (points,).

    The disturbed and the undisturbed state take the same coarse steps to the end, so that only the error differs.
    """
    x0, eps = predictions_of(recorded)
    last = len(recorded.timesteps) - 1
    shape = (min(WALKS, len(recorded.states)), *recorded.origin.shape)
    gap = min(max(gap, 2), last - 1)  # a step over one recorded point may be the recorded one, and make no error
    places = np.unique(np.round(np.linspace(gap, last - 1, POINTS)).astype(int))
    found = []
    for j in places:
        i = j - gap
        a, s = noise.signal_and_sigma(recorded.timesteps[j])
        undisturbed = recorded.states[: shape[0], j].reshape(shape)
        disturbed = (a * x0[: shape[0], i] + s * eps[: shape[0], i]).reshape(shape)
        times = _coarse_times(recorded.timesteps, int(j))
        ends = [_walked(predict, x, times, noise) for x in (disturbed, undisturbed)]
        found.append(float(_sizes(ends[0] - ends[1]).mean() / _sizes(disturbed - undisturbed).mean().clamp(min=1e-12)))
    return np.interp(np.arange(last + 1), [*places, last], [*found, 1.0])


def _coarse_times(timesteps: Array, first: int) -> Array:
    """About as many steps to the end as are due from here on."""
    last = len(timesteps) - 1
    steps = max(round(STEPS_TO_END * (last - first) / last), 1)
    places = np.round(np.linspace(first, last, steps + 1)).astype(int)
    return timesteps[np.unique(places)]


def _walked(predict: Predict, x: Tensor, times: Array, noise: NoiseSchedule) -> Tensor:
    for t, t_next in zip(times[:-1].tolist(), times[1:].tolist(), strict=True):
        step = Step.between(noise, t, t_next, predict, refuse_to_draw)
        x, _ = ddim(x, predict(x, t), step, None)
    return x


def _sizes(difference: Tensor) -> Tensor:
    return torch.linalg.vector_norm(difference.flatten(1), dim=1)
