"""Figure 1b: how the projection score falls with K, what the oracle asks for, and what the score predicts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from geosprint.errors import ScheduleError
from geosprint.estimates import bootstrapped
from geosprint.extraction import find_budget
from geosprint.paper.base import Numbers, PaperFinding, Rows, Setting, as_numbers, estimate_in
from geosprint.paper.claims import Evidence, PaperExperiment, above, below, exactly
from geosprint.paper.figures import METRIC_LABELS, SCORE_LABEL, Panel
from geosprint.paper.measuring import Bench, SampleSet, correlation, rank_correlation
from geosprint.profile import CurvatureProfile
from geosprint.schedule import build_schedule

TARGETS = (1e-2, 1e-3, 1e-4)
OURS = "geosprint"
SCHEDULES = (
    *("uniform-leading", "uniform-trailing", "uniform-linspace", "quadratic", "logsnr", "karras", "beta"),
    *("kl-optimal", "geosprint-literal", OURS),
)
RESAMPLES = 500
CLEAR = 0.65  # ten unrelated schedules reach this rank correlation once in twenty times
BENT = 0.02  # of the variance: what a line that is called straight may leave unexplained

Samples = dict[tuple[str, int], SampleSet]  # by schedule and steps


def measure(setting: Setting) -> tuple[Rows, Numbers]:
    """The score of every K, and the quality of schedules of several K and of several makers."""
    bench = Bench.of(setting)
    profile = bench.recording.profile
    half = max(setting.reference_steps // 2, 3)  # beyond, the score is the grid's and not the model's
    curve = {k: profile.score_of_steps(build_schedule(profile, k).timesteps) for k in range(2, half + 1)}
    names, all_steps = bench.applicable(SCHEDULES), steps_between(setting.steps)
    asked = [(name, k) for k in setting.steps for name in names]
    asked += [(OURS, k) for k in all_steps if k not in setting.steps]
    samples = {(name, k): bench.sample(bench.times_of(name, k)) for name, k in asked}
    scores = {key: profile.score_of_steps(found.timesteps) for key, found in samples.items()}
    known = ("part", "schedule", "steps", "score")
    rows = bench.rows(known, {("quality", *key, scores[key]): found for key, found in samples.items()})
    unsampled = dict.fromkeys(rows[0])
    drawn = [unsampled | dict(zip(known, ("curve", OURS, *point), strict=True)) for point in curve.items()]
    numbers = {
        **fits(curve),
        "budget": {f"{target:g}": _budget(profile, target) for target in TARGETS},
        "over_steps": _ranks(bench, {(OURS, k): samples[OURS, k] for k in all_steps}, scores),
        "over_schedules": {
            str(k): _ranks(bench, {(name, k): samples[name, k] for name in names}, scores) for k in setting.steps
        },
    }
    return drawn + rows, numbers


def fits(curve: dict[int, float]) -> dict[str, float]:
    """R² of straight lines through log score over log K (a power) and over K (an exponential)."""
    seen = {k: score for k, score in curve.items() if score > 0}
    steps, logs = np.array(list(seen), dtype=np.float64), np.log(list(seen.values()))
    found: dict[str, float] = {}
    for name, slope, x in (("log_steps", "exponent", np.log(steps)), ("steps", "rate", steps)):
        # score ~ K^exponent, or exp(rate·K)
        found |= {f"r2_{name}": correlation(x, logs) ** 2, slope: float(np.polyfit(x, logs, 1)[0])}
    return {**found, "fitted_up_to": int(steps[-1])}


def steps_between(steps: Sequence[int]) -> list[int]:
    """These K and, for ranks that mean something, the geometric mean of each two neighbours."""
    between = [round(float(np.sqrt(low * high))) for low, high in pairwise(sorted(steps))]
    return sorted({*steps, *between})


def _budget(profile: CurvatureProfile, target: float) -> Numbers:
    """What the oracle asks for; None where no K within the reference steps reaches the target."""
    try:
        found = find_budget(profile, target)
    except ScheduleError:
        return {"steps": None, "score": None, "settled": None}
    return {"steps": len(found.schedule), "score": found.score, "settled": found.settled}


def _ranks(bench: Bench, samples: Samples, scores: dict[tuple[str, int], float]) -> Numbers:
    """Rank correlation of score and each metric over these schedules: 1 where the lowest score has the lowest error."""
    asked = np.array([scores[key] for key in samples])
    errors = np.array([found.errors for found in samples.values()])  # (schedules, samples)
    ranks = bootstrapped(lambda rows: rank_correlation(asked, errors[:, rows].mean(axis=1)), errors.shape[1], RESAMPLES)
    found: Numbers = {"schedules": len(samples), **as_numbers("rmse", ranks)}
    for metric in bench.metrics[1:]:
        by_repetition = np.array([bench.repeated(one, metric) for one in samples.values()]).T
        found[metric] = rank_correlation(asked, by_repetition.mean(axis=0))
        found[f"{metric}_repetitions"] = [rank_correlation(asked, one) for one in by_repetition]
    return found


def _unexplained(finding: PaperFinding) -> Evidence:
    """What either reading of "log-linearly" leaves unexplained of the log score."""
    readings = {"over K": "r2_steps", "over log K": "r2_log_steps"}
    return {name: exactly(1 - finding.numbers[key]) for name, key in readings.items()}


def _rank_correlations(finding: PaperFinding) -> Evidence:
    between = {f"schedules of {k} steps": cell for k, cell in finding.numbers["over_schedules"].items()}
    cells = {"over K": finding.numbers["over_steps"], **between}
    return {name: estimate_in(cell, "rmse") for name, cell in cells.items()}


def note(numbers: Numbers) -> str:
    """What the oracle asks for."""
    asked = ", ".join(f"{cell['steps'] or 'unreachable'} for {goal}" for goal, cell in numbers["budget"].items())
    return f"The oracle's K by target score: {asked}."


RMSE = METRIC_LABELS["rmse"]
BUDGET = PaperExperiment(
    "budget",
    "Figure 1b: the projection score falls log-linearly with NFE and steers the step-budget oracle",
    measure,
    figure=(
        Panel("steps", "score", "steps K", SCORE_LABEL, "straight if exponential", log="y", where={"part": "curve"}),
        Panel("steps", "score", "steps K", SCORE_LABEL, "straight if a power law", log="xy", where={"part": "curve"}),
        Panel("score", "rmse", SCORE_LABEL, RMSE, by="steps", kind="dots", log="xy", where={"part": "quality"}),
    ),
    quick={"samples": 16, "fine_steps": 40},
    note=note,
    claims={
        "the score decreases log-linearly with NFE (Figure 1b)": below(
            f"variance of the log score that a straight line leaves unexplained (straight: up to {BENT:.0%})",
            1,
            BENT,
            of=_unexplained,
        ),
        "so it is a principled knob for the step budget: it predicts quality (Figure 1b)": above(
            f"rank correlation of score and RMSE (of ten unrelated schedules one set in twenty reaches {CLEAR})",
            0,
            CLEAR,
            of=_rank_correlations,
        ),
    },
)
