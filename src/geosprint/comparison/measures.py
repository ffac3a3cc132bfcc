"""From a measured cell to its rows: every metric with its interval, and the exact values where a model has them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geosprint.comparison.cells import Cell, ReferenceSolve
from geosprint.comparison.results import Row
from geosprint.estimates import Estimate, bootstrap_mean, decibels, jackknifed
from geosprint.metrics.distances import (
    frechet_distance,
    frechet_to_statistics,
    gaussian_response,
    kernel_distance,
    sliced_wasserstein,
)
from geosprint.models.base import Model
from geosprint.models.exact import Gaussian
from geosprint.models.networks import FeatureStatistics
from geosprint.solvers import solver_named
from geosprint.teacher import FINE_SOLVER, fine_timesteps

FEW_DIMENSIONS = 64  # up to here the sliced Wasserstein distance says something


@dataclass(frozen=True, eq=False)
class Judge:
    """Measures the samples of cells against one reference solve."""

    model: Model
    reference: ReferenceSolve
    fine_steps: int  # of the reference solve
    statistics: FeatureStatistics | None  # of the data set, in the features that were used

    def rows_of(self, cell: Cell, uniform: Cell | None) -> list[Row]:
        """All numbers of a cell; its gap is that to the best uniform spacing of as many steps."""
        return [Row.of(self.model.name, cell, metric, found) for metric, found in self._measured(cell, uniform).items()]

    def _measured(self, cell: Cell, uniform: Cell | None) -> dict[str, Estimate | float]:
        """By metric; a number alone where no interval is known."""
        samples, features, others = self.reference.samples, cell.features, self.reference.features
        found: dict[str, Estimate | float] = {"rmse": bootstrap_mean(cell.errors)}
        if uniform:
            found["rmse-gap"] = bootstrap_mean(cell.errors - uniform.errors)
        if samples.ndim == 4:
            found["psnr"] = bootstrap_mean(decibels(cell.errors))
        found["frechet-fine"] = jackknifed(lambda rows: frechet_distance(features[rows], others[rows]), len(others))
        if (data := self.statistics) is not None:
            found["frechet-data"] = jackknifed(lambda rows: frechet_to_statistics(features[rows], data), len(others))
        # KID needs independent sets: samples of one half of the noise, reference samples of the other.
        half = len(features) // 2
        found["kid-fine"] = kernel_distance(features[:half], others[half:])
        if samples[0].numel() <= FEW_DIMENSIONS and features.shape[1] == samples[0].numel():
            found["sliced-fine"] = sliced_wasserstein(features, others)
        if not cell.own_solver:
            exact = closed_forms(self.model, cell.timesteps, cell.solver, self.fine_steps)
            found |= {metric: Estimate(value, value, value) for metric, value in exact.items()}
        return found


def closed_forms(model: Model, timesteps: ArrayLike, solver: str, fine_steps: int) -> dict[str, float]:
    """The exact values of what sampling estimates; nothing for a model that is not Gaussian."""
    if not isinstance(model, Gaussian) or model.clip is not None:
        return {}
    made = gaussian_response(model, timesteps, solver_named(solver))
    off = made - gaussian_response(model, fine_timesteps(model.noise, fine_steps), solver_named(FINE_SOLVER))
    return {
        "rmse-exact": mean_root((off.flatten() ** 2 / off.numel()).numpy()),
        "frechet-data": float(((made.abs() - model.variances.sqrt()) ** 2).sum()),
    }


def mean_root(weights: NDArray[np.float64]) -> float:
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
