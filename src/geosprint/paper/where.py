"""Figure 3: where the profile puts steps, and how much of it is the forced first window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from geosprint.extraction import extract
from geosprint.paper.base import Experiment, Finding, Setting
from geosprint.paper.figures import in_both_formats
from geosprint.paper.measuring import as_numbers, ratio_of_means
from geosprint.profile import CurvatureProfile
from geosprint.report.plots import BLUE, GREEN, GREY, ORANGE, RED, SKY
from geosprint.schedule import build_schedule

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

BUDGETS = (10, 20, 50)  # Figure 3 (b)
LATE, EARLY = 0.2, 0.8  # of t / T; Section 5.4: late below, early above, the middle between
COUNTS = {"literal": True, "free": False}
"""As the paper counts, and with the forced first window given its neighbour's value."""
PAPER_LATE_OVER_MIDDLE, PAPER_LATE_SHARE = 2.0, 0.5


def run(setting: Setting) -> Finding:
    """Profile the model, place steps, and look at the three zones with and without the forced window."""
    profile = extract(
        setting.load(),
        setting.trajectories,
        setting.reference_steps,
        seed=setting.seed,
        batch=setting.batch,
        progress=setting.progress,
    )
    rows = [row for count in COUNTS for row in [*retention_rows(profile, count), *step_rows(profile, count)]]
    numbers: dict[str, Any] = {"first": profile.noise.first, "trajectories": len(profile.kept)}
    for count in COUNTS:
        numbers |= numbers_of(profile, count)
    return Finding("where", setting, rows, numbers, verdict(numbers))


def retention_rows(profile: CurvatureProfile, count: str) -> list[dict[str, Any]]:
    """w(t), and the share of all that is retained from the noise down to t."""
    retention = profile.retention if COUNTS[count] else profile.free_retention
    so_far = np.cumsum(retention) / max(retention.sum(), 1e-300)
    times = profile.timesteps[:-1]
    return [_row("retention", count, None, *point) for point in zip(times, retention, so_far, strict=True)]


def step_rows(profile: CurvatureProfile, count: str) -> list[dict[str, Any]]:
    """The chosen steps of every budget, and the share of steps from the noise down to each."""
    rows = []
    for steps in BUDGETS:
        times = build_schedule(profile, steps, literal=COUNTS[count]).timesteps
        rows += [_row("step", count, steps, t, None, (i + 1) / steps) for i, t in enumerate(times)]
    return rows


def _row(what: str, count: str, steps: int | None, t: float, retention: float | None, so_far: float) -> dict[str, Any]:
    kept = None if retention is None else float(retention)
    return {"what": what, "count": count, "steps": steps, "t": float(t), "retention": kept, "share": float(so_far)}


def numbers_of(profile: CurvatureProfile, count: str) -> dict[str, Any]:
    """Means of the zones, their ratios over resampled trajectories, and what lies in the last fifth."""
    kept = counted(profile, count)
    zones = zones_of(profile.timesteps[:-1] / profile.noise.first)
    numbers: dict[str, Any] = {f"{name}_{count}": float(kept[:, zone].mean()) for name, zone in zones.items()}
    middle, one_point = kept[:, zones["middle"]].mean(axis=1), 1 / kept[:, zones["middle"]].size
    for name in ("late", "early"):
        ratio = ratio_of_means(kept[:, zones[name]].mean(axis=1), middle, one_point)
        numbers |= as_numbers(f"{name}_over_middle_{count}", ratio)
    share = ratio_of_means(kept[:, zones["late"]].sum(axis=1), kept.sum(axis=1), one_point)
    numbers |= as_numbers(f"late_share_of_retained_{count}", share)
    for steps in BUDGETS:
        times = build_schedule(profile, steps, literal=COUNTS[count]).timesteps
        placed = zones_of(times / profile.noise.first)
        numbers |= {f"{name}_share_of_{steps}_steps_{count}": float(placed[name].mean()) for name in placed}
    return numbers


def counted(profile: CurvatureProfile, count: str) -> Mask:
    """What each trajectory retains of the steps (the clean end is none)."""
    kept = profile.kept[:, :-1].copy()
    if not COUNTS[count]:
        window = min(profile.settings.window, kept.shape[1] - 1)
        kept[:, :window] = kept[:, window : window + 1]
    return kept


def zones_of(shares: Array) -> dict[str, Mask]:
    """Which of these t / T are early, in the middle and late."""
    late, early = shares < LATE, shares > EARLY
    return {"early": early, "middle": ~(late | early), "late": late}


def verdict(numbers: dict[str, Any]) -> str:
    """Whether the late zone holds twice as much, both ends rise, and half of all lies in the last fifth."""
    ratio, low, high = (numbers[f"late_over_middle_literal{end}"] for end in ("", "_low", "_high"))
    missed = "is missed, though late steps do stay more often" if low > 1 else "is missed"
    holds = low <= PAPER_LATE_OVER_MIDDLE <= high
    often = f"{ratio:.2f} times as often as middle ones (95 % interval {low:.2f} to {high:.2f})"
    often = often if numbers["middle_literal"] else "and middle ones never"
    late = (
        f"Late steps are retained {often}: the paper's 2 times "
        f"{'holds' if holds else 'is exceeded' if low > PAPER_LATE_OVER_MIDDLE else missed}"
    )
    share = numbers["late_share_of_retained_literal"]
    literal, free = (numbers[f"early_over_middle_{count}_low"] > 1 for count in COUNTS)
    peak = (
        "there is an early peak, and not only the forced window makes it"
        if literal and free
        else "the early peak is the forced window alone: without it there is none"
        if literal
        else "there is no early peak"
    )
    return (
        f"{late}, and {share:.0%} of all that is retained lies in the last fifth (paper: {PAPER_LATE_SHARE:.0%}). "
        f"Early steps: {numbers['early_over_middle_literal']:.2f} times the middle as the paper counts, "
        f"{numbers['early_over_middle_free']:.2f} without the forced window; {peak}."
    )


WHERE = Experiment("where", paper="Figure 3, Section 5.4: late steps are retained twice as often", run=run)


COUNT_LOOKS = {"literal": ("as the paper counts it", SKY), "free": ("without the forced window", BLUE)}
BUDGET_COLOURS = {10: ORANGE, 20: GREEN, 50: RED}


def plot(finding: Finding, path: Path) -> list[Path]:
    """Three panels over time; the zones' borders are dotted."""
    figure = Figure(figsize=(13, 3.8), layout="constrained")
    retained, chosen, cumulative = figure.subplots(1, 3)
    for count, (name, colour) in COUNT_LOOKS.items():
        points = _rows(finding, "retention", count)
        times = [row["t"] for row in points]
        retained.plot(times, [row["retention"] for row in points], color=colour, lw=1.4, label=name)
        cumulative.plot(times, [100 * row["share"] for row in points], color=colour, lw=1.4, label=f"retained, {name}")
    for place, (steps, colour) in enumerate(BUDGET_COLOURS.items()):
        for count, below, weight in (("free", 0.0, 2.0), ("literal", 0.34, 1.0)):
            points = [row for row in _rows(finding, "step", count) if row["steps"] == steps]
            height = [place + below] * len(points)
            chosen.plot([row["t"] for row in points], height, "|", ms=11, mew=weight, color=colour)
        points = [row for row in _rows(finding, "step", "free") if row["steps"] == steps]
        times, shares = [row["t"] for row in points], [100 * row["share"] for row in points]
        cumulative.step(times, shares, where="post", color=colour, lw=1, label=f"steps, K = {steps}")
    names = [f"K = {steps}{count}" for steps in BUDGET_COLOURS for count in ("", ", literal")]
    heights = [place + below for place in range(len(BUDGET_COLOURS)) for below in (0.0, 0.34)]
    chosen.set_yticks(heights, names)
    chosen.set(title="Chosen steps", ylim=(len(BUDGET_COLOURS) - 0.3, -0.3))
    retained.set(title="How often a step is retained", ylabel="retention w(t)", ylim=(0, 1.05))
    cumulative.set(title="Share of steps taken so far", ylabel="share (%)", ylim=(0, 102))
    for axes in (retained, chosen, cumulative):
        axes.set_xlabel("timestep t  (noise → clean)")
        axes.invert_xaxis()
        for border in (0.2, 0.8):
            axes.axvline(border * finding.numbers["first"], color=GREY, lw=0.8, ls=":")
    retained.legend(frameon=False)
    cumulative.legend(frameon=False, fontsize="small")
    figure.suptitle(f"{finding.setting.model}: {finding.numbers['trajectories']} trajectories")
    return in_both_formats(figure, path)


def _rows(finding: Finding, what: str, count: str) -> list[dict[str, Any]]:
    return [row for row in finding.rows if row["what"] == what and row["count"] == count]
