"""Correlations, ratios and spreads, with intervals where rows can be drawn again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from geosprint.metrics.endpoint import Estimate, bootstrapped

Array = NDArray[np.float64]


def ratio_of_means(one: Array, other: Array, least: float = 0.0) -> Estimate:
    """How many times as large one is as the other, its twin row by row; a mean below `least` counts as that."""
    return bootstrapped(lambda rows: one[rows].mean() / max(other[rows].mean(), least), len(one))


def spread(values: Sequence[float] | Array) -> float | None:
    """The standard deviation of what these were drawn from; one value does not tell."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def correlation(one: Array, other: Array) -> float:
    """Pearson's; 0 where one of the two does not vary and so tells nothing of the other."""
    one, other = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])


def rank_correlation(one: Array, other: Array) -> float:
    """Spearman's: Pearson's of the ranks, equal values sharing the mean of theirs."""
    return correlation(_ranks(one), _ranks(other))


def as_numbers(name: str, found: Estimate) -> dict[str, float]:
    """An estimate as a finding holds it: the value and both ends of its interval."""
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}


def _ranks(values: Array) -> Array:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts + 1) / 2)[place]
