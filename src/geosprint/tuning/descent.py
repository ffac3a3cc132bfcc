"""Levenberg and Marquardt's descent of the foretold error, over the gaps between steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geosprint.metrics.estimates import tempered_mean
from geosprint.schedule import gaps_of, roughness_of, slopes_of, times_of
from geosprint.tuning.surrogate import Shadow

Array = NDArray[np.float64]
Measure = Callable[[Tensor], Tensor]
"""From walks' ends to numbers (walks, numbers) whose Euclidean distance is the error."""

ROUNDS = 8  # of slopes; most descents stand still before
ENOUGH = 2e-3  # share of the error that a round must gain to be followed by another
DAMPINGS = tuple(10.0**power for power in range(-4, 2))  # of the mean curvature
SMOOTHNESS = 0.1  # share of the error that a roughness of 1 counts for: without it, steps follow the network's jitter
NUDGE = 1e-2  # of a gap's logarithm, over which a measure's slope is taken
NEAR = 1.0  # real walks whose gaps are farther than this in the logarithm say nothing of the centre
SECANT_TRUST = 0.03  # share of a move's square by which its secant is drawn to nothing: real ends are not linear


@dataclass(frozen=True, eq=False)
class Correction:
    """What is to be added to the shadow's end: exact at one real walk, and as exact as can be at others near it."""

    centre: Array  # (gaps,) of the real walk
    there: Tensor  # (walks, coordinates)
    weights: Array  # (others, gaps) how much of each other's change a move of the gaps brings with it
    changes: Tensor  # (others, walks, coordinates) its correction less that of the centre

    @classmethod
    def of(cls, gaps: Array, off: Tensor, others: Sequence[tuple[Array, Tensor]] = ()) -> Correction:
        """From what real walks were off by, the secants between them: Broyden's idea for many walks at once."""
        near = [(moved - gaps, there - off) for moved, there in others if 0 < np.abs(moved - gaps).max() < NEAR]
        if not near:
            return cls(gaps, off, np.zeros((0, len(gaps))), torch.zeros(0, *off.shape))
        moves = np.stack([move for move, _ in near])
        products = moves @ moves.T
        weights = np.asarray(np.linalg.solve(products + SECANT_TRUST * np.diag(np.diag(products)), moves))
        return cls(gaps, off, weights, torch.stack([change for _, change in near]))

    def at(self, gaps: Array) -> Tensor:
        """The correction of these gaps (walks, coordinates)."""
        return self.there + self._mixed(self.weights @ (gaps - self.centre))

    @property
    def slopes(self) -> Tensor:
        """How it moves with each gap (gaps, walks, coordinates)."""
        return torch.stack([self._mixed(column) for column in self.weights.T])

    def _mixed(self, shares: Array) -> Tensor:
        return torch.einsum("o,owc->wc", torch.from_numpy(shares).to(self.changes), self.changes)


@dataclass(frozen=True, eq=False)
class Foretold:
    """The error that a shadow foretells, set right by what real walks were off by."""

    shadow: Shadow
    measure: Measure
    correction: Correction | None = None

    def error(self, times: Array) -> float:
        """The mean over walks of the distance to the fine end."""
        return float(self.errors(times).mean())

    def tempered(self, times: Array) -> float:
        """The same, as a search follows it."""
        return tempered_mean(self.errors(times))

    def errors(self, times: Array) -> Array:
        """The distance of each walk to its fine end (walks,)."""
        end = self.shadow.end(times.tolist())
        if self.correction is not None:
            end = end + self.correction.at(gaps_of(times, self.shadow.walks.noise))
        return self._residuals(end).norm(dim=1).numpy()

    def slopes(self, gaps: Array) -> tuple[Tensor, Tensor]:
        """Residuals (walks, numbers) and how they move with each gap (gaps, walks, numbers)."""
        noise = self.shadow.walks.noise
        end, by_time = self.shadow.slopes(times_of(gaps, noise).tolist())
        moved = torch.einsum("tg,twc->gwc", torch.from_numpy(slopes_of(gaps, noise)).to(by_time), by_time)
        if self.correction is not None:
            end, moved = end + self.correction.at(gaps), moved + self.correction.slopes
        here = self._residuals(end)
        return here, torch.stack([(self._residuals(end + NUDGE * one) - here) / NUDGE for one in moved])

    def _residuals(self, end: Tensor) -> Tensor:
        return (self.measure(end) - self.measure(self.shadow.walks.ends)).double()


def descended(foretold: Foretold, times: Array, radius: float) -> Array:
    """Times of less foretold error, in the tempered mean, no gap changed by more than `radius` in its logarithm."""
    noise = foretold.shadow.walks.noise
    start = gaps_of(times, noise)
    smoothing = SMOOTHNESS * foretold.tempered(times) * roughness_of(len(times))

    def price(gaps: Array) -> float:
        return foretold.tempered(times_of(gaps, noise)) + float(gaps @ smoothing @ gaps)

    here = (price(start), start)
    for _ in range(ROUNDS):
        curvature, downhill = _normal_equations(foretold, here[1], smoothing)
        steps = [_damped(curvature, downhill, damping) for damping in DAMPINGS]
        tried = [_within(radius, start, here[1] + step) for step in steps]
        best = min(((price(gaps), gaps) for gaps in tried), key=lambda one: one[0])
        gained = here[0] - best[0]
        here = best if gained > 0 else here
        if gained < ENOUGH * here[0]:
            break
    return times_of(here[1], noise)


def _normal_equations(foretold: Foretold, gaps: Array, smoothing: Array) -> tuple[Array, Array]:
    """Curvature (gaps, gaps) and downhill direction (gaps,) of the price, with residuals taken to be linear."""
    residuals, by_gap = foretold.slopes(gaps)
    errors = residuals.norm(dim=1).clamp(min=1e-12)
    weights = errors**-1.5 * errors.sqrt().mean() / len(errors)  # the tempered mean falls, not that of squares
    curvature = torch.einsum("gwn,hwn,w->gh", by_gap, by_gap, weights).numpy()
    downhill = -torch.einsum("gwn,wn,w->g", by_gap, residuals, weights).numpy()
    return curvature + 2 * smoothing, downhill - 2 * smoothing @ gaps


def _damped(curvature: Array, downhill: Array, damping: float) -> Array:
    mean = np.trace(curvature) / len(curvature)
    return np.asarray(np.linalg.solve(curvature + (damping * mean or 1.0) * np.eye(len(curvature)), downhill))


def _within(radius: float, start: Array, gaps: Array) -> Array:
    """No gap farther than the radius from where it started; all gaps grown alike are the same gaps."""
    moved = gaps - start
    return start + np.clip(moved - moved.mean(), -radius, radius)
