"""What the figures of experiments share: panels, lines with bands, intervals, axes and titles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from geosprint.paper.base import PaperFinding, Rows
from geosprint.report.plots import BLUE, GREEN, ORANGE, PINK, SKY

AXIS_LABELS = {
    "rmse": "RMSE to the reference solve",
    "frechet_fine": "squared Fréchet distance to the reference solve",
    "frechet_data": "squared Fréchet distance to the data",
}
TIME_LABEL = "timestep t  (noise → clean)"
STEP_LOOKS = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "D"), (PINK, "^"), (SKY, "v"))
"""Colour and marker of the first K, of the second, ..."""


def panels(count: int, width: float, height: float, **options: Any) -> tuple[Figure, Any]:
    """A figure of so many panels side by side."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(1, count, squeeze=False, **options)[0]


def known_metrics(rows: Rows) -> list[str]:
    """The metrics that every row holds."""
    return [metric for metric in AXIS_LABELS if all(row.get(metric) is not None for row in rows)]


def draw_over_nfe(
    finding: PaperFinding, metrics: Sequence[str], width: float, look: Callable[[str, str], dict[str, Any]]
) -> tuple[Figure, Any]:
    """A panel for each metric: a line for each solver and schedule, bands of one standard deviation."""
    figure, axes = panels(len(metrics), width * len(metrics) + 2.2, 4.5)
    for panel, metric in zip(axes, metrics, strict=True):
        for solver, schedule in finding.distinct("solver", "schedule"):
            rows = finding.where(solver=solver, schedule=schedule)
            draw_band(panel, rows, "nfe", metric, label=f"{solver}, {schedule}", ms=5, **look(solver, schedule))
        make_logarithmic(panel, [row["nfe"] for row in finding.rows])
        panel.set(xlabel="network calls per sample (NFE)", ylabel=AXIS_LABELS[metric])
    return figure, axes


def draw_band(axes: Any, rows: Rows, x: str, y: str, **look: Any) -> None:
    """A line through the rows' means, with a band of one standard deviation where it is known."""
    rows = sorted((row for row in rows if row[y] is not None), key=lambda row: row[x])
    across, means = [row[x] for row in rows], [row[y] for row in rows]
    axes.plot(across, means, **look)
    if rows and all(row[f"{y}_std"] is not None for row in rows):
        # On a logarithmic axis a band must not reach below nothing.
        lows = [max(row[y] - row[f"{y}_std"], row[y] / 10) for row in rows]
        highs = [row[y] + row[f"{y}_std"] for row in rows]
        axes.fill_between(across, lows, highs, color=look["color"], alpha=0.1, lw=0)


def draw_intervals(axes: Any, x: Sequence[float], found: Sequence[Mapping[str, float]], **look: Any) -> None:
    """Values with the ends of their intervals."""
    values = [cell["value"] for cell in found]
    lengths = [[cell["value"] - cell["low"] for cell in found], [cell["high"] - cell["value"] for cell in found]]
    axes.errorbar(x, values, yerr=lengths, **look)


def cells_of(rows: Rows, column: str) -> list[dict[str, float]]:
    """A column with its interval, as `draw_intervals` takes it."""
    return [{"value": row[column], "low": row[f"{column}_low"], "high": row[f"{column}_high"]} for row in rows]


def make_logarithmic(axes: Any, ticks: Sequence[float] | None = None) -> None:
    """Both axes logarithmic and labelled in plain numbers; `ticks` of the horizontal one are the values measured."""
    axes.set(xscale="log", yscale="log")
    if ticks is not None:
        axes.set_xticks(sorted(set(ticks)), [f"{tick:g}" for tick in sorted(set(ticks))])
        axes.minorticks_off()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.25, lw=0.5)


def legend_beside(axes: Any, **options: Any) -> None:
    """A legend to the right of the panel."""
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), **options)


def repetitions_of(finding: PaperFinding) -> str:
    """How many samples the bands of a figure are from, for its title."""
    return f"{finding.setting.samples} samples, mean ± std over {finding.setting.repetitions} seeds"
