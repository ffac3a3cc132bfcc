"""From retention to steps, the slow way."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import cumulative_trapezoid
from scipy.ndimage import gaussian_filter1d
from scipy.optimize import linear_sum_assignment

Array = NDArray[np.float64]


def retention(kept: list[list[bool]]) -> Array:
    """Eq. 6: how often each timestep was retained."""
    count, states = len(kept), len(kept[0])
    return np.array([sum(row[i] for row in kept) / count for i in range(states - 1)])


def smoothed_and_floored(w: Array, width: float = 5.0, floor: float = 0.05) -> Array:
    """Section 3.2's w~: a Gaussian kernel, then at least this share of its largest value."""
    smooth = gaussian_filter1d(w, width, mode="nearest")
    return np.maximum(smooth, floor * smooth.max())


def share_below(x: float, nodes: Array, density: Array) -> float:
    """The CDF at x of a density that is linear between its nodes, integrated on a grid a hundred times finer."""
    fine = np.unique(np.concatenate([np.linspace(nodes[0], nodes[-1], 100 * len(nodes) + 1), [x]]))
    mass = cumulative_trapezoid(np.interp(fine, nodes, density), fine, initial=0)
    return float(mass[np.searchsorted(fine, x)] / mass[-1])


def matched(one: Array, other: Array, within: float) -> int:
    """The largest number of pairs of steps this close to each other, no step in two pairs."""
    close = np.abs(np.subtract.outer(one, other)) <= within
    rows, columns = linear_sum_assignment(~close)
    return int(close[rows, columns].sum())
