"""Errors against the reference solve, their intervals, and how many uniform steps have the same error."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geosprint.errors import GeometryError
from geosprint.noise import Array

Rows = NDArray[np.intp]

FINEST = 2.0**-24  # the rounding of float32 just below 1
SMALLEST = 1e-12  # stands for an error of exactly 0, which has no logarithm


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def normal(cls, value: float, standard_error: float) -> Estimate:
        """With the interval of the normal distribution."""
        return cls(value, value - 1.96 * standard_error, value + 1.96 * standard_error)

    @property
    def interval(self) -> str:
        """In words."""
        return f"{self.low:.3g} to {self.high:.3g}"

    def __str__(self) -> str:
        return f"{self.value:.3g} ({self.interval})"


def endpoint_errors(samples: Tensor, reference: Tensor) -> Array:
    """Root mean square difference of each sample from the reference sample of the same noise."""
    if samples.shape != reference.shape:
        raise GeometryError(
            f"samples and reference must be pairs of one shape, got {tuple(samples.shape)} and {tuple(reference.shape)}"
        )
    difference = (samples.double() - reference.double()).flatten(1)
    return torch.sqrt((difference**2).mean(dim=1)).numpy()


def decibels(errors: Array) -> Array:
    """PSNR of pictures in -1..1 that differ by these root mean squares: 20 lg(2 / error)."""
    # Float32 tells nothing finer than its rounding: equal pictures get 150.5 dB, and means and files stay finite.
    return 20 * np.log10(2 / np.maximum(errors, FINEST))


def tempered_mean(errors: Array) -> float:
    """The square of the mean root: a few samples that land in another mode count for less than in the mean."""
    return float(np.sqrt(errors).mean() ** 2)


def bootstrap_mean(values: Array, resamples: int = 2000, seed: int = 0) -> Estimate:
    """Mean of the values with its 95 % percentile interval; give it differences for a paired comparison."""
    return bootstrapped(lambda rows: values[rows].mean(), len(values), resamples, seed)


def bootstrapped(measure: Callable[[Rows], float], count: int, resamples: int = 2000, seed: int = 0) -> Estimate:
    """A measure of all rows, with its 95 % percentile interval over rows drawn with replacement."""
    return _with_interval([measure(rows) for rows in _all_rows_then_draws(count, resamples, seed)])


def bootstrapped_from_means(measure: Callable[..., float], *values: Array, seed: int = 0) -> Estimate:
    """The same of a measure of the means of paired values, which are taken for all draws at once."""
    means = _resampling_weights(len(values[0]), seed) @ np.stack(values).T
    return _with_interval([measure(*own) for own in means.tolist()])


def _all_rows_then_draws(count: int, resamples: int, seed: int) -> Iterator[Rows]:
    if count < 1:
        raise GeometryError(f"an interval needs at least one row to draw from, got {count}")
    random = np.random.default_rng(seed)
    yield np.arange(count)
    for _ in range(resamples):
        yield random.integers(0, count, count)


def _with_interval(values: Sequence[float]) -> Estimate:
    """The first value, with the 95 % percentile interval of the others."""
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return Estimate(float(values[0]), float(low), float(high))


def jackknifed(measure: Callable[[Tensor], float], count: int, groups: int = 10) -> Estimate:
    """A measure of all samples, with an interval from leaving out a tenth of them at a time (delete-group jackknife).

    A bootstrap would repeat samples, which moves Fréchet distances up; leaving out does so far less.
    """
    everything = torch.arange(count)
    left = np.array([measure(everything[everything % groups != group]) for group in range(groups)])
    error = float(np.sqrt((groups - 1) / groups * ((left - left.mean()) ** 2).sum()))
    return Estimate.normal(measure(everything), error)


@dataclass(frozen=True)
class UniformSteps(Estimate):
    """How many uniform steps have the same error; known only within the numbers of steps that were measured."""

    fewest: int
    most: int

    @property
    def interval(self) -> str:
        """In words: an end at the edge of what was measured may lie beyond it."""
        low = f"{self.low:.1f}" if self.low > self.fewest else f"{self.fewest} or fewer"
        high = f"{self.high:.1f}" if self.high < self.most else f"{self.most} or more"
        return f"{low} to {high}"

    def __str__(self) -> str:
        if self.fewest == self.most:
            return "–"
        if self.is_below:
            return f"at most {self.fewest}"
        return f"{self.most} or more" if self.is_beyond else f"{self.value:.1f} ({self.interval})"

    @property
    def is_below(self) -> bool:
        """Even the fewest uniform steps have a lower error."""
        return self.value <= self.fewest

    @property
    def is_beyond(self) -> bool:
        """Even the most uniform steps have a higher error."""
        return self.value >= self.most


def uniform_steps_with(errors: Array, uniform: Mapping[int, Array], seed: int = 0) -> UniformSteps:
    """How many uniform steps have these errors, from theirs by number of steps, all on the same samples in order."""
    numbers = sorted(uniform)

    def reaching(goal: float, *curve: float) -> float:
        return steps_reaching(dict(zip(numbers, curve, strict=True)), goal)

    found = bootstrapped_from_means(reaching, errors, *(uniform[k] for k in numbers), seed=seed)
    return UniformSteps(found.value, found.low, found.high, numbers[0], numbers[-1])


@lru_cache(maxsize=1)  # a report asks for many schedules on the same samples
def _resampling_weights(count: int, seed: int, resamples: int = 2000) -> Array:
    """The share of every row in all rows and in each draw, so that a product gives all means (1 + resamples, count)."""
    draws = _all_rows_then_draws(count, resamples, seed)
    return np.stack([np.bincount(rows, minlength=count) for rows in draws]) / count


def steps_reaching(curve: Mapping[int, float], goal: float) -> float:
    """The fewest steps, perhaps a fraction, at which a curve of errors has fallen to the goal.

    Never outside of the curve: a curve that begins below the goal gives its fewest steps, one that never gets there
    its most.
    """
    numbers = sorted(curve)
    if curve[numbers[0]] <= goal:
        return float(numbers[0])
    for few, many in pairwise(numbers):
        if curve[many] <= goal:
            return power_law_steps((few, curve[few]), (many, curve[many]), goal)
    return float(numbers[-1])


def power_law_steps(few: tuple[int, float], many: tuple[int, float], goal: float, reach: float = 1.0) -> float:
    """Where the power law through two (steps, error) has fallen to the goal, linear in logarithms.

    No less than the first steps, and no more than `reach` times the way to the second.
    """
    above, below, wanted = (math.log(max(error, SMALLEST)) for error in (few[1], many[1], goal))
    share = (above - wanted) / max(above - below, SMALLEST)
    return few[0] * (many[0] / few[0]) ** min(max(share, 0.0), reach)
