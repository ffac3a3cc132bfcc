"""Follow the fine walks: fit a step, take it with the student's own states, fit the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from geosprint.errors import ModelError
from geosprint.fitting.formula import Coefficients, dpmpp_coefficients, features, remembered, stepped
from geosprint.fitting.least_squares import fitted
from geosprint.models.base import predict
from geosprint.noise import CLEAN
from geosprint.sampling import BATCH, CountedModel
from geosprint.search.fine_walks import FineWalks

Array = NDArray[np.float64]
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

    def errors(self, walks: FineWalks) -> Array:
        """Root mean square distance of each end to the fine one: the mean of these is to be small."""
        return distances(self.ends, walks.ends)


def asker(model: CountedModel, rows: Sequence[int], batch: int = BATCH) -> Ask:
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
def followed(ask: Ask, walks: FineWalks, times: ArrayLike, order: int) -> Walked:
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
