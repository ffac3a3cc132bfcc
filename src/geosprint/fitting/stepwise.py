"""The stepwise fit: fit a step, take it with the student's own states, fit the next; each by least squares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from geosprint.errors import ModelError
from geosprint.fitting.formula import Coefficients, dpmpp_coefficients, features, remembered, stepped
from geosprint.models.base import predict
from geosprint.noise import CLEAN
from geosprint.sampling import BATCH, Counted
from geosprint.teacher import TeacherTrajectories

Array = NDArray[np.float64]

ROUNDS = 6  # of weighing walks anew; from the fifth on nothing moves
SMALLEST = 1e-3  # share of the mean distance that counts as no distance: a walk that fits must not outweigh all others


def fitted(directions: Tensor, missing: Tensor, ridge: float) -> Array:
    """How much of each direction (numbers, walks, dimensions) makes up best for what is missing (walks, dimensions).

    The mean over walks of the distance is made small, not of its square: a walk that turned elsewhere would
    otherwise speak louder than all that did not. `ridge` is the share by which every direction counts as longer.
    """
    weights = torch.ones(len(missing), dtype=torch.float64)
    for _ in range(ROUNDS):
        found = solved(directions, missing, weights, ridge)
        left = missing.double() - torch.einsum("f,fwd->wd", torch.from_numpy(found), directions.double())
        weights = nearness(left)
    return found


def nearness(left: Tensor) -> Tensor:
    """The weight of each walk that turns squares into distances: one over how far it is off, with mean 1."""
    distances = left.double().norm(dim=1)
    if not distances.any():
        return torch.ones_like(distances)
    weights = 1 / distances.clamp(min=SMALLEST * float(distances.mean()))
    return weights / weights.mean()


def solved(directions: Tensor, missing: Tensor, weights: Tensor, ridge: float) -> Array:
    """Weighted ridge regression, by normal equations in units in which every direction has length one."""
    gram, moment = normal_equations(directions, missing, weights)
    lengths = np.sqrt(np.diag(gram))
    lengths[lengths == 0] = 1.0
    scaled = gram / np.outer(lengths, lengths) + ridge * np.eye(len(gram))
    return np.linalg.solve(scaled, moment / lengths) / lengths


def normal_equations(directions: Tensor, missing: Tensor, weights: Tensor) -> tuple[Array, Array]:
    """Sums over walks and dimensions, walk by walk so that no copy of all directions in double precision is made."""
    count = len(directions)
    gram, moment = torch.zeros(count, count, dtype=torch.float64), torch.zeros(count, dtype=torch.float64)
    for walk in range(len(missing)):
        own = directions[:, walk].double()
        gram += weights[walk] * (own @ own.T)
        moment += weights[walk] * (own @ missing[walk].double())
    return gram.numpy(), moment.numpy()


Ask = Callable[[Tensor, float], Tensor]
"""What the model says of x0 at the states of all walks."""

RIDGE = 1e-4
BOUND = 4.0  # on how far a number may go from that of DPM++ 2M: those of useful fits go up to 1.5
STRONGER = 10.0  # times the ridge, where a number is beyond the bound


@dataclass(frozen=True, eq=False)
class Walked:
    """Few steps from the noise of fine walks: the numbers of each step, and where they led."""

    coefficients: Coefficients
    states: tuple[Tensor, ...]  # K of (walks, *shape), in front of each step
    x0: tuple[Tensor, ...]  # K of (walks, *shape), predicted there
    ends: Tensor  # (walks, *shape)

    def errors(self, walks: TeacherTrajectories) -> Array:
        """Root mean square distance of each end to the fine one: the mean of these is to be small."""
        return distances(self.ends, walks.ends)


def asker(model: Counted, rows: Sequence[int], batch: int = BATCH) -> Ask:
    """Ask about the samples of these rows, a batch at a time; each batch's own model is made once."""
    parts = [rows[start : start + batch] for start in range(0, len(rows), batch)]
    models = [model.for_samples(part) for part in parts]

    def ask(x: Tensor, t: float) -> Tensor:
        some = zip(models, x.split(batch), strict=True)
        found = torch.cat([predict(one, states.to(one.device), t).x0.to(x) for one, states in some])
        if not torch.isfinite(found.sum(dtype=torch.float64)):
            raise ModelError(
                f"model {model.name!r} returned nan or infinity at t = {t:g}; "
                "check its dtype (half precision overflows) and that the noise schedule is its own"
            )
        return found

    return ask


@torch.no_grad()
def followed(ask: Ask, walks: TeacherTrajectories, times: ArrayLike, order: int) -> Walked:
    """Fit every step to the fine walk's state at its end, from where the steps before it really led.

    Later steps so see the errors of earlier ones and make up for them. Costs a prediction per step and walk.
    """
    falling = [float(t) for t in np.asarray(times)]
    known = dpmpp_coefficients(walks.noise, falling, order)
    x = walks.starts
    past: tuple[Tensor, ...] = ()
    found: list[tuple[float, ...]] = []
    states: list[Tensor] = []
    predicted: list[Tensor] = []
    for t, t_next, base in zip(falling, [*falling[1:], CLEAN], known, strict=True):
        x0 = ask(x, t)
        parts = torch.stack([part.flatten(1) for part in features(x, x0, past, order)])
        target = walks.ends if t_next == CLEAN else walks.state_at(t_next)
        missing = (target - stepped(x, x0, past, base)).flatten(1)
        found.append(tuple((np.array(base) + bounded(parts, missing)).tolist()))
        states.append(x)
        predicted.append(x0)
        x, past = stepped(x, x0, past, found[-1]), remembered(x0, past, order)
    return Walked(tuple(found), tuple(states), tuple(predicted), x)


@torch.no_grad()
def walked(ask: Ask, x: Tensor, times: ArrayLike, coefficients: Coefficients) -> Walked:
    """Take these steps from this noise."""
    states: list[Tensor] = []
    predicted: list[Tensor] = []
    past: tuple[Tensor, ...] = ()
    for t, own in zip((float(t) for t in np.asarray(times)), coefficients, strict=True):
        x0 = ask(x, t)
        states.append(x)
        predicted.append(x0)
        x, past = stepped(x, x0, past, own), tuple(predicted[::-1])
    return Walked(coefficients, tuple(states), tuple(predicted), x)


def bounded(parts: Tensor, missing: Tensor) -> Array:
    """The fit, with as much ridge as keeps every number within the bound: without limit it would return zeros."""
    ridge = RIDGE
    while np.abs(found := fitted(parts, missing, ridge)).max() > BOUND:
        ridge *= STRONGER
    return found


def distances(ends: Tensor, fine: Tensor) -> Array:
    """Root mean square distance of each walk."""
    difference = (ends - fine.to(ends)).flatten(1).double()
    return (difference.norm(dim=1) / difference.shape[1] ** 0.5).numpy()
