"""What the figures of experiments share: lines with bands, axes, and the file they are written to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from geosprint.files import write_whole
from geosprint.report.plots import saved


def in_both_formats(figure: Figure, path: Path) -> list[Path]:
    """`path`.png and `path`.svg, the same bytes for the same figure."""
    path = Path(path)
    # Without these two, matplotlib writes random names and the time of day into the file.
    with matplotlib.rc_context({"svg.hashsalt": "geosprint"}):
        pixels = saved(figure, path.with_name(f"{path.name}.png"))
        vectors = path.with_name(f"{path.name}.svg")
        write_whole(vectors, lambda to: figure.savefig(to, format="svg", metadata={"Date": None}))
    return [pixels, vectors]


AXIS_LABELS = {
    "rmse": "RMSE to the fine solve",
    "frechet_fine": "squared Fréchet distance to the fine solve",
    "frechet_data": "squared Fréchet distance to the data",
}


def draw_band(axes: Any, rows: Sequence[dict[str, Any]], x: str, y: str, **look: Any) -> None:
    """A line through the rows' means, with a band of one standard deviation where it is known."""
    rows = sorted((row for row in rows if row[y] is not None), key=lambda row: row[x])
    places, means = [row[x] for row in rows], [row[y] for row in rows]
    axes.plot(places, means, **look)
    if rows and all(row[f"{y}_std"] is not None for row in rows):
        # On a logarithmic axis a band must not reach below nothing.
        lows = [max(row[y] - row[f"{y}_std"], row[y] / 10) for row in rows]
        highs = [row[y] + row[f"{y}_std"] for row in rows]
        axes.fill_between(places, lows, highs, color=look["color"], alpha=0.1, lw=0)


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


def known_metrics(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The metrics that every row holds."""
    return [metric for metric in AXIS_LABELS if all(row.get(metric) is not None for row in rows)]
