"""What most experiments share: held-out noise, a reference solve from it, and metrics with intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from geosprint.baselines import BASELINES
from geosprint.comparison.methods import METHODS
from geosprint.estimates import Estimate, bootstrap_mean, bootstrapped, endpoint_errors, jackknifed
from geosprint.metrics.distances import frechet_distance, frechet_to_statistics
from geosprint.metrics.features import Features, default_features, features_for
from geosprint.models.spread import Spread
from geosprint.noise import Array
from geosprint.paper.base import Numbers, Rows, Setting
from geosprint.rivals.base import Recording, Task, build
from geosprint.sampling import sample
from geosprint.schedule import SMOOTHING, smoothed
from geosprint.teacher import FINE_SOLVER, fine_timesteps

Line = tuple[str, str, int]
"""Solver, schedule and number of steps."""
Key = tuple[Any, ...]

SHARE = 0.8
"""Of the points of a trajectory, pruned alike wherever scores are compared: near the paper's 79, 82 and 84 %."""
METRICS = ("rmse", "frechet_fine", "frechet_data")
"""RMSE to the reference solve; Fréchet distance to its samples; Fréchet distance to the data."""
PAPERS = "frechet_reference"  # to 50 leading steps of DDIM, as the paper does for Stable Diffusion (Section 5.2.1)


@dataclass(frozen=True, eq=False)
class SampleSet:
    """What one schedule and one solver make of all held-out noise."""

    timesteps: Array  # (K,)
    nfe: float  # network calls per sample
    errors: Array  # (samples,) root mean square distance to the reference solve
    features: Tensor  # (samples, features)


@dataclass(frozen=True, eq=False)
class Bench:
    """The held-out noise of all repetitions in one row, so that every schedule is measured on the same noise."""

    setting: Setting
    recording: Recording
    features: Features
    reference: Tensor  # samples of the reference solve
    reference_features: Tensor
    papers_features: Tensor | None = None  # of its own reference, where an experiment has drawn it

    @classmethod
    def of(cls, setting: Setting) -> Bench:
        """Solve finely from the held-out noise of every repetition."""
        recording = setting.recording(setting.load())
        model = recording.model
        features = features_for(model, setting.features or default_features(model.name, model.shape))
        times = fine_timesteps(model.noise, setting.fine_steps)
        seeds = setting.fresh_seeds(0, setting.repetitions)
        reference = sample(model, times, seeds, FINE_SOLVER, batch=setting.batch, progress=setting.progress)
        return cls(setting, recording, features, reference, features(reference))

    @property
    def model(self) -> Spread:
        """The model, counting its calls."""
        return self.recording.model

    @property
    def metrics(self) -> list[str]:
        """Those that can be measured: the data is known by its statistics or not at all."""
        known = [metric for metric in METRICS if metric != "frechet_data" or self.features.statistics is not None]
        return known if self.papers_features is None else [*known, PAPERS]

    def applicable(self, schedules: Iterable[str]) -> list[str]:
        """Those that can be built for the noise of this model."""
        noise = self.model.noise
        return [name for name in schedules if name not in BASELINES or BASELINES[name].applies(noise)]

    def times_of(self, schedule: str, steps: int, solver: str = "ddim") -> Array:
        """Where this schedule steps."""
        return build(METHODS[schedule], Task(self.model, solver, self.recording), steps).schedule.timesteps

    def sample(self, timesteps: ArrayLike, solver: str = "ddim") -> SampleSet:
        """Sample from all held-out noise at these times."""
        seeds, before = self.setting.fresh_seeds(0, self.setting.repetitions), self.model.nfe
        samples = sample(self.model, timesteps, seeds, solver, batch=self.setting.batch)
        return SampleSet(
            timesteps=np.asarray(timesteps, dtype=np.float64),
            nfe=(self.model.nfe - before) / len(seeds),
            errors=endpoint_errors(samples, self.reference),
            features=self.features(samples),
        )

    def sample_lines(self, lines: Iterable[Line]) -> dict[Line, SampleSet]:
        """The samples of every solver on its schedule."""
        return {line: self.sample(self.times_of(line[1], line[2], line[0]), line[0]) for line in lines}

    def rows(self, columns: tuple[str, ...], samples: Mapping[Any, SampleSet]) -> Rows:
        """A row for each: what its key holds, then its metrics."""
        return [dict(zip(columns, key, strict=True)) | self.columns(found) for key, found in samples.items()]

    def repeated(self, samples: SampleSet, metric: str) -> Array:
        """A metric of each repetition (repetitions,)."""
        measure = self._measure(samples, metric)
        rows = torch.arange(len(samples.errors)).reshape(self.setting.repetitions, -1)
        return np.array([measure(one) for one in rows])

    def estimate(self, samples: SampleSet, metric: str) -> Numbers:
        """A metric of all samples together, with its 95 % interval."""
        if metric == "rmse":
            return asdict(bootstrap_mean(samples.errors))
        return asdict(jackknifed(self._measure(samples, metric), len(samples.errors)))

    def gap(self, samples: SampleSet, other: SampleSet, metric: str) -> Numbers:
        """How much higher the first one's metric is, with a 95 % interval over the noise that both began with."""
        if metric == "rmse":
            return asdict(bootstrap_mean(samples.errors - other.errors))
        here, there = self._measure(samples, metric), self._measure(other, metric)
        return asdict(jackknifed(lambda rows: here(rows) - there(rows), len(samples.errors)))

    def gaps(self, samples: Mapping[Any, SampleSet], one: Key, other: Key, metric: str) -> dict[str, Numbers]:
        """The gap between two of these at every K of the setting, with which their keys end."""
        return {str(k): self.gap(samples[(*one, k)], samples[(*other, k)], metric) for k in self.setting.steps}

    def columns(self, samples: SampleSet) -> dict[str, Any]:
        """The metrics of a row: mean and standard deviation over repetitions, None where unknown."""
        found: dict[str, Any] = {"nfe": samples.nfe, "start": float(samples.timesteps[0])}
        for metric in dict.fromkeys((*METRICS, *self.metrics)):
            known = self.repeated(samples, metric) if metric in self.metrics else None
            found[metric] = None if known is None else float(known.mean())
            found[f"{metric}_std"] = None if known is None else spread(known)
        return found

    def _measure(self, samples: SampleSet, metric: str) -> Callable[[Tensor], float]:
        """A metric as a function of which samples it sees."""
        if metric == "rmse":
            return lambda rows: float(samples.errors[rows.numpy()].mean())
        others = {"frechet_fine": self.reference_features, PAPERS: self.papers_features}.get(metric)
        if others is not None:
            return lambda rows: frechet_distance(samples.features[rows], others[rows])
        statistics = self.features.statistics
        assert statistics is not None, "only metrics that can be measured are asked for"
        return lambda rows: frechet_to_statistics(samples.features[rows], statistics)


def ratio_of_means(one: Array, other: Array, least: float = 0.0) -> Estimate:
    """How many times as large one is as the other, paired row by row; a mean below `least` counts as that."""
    return bootstrapped(lambda rows: one[rows].mean() / max(other[rows].mean(), least), len(one))


def smoothed_profiles(name: str, timesteps: Sequence[float], retention: Mapping[Any, Sequence[float]]) -> Rows:
    """Points of w(t), smoothed, under the names of the curves."""
    curves = {key: smoothed(np.asarray(kept, dtype=np.float64), SMOOTHING) for key, kept in retention.items()}
    return [{name: key, "t": t, "retention": w} for key in curves for t, w in zip(timesteps, curves[key], strict=True)]


def spread(values: Sequence[float] | Array) -> float | None:
    """The sample standard deviation; None for a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def correlation(one: Array, other: Array) -> float:
    """Pearson's; 0 where one of the two does not vary."""
    one, other = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])


def rank_correlation(one: Array, other: Array) -> float:
    """Spearman's: Pearson's of the ranks, equal values sharing the mean of theirs."""
    return correlation(_ranks(one), _ranks(other))


def _ranks(values: Array) -> Array:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts + 1) / 2)[inverse]
