"""What tuning found, for people: a table, a sentence and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from geosprint.report.plots import GREY, RED, saved
from geosprint.report.text import show_table
from geosprint.tuning.result import Tuned


def show_tuned(found: Sequence[Tuned], files: Sequence[Path]) -> None:
    """The schedules that were judged, and which one to take."""
    for one in found:
        verdict = one.verdict
        count = len(verdict.errors[verdict.chosen])
        print(f"\n{len(one.schedule)} steps of {one.solver}, on {count} samples that nothing was tuned on")
        order = sorted(verdict.errors, key=lambda name: verdict.errors[name].mean())
        rows = []
        for name in order:
            error = verdict.error(name)
            rows.append((name, f"{error.value:.4f}", f"{error.low:.4f} to {error.high:.4f}"))
        show_table(("schedule", one.measure, "95 % interval"), rows, bold=verdict.chosen)
        print(f"{one.headline}; {one.nfe:,} network calls")
        print("  steps at t = " + ", ".join(f"{t:g}" for t in one.schedule.timesteps.round(4)))
    for file in files:
        print(f"→ {file}")


def plot_tuned(found: Sequence[Tuned], path: Path) -> Path:
    """The errors of the schedules that were judged, and where they step."""
    figure = Figure(figsize=(11, 0.9 + 2.1 * len(found)), layout="constrained")
    for row, one in zip(figure.subplots(len(found), 2, squeeze=False), found, strict=True):
        errors, places = row
        verdict = one.verdict
        names = sorted(verdict.errors, key=lambda name: -verdict.errors[name].mean())
        for level, name in enumerate(names):
            estimate, colour = verdict.error(name), RED if name == verdict.chosen else GREY
            reach = [[estimate.value - estimate.low], [estimate.high - estimate.value]]
            errors.errorbar(estimate.value, level, xerr=reach, fmt="o", color=colour, capsize=3)
            times = verdict.trials[name].times
            places.plot(times, [level] * len(times), "|", ms=13, mew=2, color=colour)
        errors.set_yticks(range(len(names)), names)
        errors.set(title=f"{len(one.schedule)} steps of {one.solver}", xlabel=f"error ({one.measure}), 95 % interval")
        errors.set_xlim(left=0)
        places.set_yticks(range(len(names)), [])
        places.set(title="where they step", xlabel="timestep t  (noise → clean)")
        for axes in row:
            axes.set_ylim(-0.6, len(names) - 0.4)
        places.invert_xaxis()
    return saved(figure, path)
