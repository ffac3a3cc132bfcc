"""The stepwise fit: fit a step, take it with the student's own states, fit the next; each by least squares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from geosprint.errors import ModelError
from geosprint.fitted_solver import Coefficients, Predicted, features, known_coefficients, order_of, remembered, stepped
from geosprint.fitting.config import FitConfig
from geosprint.models.base import predict
from geosprint.noise import CLEAN, Array
from geosprint.principal_axes import PrincipalAxes
from geosprint.sampling import Counted
from geosprint.teacher import TeacherTrajectories

SMALLEST = 1e-3  # of the mean distance, a floor: one trajectory that fits perfectly must not outweigh all others


def fit_by_distance(directions: Tensor, missing: Tensor, ridge: float, reweightings: int) -> Array:
    """How much of each direction (numbers, trajectories, dimensions) explains a residual (trajectories, dimensions).

    Minimises the mean distance, not its square, by iteratively reweighted least squares: a trajectory that lands in
    another mode would otherwise dominate. `ridge` is relative to the squared length of each direction.
    """
    weights = torch.ones(len(missing), dtype=torch.float64)
    for _ in range(reweightings):
        found = ridge_regression(directions, missing, weights, ridge)
        left = missing.double() - torch.einsum("f,fwd->wd", torch.from_numpy(found), directions.double())
        weights = distance_weights(left)
    return found


def distance_weights(left: Tensor) -> Tensor:
    """Weights that turn squares of these residuals (trajectories, dimensions) into distances."""
    return torch.from_numpy(weights_of_distances(left.double().norm(dim=1).numpy()))


def weights_of_distances(distances: Array) -> Array:
    """One over each trajectory's distance, with mean 1."""
    if not distances.any():
        return np.ones_like(distances)
    weights = 1 / np.maximum(distances, SMALLEST * distances.mean())
    return np.asarray(weights / weights.mean())


def ridge_regression(directions: Tensor, missing: Tensor, weights: Tensor, ridge: float) -> Array:
    """Weighted ridge regression by normal equations."""
    return ridge_solution(*normal_equations(directions, missing, weights), ridge)


def ridge_solution(gram: Array, moment: Array, ridge: ArrayLike) -> Array:
    """Of normal equations, with directions scaled to length one; the ridge may be one of each direction."""
    lengths = np.sqrt(np.diag(gram))
    lengths[lengths == 0] = 1.0
    scaled = gram / np.outer(lengths, lengths) + np.asarray(ridge) * np.eye(len(gram))
    return np.asarray(np.linalg.solve(scaled, moment / lengths) / lengths)


def normal_equations(directions: Tensor, missing: Tensor, weights: Tensor) -> tuple[Array, Array]:
    """Sums over trajectories and dimensions, one trajectory at a time: all directions in float64 would not fit."""
    count = len(directions)
    gram, moment = torch.zeros(count, count, dtype=torch.float64), torch.zeros(count, dtype=torch.float64)
    for own, weight, residual in zip(directions.unbind(1), weights, missing, strict=True):
        own = own.double()
        gram += weight * (own @ own.T)
        moment += weight * (own @ residual.double())
    return gram.numpy(), moment.numpy()


Ask = Callable[[Tensor, float], Predicted]
"""What the model predicts at the states of all trajectories."""


@dataclass(frozen=True, eq=False)
class StudentTrajectories:
    """Few steps from the noise of the teacher trajectories: the times, the coefficients, and where they led."""

    times: Array  # (K,)
    coefficients: Coefficients
    states: tuple[Tensor, ...]  # K of (trajectories, *shape), before each step
    predicted: tuple[Predicted, ...]  # K of (trajectories, *shape) each, there
    ends: Tensor  # (trajectories, *shape)

    def errors(self, teacher: TeacherTrajectories) -> Array:
        """Root mean square error of each end; their mean is what a fit minimises."""
        return distances(self.ends, teacher.ends)

    def parts(self, step: int) -> list[Tensor]:
        """What the coefficients of a step multiply."""
        own = self.predicted[step]
        order = order_of(self.coefficients[step], len(own))
        return features(self.states[step], own, self.predicted[:step][::-1], order)


def asking(model: Counted, rows: Sequence[int]) -> Ask:
    """Predictions for the samples of these rows."""
    own = model.for_samples(rows)

    def ask(x: Tensor, t: float) -> Predicted:
        found = predict(own, x.to(own.device), t)
        if not torch.isfinite(found.x0.sum(dtype=torch.float64)):
            raise ModelError(
                f"model {model.name!r} returned nan or infinity at t = {t:g}; "
                "check its dtype (half precision overflows) and that the noise schedule is its own"
            )
        return tuple(part.to(x) for part in (found.x0, found.added) if part is not None)

    return ask


@torch.no_grad()
def stepwise_fit(ask: Ask, teacher: TeacherTrajectories, times: ArrayLike, config: FitConfig) -> StudentTrajectories:
    """Fit each step to the teacher's state at its end, starting from where the steps before it really led.

    Later steps so correct the errors of earlier ones. Errors count by what the end will still have of them. Costs one
    prediction per step and trajectory.
    """
    data, order = PrincipalAxes.of(teacher.ends.flatten(1)), config.order
    falling = np.asarray(times, dtype=np.float64).tolist()
    known = [known_coefficients("dpmpp-2m", teacher.noise, falling, order, guided) for guided in (False, True)]
    x = teacher.starts
    past: tuple[Predicted, ...] = ()
    found: list[tuple[float, ...]] = []
    states: list[Tensor] = []
    predicted: list[Predicted] = []
    for i, (t, t_next) in enumerate(pairwise([*falling, CLEAN])):
        states.append(x)
        predicted.append(ask(x, t))
        base = known[len(predicted[i]) - 1][i]
        parts = torch.stack([part.flatten(1) for part in features(x, predicted[i], past, order)])
        target = teacher.ends if t_next == CLEAN else teacher.state_at(t_next)
        missing = (target - stepped(x, predicted[i], past, base)).flatten(1)
        if config.weighs_errors:
            level = teacher.noise.signal_and_sigma(t_next)
            parts, missing = (data.at_end(one, *level) for one in (parts, missing))
        found.append(tuple((np.array(base) + bounded_fit(parts, missing, config)).tolist()))
        x, past = stepped(x, predicted[i], past, found[i]), remembered(predicted[i], past, order)
    return StudentTrajectories(np.array(falling), tuple(found), tuple(states), tuple(predicted), x)


@torch.no_grad()
def student_trajectories(ask: Ask, x: Tensor, times: ArrayLike, coefficients: Coefficients) -> StudentTrajectories:
    """Take steps with these coefficients from this noise."""
    falling, states, predicted = np.asarray(times, dtype=np.float64), list[Tensor](), list[Predicted]()
    for t, own in zip(falling.tolist(), coefficients, strict=True):
        states.append(x)
        predicted.append(ask(x, t))
        x = stepped(x, predicted[-1], predicted[-2::-1], own)
    return StudentTrajectories(falling, coefficients, tuple(states), tuple(predicted), x)


def bounded_fit(parts: Tensor, missing: Tensor, config: FitConfig) -> Array:
    """The fit with the least ridge that keeps every coefficient within the bound."""
    ridge = config.ridge
    while np.abs(found := fit_by_distance(parts, missing, ridge, config.reweightings)).max() > config.bound:
        ridge *= config.stronger
    return found


def distances(ends: Tensor, teacher_ends: Tensor) -> Array:
    """Root mean square error of each trajectory's end."""
    difference = (ends - teacher_ends.to(ends)).flatten(1).double()
    return (difference.norm(dim=1) / difference.shape[1] ** 0.5).numpy()
