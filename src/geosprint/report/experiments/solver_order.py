"""Figure 1c: error over network calls by solver and schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from geosprint.experiments.base import Finding
from geosprint.report.experiments.drawing import AXIS_LABELS, draw_band, known_metrics, make_logarithmic
from geosprint.report.experiments.sheet import in_both_formats
from geosprint.report.plots import BLUE, GREEN, GREY, RED

COLOURS = {"ddim": RED, "dpmpp-2m": BLUE, "unipc": GREEN}
DASHES: dict[str, dict[str, Any]] = {
    "geosprint": {"ls": "-", "marker": "o", "lw": 2},
    "uniform-trailing": {"ls": "--", "marker": "s"},
    "logsnr": {"ls": "-.", "marker": "X"},
    "quadratic": {"ls": ":", "marker": "D"},
}


def plot(finding: Finding, path: Path) -> list[Path]:
    """Colours tell solvers, dashes tell schedules; bands of one standard deviation over repetitions."""
    metrics = known_metrics(finding.rows)
    figure = Figure(figsize=(4.8 * len(metrics) + 2.2, 4.4), layout="constrained")
    panels = figure.subplots(1, len(metrics), squeeze=False)[0]
    lines = list(dict.fromkeys((row["solver"], row["schedule"]) for row in finding.rows))
    for axes, metric in zip(panels, metrics, strict=True):
        for solver, schedule in lines:
            rows = [row for row in finding.rows if (row["solver"], row["schedule"]) == (solver, schedule)]
            look = {"ms": 5, "lw": 1.3, "color": COLOURS.get(solver, GREY), **DASHES.get(schedule, {})}
            draw_band(axes, rows, "nfe", metric, label=f"{solver}, {schedule}", **look)
        make_logarithmic(axes, [row["nfe"] for row in finding.rows])
        axes.set(xlabel="network calls per sample (NFE)", ylabel=AXIS_LABELS[metric])
    panels[-1].legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    setting = finding.setting
    figure.suptitle(f"{setting.model}: {setting.samples} samples, mean ± std over {setting.repetitions} seeds")
    return in_both_formats(figure, path)
