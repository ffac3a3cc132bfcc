"""Distance of samples from a fine solve that began with the same noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geosprint.errors import GeometryError

Array = NDArray[np.float64]

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


def bootstrap_mean(values: Array, resamples: int = 2000, seed: int = 0) -> Estimate:
    """Mean of the values with its 95 % percentile interval; give it differences for a paired comparison."""
    if len(values) == 0:
        raise GeometryError("an estimate needs at least one value, got none")
    random = np.random.default_rng(seed)
    means = [values[random.integers(0, len(values), len(values))].mean() for _ in range(resamples)]
    low, high = np.quantile(means, [0.025, 0.975])
    return Estimate(float(values.mean()), float(low), float(high))
