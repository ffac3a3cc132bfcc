"""Charts of the report: how series look, their numbers and tables, and where trajectories bend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geosprint.errors import ScheduleError
from geosprint.extraction import Budget, find_budget
from geosprint.noise import NoiseSchedule
from geosprint.profile import CurvatureProfile
from geosprint.report.tables import Table, number
from geosprint.schedule import BLEND, curvature_density, log_snr_density, profile_density

COLOURS = ("blue", "green", "pink", "ink")  # names of variables in report.css
OF_KIND = {"ours": "red", "uniform": "grey", "limit": "ink"}
DASHES = ("solid", "dash", "dot", "dashdot")
MARKS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star")


def looks(series: Sequence[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """A look for each (name, kind), kind being ours, uniform, limit or other."""
    found: dict[str, dict[str, Any]] = {}
    for i, (name, kind) in enumerate(series):
        rank = sum(other == kind for _, other in series[:i])
        colour = OF_KIND.get(kind, COLOURS[rank % len(COLOURS)])
        dash = DASHES[(rank if kind in OF_KIND else rank // len(COLOURS)) % len(DASHES)]
        found[name] = {"colour": colour, "dash": dash, "mark": MARKS[i % len(MARKS)], "strong": kind == "ours"}
    return found


MOST_LINES = 60


def table_of_series(caption: str, header: Sequence[str], *series: Sequence[Any]) -> Table:
    """A line per point; of very many points only some, and the caption says so."""
    every = -(-len(series[0]) // MOST_LINES)
    said = f"{caption} One line in {every} is shown." if every > 1 else caption
    lines = [[number(x) for x in point] for point in list(zip(*series, strict=True))[:: max(every, 1)]]
    return Table(list(header), lines, said)


def short(numbers: Any) -> list[float]:
    """Five digits are more than a screen shows."""
    return [float(f"{x:.5g}") for x in np.asarray(numbers, dtype=np.float64).ravel()]


Array = NDArray[np.float64]


def on_all_axes(times: Array, noise: NoiseSchedule) -> dict[str, list[float]]:
    """The same places in time, in sigma and in log-SNR."""
    return {"t": short(times), "sigma": short(noise.sigma(times)), "logsnr": short(noise.log_snr(times))}


def bends_of(profile: CurvatureProfile) -> dict[str, Any]:
    """The series of all charts about this profile."""
    times, noise = profile.timesteps[:-1], profile.noise
    found: dict[str, Any] = {
        "places": on_all_axes(times, noise),
        "retention": {
            "without the forced window": short(profile.free_retention),
            "as the paper counts it": short(profile.retention),
        },
        "densities": densities_of(profile),
        "counts": counts_of(profile),
    }
    if len(profile.kept) > 1:
        one, other = profile.halves()
        found["halves"] = {"first half": short(one), "second half": short(other)}
    if oracle := oracle_of(profile):
        found["oracle"] = {
            "steps": oracle.curve_steps.tolist(),
            "scores": short(oracle.curve_scores),
            "target": oracle.target_score,
            "chosen": len(oracle.schedule),
        }
    return found


def densities_of(profile: CurvatureProfile) -> dict[str, Any]:
    """Of steps over the clock, thinned to what a screen shows."""
    noise = profile.noise
    series = {"uniform in log-SNR": log_snr_density(noise)}
    if profile.free_retention.any():
        series["curvature"] = curvature_density(profile.free_retention, profile.timesteps[:-1], noise)
        series[f"blend {BLEND:g}"] = profile_density(profile, BLEND)
    clock = next(iter(series.values())).clock
    shown = np.unique(np.round(np.linspace(0, len(clock) - 1, 251)).astype(int))
    shown = shown[noise.time_at(clock[shown]) > 0] if noise.continuous else shown  # the clean end has no sigma
    times = np.clip(noise.time_at(clock[shown]), noise.last, noise.first)
    return {
        "places": on_all_axes(times, noise),
        "series": {name: short(density.values[shown]) for name, density in series.items()},
    }


def counts_of(profile: CurvatureProfile) -> dict[str, list[int]]:
    """How many samples need how many states."""
    states, samples = np.unique(profile.retained_counts, return_counts=True)
    return {"states": states.tolist(), "samples": samples.tolist()}


def oracle_of(profile: CurvatureProfile) -> Budget | None:
    """The score against the number of steps, at the score that the profile was made for."""
    try:
        return find_budget(profile, profile.settings.target_score)
    except ScheduleError:
        return None  # no number of steps reaches it


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


def tables_of(bends: dict[str, Any]) -> dict[str, Table]:
    """The numbers behind each chart of `bends_of`."""
    axes = ["t", "sigma", "log-SNR"]
    places, densities = bends["places"], bends["densities"]
    tables = {
        "retention": table_of_series(
            "w(t).", [*axes, *bends["retention"]], *places.values(), *bends["retention"].values()
        ),
        "densities": table_of_series(
            "Densities of steps.",
            [*axes, *densities["series"]],
            *densities["places"].values(),
            *densities["series"].values(),
        ),
        "counts": table_of_series("Samples by the states they need.", ["states", "samples"], *bends["counts"].values()),
    }
    if halves := bends.get("halves"):
        tables["halves"] = table_of_series("w(t) of two halves.", [*axes, *halves], *places.values(), *halves.values())
    if oracle := bends.get("oracle"):
        tables["oracle"] = table_of_series("Score by K.", ["K", "score"], oracle["steps"], oracle["scores"])
    return tables
