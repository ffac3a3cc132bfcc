"""Figure 3: where the profile puts steps, and how much of it is the forced first window."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from geosprint.paper.base import Numbers, PaperFinding, Rows, Setting
from geosprint.paper.claims import Claim, Evidence, PaperExperiment, above
from geosprint.paper.figures import TIME_LABEL, panels
from geosprint.paper.measuring import as_numbers, estimate_in, extracted, ratio_of_means
from geosprint.profile import CurvatureProfile
from geosprint.report.plots import BLUE, GREEN, GREY, ORANGE, RED, SKY
from geosprint.schedule import build_schedule

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

BUDGETS = {10: ORANGE, 20: GREEN, 50: RED}  # Figure 3 (b)
LATE, EARLY = 0.2, 0.8  # of t / T; Section 5.4: late below, early above, the middle between
COUNTS = {"literal": True, "free": False}
"""As the paper counts, and with the forced first window given its neighbour's value."""


def measure(setting: Setting) -> tuple[Rows, Numbers]:
    """Profile the model, build schedules, and look at the three zones with and without the forced window."""
    profile = extracted(setting.load(), setting)
    rows = [row for count in COUNTS for row in [*_retention_rows(profile, count), *_step_rows(profile, count)]]
    numbers: Numbers = {"first": profile.noise.first, "trajectories": len(profile.kept)}
    for count in COUNTS:
        numbers |= _numbers_of(profile, count)
    return rows, numbers


def _retention_rows(profile: CurvatureProfile, count: str) -> Rows:
    """w(t), and the share of all that is retained from the noise down to t."""
    retention = profile.retention if COUNTS[count] else profile.free_retention
    so_far = np.cumsum(retention) / max(retention.sum(), 1e-300)
    points = zip(profile.timesteps[:-1].tolist(), retention.tolist(), so_far.tolist(), strict=True)
    return [
        {"what": "retention", "count": count, "steps": None, "t": t, "retention": kept, "share": share}
        for t, kept, share in points
    ]


def _step_rows(profile: CurvatureProfile, count: str) -> Rows:
    """The chosen steps of every budget, and the share of steps from the noise down to each."""
    return [
        {"what": "step", "count": count, "steps": steps, "t": float(t), "retention": None, "share": (i + 1) / steps}
        for steps in BUDGETS
        for i, t in enumerate(build_schedule(profile, steps, literal=COUNTS[count]).timesteps)
    ]


def _numbers_of(profile: CurvatureProfile, count: str) -> Numbers:
    """Means of the zones, their ratios over resampled trajectories, and what lies in the last fifth."""
    kept = counted(profile, count)
    zones = zones_of(profile.timesteps[:-1] / profile.noise.first)
    numbers: Numbers = {f"{name}_{count}": float(kept[:, zone].mean()) for name, zone in zones.items()}
    middle, one_point = kept[:, zones["middle"]].mean(axis=1), 1 / kept[:, zones["middle"]].size
    for name in ("late", "early"):
        ratio = ratio_of_means(kept[:, zones[name]].mean(axis=1), middle, one_point)
        numbers |= as_numbers(f"{name}_over_middle_{count}", ratio)
    share = ratio_of_means(kept[:, zones["late"]].sum(axis=1), kept.sum(axis=1), one_point)
    numbers |= as_numbers(f"late_share_of_retained_{count}", share)
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


def _lower_end(finding: PaperFinding) -> Evidence:
    """The end, early or late, that stands out less."""
    ends = {
        count: [estimate_in(finding.numbers, f"{end}_over_middle_{count}") for end in ("early", "late")]
        for count in COUNTS
    }
    names = {"literal": "as the paper counts", "free": "without the forced window"}
    return {names[count]: min(found, key=lambda end: end.value) for count, found in ends.items()}


CLAIMS = (
    Claim(
        "the late zone is retained 2 times as often as the middle (5.4)",
        "retention of the late zone over that of the middle",
        above(1, 2),
        lambda found: {"": estimate_in(found.numbers, "late_over_middle_literal")},
    ),
    Claim(
        "w(t) peaks at both ends (Figure 3a)",
        "retention at the lower of both ends over that of the middle",
        above(1),
        _lower_end,
    ),
    Claim(
        "50 % of retained steps lie in the final 20 % of denoising (Figure 3c)",
        "their share",
        above(LATE, 0.5),
        lambda found: {"": estimate_in(found.numbers, "late_share_of_retained_literal")},
    ),
)


COUNT_LOOKS = {"literal": ("as the paper counts it", SKY), "free": ("without the forced window", BLUE)}


def draw(finding: PaperFinding) -> Figure:
    """Three panels over time; the zones' borders are dotted."""
    figure, (retained, chosen, cumulative) = panels(3, 13, 3.8)

    def line(rows: Rows, column: str, scale: float = 1) -> tuple[list[Any], list[Any]]:
        return [row["t"] for row in rows], [scale * row[column] for row in rows]

    for count, (name, colour) in COUNT_LOOKS.items():
        rows = finding.where(what="retention", count=count)
        retained.plot(*line(rows, "retention"), color=colour, lw=1.4, label=name)
        cumulative.plot(*line(rows, "share", 100), color=colour, lw=1.4, label=f"retained, {name}")
    for number, (steps, colour) in enumerate(BUDGETS.items()):
        for count, below, weight in (("free", 0.0, 2.0), ("literal", 0.34, 1.0)):
            times = [row["t"] for row in finding.where(what="step", count=count, steps=steps)]
            chosen.plot(times, [number + below] * len(times), "|", ms=11, mew=weight, color=colour)
        rows = finding.where(what="step", count="free", steps=steps)
        cumulative.step(*line(rows, "share", 100), where="post", color=colour, lw=1, label=f"steps, K = {steps}")
    heights = [number + below for number in range(len(BUDGETS)) for below in (0.0, 0.34)]
    chosen.set_yticks(heights, [f"K = {steps}{count}" for steps in BUDGETS for count in ("", ", literal")])
    chosen.set(title="Chosen steps", ylim=(len(BUDGETS) - 0.3, -0.3))
    retained.set(title="How often a step is retained", ylabel="retention w(t)", ylim=(0, 1.05))
    cumulative.set(title="Share of steps taken so far", ylabel="share (%)", ylim=(0, 102))
    for axes in (retained, chosen, cumulative):
        axes.set_xlabel(TIME_LABEL)
        axes.invert_xaxis()
        for border in (LATE, EARLY):
            axes.axvline(border * finding.numbers["first"], color=GREY, lw=0.8, ls=":")
    retained.legend(frameon=False)
    cumulative.legend(frameon=False, fontsize="small")
    figure.suptitle(f"{finding.setting.model}: {finding.numbers['trajectories']} trajectories")
    return figure


WHERE = PaperExperiment("where", "Figure 3, Section 5.4: late steps are retained twice as often", measure, CLAIMS, draw)
