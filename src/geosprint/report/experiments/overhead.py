"""The offline cost by stage, here and at the paper's sizes."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from geosprint.experiments.base import Finding
from geosprint.report.experiments.sheet import in_both_formats
from geosprint.report.plots import BLUE, GREEN, GREY, ORANGE, PINK

COLOURS = {"record": GREY, "gram": BLUE, "threshold search": ORANGE, "score table": GREEN, "schedule": PINK}
HATCHES = {"record": "", "gram": "//", "threshold search": "..", "score table": "\\\\", "schedule": "xx"}


def plot(finding: Finding, path: Path) -> list[Path]:
    """A group of bars for each size, seconds on a logarithmic axis, values written on them."""
    places = list(finding.numbers["places"])
    figure = Figure(figsize=(2 + 2.7 * len(places), 4.6), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(COLOURS)
    for i, (stage, colour) in enumerate(COLOURS.items()):
        seconds = [row["seconds"] for row in finding.rows if row["stage"] == stage]
        across = [place + (i - (len(COLOURS) - 1) / 2) * width for place in range(len(places))]
        bars = axes.bar(across, seconds, width * 0.92, color=colour, hatch=HATCHES[stage], ec="white", label=stage)
        axes.bar_label(bars, [_short(value) for value in seconds], fontsize=7, padding=2)
    sizes = {row["place"]: row for row in finding.rows if row["stage"] == "record"}
    names = [
        f"{place}\nB = {sizes[place]['trajectories']}, N = {sizes[place]['reference_steps']}, "
        f"d = {sizes[place]['dimensions']:,}\n{sizes[place]['nfe']:,} calls, {sizes[place]['how']}"
        for place in places
    ]
    axes.set_xticks(range(len(places)), names)
    axes.set(yscale="log", ylabel="seconds")
    axes.margins(y=0.12)
    axes.legend(frameon=False, ncols=5, loc="upper center", bbox_to_anchor=(0.5, 1.12))
    figure.suptitle(
        f"Offline cost; a network call of {finding.setting.model} takes "
        f"{finding.numbers['seconds_per_call'] * 1000:.2g} ms here, and is assumed for every size"
    )
    return in_both_formats(figure, path)


def _short(seconds: float) -> str:
    return f"{seconds:.2g}" if seconds < 100 else f"{seconds:,.0f}"
