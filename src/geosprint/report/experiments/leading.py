"""Leading and trailing spacing: distance over K, and where each schedule starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from geosprint.experiments.base import Finding
from geosprint.report.experiments.drawing import AXIS_LABELS
from geosprint.report.experiments.sheet import in_both_formats
from geosprint.report.plots import BLUE, GREY, ORANGE

LOOKS: dict[str, dict[str, Any]] = {
    "leading": {"color": ORANGE, "marker": "o", "label": "leading"},
    "leading-from-noise": {"color": GREY, "marker": "s", "ls": "--", "label": "leading, first step at pure noise"},
    "trailing": {"color": BLUE, "marker": "D", "label": "trailing"},
}
LABELS = {
    **AXIS_LABELS,
    "frechet_reference": "squared Fréchet distance to 50 leading steps",
    "start": "first timestep",
}


def plot(finding: Finding, path: Path) -> list[Path]:
    """Three distances with intervals, and the start, over K; filled where K divides the training timesteps."""
    figure = Figure(figsize=(17, 4.2), layout="constrained")
    panels = figure.subplots(1, 4)
    for axes, quantity in zip(panels, ("rmse", "frechet_fine", "frechet_reference", "start"), strict=True):
        for spacing, look in LOOKS.items():
            rows = [row for row in finding.rows if row["spacing"] == spacing]
            axes.plot([row["steps"] for row in rows], [row[quantity] for row in rows], mfc="white", **look)
            even = [row for row in rows if row["divides"]]
            places, values = [row["steps"] for row in even], [row[quantity] for row in even]
            axes.plot(places, values, color=look["color"], marker=look["marker"], ls="")
            if quantity != "start":
                lows = [row[quantity] - row[f"{quantity}_low"] for row in rows]
                highs = [row[f"{quantity}_high"] - row[quantity] for row in rows]
                means = [row[quantity] for row in rows]
                bars = {"fmt": "none", "ecolor": look["color"], "lw": 0.8, "capsize": 2, "alpha": 0.6}
                axes.errorbar([row["steps"] for row in rows], means, yerr=[lows, highs], **bars)
        axes.set(xlabel="steps K (filled: K divides the training timesteps)", ylabel=LABELS[quantity])
        axes.set_xticks(sorted({row["steps"] for row in finding.rows}))
        axes.tick_params(axis="x", rotation=60)
        axes.grid(alpha=0.25, lw=0.5)
    panels[0].legend(frameon=False)
    total = finding.setting.samples * finding.setting.repetitions
    figure.suptitle(f"{finding.setting.model}, ddim: {total} samples from the same noise, 95 % intervals over them")
    return in_both_formats(figure, path)
