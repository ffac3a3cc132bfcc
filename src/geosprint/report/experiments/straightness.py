"""Figure 4: the score of every solver at one pruned share, and the pruned share at one score."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from geosprint.experiments.base import Finding
from geosprint.report.experiments.sheet import in_both_formats
from geosprint.report.plots import BLUE, GREEN, ORANGE, RED

COLOURS = {"ddpm": RED, "ddim": BLUE, "dpmpp-2m": GREEN, "heun": ORANGE}
NAMES = {"ddpm": "DDPM", "ddim": "DDIM", "dpmpp-2m": "DPM++ 2M", "heun": "Heun"}


def plot(finding: Finding, path: Path) -> list[Path]:
    """Every trajectory a dot, every solver's mean with its 95 % interval."""
    figure = Figure(figsize=(8.5, 3.6), layout="constrained")
    scores, shares = figure.subplots(1, 2)
    numbers = finding.numbers
    for place, solver in enumerate(numbers["solvers"]):
        rows = [row for row in finding.rows if row["solver"] == solver]
        aside = place + np.linspace(-0.22, 0.22, len(rows))  # spread, so that no dot hides another
        for axes, column, mean in ((scores, "score_at_share", "score"), (shares, "share_at_score", "pruned")):
            scale = 1 if column == "score_at_share" else 100
            axes.plot(aside, [scale * float(row[column]) for row in rows], ".", ms=4, alpha=0.45, color=COLOURS[solver])
            value, low, high = (scale * numbers[f"{solver}_{mean}{end}"] for end in ("", "_low", "_high"))
            label = "mean, 95 % interval" if place == 0 else None
            axes.errorbar(
                place + 0.34,
                value,
                [[value - low], [high - value]],
                fmt="D",
                ms=4,
                capsize=4,
                color="black",
                label=label,
            )
    scores.set(yscale="log", ylabel=r"projection score $\alpha_{traj}$", title=f"At {numbers['share']:.0%} pruned")
    shares.set(ylabel="points pruned (%)", title=rf"At $\alpha_{{traj}} \leq$ {numbers['target_score']:g}")
    for axes in (scores, shares):
        axes.set_xticks(range(len(numbers["solvers"])), [NAMES[solver] for solver in numbers["solvers"]])
        axes.set_xlabel("solver")
    scores.legend(frameon=False)
    figure.suptitle(f"{finding.setting.model}: {finding.setting.reference_steps} steps of each solver, same seeds")
    return in_both_formats(figure, path)
