"""Errors against the reference solve, their intervals, and what they are worth in uniform steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geosprint.errors import GeometryError

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

FINEST = 2.0**-24  # the rounding of float32 just below 1


@dataclass(frozen=True)
class Estimate:
    """A mean and its 95 % bootstrap interval."""

    value: float
    low: float
    high: float


def peak_signal_to_noise(samples: Tensor, reference: Tensor) -> Array:
    """PSNR of each picture in -1..1 against its twin."""
    return decibels(endpoint_errors(samples, reference))


def decibels(errors: Array) -> Array:
    """PSNR of pictures in -1..1 that differ by these root mean squares: 20 lg(2 / error)."""
    # Float32 tells nothing finer than its rounding: equal pictures get 150.5 dB, and means and files stay finite.
    return 20 * np.log10(2 / np.maximum(errors, FINEST))


def endpoint_errors(samples: Tensor, reference: Tensor) -> Array:
    """Root mean square difference of each sample from its twin."""
    if samples.shape != reference.shape:
        raise GeometryError(
            f"samples and reference must be pairs of one shape, got {tuple(samples.shape)} and {tuple(reference.shape)}"
        )
    difference = (samples.double() - reference.double()).flatten(1)
    return torch.sqrt((difference**2).mean(dim=1)).numpy()


def tempered_mean(errors: Array) -> float:
    """The square of the mean root: a few that tip over into another picture count for less than in the mean."""
    return float(np.sqrt(errors).mean() ** 2)


def bootstrap_mean(values: Array, resamples: int = 2000, seed: int = 0) -> Estimate:
    """Mean of the values with its 95 % percentile interval; give it differences for a paired comparison."""
    if len(values) == 0:
        raise GeometryError("an estimate needs at least one value, got none")
    return bootstrapped(lambda rows: values[rows].mean(), len(values), resamples, seed)


def bootstrapped(measure: Callable[[Rows], float], count: int, resamples: int = 2000, seed: int = 0) -> Estimate:
    """A measure of all rows, with its 95 % percentile interval over rows drawn with replacement."""
    if count < 1:
        raise GeometryError(f"an interval needs at least one row to draw from, got {count}")
    random = np.random.default_rng(seed)
    again = [measure(random.integers(0, count, count)) for _ in range(resamples)]
    low, high = np.quantile(again, [0.025, 0.975])
    return Estimate(float(measure(np.arange(count))), float(low), float(high))


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
