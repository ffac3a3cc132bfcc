"""Figure 1b: score over K, and quality over score."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from geosprint.experiments.base import Finding
from geosprint.report.experiments.drawing import make_logarithmic
from geosprint.report.experiments.sheet import in_both_formats
from geosprint.report.plots import BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY

COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY, GREY)
MARKERS = "vs^DXP*<>o"


def plot(finding: Finding, path: Path) -> list[Path]:
    """Left: the curve, the straight lines and the oracle's choices. Right: does a low score mean a low error?"""
    figure = Figure(figsize=(12, 4.6), layout="constrained")
    curve, quality = figure.subplots(1, 2)
    _draw_curve(curve, finding)
    _draw_quality(quality, [row for row in finding.rows if row["part"] == "quality"])
    figure.suptitle(
        f"{finding.setting.model}: profile of {finding.setting.trajectories} trajectories of "
        f"{finding.setting.reference_steps} steps; error of {finding.setting.samples} samples, "
        f"mean ± std over {finding.setting.repetitions} seeds"
    )
    return in_both_formats(figure, path)


def _draw_curve(axes: Any, finding: Finding) -> None:
    rows = [row for row in finding.rows if row["part"] == "curve" and row["score"] > 0]
    counts, scores = np.array([row["steps"] for row in rows]), np.array([row["score"] for row in rows])
    axes.plot(counts, scores, color=RED, lw=2, label="geosprint")
    power = np.polyfit(np.log(counts), np.log(scores), 1)
    exponential = np.polyfit(counts, np.log(scores), 1)
    r2 = (finding.numbers["r2_log_steps"], finding.numbers["r2_steps"])
    axes.plot(
        counts, np.exp(np.polyval(power, np.log(counts))), "--", color=GREY, lw=1.2, label=f"power law, R² {r2[0]:.3f}"
    )
    axes.plot(
        counts, np.exp(np.polyval(exponential, counts)), ":", color=GREY, lw=1.2, label=f"exponential, R² {r2[1]:.3f}"
    )
    for (steps, score), targets in _choices(finding.numbers["budget"]).items():
        axes.plot([steps], [score], "o", color=BLUE, zorder=3)
        label = f"target {' and '.join(targets)}: K = {steps}"
        axes.annotate(label, (steps, score), xytext=(6, 4), textcoords="offset points", fontsize=8)
    axes.set(xlabel="steps K", ylabel=r"projection score $\alpha_{traj}$", yscale="log", ylim=(scores.min() / 2, None))
    axes.grid(alpha=0.25, lw=0.5)
    axes.legend(frameon=False)


def _choices(budget: dict[str, dict[str, Any]]) -> dict[tuple[int, float], list[str]]:
    """The targets that each K of the oracle answers: two targets may get the same."""
    found: dict[tuple[int, float], list[str]] = {}
    for target, cell in budget.items():
        if cell["steps"] is not None:
            found.setdefault((cell["steps"], cell["score"]), []).append(target)
    return found


def _draw_quality(axes: Any, rows: list[dict[str, Any]]) -> None:
    """A marker for each schedule, a colour for each K; one line per K would be one claim per K."""
    names = list(dict.fromkeys(row["schedule"] for row in rows))
    counts = sorted({row["steps"] for row in rows})
    for row in rows:
        colour = COLOURS[counts.index(row["steps"]) % len(COLOURS)]
        marker = MARKERS[names.index(row["schedule"]) % len(MARKERS)]
        axes.errorbar(row["score"], row["rmse"], yerr=row["rmse_std"], fmt=marker, color=colour, ms=6, lw=0.8)
    for i, steps in enumerate(counts):
        axes.plot([], [], "s", color=COLOURS[i % len(COLOURS)], label=f"K = {steps}")
    for i, name in enumerate(names):
        axes.plot([], [], MARKERS[i % len(MARKERS)], color="black", mfc="none", label=name)
    make_logarithmic(axes)
    axes.set(xlabel=r"projection score $\alpha_{traj}$ of the schedule", ylabel="RMSE to the fine solve")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
