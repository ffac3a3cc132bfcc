"""Figure 5: how many trajectories, and how fine ones, until the schedule stays what it is."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from geosprint.paper.base import Numbers, PaperFinding, Rows, Setting
from geosprint.paper.claims import Evidence, PaperExperiment, above, at, exactly
from geosprint.paper.figures import Panel
from geosprint.paper.measuring import spread
from geosprint.profile import CurvatureProfile, RetentionAgreement, agreement

SHARES = (1 / 8, 1 / 4, 1 / 2, 3 / 4)  # of the trajectories; the paper quotes 75 of 100
SUBSETS = 10  # random ones of every size
REFINEMENTS = (4, 2)  # reference steps: N / 4 and N / 2 against N
MEASURES = ("correlation", "jaccard", "fuzzy_jaccard")


def measure(setting: Setting) -> tuple[Rows, Numbers]:
    """Compare subsets of the trajectories with all of them, and coarser recordings with the finest."""
    model = setting.load()
    finest = setting.extract(model)
    rows = _subset_rows(finest, setting)
    for divisor in REFINEMENTS:
        steps = max(setting.reference_steps // divisor, 4)
        found = agreement_of(setting.extract(model, steps), finest, max(setting.steps))
        rows.append({"axis": "N", "size": steps, "against": "finest", "subset": 0, **asdict(found)})
    return rows, _numbers_from(rows, setting)


def _subset_rows(profile: CurvatureProfile, setting: Setting) -> Rows:
    """Random subsets against all trajectories, as in the paper, and against as many others, which share none."""
    count, rows = len(profile.kept), []
    for size in sizes_for(count):
        for subset in range(SUBSETS):
            shuffled = np.random.default_rng([setting.seed, size, subset]).permutation(count)
            others = {"all": np.arange(count)}
            if 2 * size <= count:
                others["others"] = shuffled[size : 2 * size]
            for against, other in others.items():
                one, two = (profile.free_kept[some].mean(axis=0) for some in (shuffled[:size], other))
                found = agreement(one, two, profile.timesteps[:-1], profile.noise, max(setting.steps))
                rows.append({"axis": "B", "size": size, "against": against, "subset": subset, **asdict(found)})
    return rows


def sizes_for(count: int) -> list[int]:
    """How many trajectories the subsets hold."""
    return sorted({max(1, round(share * count)) for share in SHARES})


def agreement_of(one: CurvatureProfile, finest: CurvatureProfile, steps: int) -> RetentionAgreement:
    """The agreement of two recordings; the coarser retention is read off between its own timesteps."""
    fine, coarse = (profile.noise.clock(profile.timesteps[:-1]) for profile in (finest, one))
    between = np.interp(fine, coarse[::-1], one.free_retention[::-1])
    return agreement(between, finest.free_retention, finest.timesteps[:-1], finest.noise, steps)


def _numbers_from(rows: Rows, setting: Setting) -> Numbers:
    """Mean and spread over subsets, at the size the paper quotes and between halves that share no trajectory."""
    numbers: Numbers = {"trajectories": setting.trajectories, "steps": max(setting.steps)}
    sizes = sizes_for(setting.trajectories)
    half = max((size for size in sizes if 2 * size <= setting.trajectories), default=sizes[0])
    for name, compared in {"three_quarters": (sizes[-1], "all"), "disjoint_halves": (half, "others")}.items():
        for measure in MEASURES:
            values = [row[measure] for row in rows if (row["size"], row["against"]) == compared]
            numbers[f"{measure}_{name}"] = float(np.mean(values)) if values else None
            numbers[f"{measure}_{name}_std"] = spread(values)
    return numbers


def _disjoint_halves(finding: PaperFinding) -> Evidence:
    """Their agreement, as a share of that of three quarters, which are part of what they are compared with."""
    of, keys = finding.numbers, {"fuzzy Jaccard": "fuzzy_jaccard", "correlation": "correlation"}
    fair = {name: of[f"{key}_disjoint_halves"] for name, key in keys.items()}
    return {name: exactly(fair[name] / of[f"{keys[name]}_three_quarters"]) for name in keys if fair[name] is not None}


JACCARDS, STD = ("jaccard", "fuzzy_jaccard"), "mean ± std over subsets"
CONVERGENCE = PaperExperiment(
    "convergence",
    "Figure 5: fuzzy Jaccard 0.84 and correlation 0.86 at B = 75 of 100",
    measure,
    figure=(
        Panel("size", JACCARDS, "trajectories B", "agreement of schedules", STD, by="against", where={"axis": "B"}),
        Panel("size", "correlation", "trajectories B", "correlation of w(t)", STD, by="against", where={"axis": "B"}),
        Panel("size", MEASURES, "reference steps N", "agreement with the finest", where={"axis": "N"}),
    ),
    claims={
        "the schedule agrees with that of all by fuzzy Jaccard 0.84 at B = 75 of 100 (5.6, Figure 5)": above(
            "fuzzy Jaccard at three quarters of the trajectories", 0, 0.84, of=at("fuzzy_jaccard_three_quarters")
        ),
        "its profile correlates 0.86 with that of all at B = 75 of 100 (5.6, Figure 5)": above(
            "correlation at three quarters of the trajectories", 0, 0.86, of=at("correlation_three_quarters")
        ),
        "our question: so do halves that share no trajectory (not in the paper)": above(
            "agreement of disjoint halves over that of three quarters with all", 0, 1, of=_disjoint_halves
        ),
    },
)
