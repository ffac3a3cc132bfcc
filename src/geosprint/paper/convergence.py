"""Figure 5: how many trajectories, and how fine ones, until the schedule stays what it is."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from geosprint.paper.base import Numbers, PaperFinding, Rows, Setting
from geosprint.paper.claims import Claim, Evidence, PaperExperiment, above, exactly
from geosprint.paper.figures import panels
from geosprint.paper.measuring import extracted, spread
from geosprint.profile import CurvatureProfile, RetentionAgreement, agreement
from geosprint.report.plots import BLUE, GREEN, ORANGE

Array = NDArray[np.float64]

SHARES = (1 / 8, 1 / 4, 1 / 2, 3 / 4)  # of the trajectories; the paper quotes 75 of 100
SUBSETS = 10  # random ones of every size
REFINEMENTS = (4, 2)  # reference steps: N / 4 and N / 2 against N


def measure(setting: Setting) -> tuple[Rows, Numbers]:
    """Compare subsets of the trajectories with all of them, and coarser recordings with the finest."""
    model = setting.load()
    finest = extracted(model, setting)
    rows = _subset_rows(finest, setting)
    for divisor in REFINEMENTS:
        steps = max(setting.reference_steps // divisor, 4)
        found = agreement_of(extracted(model, setting, steps), finest, max(setting.steps))
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
                one, two = retention_of(profile, shuffled[:size]), retention_of(profile, other)
                found = agreement(one, two, profile.timesteps[:-1], profile.noise, max(setting.steps))
                rows.append({"axis": "B", "size": size, "against": against, "subset": subset, **asdict(found)})
    return rows


def sizes_for(count: int) -> list[int]:
    """How many trajectories the subsets hold."""
    return sorted({max(1, round(share * count)) for share in SHARES})


def retention_of(profile: CurvatureProfile, rows: NDArray[np.intp]) -> Array:
    """w(t) of some trajectories, the forced window taking the value of its nearest free neighbour."""
    retention, window = profile.kept[rows, :-1].mean(axis=0), profile.settings.window
    retention[:window] = retention[window]
    return retention


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
        for measure in ("correlation", "jaccard", "fuzzy_jaccard"):
            values = [row[measure] for row in rows if (row["size"], row["against"]) == compared]
            numbers[f"{measure}_{name}"] = float(np.mean(values)) if values else None
            numbers[f"{measure}_{name}_std"] = spread(values)
    return numbers


def _disjoint_halves(finding: PaperFinding) -> Evidence:
    """Their agreement, as a share of that of three quarters, which are part of what they are compared with."""
    names = {"fuzzy Jaccard": "fuzzy_jaccard", "correlation": "correlation"}
    found = {name: [finding.numbers[f"{key}_{of}"] for of in _COMPARED] for name, key in names.items()}
    return {name: exactly(fair / easy) for name, (fair, easy) in found.items() if fair is not None}


_COMPARED = ("disjoint_halves", "three_quarters")
CLAIMS = (
    Claim(
        "the schedule agrees with that of all by fuzzy Jaccard 0.84 at B = 75 of 100 (5.6, Figure 5)",
        "fuzzy Jaccard at three quarters of the trajectories",
        above(0, 0.84),
        lambda found: {"": exactly(found.numbers["fuzzy_jaccard_three_quarters"])},
    ),
    Claim(
        "its profile correlates 0.86 with that of all at B = 75 of 100 (5.6, Figure 5)",
        "correlation at three quarters of the trajectories",
        above(0, 0.86),
        lambda found: {"": exactly(found.numbers["correlation_three_quarters"])},
    ),
    Claim(
        "our question: so do halves that share no trajectory (not in the paper)",
        "agreement of disjoint halves over that of three quarters with all",
        above(0, 1),
        _disjoint_halves,
    ),
)


MEASURES = {
    "jaccard": ("Jaccard", BLUE),
    "fuzzy_jaccard": ("fuzzy Jaccard (±5)", GREEN),
    "correlation": ("w(t)", ORANGE),
}
AGAINST = {"all": ("-", "against all"), "others": ("--", "against as many others")}


def draw(finding: PaperFinding) -> Figure:
    """Means over random subsets, bands one standard deviation."""
    figure, axes = panels(3, 13, 4.2, sharey=True)
    schedules, profiles, fineness = axes
    for measure, (name, colour) in MEASURES.items():
        panel = profiles if measure == "correlation" else schedules
        for against, (dashes, said) in AGAINST.items():
            sizes, means, spreads = _over_sizes(finding.where(axis="B", against=against), measure)
            panel.plot(sizes, means, dashes, marker="o", ms=4, color=colour, label=f"{name}, {said}")
            low, high = np.maximum(means - spreads, -1), np.minimum(means + spreads, 1)
            panel.fill_between(sizes, low, high, color=colour, alpha=0.15, lw=0)
            panel.set_xticks(sizes if against == "all" else panel.get_xticks())
        sizes, means, _ = _over_sizes(finding.where(axis="N"), measure)
        fineness.plot(sizes, means, "o-", ms=4, color=colour, label=name)
        fineness.set_xticks(sizes)
    numbers, setting = finding.numbers, finding.setting
    schedules.set(title=f"Schedules of {numbers['steps']} steps", ylabel="agreement", xlabel="trajectories B")
    profiles.set(title="Correlation of profiles", xlabel="trajectories B")
    fineness.set(title=f"Against N = {setting.reference_steps}", xlabel="reference steps N")
    for panel in axes:
        panel.set_ylim(min(0.0, panel.get_ylim()[0]), 1.03)
        panel.legend(frameon=False, fontsize="small", ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.17))
    figure.suptitle(
        f"{setting.model}: agreement with {numbers['trajectories']} trajectories of {setting.reference_steps} steps"
    )
    return figure


def _over_sizes(rows: Rows, measure: str) -> tuple[Array, Array, Array]:
    """The sizes, and mean and standard deviation of a measure at each."""
    sizes = sorted({row["size"] for row in rows})
    found = [[row[measure] for row in rows if row["size"] == size] for size in sizes]
    return np.array(sizes), np.array([np.mean(some) for some in found]), np.array([np.std(some) for some in found])


CONVERGENCE = PaperExperiment(
    "convergence", "Figure 5: fuzzy Jaccard 0.84 and correlation 0.86 at B = 75 of 100", measure, CLAIMS, draw
)
