"""Where trajectories bend, as charts and the tables behind them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from geosprint.errors import ScheduleError
from geosprint.extraction import find_budget
from geosprint.noise import Array
from geosprint.profile import CurvatureProfile
from geosprint.report.tables import Table, number, short
from geosprint.schedule import BLEND, curvature_density, log_snr_density, profile_density

MOST_LINES = 60  # of a table
DENSITY_POINTS = 251  # are as many as a screen shows


@dataclass(frozen=True)
class Chart:
    """Columns of numbers: what is drawn, and the table behind it."""

    caption: str
    columns: dict[str, list[float]]
    marks: dict[str, float] = field(default_factory=dict)  # numbers that are drawn besides, by name

    @property
    def table(self) -> Table:
        """A line per point; of very many points only some, and the caption says so."""
        points = list(zip(*self.columns.values(), strict=True))
        every = max(-(-len(points) // MOST_LINES), 1)
        said = f"{self.caption} One line in {every} is shown." if every > 1 else self.caption
        return Table(list(self.columns), [[number(x) for x in point] for point in points[::every]], said)


def charts_of(profile: CurvatureProfile) -> dict[str, Chart]:
    """All charts about a profile, by name."""
    noise, times = profile.noise, profile.timesteps[:-1]

    def over_time(caption: str, times: Array, series: dict[str, Array]) -> Chart:
        columns = {"t": times, "sigma": noise.sigma(times), "log-SNR": noise.log_snr(times), **series}
        return Chart(caption, {name: short(values) for name, values in columns.items()})

    retention = {"as the paper counts it": profile.retention, "without the forced window": profile.free_retention}
    states, samples = np.unique(profile.retained_counts, return_counts=True)
    found = {
        "retention": over_time("w(t).", times, retention),
        "densities": over_time("Densities of steps.", *_densities(profile)),
        "counts": Chart("Samples by the states they need.", {"states": states.tolist(), "samples": samples.tolist()}),
    }
    if len(profile.kept) > 1:
        halves = dict(zip(("first half", "second half"), profile.halves(), strict=True))
        found["halves"] = over_time("w(t) of two halves.", times, halves)
    try:
        budget = find_budget(profile, profile.settings.target_score)
    except ScheduleError:
        return found  # no number of steps reaches it
    curve = {"K": budget.curve_steps.tolist(), "score": short(budget.curve_scores)}
    found["oracle"] = Chart("Score by K.", curve, {"target": budget.target_score, "chosen": len(budget.schedule)})
    return found


def _densities(profile: CurvatureProfile) -> tuple[Array, dict[str, Array]]:
    """Of steps over the clock, thinned to what a screen shows; and the times."""
    noise = profile.noise
    series = {"uniform in log-SNR": log_snr_density(noise)}
    if profile.free_retention.any():
        series["curvature"] = curvature_density(profile.free_retention, profile.timesteps[:-1], noise)
        series[f"blend {BLEND:g}"] = profile_density(profile, BLEND)
    clock = next(iter(series.values())).clock
    shown = np.unique(np.round(np.linspace(0, len(clock) - 1, DENSITY_POINTS)).astype(int))
    shown = shown[noise.time_at(clock[shown]) > 0] if noise.continuous else shown  # the clean end has no sigma
    times = np.clip(noise.time_at(clock[shown]), noise.last, noise.first)
    return times, {name: density.values[shown] for name, density in series.items()}


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
