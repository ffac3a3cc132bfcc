"""Figures 1a and 2: Fréchet distance over network calls, one panel for each protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from geosprint.experiments.base import Finding
from geosprint.report.experiments.drawing import AXIS_LABELS, draw_band, known_metrics, make_logarithmic
from geosprint.report.experiments.sheet import in_both_formats
from geosprint.report.plots import BLUE, GREEN, GREY, ORANGE, RED, SKY

LOOKS: dict[tuple[str, str], dict[str, Any]] = {
    ("ddim", "geosprint"): {"color": RED, "marker": "o", "lw": 2.2, "zorder": 3},
    ("ddim", "uniform-leading"): {"color": GREY, "marker": "v", "ls": "-"},
    ("ddim", "uniform-trailing"): {"color": GREY, "marker": "s", "ls": "--"},
    ("ddim", "uniform-linspace"): {"color": GREY, "marker": "^", "ls": ":"},
    ("ddim", "quadratic"): {"color": GREEN, "marker": "D", "ls": "-."},
    ("dpmpp-2m", "uniform-trailing"): {"color": BLUE, "marker": "P", "ls": "--"},
    ("dpmpp-2m", "logsnr"): {"color": SKY, "marker": "X", "ls": "-."},
}
OTHER: dict[str, Any] = {"color": ORANGE, "marker": "."}


def plot(finding: Finding, path: Path) -> list[Path]:
    """A line for each solver and schedule, bands of one standard deviation over repetitions."""
    metrics = [metric for metric in known_metrics(finding.rows) if metric != "rmse"]
    figure = Figure(figsize=(5.6 * len(metrics) + 2.2, 4.6), layout="constrained")
    lines = list(dict.fromkeys((row["solver"], row["schedule"]) for row in finding.rows))
    panels = figure.subplots(1, len(metrics), squeeze=False)[0]
    for axes, metric in zip(panels, metrics, strict=True):
        for solver, schedule in lines:
            rows = [row for row in finding.rows if (row["solver"], row["schedule"]) == (solver, schedule)]
            look = {"ms": 5, "lw": 1.3, **LOOKS.get((solver, schedule), OTHER)}
            draw_band(axes, rows, "nfe", metric, label=f"{solver}, {schedule}", **look)
        if metric == "frechet_data":
            axes.axhline(finding.numbers["fine_to_data"], color="black", ls="--", lw=1, label="fine solve")
        make_logarithmic(axes, [row["nfe"] for row in finding.rows])
        axes.set(xlabel="network calls per sample (NFE)", ylabel=AXIS_LABELS[metric])
    panels[-1].legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    setting = finding.setting
    figure.suptitle(
        f"{setting.model}, {finding.numbers['features']} features: {setting.samples} samples, "
        f"mean ± std over {setting.repetitions} seeds"
    )
    return in_both_formats(figure, path)
