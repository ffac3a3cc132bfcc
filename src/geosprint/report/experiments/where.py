"""Figure 3: retention over time, the steps this gives, and how both add up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from geosprint.experiments.base import Finding
from geosprint.report.experiments.sheet import in_both_formats
from geosprint.report.plots import BLUE, GREEN, GREY, ORANGE, RED, SKY

COUNTS = {"literal": ("as the paper counts it", SKY), "free": ("without the forced window", BLUE)}
BUDGETS = {10: ORANGE, 20: GREEN, 50: RED}


def plot(finding: Finding, path: Path) -> list[Path]:
    """Three panels over time; the zones' borders are dotted."""
    figure = Figure(figsize=(13, 3.8), layout="constrained")
    retained, chosen, cumulative = figure.subplots(1, 3)
    for count, (name, colour) in COUNTS.items():
        points = _rows(finding, "retention", count)
        times = [row["t"] for row in points]
        retained.plot(times, [row["retention"] for row in points], color=colour, lw=1.4, label=name)
        cumulative.plot(times, [100 * row["share"] for row in points], color=colour, lw=1.4, label=f"retained, {name}")
    for place, (steps, colour) in enumerate(BUDGETS.items()):
        for count, below, weight in (("free", 0.0, 2.0), ("literal", 0.34, 1.0)):
            points = [row for row in _rows(finding, "step", count) if row["steps"] == steps]
            height = [place + below] * len(points)
            chosen.plot([row["t"] for row in points], height, "|", ms=11, mew=weight, color=colour)
        points = [row for row in _rows(finding, "step", "free") if row["steps"] == steps]
        times, shares = [row["t"] for row in points], [100 * row["share"] for row in points]
        cumulative.step(times, shares, where="post", color=colour, lw=1, label=f"steps, K = {steps}")
    names = [f"K = {steps}{count}" for steps in BUDGETS for count in ("", ", literal")]
    heights = [place + below for place in range(len(BUDGETS)) for below in (0.0, 0.34)]
    chosen.set_yticks(heights, names)
    chosen.set(title="Chosen steps", ylim=(len(BUDGETS) - 0.3, -0.3))
    retained.set(title="How often a step is retained", ylabel="retention w(t)", ylim=(0, 1.05))
    cumulative.set(title="Share of steps taken so far", ylabel="share (%)", ylim=(0, 102))
    for axes in (retained, chosen, cumulative):
        axes.set_xlabel("timestep t  (noise → clean)")
        axes.invert_xaxis()
        for border in (0.2, 0.8):
            axes.axvline(border * finding.numbers["first"], color=GREY, lw=0.8, ls=":")
    retained.legend(frameon=False)
    cumulative.legend(frameon=False, fontsize="small")
    figure.suptitle(f"{finding.setting.model}: {finding.numbers['trajectories']} trajectories")
    return in_both_formats(figure, path)


def _rows(finding: Finding, what: str, count: str) -> list[dict[str, Any]]:
    return [row for row in finding.rows if row["what"] == what and row["count"] == count]
