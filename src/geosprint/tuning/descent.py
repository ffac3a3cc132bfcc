"""Levenberg and Marquardt's descent of the predicted error, over the gaps between steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from geosprint.estimates import tempered_mean
from geosprint.noise import Array
from geosprint.schedule import gaps_of, roughness_of, slopes_of, times_of
from geosprint.tuning.config import DEFAULT, TuneConfig
from geosprint.tuning.surrogate import Measure, Surrogate


@dataclass(frozen=True, eq=False)
class Correction:
    """What is added to the surrogate's end: exact at one evaluation, and as exact as can be at others near it."""

    centre: Array  # (gaps,) of that evaluation
    there: Tensor  # (walks, coordinates)
    weights: Array  # (others, gaps) how much of each other's change a move of the gaps brings with it
    changes: Tensor  # (others, walks, coordinates) its correction less that of the centre

    @classmethod
    def of(
        cls, gaps: Array, off: Tensor, others: Sequence[tuple[Array, Tensor]] = (), config: TuneConfig = DEFAULT
    ) -> Correction:
        """From what evaluations were off by, the secants between them: Broyden's idea for many walks at once."""
        moves_and_changes = [(moved - gaps, there - off) for moved, there in others]
        near = [one for one in moves_and_changes if 0 < np.abs(one[0]).max() < config.secant_reach]
        if not near:
            return cls(gaps, off, np.zeros((0, len(gaps))), torch.zeros(0, *off.shape))
        moves = np.stack([move for move, _ in near])
        products = moves @ moves.T
        trusted = products + config.secant_trust * np.diag(np.diag(products))
        weights = np.asarray(np.linalg.solve(trusted, moves))
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
class PredictedError:
    """The error that a surrogate predicts, set right by what evaluations were off by."""

    surrogate: Surrogate
    measure: Measure
    correction: Correction | None = None
    config: TuneConfig = DEFAULT

    def error(self, times: Array) -> float:
        """The mean over walks of the distance to the teacher's end."""
        return float(self.errors(times).mean())

    def tempered(self, times: Array) -> float:
        """The same, as a search follows it."""
        return tempered_mean(self.errors(times))

    def tempered_each(self, schedules: Sequence[Array]) -> list[float]:
        """That of several schedules of as many steps, which takes hardly longer than that of one."""
        return [tempered_mean(errors) for errors in self.errors_each(schedules)]

    def errors(self, times: Array) -> Array:
        """The distance of each walk to the teacher's end (walks,)."""
        return self.errors_each([times])[0]

    def errors_each(self, schedules: Sequence[Array]) -> list[Array]:
        """The same of several schedules of as many steps."""
        noise, found = self.surrogate.trajectories.noise, list[Array]()
        for some in (schedules[i : i + TOGETHER] for i in range(0, len(schedules), TOGETHER)):
            ends = self.surrogate.ends(np.array(some))
            if self.correction is not None:
                ends = ends + torch.stack([self.correction.at(gaps_of(times, noise)) for times in some])
            found.extend(self._residuals(ends).norm(dim=-1).numpy())
        return found

    def slopes(self, gaps: Array) -> tuple[Tensor, Tensor]:
        """Residuals (walks, numbers) and how they move with each gap (gaps, walks, numbers)."""
        noise = self.surrogate.trajectories.noise
        end, by_time = self.surrogate.slopes(times_of(gaps, noise).tolist())
        moved = torch.einsum("tg,twc->gwc", torch.from_numpy(slopes_of(gaps, noise)).to(by_time), by_time)
        if self.correction is not None:
            end, moved = end + self.correction.at(gaps), moved + self.correction.slopes
        here, nudge = self._residuals(end[None]), self.config.gap_nudge
        return here[0], (self._residuals(end + nudge * moved) - here) / nudge

    def _residuals(self, ends: Tensor) -> Tensor:
        """What the measure sees of the way to the teacher's ends (schedules, walks, numbers), in double precision."""
        measured = self.measure(ends.flatten(0, 1)).unflatten(0, ends.shape[:2])
        return (measured - self._teachers_measure).double()

    @cached_property
    def _teachers_measure(self) -> Tensor:
        return self.measure(self.surrogate.trajectories.ends)


TOGETHER = 16
"""Schedules that are walked together: more take more memory, and no less time for each."""


def descended(predicted: PredictedError, times: Array, radius: float) -> Array:
    """Times of less predicted error, in the tempered mean, no gap changed by more than `radius` in its logarithm."""
    noise, config = predicted.surrogate.trajectories.noise, predicted.config
    start = gaps_of(times, noise)
    smoothing = config.smoothness * predicted.tempered(times) * roughness_of(len(times))

    def priced(tried: list[Array]) -> list[tuple[float, Array]]:
        errors = predicted.tempered_each([times_of(gaps, noise) for gaps in tried])
        return [(error + float(gaps @ smoothing @ gaps), gaps) for error, gaps in zip(errors, tried, strict=True)]

    here = priced([start])[0]
    for _ in range(config.descent_rounds):
        curvature, downhill = _normal_equations(predicted, here[1], smoothing)
        steps = [_damped(curvature, downhill, damping) for damping in config.dampings]
        tried = [_within(radius, start, here[1] + step) for step in steps]
        best = min(priced(tried), key=lambda one: one[0])
        gained = here[0] - best[0]
        here = best if gained > 0 else here
        if gained < config.least_gain * here[0]:
            break
    return times_of(here[1], noise)


def _normal_equations(predicted: PredictedError, gaps: Array, smoothing: Array) -> tuple[Array, Array]:
    """Curvature (gaps, gaps) and downhill direction (gaps,) of the price, with residuals taken to be linear."""
    residuals, by_gap = predicted.slopes(gaps)
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
