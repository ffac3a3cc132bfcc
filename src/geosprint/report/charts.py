"""The numbers of the page's charts, and the tables behind them: where trajectories bend, and error against calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geosprint.comparison.plan import is_uniform
from geosprint.errors import ScheduleError
from geosprint.extraction import Budget, find_budget
from geosprint.noise import NoiseSchedule
from geosprint.profile import CurvatureProfile
from geosprint.report.columns import METRICS, Column
from geosprint.report.tables import Table, number, short
from geosprint.schedule import BLEND, curvature_density, log_snr_density, profile_density

Array = NDArray[np.float64]

COLOURS = ("blue", "green", "pink", "ink")  # names of variables in report.css
OF_KIND = {"ours": "red", "uniform": "grey", "limit": "ink", "today": "blue"}
DASHES = ("solid", "dash", "dot", "dashdot")
MARKS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star")
MOST_LINES = 60  # of a table
DENSITY_POINTS = 251  # are as many as a screen shows


def looks(series: Sequence[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """A look for each (name, kind), kind being ours, uniform, today, limit or other."""
    found: dict[str, dict[str, Any]] = {}
    for i, (name, kind) in enumerate(series):
        rank = sum(other == kind for _, other in series[:i])
        colour = OF_KIND.get(kind, COLOURS[rank % len(COLOURS)])
        dash = DASHES[((rank if kind in OF_KIND else rank // len(COLOURS)) + (kind == "today")) % len(DASHES)]
        kinds = {"strong": kind == "ours", "level": kind == "today"}
        found[name] = {"colour": colour, "dash": dash, "mark": MARKS[i % len(MARKS)], **kinds}
    return found


def table_of_series(caption: str, header: Sequence[str], *series: Sequence[Any]) -> Table:
    """A line per point; of very many points only some, and the caption says so."""
    every = max(-(-len(series[0]) // MOST_LINES), 1)
    said = f"{caption} One line in {every} is shown." if every > 1 else caption
    return Table(header, [[number(x) for x in point] for point in list(zip(*series, strict=True))[::every]], said)


@dataclass(frozen=True)
class Lines:
    """Series over the same times, which are given on all three axes."""

    places: dict[str, list[float]]
    series: dict[str, list[float]]

    @classmethod
    def at(cls, times: Array, noise: NoiseSchedule, series: dict[str, Array]) -> Lines:
        """These series at these times."""
        return cls(on_all_axes(times, noise), {name: short(values) for name, values in series.items()})

    def table(self, caption: str) -> Table:
        """The numbers."""
        header = ["t", "sigma", "log-SNR", *self.series]
        return table_of_series(caption, header, *self.places.values(), *self.series.values())


def on_all_axes(times: Array, noise: NoiseSchedule) -> dict[str, list[float]]:
    """The same places in time, in sigma and in log-SNR."""
    return {"t": short(times), "sigma": short(noise.sigma(times)), "logsnr": short(noise.log_snr(times))}


@dataclass(frozen=True)
class Oracle:
    """The score against the number of steps, and the first that reaches the target."""

    steps: list[int]
    scores: list[float]
    target: float
    chosen: int


@dataclass(frozen=True)
class Bends:
    """All charts about a profile."""

    retention: Lines
    densities: Lines
    counts: dict[str, list[int]]  # how many samples need how many states
    halves: Lines | None  # of at least two trajectories
    oracle: Oracle | None  # where some number of steps reaches the target

    @classmethod
    def of(cls, profile: CurvatureProfile) -> Bends:
        """Of this profile."""
        times, noise = profile.timesteps[:-1], profile.noise
        retention = {"as the paper counts it": profile.retention, "without the forced window": profile.free_retention}
        halves = None
        if len(profile.kept) > 1:
            halves = Lines.at(times, noise, dict(zip(("first half", "second half"), profile.halves(), strict=True)))
        states, samples = np.unique(profile.retained_counts, return_counts=True)
        return cls(
            Lines.at(times, noise, retention),
            densities_of(profile),
            {"states": states.tolist(), "samples": samples.tolist()},
            halves,
            oracle_of(profile),
        )

    @property
    def tables(self) -> dict[str, Table]:
        """The numbers behind each chart."""
        found = {
            "retention": self.retention.table("w(t)."),
            "densities": self.densities.table("Densities of steps."),
            "counts": table_of_series("Samples by the states they need.", list(self.counts), *self.counts.values()),
        }
        if self.halves:
            found["halves"] = self.halves.table("w(t) of two halves.")
        if self.oracle:
            found["oracle"] = table_of_series("Score by K.", ["K", "score"], self.oracle.steps, self.oracle.scores)
        return found


def densities_of(profile: CurvatureProfile) -> Lines:
    """Of steps over the clock, thinned to what a screen shows."""
    noise = profile.noise
    series = {"uniform in log-SNR": log_snr_density(noise)}
    if profile.free_retention.any():
        series["curvature"] = curvature_density(profile.free_retention, profile.timesteps[:-1], noise)
        series[f"blend {BLEND:g}"] = profile_density(profile, BLEND)
    clock = next(iter(series.values())).clock
    shown = np.unique(np.round(np.linspace(0, len(clock) - 1, DENSITY_POINTS)).astype(int))
    shown = shown[noise.time_at(clock[shown]) > 0] if noise.continuous else shown  # the clean end has no sigma
    times = np.clip(noise.time_at(clock[shown]), noise.last, noise.first)
    return Lines.at(times, noise, {name: density.values[shown] for name, density in series.items()})


def oracle_of(profile: CurvatureProfile) -> Oracle | None:
    """At the score that the profile was made for."""
    try:
        found: Budget = find_budget(profile, profile.settings.target_score)
    except ScheduleError:
        return None  # no number of steps reaches it
    return Oracle(found.curve_steps.tolist(), short(found.curve_scores), found.target_score, len(found.schedule))


def stability_of(profile: CurvatureProfile) -> str:
    """How far two halves of the trajectories agree, in words."""
    if len(profile.kept) < 2:
        return "One trajectory alone cannot be halved."
    found = profile.stability()
    return (
        f"The {len(profile.kept)} trajectories halved at random: w(t) of the halves has a correlation of "
        f"{found.correlation:.2f}, and of {found.steps} steps made from each, {found.fuzzy_jaccard:.0%} are the "
        f"same within 5, {found.jaccard:.0%} exactly. Means over 8 halvings; the chart shows the first."
    )


Point = tuple[int, float, float, float, float]
"""Steps, calls, value, and both ends of its interval."""


@dataclass(frozen=True)
class Curves:
    """One metric with one solver against network calls, a curve per method."""

    solver: str
    metric: str
    title: str  # of the metric
    series: dict[str, list[Point]]

    @classmethod
    def of(cls, columns: Iterable[Column]) -> list[Curves]:
        """For every solver and metric that has more than one number of steps."""
        found: dict[tuple[str, str], dict[str, list[Point]]] = {}
        for column in sorted(columns, key=lambda column: column.steps):
            for entry in column.entries:
                for metric, of in entry.measured.items():
                    series = found.setdefault((column.solver, metric), {}).setdefault(entry.name, [])
                    series.append((column.steps, entry.calls, of.value, of.low, of.high))
        return [
            cls(solver, metric, METRICS.get(metric, metric), series)
            for (solver, metric), series in found.items()
            if max(map(len, series.values())) > 1
        ]

    @property
    def uniform_calls(self) -> dict[int, float]:
        """Network calls of uniform spacings by their number of steps."""
        points = [point for name, some in self.series.items() if is_uniform(name) for point in some]
        return {steps: calls for steps, calls, *_ in sorted(points, key=lambda point: point[:2])}

    @property
    def table(self) -> Table:
        """The numbers."""
        lines = [[name, *map(number, point)] for name, points in self.series.items() for point in points]
        return Table(["method", "K", "calls", "value", "low", "high"], lines, f"{self.solver}: {self.title}.")
