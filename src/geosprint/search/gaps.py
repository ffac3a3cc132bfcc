"""K falling times as K + 1 free numbers: the logarithms of the gaps between them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geosprint.noise import NoiseSchedule
from geosprint.schedule import whole_steps

Array = NDArray[np.float64]

NARROWEST = 1e-3  # share of all time that a gap counts for at least: one of 0 could never open


def gaps_of(times: ArrayLike, noise: NoiseSchedule) -> Array:
    """The numbers (K + 1,) whose `times_of` are these times."""
    shares = -np.diff([noise.first, *np.asarray(times, dtype=np.float64), noise.last]) / (noise.first - noise.last)
    return np.log(np.maximum(shares, NARROWEST))


def times_of(gaps: Array, noise: NoiseSchedule) -> Array:
    """K times that fall strictly, each gap's share of all time the softmax of its number."""
    return noise.first - (noise.first - noise.last) * np.cumsum(_softmax(gaps))[:-1]


def slopes_of(gaps: Array, noise: NoiseSchedule) -> Array:
    """How the times move with the numbers (K, K + 1)."""
    shares = _softmax(gaps)
    gone = np.cumsum(shares)[:-1]
    counted = np.tri(len(gone), len(shares))
    return -(noise.first - noise.last) * shares * (counted - gone[:, None])


def roughness_of(steps: int) -> Array:
    """The matrix (K + 1, K + 1) of the mean squared bend of the gaps between steps: where the steps begin is free."""
    between = np.eye(steps + 1)[1:steps]
    bends = np.diff(between, n=2, axis=0) if steps > 3 else np.zeros((1, steps + 1))
    return bends.T @ bends / len(bends)


def known_times(times: Array, noise: NoiseSchedule) -> Array:
    """The nearest times that the model knows."""
    return times if noise.continuous else whole_steps(times, int(noise.first))


def _softmax(numbers: Array) -> Array:
    grown = np.exp(numbers - numbers.max())
    return grown / grown.sum()
