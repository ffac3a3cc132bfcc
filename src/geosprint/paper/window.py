"""Appendix, hyperparameter sensitivity: larger windows and a hierarchy of levels. Do they make better schedules?"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from geosprint.errors import ScheduleError
from geosprint.extraction import profile_trajectories
from geosprint.paper.base import Experiment, Finding, Setting
from geosprint.paper.figures import in_both_formats
from geosprint.paper.measuring import Judged, Yardstick, and_list
from geosprint.profile import CurvatureProfile, Settings, jaccard
from geosprint.report.plots import BLUE, GREEN, GREY, ORANGE, PINK, SKY
from geosprint.schedule import build_schedule

TESTS = ((2, 1), (3, 1), (4, 1), (2, 2), (2, 3))  # window k, levels; level l after the first looks at k + l - 1
PAPER = (2, 1)
NEAR = 5  # timesteps of a thousand, as in Figure 5

Test = tuple[int, int]


def run(setting: Setting) -> Finding:
    """Profile the same trajectories with every test, and sample at the steps that each one asks for."""
    dimensions = math.prod(setting.load().shape)
    # In d dimensions d + 1 points span everything, and nothing is left to test.
    tests = [(window, levels) for window, levels in TESTS if window + levels - 1 <= dimensions]
    if tests == [PAPER]:
        raise ScheduleError(f"windows beyond 2 need 3 dimensions or more, {setting.model} has {dimensions}")
    yardstick = Yardstick.of(setting)
    walks = yardstick.recording.walks
    profiles = {test: profile_trajectories(walks, Settings(window=test[0], levels=test[1])) for test in tests}
    judged = {
        (test, k): yardstick.judge(build_schedule(profiles[test], k).timesteps) for test in tests for k in setting.steps
    }
    rows = [
        {
            "window": test[0],
            "levels": test[1],
            "steps": k,
            **_pruned(profiles[test]),
            **_difference(yardstick, found, judged[PAPER, k]),
            **yardstick.columns(found),
        }
        for (test, k), found in judged.items()
    ]
    numbers = {
        "pruned_share": {_name(test): _pruned(profiles[test])["pruned_share"] for test in tests},
        "gap": {
            metric: {
                _name(test): {str(k): yardstick.gap(judged[test, k], judged[PAPER, k], metric) for k in setting.steps}
                for test in tests
                if test != PAPER
            }
            for metric in yardstick.metrics
        },
    }
    return Finding("window", setting, rows, numbers, verdict(numbers))


def _pruned(profile: CurvatureProfile) -> dict[str, float]:
    """The share of states that pruning removed, over trajectories, and the score it left."""
    shares = 1 - profile.kept.mean(axis=1)
    return {
        "pruned_share": float(shares.mean()),
        "pruned_share_std": float(shares.std(ddof=1)) if len(shares) > 1 else 0.0,
        "score": float(profile.scores.mean()),
    }


def _difference(yardstick: Yardstick, found: Judged, paper: Judged) -> dict[str, float]:
    """How far the schedule moved from that of k = 2, in timesteps of a thousand, and what it has in common."""
    clock = yardstick.model.noise.clock
    moved = 999 * np.abs(clock(found.timesteps) - clock(paper.timesteps))
    near = NEAR * yardstick.model.noise.first / 999
    return {
        "most_moved": float(moved.max()),
        "fuzzy_jaccard": jaccard(found.timesteps, paper.timesteps, near),
    }


def _name(test: Test) -> str:
    window, levels = test
    return f"k = {window}" if levels == 1 else f"levels 1-{levels}"


def verdict(numbers: dict[str, Any]) -> str:
    """Whether any larger test makes schedules that are nearer, and whether it prunes more."""
    gaps = numbers["gap"]["rmse"]
    cells = [(test, k, gap) for test, by_k in gaps.items() for k, gap in by_k.items()]
    better = [f"{test} at K = {k}" for test, k, gap in cells if gap["high"] < 0]
    worse = [f"{test} at K = {k}" for test, k, gap in cells if gap["low"] > 0]
    shares = ", ".join(f"{test} {share:.0%}" for test, share in numbers["pruned_share"].items())
    return (
        f"Pruned at the same target score: {shares}. By RMSE a test beyond k = 2 is "
        f"{'better for ' + and_list(better) if better else 'never better'} and "
        f"{'worse for ' + and_list(worse) if worse else 'never worse'} (95 % intervals without zero), "
        f"{len(cells) - len(better) - len(worse)} of {len(cells)} within chance."
    )


WINDOW = Experiment(
    "window",
    paper="Appendix, hyperparameter sensitivity: k = 3 and k = 4 and the hierarchy of Section 3.1 do not help",
    run=run,
    quick={"samples": 24, "fine_steps": 40},
)


LOOKS = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "D"), (PINK, "^"), (SKY, "v"))


def plot(finding: Finding, path: Path) -> list[Path]:
    """Left: pruned share. Right: error less that of k = 2, with 95 % intervals over the samples."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    pruned, error = figure.subplots(1, 2)
    shares = finding.numbers["pruned_share"]
    first = finding.rows[0]["steps"]
    spreads = [row["pruned_share_std"] for row in finding.rows if row["steps"] == first]
    pruned.bar(list(shares), list(shares.values()), yerr=spreads, color=GREY, capsize=4, width=0.6)
    pruned.set(ylabel="pruned share of states (± std over trajectories)", ylim=(0, 1), xlabel="test")
    gaps = finding.numbers["gap"]["rmse"]
    for i, k in enumerate(sorted({row["steps"] for row in finding.rows})):
        colour, marker = LOOKS[i % len(LOOKS)]
        cells = [gaps[test][str(k)] for test in gaps]
        places = [place + 0.12 * (i - 1) for place in range(len(gaps))]
        lengths = [
            [cell["value"] - cell["low"] for cell in cells],
            [cell["high"] - cell["value"] for cell in cells],
        ]
        values = [cell["value"] for cell in cells]
        error.errorbar(places, values, yerr=lengths, fmt=marker, color=colour, capsize=3, label=f"K = {k}")
    error.axhline(0, color="black", lw=0.8)
    error.set_xticks(range(len(gaps)), list(gaps))
    error.set(xlabel="test", ylabel="RMSE to the fine solve, less that of k = 2\n(below 0: better), 95 % intervals")
    error.legend(frameon=False)
    setting = finding.setting
    figure.suptitle(
        f"{setting.model}: {setting.trajectories} trajectories of {setting.reference_steps} steps, "
        f"{setting.samples * setting.repetitions} fresh samples"
    )
    return in_both_formats(figure, path)
