"""Figure 6: single profiles and the universal one, steps needed, correlations; and complexity against error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from geosprint.experiments.base import Finding
from geosprint.report.experiments.sheet import in_both_formats
from geosprint.report.plots import BLUE, GREEN, GREY, ORANGE, RED
from geosprint.schedule import SMOOTHING, smoothed

TARGETS = {"nfe_0.01": ("0.01", ORANGE), "nfe_0.001": ("0.001", BLUE), "nfe_0.0001": ("0.0001", GREEN)}
FAINT = 30  # single profiles that are drawn


def plot(finding: Finding, path: Path) -> list[Path]:
    """Four panels, one for each question."""
    figure = Figure(figsize=(15, 3.8), layout="constrained")
    profiles, counts, related, errors = figure.subplots(1, 4)
    _plot_profiles(profiles, finding.numbers)
    everything = np.concatenate([[row[name] for row in finding.rows] for name in TARGETS])
    bins = np.arange(everything.min(), everything.max() + 2) - 0.5
    for name, (target, colour) in TARGETS.items():
        counts.hist([row[name] for row in finding.rows], bins=bins, color=colour, alpha=0.75, label=f"score {target}")
    counts.set(title="Steps each sample needs", xlabel="retained steps", ylabel="samples")
    shown = {"correlation": ("with all", BLUE), "correlation_with_others": ("with the others, free steps", ORANGE)}
    edges = np.linspace(-0.3, 1, 27)
    for name, (label, colour) in shown.items():
        mean = finding.numbers[name]
        said = f"{label}, mean {mean:.2f}"
        related.hist([row[name] for row in finding.rows], bins=edges, color=colour, alpha=0.6, label=said)
        related.axvline(mean, ymax=0.77, color=colour, lw=1.5)
    related.set(title="Correlation with the universal profile", xlabel="correlation", ylabel="samples")
    numbers = finding.numbers
    said = "Spearman {count_foretells_error:.2f} ({count_foretells_error_low:.2f} to {count_foretells_error_high:.2f})"
    complexity, error = ([row[name] for row in finding.rows] for name in ("nfe_0.001", "error"))
    errors.plot(complexity, error, ".", color=RED, alpha=0.7, label=said.format(**numbers))
    errors.set(title=f"Error at {numbers['steps']} steps", xlabel="retained steps at score 0.001", ylabel="RMSE")
    counts.xaxis.set_major_locator(MaxNLocator(integer=True))
    errors.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in (counts, related, errors):
        axes.set_ylim(0, 1.3 * axes.get_ylim()[1])  # room for the legend
    for axes in (counts, related):
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in (profiles, counts, related, errors):
        axes.legend(frameon=False, fontsize="small")
    figure.suptitle(f"{finding.setting.model}: {numbers['samples']} samples")
    return in_both_formats(figure, path)


def _plot_profiles(axes: Any, numbers: dict[str, Any]) -> None:
    kept = np.array([[letter == "1" for letter in row] for row in numbers["kept"]], dtype=float)
    for i, own in enumerate(kept[:FAINT]):
        label = "single samples" if i == 0 else None
        axes.plot(numbers["timesteps"], smoothed(own, SMOOTHING), color=GREY, lw=0.6, alpha=0.45, label=label)
    axes.plot(numbers["timesteps"], smoothed(kept.mean(axis=0), SMOOTHING), color=BLUE, lw=2.5, label="universal")
    axes.set(title="Profiles, smoothed", xlabel="timestep t  (noise → clean)", ylabel="retention w(t)")
    axes.invert_xaxis()
