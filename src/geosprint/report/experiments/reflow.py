"""The corollary as a figure: score and spread of velocities over rounds of reflow."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from geosprint.experiments.base import Finding
from geosprint.report.experiments.sheet import in_both_formats
from geosprint.report.plots import BLUE, RED

FAMILIES = {"digits": ("8×8 digits, trained here", BLUE), "fashion": ("28×28 clothes, shipped", RED)}


def plot(finding: Finding, path: Path) -> list[Path]:
    """A line for every training; bands of the score are 95 % intervals over trajectories."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    scores, bends = figure.subplots(1, 2)
    for family, (name, colour) in FAMILIES.items():
        repetitions = sorted({row["repetition"] for row in finding.rows if row["family"] == family})
        for repetition in repetitions:
            rows = [row for row in finding.rows if (row["family"], row["repetition"]) == (family, repetition)]
            rounds, label = [row["round"] for row in rows], name if repetition == repetitions[0] else None
            scores.plot(rounds, [row["score"] for row in rows], "o-", ms=4, color=colour, label=label)
            low, high = ([row[f"score_{end}"] for row in rows] for end in ("low", "high"))
            scores.fill_between(rounds, low, high, color=colour, alpha=0.15, lw=0)
            raw = [row["score_unnormalised"] for row in rows]
            scores.plot(rounds, raw, "s:", ms=3, color=colour, label=label and f"{label}, states not normalised")
            bends.plot(rounds, [row["bend"] for row in rows], "o-", ms=4, color=colour, label=label)
    scores.set(ylabel=rf"$\alpha_{{traj}}$ at {finding.numbers['share']:.0%} pruned", title="Projection score")
    bends.set(ylabel="mean |way − velocity|² / |way|²", title="Spread of velocities (Liu et al. 2023)")
    for axes in (scores, bends):
        axes.set(xlabel="rounds of reflow", yscale="log")
        axes.set_xticks(sorted({row["round"] for row in finding.rows}))
        axes.legend(frameon=False, fontsize="small")
    return in_both_formats(figure, path)
