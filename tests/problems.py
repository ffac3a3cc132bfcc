"""Curves whose geometry is known, or that are hard enough to tell a right answer from a wrong one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from geosprint.geometry import mean_chord_scores
from geosprint.noise import CLEAN, NoiseSchedule
from geosprint.profile import CurvatureProfile, Settings
from geosprint.trajectory import Origin

Array = NDArray[np.float64]


def smooth_curve(seed: int, points: int = 12, dimensions: int = 5, waves: int = 3) -> Array:
    """(points, dimensions) of a random trigonometric polynomial, walked at an uneven pace."""
    random = np.random.default_rng(seed)
    amplitudes = random.normal(size=(2, waves, dimensions)) / np.arange(1, waves + 1)[:, None]
    time = np.linspace(0, 1, points) ** random.uniform(0.6, 1.6)
    angles = np.pi * time[:, None] * np.arange(1, waves + 1)
    return np.cos(angles) @ amplitudes[0] + np.sin(angles) @ amplitudes[1]


def random_walk(seed: int, points: int = 12, dimensions: int = 5) -> Array:
    """(points, dimensions) with nothing smooth about it."""
    return np.cumsum(np.random.default_rng(seed).normal(size=(points, dimensions)), axis=0)


def drifting_walk(seed: int, points: int = 12, dimensions: int = 5) -> Array:
    """(points, dimensions) along an axis with kinks: its score falls here and there as the threshold grows."""
    return np.outer(np.arange(points), np.eye(dimensions)[0]) + 0.3 * random_walk(seed, points, dimensions)


def circle(points: int, step: float, radius: float = 1.0, dimensions: int = 2) -> Array:
    """(points, dimensions) on a circle in a random plane, one angle of step / radius apart: unit speed."""
    angles = np.arange(points) * step / radius
    plane = rotation(7, dimensions)[:2]
    return radius * (np.cos(angles)[:, None] * plane[0] + np.sin(angles)[:, None] * plane[1])


def straight_line(seed: int, points: int = 10, dimensions: int = 4) -> Array:
    """(points, dimensions) on one line, at an uneven pace, never turning back."""
    random = np.random.default_rng(seed)
    pace = np.cumsum(random.uniform(0.1, 2.0, size=points))
    return random.normal(size=dimensions) + pace[:, None] * random.normal(size=dimensions)


def rotation(seed: int, dimensions: int) -> Array:
    """A random orthogonal matrix."""
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(dimensions, dimensions)))[0]


def centred_gram(points: Array) -> Array:
    """Inner products of points about their mean, from the definition: (..., points, points)."""
    centred = points - points.mean(axis=-2, keepdims=True)
    return centred @ np.swapaxes(centred, -1, -2)


def profile_of_kept(
    kept: NDArray[np.bool_], noise: NoiseSchedule, timesteps: Array, window: int = 2, gram: Array | None = None
) -> CurvatureProfile:
    """A profile with these retained states (trajectories, N+1), whatever curve they may have come from."""
    count, points = kept.shape
    if gram is None:
        gram = centred_gram(np.stack([smooth_curve(seed, points) for seed in range(count)]))
    chord_scores, chord_points = mean_chord_scores(gram)
    return CurvatureProfile(
        kept=kept,
        timesteps=np.append(timesteps, CLEAN),
        thresholds=np.linspace(0.1, 0.2, count),
        scores=np.linspace(1e-4, 1e-3, count),
        seeds=tuple(range(count)),
        origin=Origin("toy", (5,), noise, "eps", None, 1, "ddim"),
        settings=Settings(window=window),
        chord_scores=chord_scores,
        chord_points=chord_points,
        nfe=count * (points - 1),
        versions={"geosprint": "0"},
    )


def random_kept(seed: int, count: int, points: int, window: int = 2) -> NDArray[np.bool_]:
    """Retained states that come more often where a random bump is."""
    random = np.random.default_rng(seed)
    chance = np.exp(-(((np.arange(points) / points - random.uniform()) / 0.2) ** 2))
    kept = random.uniform(size=(count, points)) < 0.1 + 0.8 * chance
    kept[:, :window] = True
    return kept
