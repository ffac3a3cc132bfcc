"""Table 2, left, as a figure: error over blend, relative to the best at each K."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from geosprint.experiments.base import Finding
from geosprint.report.experiments.drawing import AXIS_LABELS, known_metrics
from geosprint.report.experiments.sheet import in_both_formats
from geosprint.report.plots import BLUE, GREEN, GREY, ORANGE, PINK, SKY

LOOKS = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "D"), (PINK, "^"), (SKY, "v"))


def plot(finding: Finding, path: Path) -> list[Path]:
    """A line for each K, bands of one standard deviation over repetitions, rings on the blends within chance."""
    metrics = known_metrics(finding.rows)
    figure = Figure(figsize=(4.6 * len(metrics), 4.2), layout="constrained")
    panels = figure.subplots(1, len(metrics), squeeze=False)[0]
    for axes, metric in zip(panels, metrics, strict=True):
        axes.axvspan(0.5, 0.7, color=GREY, alpha=0.12, lw=0, label="the paper's optimum")
        for i, k in enumerate(sorted({row["steps"] for row in finding.rows})):
            colour, marker = LOOKS[i % len(LOOKS)]
            rows = [row for row in finding.rows if row["steps"] == k and row["blend"] is not None]
            least = min(row[metric] for row in rows)
            blends, shares = [row["blend"] for row in rows], [row[metric] / least for row in rows]
            axes.plot(blends, shares, color=colour, marker=marker, ms=4, lw=1.5, label=f"K = {k}")
            if all(row[f"{metric}_std"] is not None for row in rows):
                errors = [row[f"{metric}_std"] / least for row in rows]
                lows = [share - error for share, error in zip(shares, errors, strict=True)]
                highs = [share + error for share, error in zip(shares, errors, strict=True)]
                axes.fill_between(blends, lows, highs, color=colour, alpha=0.08, lw=0)
            chosen = finding.numbers[metric][str(k)]["within_chance"]
            rings = [(b, s) for b, s in zip(blends, shares, strict=True) if b in chosen]
            axes.plot(*zip(*rings, strict=True), "o", mfc="none", mec=colour, ms=11, lw=0)
        axes.set(
            xlabel="blend: share of curvature (0: log-SNR alone)",
            ylabel=f"{AXIS_LABELS[metric]},\nrelative to the best blend",
        )
        axes.grid(alpha=0.25, lw=0.5)
    panels[0].legend(frameon=False)
    setting = finding.setting
    figure.suptitle(
        f"{setting.model}: {setting.samples} samples, mean ± std over {setting.repetitions} seeds; "
        "rings: as good as the best, as far as chance tells"
    )
    return in_both_formats(figure, path)
