"""Figure 5: agreement of schedules and profiles over the number of trajectories, and over their fineness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from geosprint.experiments.base import Finding
from geosprint.report.experiments.sheet import in_both_formats
from geosprint.report.plots import BLUE, GREEN, ORANGE

MEASURES = {
    "jaccard": ("Jaccard", BLUE),
    "fuzzy_jaccard": ("fuzzy Jaccard (±5)", GREEN),
    "correlation": ("w(t)", ORANGE),
}
AGAINST = {"all": ("-", "against all"), "others": ("--", "against as many others")}


def plot(finding: Finding, path: Path) -> list[Path]:
    """Means over random subsets, bands one standard deviation."""
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    schedules, profiles, fineness = figure.subplots(1, 3, sharey=True)
    for measure, (name, colour) in MEASURES.items():
        axes = profiles if measure == "correlation" else schedules
        for against, (dashes, said) in AGAINST.items():
            sizes, means, spreads = _over_sizes(finding.rows, "B", against, measure)
            axes.plot(sizes, means, dashes, marker="o", ms=4, color=colour, label=f"{name}, {said}")
            low, high = np.maximum(means - spreads, -1), np.minimum(means + spreads, 1)
            axes.fill_between(sizes, low, high, color=colour, alpha=0.15, lw=0)
            axes.set_xticks(sizes if against == "all" else axes.get_xticks())
        sizes, means, _ = _over_sizes(finding.rows, "N", "finest", measure)
        label = "correlation of w(t)" if measure == "correlation" else name
        fineness.plot(sizes, means, "o-", ms=4, color=colour, label=label)
        fineness.set_xticks(sizes)
    numbers, setting = finding.numbers, finding.setting
    schedules.set(title=f"Schedules of {numbers['steps']} steps", ylabel="agreement", xlabel="trajectories B")
    profiles.set(title="Correlation of profiles", xlabel="trajectories B")
    fineness.set(title=f"Against N = {setting.reference_steps}", xlabel="reference steps N")
    for axes in (schedules, profiles, fineness):
        axes.set_ylim(min(0.0, axes.get_ylim()[0]), 1.03)
        axes.legend(frameon=False, fontsize="small", ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.17))
    figure.suptitle(
        f"{setting.model}: agreement with {numbers['trajectories']} trajectories of {setting.reference_steps} steps"
    )
    return in_both_formats(figure, path)


def _over_sizes(rows: list[dict[str, Any]], axis: str, against: str, measure: str) -> tuple[Any, Any, Any]:
    chosen = [row for row in rows if (row["axis"], row["against"]) == (axis, against)]
    sizes = sorted({row["size"] for row in chosen})
    found = [[row[measure] for row in chosen if row["size"] == size] for size in sizes]
    return np.array(sizes), np.array([np.mean(some) for some in found]), np.array([np.std(some) for some in found])
