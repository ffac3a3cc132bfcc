"""Distance of samples from a fine solve that began with the same noise."""

from __future__ import annotations

from collections.abc import Callable
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
