"""What a Gaussian model's figures must be: its samples are known without drawing any."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geosprint.metrics.frechet import gaussian_frechet_distance, gaussian_responses
from geosprint.models.base import Model
from geosprint.models.gaussian import Gaussian
from geosprint.search.fine import FINE_SOLVER, fine_timesteps
from geosprint.solvers import solver_named

Array = NDArray[np.float64]


def closed_forms(model: Model, timesteps: ArrayLike, solver: str, fine_steps: int) -> dict[str, float]:
    """The exact values of what sampling estimates; nothing for a model that is not Gaussian."""
    gaussian = getattr(model, "_model", model)
    if not isinstance(gaussian, Gaussian) or gaussian.clip is not None:
        return {}
    step = solver_named(solver)
    fine = gaussian_responses(gaussian, fine_timesteps(model.noise, fine_steps), solver_named(FINE_SOLVER))
    off = gaussian_responses(gaussian, timesteps, step) - fine
    return {
        "rmse-exact": mean_root((off.flatten() ** 2 / off.numel()).numpy()),
        "frechet-data": gaussian_frechet_distance(gaussian, timesteps, step),
    }


def mean_root(weights: Array) -> float:
    """E sqrt(sum of w·z²) for standard normal z, from E sqrt(Q) = ∫ (1 - E exp(-sQ)) s^(-3/2) ds / (2 sqrt(pi))."""
    weights, counts = np.unique(np.asarray(weights, dtype=np.float64), return_counts=True)
    total = float((weights * counts).sum())
    if total == 0:
        return 0.0
    # s = exp(u) / total turns the integrand into a smooth bump that decays like exp(-|u| / 2) on both sides.
    u = np.linspace(-80, 80, 8001)
    s = np.exp(u)
    log_laplace = -0.5 * (counts * np.log1p(2 * s[:, None] * weights / total)).sum(axis=1)
    return float(np.sqrt(total) * np.trapezoid(-np.expm1(log_laplace) / np.sqrt(s), u) / (2 * np.sqrt(np.pi)))
