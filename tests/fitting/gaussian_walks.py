"""Teacher trajectories of a Gaussian, exact to rounding: known states at any times one asks for."""

from __future__ import annotations

import numpy as np
import torch

from geosprint.models.base import predict
from geosprint.models.exact import Gaussian
from geosprint.noise import CLEAN, DiscreteVP
from geosprint.teacher import TeacherTrajectories


def spread(count: int = 24) -> Gaussian:
    """Independent coordinates with variances from 0.01 to 2."""
    return Gaussian(torch.logspace(-2, 0.3, count, dtype=torch.float64), DiscreteVP.named(), in_cosine_basis=False)


def exact_walks(model: Gaussian, times: list[float], starts: torch.Tensor) -> TeacherTrajectories:
    """The probability flow itself, recorded at these times."""
    found = [predict(model, model.solution(starts, times[0], t), t) for t in times]
    return TeacherTrajectories(
        model.noise,
        tuple(range(len(starts))),
        np.array(times, dtype=np.float64),
        torch.stack([p.x0 for p in found]),
        torch.stack([p.eps for p in found]),
        starts,
        model.solution(starts, times[0], CLEAN),
    )


def ones(model: Gaussian) -> torch.Tensor:
    """One walk that starts at one in every coordinate.

    Noise has mean square 1 in every coordinate and the walk is linear: sums over these coordinates are what sums
    over walks of random noise tend to.
    """
    return torch.ones(1, *model.shape, dtype=torch.float64)


def random_starts(model: Gaussian, count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, *model.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
