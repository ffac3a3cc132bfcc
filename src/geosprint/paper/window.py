"""Appendix, hyperparameter sensitivity: larger windows and a hierarchy of levels. Do they make better schedules?"""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure

from geosprint.errors import ScheduleError
from geosprint.extraction import profile_trajectories
from geosprint.paper.base import Numbers, PaperFinding, Rows, Setting
from geosprint.paper.claims import Claim, PaperExperiment, estimates, not_below
from geosprint.paper.figures import STEP_LOOKS, draw_intervals, panels
from geosprint.paper.measuring import Bench, SampleSet, spread
from geosprint.profile import CurvatureProfile, Settings, jaccard
from geosprint.report.plots import GREY
from geosprint.schedule import build_schedule

TESTS = ((2, 1), (3, 1), (4, 1), (2, 2), (2, 3))  # window k, levels; level l after the first looks at k + l - 1
PAPER = (2, 1)
NEAR = 5  # timesteps of a thousand, as in Figure 5


def measure(setting: Setting) -> tuple[Rows, Numbers]:
    """Profile the same trajectories with every test, and sample at the steps that each one asks for."""
    dimensions = math.prod(setting.load().shape)
    # In d dimensions d + 1 points span everything, and nothing is left to test.
    tests = [(window, levels) for window, levels in TESTS if window + levels - 1 <= dimensions]
    if tests == [PAPER]:
        raise ScheduleError(f"windows beyond 2 need 3 dimensions or more, {setting.model} has {dimensions}")
    bench = Bench.of(setting)
    walks = bench.recording.walks
    profiles = {test: profile_trajectories(walks, Settings(window=test[0], levels=test[1])) for test in tests}
    samples = {
        (test, k): bench.sample(build_schedule(profiles[test], k).timesteps) for test in tests for k in setting.steps
    }
    rows = [
        {
            "window": test[0],
            "levels": test[1],
            "steps": k,
            **_pruned(profiles[test]),
            **_difference(bench, found, samples[PAPER, k]),
            **bench.columns(found),
        }
        for (test, k), found in samples.items()
    ]
    numbers: Numbers = {
        "pruned_share": {_name(test): _pruned(profiles[test])["pruned_share"] for test in tests},
        "gap": {
            metric: {
                _name(test): {str(k): bench.gap(samples[test, k], samples[PAPER, k], metric) for k in setting.steps}
                for test in tests
                if test != PAPER
            }
            for metric in bench.metrics
        },
    }
    return rows, numbers


def _pruned(profile: CurvatureProfile) -> dict[str, float]:
    """The share of states that pruning removed, over trajectories, and the score it left."""
    shares = 1 - profile.kept.mean(axis=1)
    return {
        "pruned_share": float(shares.mean()),
        "pruned_share_std": spread(shares) or 0.0,
        "score": float(profile.scores.mean()),
    }


def _difference(bench: Bench, found: SampleSet, paper: SampleSet) -> dict[str, float]:
    """How far the schedule moved from that of k = 2, in timesteps of a thousand, and what it has in common."""
    noise = bench.model.noise
    moved = 999 * np.abs(noise.clock(found.timesteps) - noise.clock(paper.timesteps))
    common = jaccard(found.timesteps, paper.timesteps, NEAR * noise.first / 999)
    return {"most_moved": float(moved.max()), "fuzzy_jaccard": common}


def _name(test: tuple[int, int]) -> str:
    window, levels = test
    return f"k = {window}" if levels == 1 else f"levels 1-{levels}"


CLAIMS = (
    Claim(
        "k > 2 does not help (C.3 and Limitations)",
        "RMSE on the steps of a larger test minus that of k = 2",
        not_below(),
        lambda found: estimates(found.numbers["gap"]["rmse"]),
    ),
)


def draw(finding: PaperFinding) -> Figure:
    """Left: pruned share. Right: error less that of k = 2, with 95 % intervals over the samples."""
    figure, (pruned, error) = panels(2, 11, 4.2)
    shares, gaps = finding.numbers["pruned_share"], finding.numbers["gap"]["rmse"]
    spreads = [row["pruned_share_std"] for row in finding.where(steps=finding.rows[0]["steps"])]
    pruned.bar(list(shares), list(shares.values()), yerr=spreads, color=GREY, capsize=4, width=0.6)
    pruned.set(ylabel="pruned share of states (± std over trajectories)", ylim=(0, 1), xlabel="test")
    for i, k in enumerate(sorted(finding.distinct("steps"))):
        colour, marker = STEP_LOOKS[i % len(STEP_LOOKS)]
        aside = [number + 0.12 * (i - 1) for number in range(len(gaps))]
        look = {"fmt": marker, "color": colour, "capsize": 3, "label": f"K = {k}"}
        draw_intervals(error, aside, [by_k[str(k)] for by_k in gaps.values()], **look)
    error.axhline(0, color="black", lw=0.8)
    error.set_xticks(range(len(gaps)), list(gaps))
    error.set(
        xlabel="test", ylabel="RMSE to the reference solve, less that of k = 2\n(below 0: better), 95 % intervals"
    )
    error.legend(frameon=False)
    setting = finding.setting
    figure.suptitle(
        f"{setting.model}: {setting.trajectories} trajectories of {setting.reference_steps} steps, "
        f"{setting.samples * setting.repetitions} held-out samples"
    )
    return figure


WINDOW = PaperExperiment(
    "window",
    "Appendix, hyperparameter sensitivity: k = 3 and k = 4 and the hierarchy of Section 3.1 do not help",
    *(measure, CLAIMS, draw),
    quick={"samples": 24, "fine_steps": 40},
)
