"""Appendix, hyperparameter sensitivity: larger windows and a hierarchy of levels. Do they make better schedules?"""

from __future__ import annotations

import math

import numpy as np

from geosprint.errors import ScheduleError
from geosprint.estimates import Estimate
from geosprint.extraction import profile_trajectories
from geosprint.paper.base import Numbers, PaperFinding, Rows, Setting, as_numbers
from geosprint.paper.claims import PaperExperiment, at, not_below
from geosprint.paper.figures import Panel
from geosprint.paper.measuring import Bench, SampleSet, spread
from geosprint.profile import CurvatureProfile, Settings, jaccard
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
    profiles = {test: profile_trajectories(bench.recording.walks, Settings(*test)) for test in tests}
    samples = {(*t, k): bench.sample(build_schedule(profiles[t], k).timesteps) for t in tests for k in setting.steps}
    rows = [
        {
            "window": window,
            "levels": levels,
            "steps": k,
            **_pruned(profiles[window, levels]),
            **_difference(bench, found, samples[(*PAPER, k)]),
            **bench.columns(found),
        }
        for (window, levels, k), found in samples.items()
    ]
    numbers: Numbers = {
        "pruned_share": {_name(*test): _pruned(profiles[test])["pruned_share"] for test in tests},
        "gap": {
            metric: {_name(*test): bench.gaps(samples, test, PAPER, metric) for test in tests if test != PAPER}
            for metric in bench.metrics
        },
    }
    return rows, numbers


def _pruned(profile: CurvatureProfile) -> dict[str, float]:
    """The share of states that pruning removed, over trajectories, and the score it left."""
    shares, score = 1 - profile.kept.mean(axis=1), float(profile.scores.mean())
    return {"pruned_share": float(shares.mean()), "pruned_share_std": spread(shares) or 0.0, "score": score}


def _difference(bench: Bench, found: SampleSet, paper: SampleSet) -> dict[str, float]:
    """How far the schedule moved from that of k = 2, in timesteps of a thousand, and what it has in common."""
    noise = bench.model.noise
    moved = 999 * np.abs(noise.clock(found.timesteps) - noise.clock(paper.timesteps))
    common = jaccard(found.timesteps, paper.timesteps, NEAR * noise.first / 999)
    return {"most_moved": float(moved.max()), "fuzzy_jaccard": common}


def _name(window: int, levels: int) -> str:
    return f"k = {window}" if levels == 1 else f"levels 1-{levels}"


def _named(finding: PaperFinding) -> Rows:
    """The rows, and in each the name of its test and the gap to k = 2."""
    rows, gaps = [], finding.numbers["gap"]["rmse"]
    for row in finding.rows:
        name = _name(row["window"], row["levels"])
        gap = Estimate(**gaps[name][str(row["steps"])]) if name in gaps else Estimate(0, 0, 0)
        rows.append({**row, "test": name, **as_numbers("gap", gap)})
    return rows


BEHIND = "RMSE less that of k = 2, 95 % intervals"
WINDOW = PaperExperiment(
    "window",
    "Appendix, hyperparameter sensitivity: k = 3 and k = 4 and the hierarchy of Section 3.1 do not help",
    measure,
    figure=(
        Panel("test", "pruned_share", "test", "pruned share of states, ± std", kind="bars", rows=_named),
        Panel("test", "gap", "test", BEHIND, by="steps", kind="dots", rows=_named, level=0),
    ),
    quick={"samples": 24, "fine_steps": 40},
    claims={
        "k > 2 does not help (C.3 and Limitations)": not_below(
            "RMSE on the steps of a larger test minus that of k = 2", of=at("gap", "rmse")
        )
    },
)
