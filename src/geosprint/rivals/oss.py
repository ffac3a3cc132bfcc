"""OSS (Pei et al., 2025): a dynamic program over the states that a student's own steps lead to, image by image."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geosprint.errors import ScheduleError
from geosprint.models.base import Predict
from geosprint.noise import Array, NoiseSchedule
from geosprint.rivals.base import Evidence
from geosprint.schedule import known_times

POINTS = 50  # of the recorded grid that a step may start from; at least twice as many as steps
IMAGES = 16  # the median over them settles; 12 thousand network calls for 20 steps


def oss(evidence: Evidence, steps: int) -> Array:
    """Pei et al. (2025): the median over images of each step's time on that image's best path."""
    recorded = evidence.recorded
    grid = _coarse_grid(len(recorded.timesteps) - 1, steps)
    times, noise = recorded.timesteps[grid], recorded.origin.noise
    teachers = recorded.states[:IMAGES, grid].unflatten(2, recorded.origin.shape)
    paths = best_paths(evidence.predictor(range(len(teachers))), noise, teachers, times, steps)
    return known_times(np.median(times[paths], axis=0), noise)


@torch.no_grad()
def best_paths(ask: Predict, noise: NoiseSchedule, teacher: Tensor, times: Array, steps: int) -> NDArray[np.intp]:
    """The grid points (images, steps) that each student leaves on its way from noise to clean.

    After k steps the student's best state at every grid point is the one nearest to the teacher's there
    (images, points, *shape) of all that one ddim step makes of its states after k - 1 steps.
    """
    last = len(times) - 1
    levels = [noise.signal_and_sigma(t) for t in times]
    signal, sigma = teacher.new_tensor(levels).reshape(last + 1, 2, *[1] * (teacher.ndim - 2)).unbind(1)
    students, came_from = teacher, []
    for k in range(1, steps + 1):
        best = teacher.new_full(teacher.shape[:2], torch.inf)
        arrived, parent = torch.empty_like(teacher), torch.zeros_like(best, dtype=torch.long)
        for i in range(k - 1, last if k > 1 else 1):  # k - 1 steps reach point k - 1 or later; none, the noise alone
            asked = ask(students[:, i], float(times[i]))
            landed = signal[i + 1 :] * asked.x0[:, None] + sigma[i + 1 :] * asked.eps[:, None]
            error = (landed - teacher[:, i + 1 :]).square().flatten(2).mean(dim=2)
            is_lower = error < best[:, i + 1 :]
            best[:, i + 1 :][is_lower], parent[:, i + 1 :][is_lower] = error[is_lower], i
            arrived[:, i + 1 :][is_lower] = landed[is_lower]
        students = arrived
        came_from.append(parent.numpy())
    return _traced(came_from, last)


def _traced(came_from: list[NDArray[np.int64]], last: int) -> NDArray[np.intp]:
    """From clean back to noise: where each image's path came from, step by step."""
    images = np.arange(len(came_from[0]))
    points = [np.full(len(images), last)]
    for parent in came_from[::-1]:
        points.append(parent[images, points[-1]])
    return np.stack(points[:0:-1], axis=1)


def _coarse_grid(recorded_steps: int, steps: int) -> NDArray[np.intp]:
    """Indices of the recorded grid, the first, the last and clean among them."""
    if steps > recorded_steps:
        raise ScheduleError(
            f"steps are placed on the {recorded_steps} recorded times, got {steps}; record with more reference steps"
        )
    count = min(max(POINTS, 2 * steps), recorded_steps)
    return np.append(np.round(np.linspace(0, recorded_steps - 1, count)), recorded_steps).astype(np.intp)
