"""What most experiments share: fresh noise of every repetition, a reference solve from it, distances and spreads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from geosprint.comparison.cells import ReferenceSolve
from geosprint.comparison.methods import METHODS
from geosprint.metrics.distances import frechet_distance, frechet_to_statistics
from geosprint.metrics.estimates import Estimate, bootstrap_mean, bootstrapped, endpoint_errors, jackknifed
from geosprint.metrics.features import Features, default_features, load_features
from geosprint.paper.base import Setting
from geosprint.rivals.base import Recording, Task, build
from geosprint.sampling import Counted, sample
from geosprint.teacher import FINE_SOLVER, fine_timesteps

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


METRICS = ("rmse", "frechet_fine", "frechet_data")
"""RMSE to the fine solve; Fréchet distance to its samples ("self-reference"); Fréchet distance to the data."""


@dataclass(frozen=True, eq=False)
class Judged:
    """What one schedule and one solver make of all fresh noise."""

    timesteps: Array  # (K,)
    nfe: float  # network calls per sample
    errors: Array  # (samples,) root mean square distance to the fine solve
    features: Tensor  # (samples, features)


@dataclass(frozen=True, eq=False)
class Yardstick:
    """The samples of all repetitions in one row, so that every schedule is judged on the same noise."""

    setting: Setting
    recording: Recording
    features: Features
    fine: ReferenceSolve

    @classmethod
    def of(cls, setting: Setting) -> Yardstick:
        """Solve finely from the fresh noise of every repetition."""
        model = Counted(setting.load())
        features = load_features(setting.features or default_features(model.name, model.shape))
        times = fine_timesteps(model.noise, setting.fine_steps)
        samples = sample(
            model, times, fresh_seeds(setting), FINE_SOLVER, batch=setting.batch, progress=setting.progress
        )
        return cls(setting, recording_of(setting, model), features, ReferenceSolve(samples, features(samples)))

    @property
    def model(self) -> Counted:
        """The model, counting."""
        return self.recording.model

    @property
    def metrics(self) -> tuple[str, ...]:
        """Those that can be had: the data is known by its statistics or not at all."""
        return METRICS if self.features.statistics is not None else METRICS[:2]

    def times_of(self, method: str, steps: int, solver: str = "ddim") -> Array:
        """Where this method steps."""
        return build(METHODS[method], Task(self.model, solver, self.recording), steps).schedule.timesteps

    def judge(self, timesteps: ArrayLike, solver: str = "ddim") -> Judged:
        """Sample all fresh noise at these times."""
        seeds, before = fresh_seeds(self.setting), self.model.nfe
        samples = sample(self.model, timesteps, seeds, solver, batch=self.setting.batch)
        return Judged(
            timesteps=np.asarray(timesteps, dtype=np.float64),
            nfe=(self.model.nfe - before) / len(seeds),
            errors=endpoint_errors(samples, self.fine.samples),
            features=self.features(samples),
        )

    def repeated(self, judged: Judged, metric: str) -> Array:
        """A metric of each repetition (repetitions,)."""
        measure = self._measure(judged, metric)
        rows = torch.arange(len(judged.errors)).reshape(self.setting.repetitions, -1)
        return np.array([measure(one) for one in rows])

    def estimate(self, judged: Judged, metric: str) -> dict[str, Any]:
        """A metric of all samples together, with its 95 % interval."""
        if metric == "rmse":
            return interval(bootstrap_mean(judged.errors))
        return interval(jackknifed(self._measure(judged, metric), len(judged.errors)))

    def gap(self, judged: Judged, other: Judged, metric: str) -> dict[str, Any]:
        """How much farther the first is than the other, with a 95 % interval over the noise that both began with."""
        if metric == "rmse":
            return interval(bootstrap_mean(judged.errors - other.errors))
        here, there = self._measure(judged, metric), self._measure(other, metric)
        return interval(jackknifed(lambda rows: here(rows) - there(rows), len(judged.errors)))

    def columns(self, judged: Judged) -> dict[str, Any]:
        """The metrics of a row: mean and standard deviation over repetitions, None where unknown."""
        found: dict[str, Any] = {"nfe": judged.nfe, "start": float(judged.timesteps[0])}
        for metric in METRICS:
            known = self.repeated(judged, metric) if metric in self.metrics else None
            found[metric] = None if known is None else float(known.mean())
            found[f"{metric}_std"] = None if known is None or len(known) < 2 else float(known.std(ddof=1))
        return found

    def _measure(self, judged: Judged, metric: str) -> Callable[[Tensor], float]:
        """A metric as a function of which samples it sees."""
        if metric == "rmse":
            return lambda rows: float(judged.errors[rows.numpy()].mean())
        if metric == "frechet_fine":
            return lambda rows: frechet_distance(judged.features[rows], self.fine.features[rows])
        statistics = self.features.statistics
        assert statistics is not None, "only metrics that can be had are asked for"
        return lambda rows: frechet_to_statistics(judged.features[rows], statistics)


def recording_of(setting: Setting, model: Counted) -> Recording:
    """The reference trajectories of a setting, recorded when somebody looks."""
    return Recording(
        model, setting.trajectories, setting.reference_steps, setting.seed, setting.batch, setting.progress
    )


def fresh_seeds(setting: Setting) -> range:
    """The fresh seeds of all repetitions: those of the first, then those of the second, and on."""
    last = setting.fresh_seeds(setting.repetitions - 1)
    return range(setting.fresh_seeds(0).start, last.stop)


def interval(measured: Estimate) -> dict[str, Any]:
    """For JSON."""
    return {"value": measured.value, "low": measured.low, "high": measured.high}


def and_list(words: Sequence[object]) -> str:
    """5, 10 and 20."""
    said = [str(word) for word in words]
    return said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"
