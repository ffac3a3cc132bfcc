"""Figure 3: where the profile puts steps, and how much of it is the forced first window."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from geosprint.paper.base import Numbers, PaperFinding, Rows, Setting, as_numbers, estimate_in
from geosprint.paper.claims import Evidence, PaperExperiment, above, at
from geosprint.paper.figures import TIME_LABEL, Panel
from geosprint.paper.measuring import Array, ratio_of_means
from geosprint.profile import CurvatureProfile
from geosprint.schedule import build_schedule

Mask = NDArray[np.bool_]

BUDGETS = (10, 20, 50)  # Figure 3 (b)
LATE, EARLY = 0.2, 0.8  # of t / T; Section 5.4: late below, early above, the middle between
COUNTS = {"literal": "as the paper counts", "free": "without the forced window"}
"""With the forced first window, and with the value of its neighbour instead."""


def measure(setting: Setting) -> tuple[Rows, Numbers]:
    """Profile the model, build schedules, and look at the three zones with and without the forced window."""
    profile = setting.extract(setting.load())
    rows, numbers = [], {"first": profile.noise.first, "trajectories": len(profile.kept)}
    for count, kept in {"literal": profile.kept[:, :-1], "free": profile.free_kept}.items():
        rows += _rows_of(profile, count, kept.mean(axis=0))
        numbers |= _numbers_of(profile, count, kept)
    return rows, numbers


def _rows_of(profile: CurvatureProfile, count: str, retention: Array) -> Rows:
    """w(t), the steps of every budget, and the share of what is retained or chosen from the noise down to t."""
    so_far = np.cumsum(retention) / max(retention.sum(), 1e-300)
    points = zip(profile.timesteps[:-1].tolist(), retention.tolist(), so_far.tolist(), strict=True)
    columns = ("what", "count", "steps", "t", "retention", "share")
    cells: list[tuple[Any, ...]] = [("retention", count, None, *point) for point in points]
    for steps in BUDGETS:
        times = build_schedule(profile, steps, literal=count == "literal").timesteps
        cells += [("step", count, steps, float(t), None, (i + 1) / steps) for i, t in enumerate(times)]
    return [dict(zip(columns, cell, strict=True)) for cell in cells]


def _numbers_of(profile: CurvatureProfile, count: str, kept: Mask) -> Numbers:
    """Means of the zones, their ratios over resampled trajectories, and what lies in the last fifth."""
    zones = zones_of(profile.timesteps[:-1] / profile.noise.first)
    numbers: Numbers = {f"{name}_{count}": float(kept[:, zone].mean()) for name, zone in zones.items()}
    middle, one_point = kept[:, zones["middle"]].mean(axis=1), 1 / kept[:, zones["middle"]].size
    for name in ("late", "early"):
        ratio = ratio_of_means(kept[:, zones[name]].mean(axis=1), middle, one_point)
        numbers |= as_numbers(f"{name}_over_middle_{count}", ratio)
    share = ratio_of_means(kept[:, zones["late"]].sum(axis=1), kept.sum(axis=1), one_point)
    return numbers | as_numbers(f"late_share_of_retained_{count}", share)


def zones_of(shares: Array) -> dict[str, Mask]:
    """Which of these t / T are early, in the middle and late."""
    late, early = shares < LATE, shares > EARLY
    return {"early": early, "middle": ~(late | early), "late": late}


def _lower_end(finding: PaperFinding) -> Evidence:
    """The end, early or late, that stands out less."""
    found = {}
    for count, name in COUNTS.items():
        ends = [estimate_in(finding.numbers, f"{end}_over_middle_{count}") for end in ("early", "late")]
        found[name] = min(ends, key=lambda end: end.value)
    return found


def _named(finding: PaperFinding) -> Rows:
    """The rows, their counts in words."""
    return [{**row, "count": COUNTS[row["count"]]} for row in finding.rows]


WHERE = PaperExperiment(
    "where",
    "Figure 3, Section 5.4: late steps are retained twice as often",
    measure,
    figure=(
        Panel(
            "K = {steps}", "t", "schedule", "timestep t", by="count", kind="dots", rows=_named, where={"what": "step"}
        ),
        Panel("t", "retention", TIME_LABEL, "retention w(t)", by="count", rows=_named, where={"what": "retention"}),
        Panel("t", "share", TIME_LABEL, "share so far", COUNTS["free"], by=("what", "steps"), where={"count": "free"}),
    ),
    claims={
        "the late zone is retained 2 times as often as the middle (5.4)": above(
            "retention of the late zone over that of the middle", 1, 2, of=at("late_over_middle_literal")
        ),
        "w(t) peaks at both ends (Figure 3a)": above(
            "retention at the lower of both ends over that of the middle", 1, of=_lower_end
        ),
        "50 % of retained steps lie in the final 20 % of denoising (Figure 3c)": above(
            "their share", LATE, 0.5, of=at("late_share_of_retained_literal")
        ),
    },
)
