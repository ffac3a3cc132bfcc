"""Figures as data: columns of a table over another one, and the one function that draws them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from geosprint.estimates import Estimate
from geosprint.paper.base import PaperFinding, Rows
from geosprint.report.plots import BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY

METRIC_LABELS = {
    "rmse": "RMSE to the reference solve",
    "frechet_fine": "squared Fréchet distance to the reference solve",
    "frechet_data": "squared Fréchet distance to the data",
    "frechet_reference": "squared Fréchet distance to 50 leading steps",
}
SCORE_LABEL = r"projection score $\alpha_{traj}$"
TIME_LABEL = "timestep t  (noise → clean)"
COLOURS = (BLUE, ORANGE, GREEN, RED, PINK, SKY, GREY)
MARKERS = "osD^vPX"
DASHES = ("-", "--", "-.", ":", (0, (3, 1, 1, 1, 1, 1)))
MANY = 6  # series, whose legend would cover them
FEW = 10  # values of x, each with its tick


@dataclass(frozen=True, eq=False)
class Panel:
    """Columns of a table over another one; each column, and each value of the columns `by`, is a series of its own.

    Rows of the same x make one point of a line, or one bar: their mean. Its interval is in the columns `_low` and
    `_high`, or else it is one standard deviation, that of the column `_std` or that of these rows.
    """

    x: str  # or a text with columns in it, as in "K = {steps}"
    y: str | tuple[str, ...]
    xlabel: str
    ylabel: str
    title: str = ""
    by: str | tuple[str, ...] = ()
    kind: Literal["lines", "dots", "bars", "histograms"] = "lines"
    log: Literal["", "y", "xy"] = ""
    rows: Callable[[PaperFinding], Rows] = lambda finding: finding.rows
    where: Mapping[str, Any] = field(default_factory=dict)  # what the rows that are drawn hold
    level: float | str | None = None  # of a horizontal line; or the name of this number of the finding
    width: float = 4.5  # in inches

    def x_of(self, row: Mapping[str, Any]) -> Any:
        """Where a row is drawn."""
        return self.x.format(**row) if "{" in self.x else row[self.x]

    def table(self, finding: PaperFinding) -> Rows:
        """The rows to draw; none if a column was not measured."""
        rows = replace(finding, rows=self.rows(finding)).where(**self.where)
        return rows if all(row.get(column) is not None for row in rows for column in several(self.y)) else []


@dataclass(frozen=True)
class Series:
    """The points of a panel that look alike."""

    name: str
    x: list[Any]
    found: list[Estimate]
    look: dict[str, Any]  # colour, marker and dashes


def several(names: str | tuple[str, ...]) -> tuple[str, ...]:
    """One name, or more."""
    return (names,) if isinstance(names, str) else names


def drawn(panels: Sequence[Panel], finding: PaperFinding) -> Figure:
    """Panels side by side; a legend that the next panel has, too, is drawn there."""
    every = {panel: series_of(panel, table) for panel in panels if (table := panel.table(finding))}
    figure = Figure(figsize=(1 + sum(panel.width for panel in every), 4.2), layout="constrained")
    figure.suptitle(f"{finding.name} on {finding.setting.model}")
    names = [[one.name for one in series] for series in every.values()] + [[]]
    for i, (axes, panel) in enumerate(zip(figure.subplots(1, len(every), squeeze=False)[0], every, strict=True)):
        _draw(axes, panel, every[panel])
        if panel.level is not None:
            level = finding.numbers[panel.level] if isinstance(panel.level, str) else panel.level
            axes.axhline(level, color="black", ls="--", lw=1)
        if len(names[i]) > 1 and names[i] != names[i + 1]:
            beside = {"loc": "center left", "bbox_to_anchor": (1, 0.5)} if len(names[i]) > MANY else {}
            axes.legend(frameon=False, fontsize="small", **beside)
    return figure


def series_of(panel: Panel, table: Rows) -> list[Series]:
    """Colours tell the first thing that series differ in, markers and dashes the others."""
    parts: dict[tuple[str, ...], tuple[str, Rows]] = {}
    columns = several(panel.y)
    for column in columns:
        for row in table:
            said = [column.replace("_", " ")] if len(columns) > 1 else []
            said += [_said(by, row[by]) for by in several(panel.by)]
            parts.setdefault(tuple(said), (column, []))[1].append(row)
    firsts, others = list(dict.fromkeys(name[:1] for name in parts)), list(dict.fromkeys(name[1:] for name in parts))
    series = []
    for name, (column, rows) in parts.items():
        first, other = firsts.index(name[:1]), others.index(name[1:])
        look = {"color": COLOURS[first % len(COLOURS)], "ls": DASHES[other % len(DASHES)]}
        look["marker"] = MARKERS[(other or first) % len(MARKERS)]
        points = [[row] for row in rows]
        if panel.kind in ("lines", "bars"):
            points = [[row for row in rows if panel.x_of(row) == x] for x in dict.fromkeys(map(panel.x_of, rows))]
        found = [_point(some, column) for some in points]
        series.append(Series(", ".join(filter(None, name)), [panel.x_of(some[0]) for some in points], found, look))
    return series


def _said(column: str, value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return f"K = {value}" if column == "steps" else f"{column.replace('_', ' ')} {value:g}"


def _point(rows: Rows, column: str) -> Estimate:
    value = float(np.mean([row[column] for row in rows]))
    std = rows[0].get(f"{column}_std") or float(np.std([row[column] for row in rows]))
    return Estimate(value, rows[0].get(f"{column}_low", value - std), rows[0].get(f"{column}_high", value + std))


def _draw(axes: Any, panel: Panel, series: list[Series]) -> None:
    axes.set(xlabel=panel.xlabel, ylabel=panel.ylabel, title=panel.title)
    axes.grid(alpha=0.25, lw=0.5)
    xs = list(dict.fromkeys(x for one in series for x in one.x))
    if panel.kind == "histograms":
        _draw_histograms(axes, series)
    elif isinstance(xs[0], str):
        width = 0.8 / len(series)  # the series of a name stand side by side
        for i, one in enumerate(series):
            aside = (i - (len(series) - 1) / 2) * width
            _draw_series(axes, panel, replace(one, x=[xs.index(x) + aside for x in one.x]), 0.92 * width)
        axes.set_xticks(range(len(xs)), xs)
    else:
        for one in series:
            _draw_series(axes, panel, one)
    for scaled in panel.log:
        _make_logarithmic(axes, scaled)
    if panel.kind == "lines" and len(xs) <= FEW:
        axes.set_xticks(sorted(xs), [f"{x:g}" for x in sorted(xs)])
    if panel.xlabel == TIME_LABEL:
        axes.invert_xaxis()


def _draw_series(axes: Any, panel: Panel, one: Series, width: float = 0.8) -> None:
    values, lows, highs = np.array([(found.value, found.low, found.high) for found in one.found]).T
    lengths, look = np.abs([values - lows, highs - values]), {"color": one.look["color"], "label": one.name}
    whiskers = {"yerr": lengths, "capsize": 3} if lengths.any() else {}
    if panel.kind == "bars":
        axes.bar_label(axes.bar(one.x, values, width, **whiskers, **look), fmt="{:.3g}", fontsize=7, padding=2)
    elif panel.kind == "dots":
        axes.errorbar(one.x, values, fmt=one.look["marker"], ms=4, lw=1, **whiskers, **look)
    else:
        axes.plot(one.x, values, ms=4 if len(values) < 20 else 0, label=one.name, **one.look)
        # On a logarithmic axis a band must not reach below nothing.
        band = np.maximum(lows, values / 10) if panel.log else lows
        axes.fill_between(one.x, band, highs, color=look["color"], alpha=0.1, lw=0)


def _draw_histograms(axes: Any, series: list[Series]) -> None:
    """With a bin for every whole number, or 26."""
    values = np.array([found.value for one in series for found in one.found])
    bins = np.linspace(values.min(), values.max(), 27)
    if (values == values.round()).all():
        bins = np.arange(values.min(), values.max() + 2) - 0.5
    for one in series:
        axes.hist([found.value for found in one.found], bins, color=one.look["color"], alpha=0.6, label=one.name)


def _make_logarithmic(axes: Any, scaled: str) -> None:
    """Labelled in plain numbers: 1, 2 and 5, or only 1 over more than two decades."""
    axes.set(**{f"{scaled}scale": "log"})
    axis = axes.xaxis if scaled == "x" else axes.yaxis
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def over_nfe(by: tuple[str, str], *metrics: str) -> tuple[Panel, ...]:
    """Metrics over network calls, a line for each solver and schedule."""
    calls, title = "network calls per sample (NFE)", "mean ± std over seeds"
    return tuple(Panel("nfe", metric, calls, METRIC_LABELS[metric], title, by, log="xy") for metric in metrics)
