"""Figure 5: how many trajectories, and how fine ones, until the schedule stays what it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from geosprint.extraction import extract
from geosprint.models.base import Model
from geosprint.paper.base import Experiment, Finding, Setting
from geosprint.paper.figures import in_both_formats
from geosprint.paper.measuring import spread
from geosprint.profile import Agreement, CurvatureProfile, agreement
from geosprint.report.plots import BLUE, GREEN, ORANGE

Array = NDArray[np.float64]

SHARES = (1 / 8, 1 / 4, 1 / 2, 3 / 4)  # of the trajectories; the paper quotes 75 of 100
SUBSETS = 10  # random ones of every size
REFINEMENTS = (4, 2)  # reference steps: N / 4 and N / 2 against N
PAPER_FUZZY, PAPER_CORRELATION = 0.84, 0.86


def run(setting: Setting) -> Finding:
    """Compare subsets of the trajectories with all of them, and coarser recordings with the finest."""
    model = setting.load()
    finest = profile_at(setting.reference_steps, model, setting)
    rows = subset_rows(finest, setting)
    for divisor in REFINEMENTS:
        steps = max(setting.reference_steps // divisor, 4)
        rows.append(_row("N", steps, "finest", 0, agreement_of(profile_at(steps, model, setting), finest, setting)))
    numbers = numbers_from(rows, setting)
    return Finding("convergence", setting, rows, numbers, verdict(numbers))


def profile_at(steps: int, model: Model, setting: Setting) -> CurvatureProfile:
    """The profile of the setting's seeds walked in this many steps."""
    return extract(
        model, setting.trajectories, steps, seed=setting.seed, batch=setting.batch, progress=setting.progress
    )


def subset_rows(profile: CurvatureProfile, setting: Setting) -> list[dict[str, Any]]:
    """Random subsets against all trajectories, as in the paper, and against as many others, which share none."""
    count, rows = len(profile.kept), []
    for size in sizes_for(count):
        for subset in range(SUBSETS):
            shuffled = np.random.default_rng([setting.seed, size, subset]).permutation(count)
            one = retention_of(profile, shuffled[:size])
            rivals = {"all": retention_of(profile, np.arange(count))}
            if 2 * size <= count:
                rivals["others"] = retention_of(profile, shuffled[size : 2 * size])
            for against, other in rivals.items():
                found = agreement(one, other, profile.timesteps[:-1], profile.noise, steps_for(setting))
                rows.append(_row("B", size, against, subset, found))
    return rows


def sizes_for(count: int) -> list[int]:
    """How many trajectories the subsets hold."""
    return sorted({max(1, round(share * count)) for share in SHARES})


def steps_for(setting: Setting) -> int:
    """The schedules compared have the largest of the setting's K."""
    return max(setting.steps)


def retention_of(profile: CurvatureProfile, rows: NDArray[np.intp]) -> Array:
    """w(t) of some trajectories, the forced window taking the value of its nearest free neighbour."""
    retention, window = profile.kept[rows, :-1].mean(axis=0), profile.settings.window
    retention[:window] = retention[window]
    return retention


def agreement_of(one: CurvatureProfile, finest: CurvatureProfile, setting: Setting) -> Agreement:
    """The agreement of two recordings; the coarser retention is read off between its own timesteps."""
    fine, coarse = (profile.noise.clock(profile.timesteps[:-1]) for profile in (finest, one))
    between = np.interp(fine, coarse[::-1], one.free_retention[::-1])
    return agreement(between, finest.free_retention, finest.timesteps[:-1], finest.noise, steps_for(setting))


def _row(axis: str, size: int, against: str, subset: int, found: Agreement) -> dict[str, Any]:
    return {"axis": axis, "size": size, "against": against, "subset": subset, **found.__dict__}


def numbers_from(rows: list[dict[str, Any]], setting: Setting) -> dict[str, Any]:
    """Mean and spread over subsets at the size the paper quotes, at half, and at half the reference steps."""
    numbers: dict[str, Any] = {"trajectories": setting.trajectories, "steps": steps_for(setting)}
    sizes = sizes_for(setting.trajectories)
    half = max((size for size in sizes if 2 * size <= setting.trajectories), default=sizes[0])
    places = {
        "three_quarters": ("B", sizes[-1], "all"),
        "half": ("B", half, "all"),
        "disjoint_halves": ("B", half, "others"),
        "half_the_steps": ("N", max(setting.reference_steps // 2, 4), "finest"),
    }
    for name, place_ in places.items():
        chosen = [row for row in rows if (row["axis"], row["size"], row["against"]) == place_]
        for measure in ("correlation", "jaccard", "fuzzy_jaccard"):
            values = [row[measure] for row in chosen]
            numbers[f"{measure}_{name}"] = float(np.mean(values)) if values else None
            numbers[f"{measure}_{name}_std"] = spread(values)
    return numbers


def verdict(numbers: dict[str, Any]) -> str:
    """Whether three quarters of the trajectories agree with all as the paper says, and with none in common."""
    fuzzy, related = numbers["fuzzy_jaccard_three_quarters"], numbers["correlation_three_quarters"]
    reached = [
        name
        for name, met in (("fuzzy Jaccard", fuzzy >= PAPER_FUZZY), ("correlation", related >= PAPER_CORRELATION))
        if met
    ]
    said = (
        f"Three quarters of {numbers['trajectories']} trajectories agree with all of them to fuzzy Jaccard {fuzzy:.2f} "
        f"and correlation {related:.2f} (paper: {PAPER_FUZZY} and {PAPER_CORRELATION}): "
        f"{' and '.join(reached) if reached else 'neither'} reached."
    )
    fair = numbers["correlation_disjoint_halves"]
    if fair is None:
        return said
    return (
        f"{said} Those subsets are part of what they are compared with; two disjoint halves agree to fuzzy Jaccard "
        f"{numbers['fuzzy_jaccard_disjoint_halves']:.2f} and correlation {fair:.2f}, and half the reference steps to "
        f"{numbers['fuzzy_jaccard_half_the_steps']:.2f} and {numbers['correlation_half_the_steps']:.2f}."
    )


CONVERGENCE = Experiment(
    "convergence", paper="Figure 5: fuzzy Jaccard 0.84 and correlation 0.86 at B = 75 of 100", run=run
)


MEASURES = {
    "jaccard": ("Jaccard", BLUE),
    "fuzzy_jaccard": ("fuzzy Jaccard (±5)", GREEN),
    "correlation": ("w(t)", ORANGE),
}
AGAINST = {"all": ("-", "against all"), "others": ("--", "against as many others")}


def plot(finding: Finding, path: Path) -> list[Path]:
    """Means over random subsets, bands one standard deviation."""
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    schedules, profiles, fineness = figure.subplots(1, 3, sharey=True)
    for measure, (name, colour) in MEASURES.items():
        axes = profiles if measure == "correlation" else schedules
        for against, (dashes, said) in AGAINST.items():
            sizes, means, spreads = _over_sizes(finding.rows, "B", against, measure)
            axes.plot(sizes, means, dashes, marker="o", ms=4, color=colour, label=f"{name}, {said}")
            low, high = np.maximum(means - spreads, -1), np.minimum(means + spreads, 1)
            axes.fill_between(sizes, low, high, color=colour, alpha=0.15, lw=0)
            axes.set_xticks(sizes if against == "all" else axes.get_xticks())
        sizes, means, _ = _over_sizes(finding.rows, "N", "finest", measure)
        label = "correlation of w(t)" if measure == "correlation" else name
        fineness.plot(sizes, means, "o-", ms=4, color=colour, label=label)
        fineness.set_xticks(sizes)
    numbers, setting = finding.numbers, finding.setting
    schedules.set(title=f"Schedules of {numbers['steps']} steps", ylabel="agreement", xlabel="trajectories B")
    profiles.set(title="Correlation of profiles", xlabel="trajectories B")
    fineness.set(title=f"Against N = {setting.reference_steps}", xlabel="reference steps N")
    for axes in (schedules, profiles, fineness):
        axes.set_ylim(min(0.0, axes.get_ylim()[0]), 1.03)
        axes.legend(frameon=False, fontsize="small", ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.17))
    figure.suptitle(
        f"{setting.model}: agreement with {numbers['trajectories']} trajectories of {setting.reference_steps} steps"
    )
    return in_both_formats(figure, path)


def _over_sizes(rows: list[dict[str, Any]], axis: str, against: str, measure: str) -> tuple[Any, Any, Any]:
    chosen = [row for row in rows if (row["axis"], row["against"]) == (axis, against)]
    sizes = sorted({row["size"] for row in chosen})
    found = [[row[measure] for row in chosen if row["size"] == size] for size in sizes]
    return np.array(sizes), np.array([np.mean(some) for some in found]), np.array([np.std(some) for some in found])
