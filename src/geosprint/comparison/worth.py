"""What a schedule is worth in steps of a uniform spacing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

RESAMPLES = 2000


@dataclass(frozen=True)
class Worth:
    """As many uniform steps err as little, with a 95 % interval; all within what uniform steps were measured."""

    steps: float
    low: float
    high: float
    fewest: int  # uniform steps that were measured
    most: int

    @property
    def interval(self) -> str:
        """In words: an end that lies at the end of what was measured may lie farther out."""
        low = f"{self.low:.1f}" if self.low > self.fewest else f"{self.fewest} or fewer"
        high = f"{self.high:.1f}" if self.high < self.most else f"{self.most} or more"
        return f"{low} to {high}"

    @property
    def is_below(self) -> bool:
        """Even the fewest uniform steps err less."""
        return self.steps <= self.fewest

    @property
    def is_beyond(self) -> bool:
        """Even the most uniform steps err more."""
        return self.steps >= self.most


def uniform_worth(errors: Array, uniform: Mapping[int, Array], seed: int = 0) -> Worth:
    """Where the curve of uniform errors falls to these errors, of the same samples in the same order.

    Between two measured numbers of steps the logarithm of the error is taken to be linear in that of the steps.
    """
    numbers = sorted(uniform)
    curve = np.stack([uniform[k] for k in numbers])
    count = len(errors)
    drawn = np.random.default_rng(seed).integers(0, count, (RESAMPLES, count))
    rows = np.concatenate([np.arange(count)[None], drawn])  # all samples first, then resamples of them
    means = np.stack([of_steps[rows].mean(axis=1) for of_steps in curve])  # (numbers, 1 + resamples)
    found = _crossings(np.array(numbers, dtype=np.float64), means, errors[rows].mean(axis=1))
    low, high = np.quantile(found[1:], [0.025, 0.975])
    return Worth(float(found[0]), float(low), float(high), numbers[0], numbers[-1])


def _crossings(numbers: Array, curves: Array, goals: Array) -> Array:
    """The first number of steps, perhaps a fraction, at which each curve has fallen to its goal; else the last one."""
    reached = curves <= goals  # (numbers, curves)
    after = np.maximum(np.argmax(reached, axis=0), min(1, len(numbers) - 1))
    each = np.arange(len(goals))
    # Errors of exactly 0 have no logarithm.
    above, below, wanted = (np.log(np.maximum(x, 1e-12)) for x in (curves[after - 1, each], curves[after, each], goals))
    share = np.clip((above - wanted) / np.maximum(above - below, 1e-12), 0, 1)
    crossing = numbers[after - 1] * (numbers[after] / numbers[after - 1]) ** share
    return np.where(reached[0], numbers[0], np.where(reached.any(axis=0), crossing, numbers[-1]))
