"""Windows and levels: what they prune, and what their schedules are worth."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from geosprint.experiments.base import Finding
from geosprint.report.experiments.sheet import in_both_formats
from geosprint.report.plots import BLUE, GREEN, GREY, ORANGE, PINK, SKY

LOOKS = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "D"), (PINK, "^"), (SKY, "v"))


def plot(finding: Finding, path: Path) -> list[Path]:
    """Left: pruned share. Right: error less that of k = 2, with 95 % intervals over the samples."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    pruned, error = figure.subplots(1, 2)
    shares = finding.numbers["pruned_share"]
    first = finding.rows[0]["steps"]
    spreads = [row["pruned_share_std"] for row in finding.rows if row["steps"] == first]
    pruned.bar(list(shares), list(shares.values()), yerr=spreads, color=GREY, capsize=4, width=0.6)
    pruned.set(ylabel="pruned share of states (± std over trajectories)", ylim=(0, 1), xlabel="test")
    gaps = finding.numbers["gap"]["rmse"]
    for i, k in enumerate(sorted({row["steps"] for row in finding.rows})):
        colour, marker = LOOKS[i % len(LOOKS)]
        cells = [gaps[test][str(k)] for test in gaps]
        places = [place + 0.12 * (i - 1) for place in range(len(gaps))]
        lengths = [
            [cell["value"] - cell["low"] for cell in cells],
            [cell["high"] - cell["value"] for cell in cells],
        ]
        values = [cell["value"] for cell in cells]
        error.errorbar(places, values, yerr=lengths, fmt=marker, color=colour, capsize=3, label=f"K = {k}")
    error.axhline(0, color="black", lw=0.8)
    error.set_xticks(range(len(gaps)), list(gaps))
    error.set(xlabel="test", ylabel="RMSE to the fine solve, less that of k = 2\n(below 0: better), 95 % intervals")
    error.legend(frameon=False)
    setting = finding.setting
    figure.suptitle(
        f"{setting.model}: {setting.trajectories} trajectories of {setting.reference_steps} steps, "
        f"{setting.samples * setting.repetitions} fresh samples"
    )
    return in_both_formats(figure, path)
