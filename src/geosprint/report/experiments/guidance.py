"""Profiles at every guidance scale, how alike they are, and what a foreign schedule costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from geosprint.experiments.base import Finding
from geosprint.report.experiments.sheet import in_both_formats
from geosprint.report.plots import BLUE, GREEN, ORANGE, RED
from geosprint.schedule import SMOOTHING, smoothed

STYLES = [(BLUE, "-"), (GREEN, "--"), (ORANGE, "-."), (RED, ":")]


def plot(finding: Finding, path: Path) -> list[Path]:
    """The profiles, and two tables of pairs of scales in colour."""
    figure = Figure(figsize=(13, 3.8), layout="constrained")
    profiles, related, costs = figure.subplots(1, 3)
    numbers = finding.numbers
    for (scale, retention), (colour, dashes) in zip(numbers["retention"].items(), STYLES, strict=True):
        curve = smoothed(np.array(retention), SMOOTHING)
        profiles.plot(numbers["timesteps"], curve, dashes, color=colour, lw=1.8, label=f"guidance {scale}")
    profiles.set(title="Profiles, smoothed", xlabel="timestep t  (noise → clean)", ylabel="retention w(t)")
    profiles.invert_xaxis()
    profiles.legend(frameon=False)
    lowest = min(row["correlation"] for row in finding.rows)
    _plot_pairs(figure, related, finding, "correlation", "Correlation of the profiles", "cividis", (lowest, 1.0))
    title = f"RMSE at {numbers['steps']} steps, relative to its own schedule"
    reach = max(
        max(abs(row["relative"] - 1) for row in finding.rows), 0.01
    )  # white is no cost, on a scale of both signs
    _plot_pairs(figure, costs, finding, "relative", title, "PuOr_r", (1 - reach, 1 + reach))
    first = finding.rows[0]
    figure.suptitle(
        f"{finding.setting.model}: {first['trajectories']} trajectories of {first['reference_steps']} steps, "
        f"{first['samples']} fresh samples"
    )
    return in_both_formats(figure, path)


def _plot_pairs(
    figure: Figure, axes: Any, finding: Finding, column: str, title: str, colours: str, limits: tuple[float, float]
) -> None:
    scales = finding.numbers["scales"]
    table = np.full((len(scales), len(scales)), np.nan)
    for row in finding.rows:
        place = scales.index(row["used_at"]), scales.index(row["made_at"])
        table[place] = row[column]
        sure = "*" if column == "relative" and (row["relative_low"] > 1 or row["relative_high"] < 1) else ""
        label = {"ha": "center", "va": "center", "bbox": {"fc": "white", "ec": "none", "alpha": 0.75, "pad": 1.5}}
        axes.text(place[1], place[0], f"{row[column]:.2f}{sure}", **label)
    drawn = axes.imshow(table, cmap=colours, vmin=limits[0], vmax=limits[1])
    figure.colorbar(drawn, ax=axes)
    names = [f"{scale:g}" for scale in scales]
    axes.set_xticks(range(len(scales)), names)
    axes.set_yticks(range(len(scales)), names)
    said = "schedule made at guidance" + ("   (* 95 % interval excludes 1)" if column == "relative" else "")
    axes.set(title=title, xlabel=said, ylabel="used at guidance")
