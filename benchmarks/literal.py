"""The paper's algorithms written plainly in NumPy: the opponent of the speed benchmark."""

from __future__ import annotations

import numpy as np


def normalise(states):
    """Zero mean and unit variance of every dimension over time."""
    deviation = states.std(axis=0)
    return (states - states.mean(axis=0)) / np.where(deviation > 0, deviation, 1)


def prune(points, window, threshold):
    """Algorithm 2: QR at every window update."""
    kept = np.ones(len(points), dtype=bool)
    residuals = np.zeros(len(points))
    last = list(range(window))
    basis = np.linalg.qr((points[last[1:]] - points[last[0]]).T)[0]
    for i in range(window, len(points)):
        offset = points[i] - points[last[0]]
        residual = np.linalg.norm(offset - basis @ (basis.T @ offset))
        if residual < threshold:
            kept[i], residuals[i] = False, residual
        else:
            last = [*last[1:], i]
            basis = np.linalg.qr((points[last[1:]] - points[last[0]]).T)[0]
    return kept, residuals


def kept_at_target(points, window, target, halvings=30):
    """Algorithm 1's inner loop: bisect the threshold until the score is just below the target."""
    centred = points - points.mean(axis=0)
    total = (centred**2).sum()
    low, high = 0.0, 2 * np.sqrt((centred**2).sum(axis=1).max())
    for _ in range(halvings):
        middle = (low + high) / 2
        _, residuals = prune(points, window, middle)
        if (residuals**2).sum() / total <= target:
            low = middle
        else:
            high = middle
    return prune(points, window, low)[0]


def retention(states, window=2, target=1e-3, progress=iter):
    """From raw states (trajectories, N+1, d) to the kept sets, whose mean is w(t)."""
    return np.stack([kept_at_target(normalise(one.astype(np.float64)), window, target) for one in progress(states)])
