"""Least squares for the numbers of one step, or of all, drawn toward where they start."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
