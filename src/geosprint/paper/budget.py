"""Figure 1b: how the projection score falls with K, what the oracle asks for, and what the score predicts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from geosprint.errors import ScheduleError
from geosprint.estimates import bootstrapped
from geosprint.extraction import find_budget
from geosprint.paper.base import Numbers, PaperFinding, Rows, Setting
from geosprint.paper.claims import Claim, Evidence, PaperExperiment, above, below, exactly
from geosprint.paper.figures import AXIS_LABELS, legend_beside, make_logarithmic, panels, repetitions_of
from geosprint.paper.measuring import METRICS, Bench, SampleSet, as_numbers, estimate_in, rank_correlation
from geosprint.profile import CurvatureProfile
from geosprint.report.plots import BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY
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

Array = NDArray[np.float64]
Samples = dict[tuple[str, int], SampleSet]  # by schedule and steps


def measure(setting: Setting) -> tuple[Rows, Numbers]:
    """The score of every K, and the quality of schedules of several K and of several makers."""
    bench = Bench.of(setting)
    profile = bench.recording.profile
    curve = score_curve(profile, setting.reference_steps // 2)
    names, all_steps = bench.applicable(SCHEDULES), steps_between(setting.steps)
    asked = [(name, k) for k in setting.steps for name in names]
    asked += [(OURS, k) for k in all_steps if k not in setting.steps]
    samples = {(name, k): bench.sample(bench.times_of(name, k)) for name, k in asked}
    scores = {key: profile.score_of_steps(found.timesteps) for key, found in samples.items()}
    unknown = {column: None for metric in METRICS for column in (metric, f"{metric}_std")}
    rows = [_row("curve", OURS, k, score) | unknown for k, score in curve.items()]
    rows += [_row("quality", *key, scores[key]) | bench.columns(found) for key, found in samples.items()]
    numbers = {
        **fits(curve),
        "budget": {f"{target:g}": _budget(profile, target) for target in TARGETS},
        "over_steps": _ranks(bench, {(OURS, k): samples[OURS, k] for k in all_steps}, scores),
        "over_schedules": {
            str(k): _ranks(bench, {(name, k): samples[name, k] for name in names}, scores) for k in setting.steps
        },
    }
    return rows, numbers


def _row(part: str, schedule: str, steps: int, score: float) -> dict[str, Any]:
    return {"part": part, "schedule": schedule, "steps": steps, "score": score, "nfe": None, "start": None}


def score_curve(profile: CurvatureProfile, up_to: int) -> dict[int, float]:
    """The score of our schedule at every K; beyond half the reference steps it is the grid's and not the model's."""
    return {k: profile.score_of_steps(build_schedule(profile, k).timesteps) for k in range(2, max(up_to, 3) + 1)}


def fits(curve: dict[int, float]) -> dict[str, float]:
    """R² of straight lines through log score over log K (a power) and over K (an exponential)."""
    seen = {k: score for k, score in curve.items() if score > 0}
    steps, logs = np.array(list(seen), dtype=np.float64), np.log(list(seen.values()))
    power, exponential = _line(np.log(steps), logs), _line(steps, logs)
    return {
        "r2_log_steps": power[1],
        "exponent": power[0],  # score ~ K^exponent
        "r2_steps": exponential[1],
        "rate": exponential[0],  # score ~ exp(rate·K)
        "fitted_up_to": int(steps[-1]),
    }


def _line(x: Array, y: Array) -> tuple[float, float]:
    """Slope and R² of the least-squares line."""
    slope, offset = np.polyfit(x, y, 1)
    left = ((y - slope * x - offset) ** 2).sum()
    return float(slope), float(1 - left / ((y - y.mean()) ** 2).sum())


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


CLAIMS = (
    Claim(
        "the score decreases log-linearly with NFE (Figure 1b)",
        f"variance of the log score that a straight line leaves unexplained (straight: up to {BENT:.0%})",
        below(1, BENT),
        _unexplained,
    ),
    Claim(
        "so it is a principled knob for the step budget: it predicts quality (Figure 1b)",
        f"rank correlation of score and RMSE (of ten unrelated schedules one set in twenty reaches {CLEAR})",
        above(0, CLEAR),
        _rank_correlations,
    ),
)


def note(numbers: Numbers) -> str:
    """What the oracle asks for."""
    asked = ", ".join(f"{cell['steps'] or 'unreachable'} for {goal}" for goal, cell in numbers["budget"].items())
    return f"The oracle's K by target score: {asked}."


COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY, GREY)
MARKERS = "vs^DXP*<>o"


def draw(finding: PaperFinding) -> Figure:
    """Left: the curve, the straight lines and the oracle's choices. Right: does a low score mean a low error?"""
    figure, (curve, quality) = panels(2, 12, 4.6)
    _draw_curve(curve, finding)
    _draw_quality(quality, finding.where(part="quality"))
    setting = finding.setting
    figure.suptitle(
        f"{setting.model}: profile of {setting.trajectories} trajectories of {setting.reference_steps} steps; "
        f"error of {repetitions_of(finding)}"
    )
    return figure


def _draw_curve(axes: Any, finding: PaperFinding) -> None:
    rows = [row for row in finding.where(part="curve") if row["score"] > 0]
    counts, scores = np.array([row["steps"] for row in rows]), np.array([row["score"] for row in rows])
    axes.plot(counts, scores, color=RED, lw=2, label=OURS)
    for name, key, dashes, x in (
        ("power law", "r2_log_steps", "--", np.log(counts)),
        ("exponential", "r2_steps", ":", counts),
    ):
        line = np.exp(np.polyval(np.polyfit(x, np.log(scores), 1), x))
        axes.plot(counts, line, dashes, color=GREY, lw=1.2, label=f"{name}, R² {finding.numbers[key]:.3f}")
    choices: dict[tuple[int, float], list[str]] = {}  # two targets may get the same K
    for target, cell in finding.numbers["budget"].items():
        if cell["steps"] is not None:
            choices.setdefault((cell["steps"], cell["score"]), []).append(target)
    for choice, targets in choices.items():
        axes.plot(*([value] for value in choice), "o", color=BLUE, zorder=3)
        label = f"target {' and '.join(targets)}: K = {choice[0]}"
        axes.annotate(label, choice, xytext=(6, 4), textcoords="offset points", fontsize=8)
    axes.set(xlabel="steps K", ylabel=r"projection score $\alpha_{traj}$", yscale="log", ylim=(scores.min() / 2, None))
    axes.grid(alpha=0.25, lw=0.5)
    axes.legend(frameon=False)


def _draw_quality(axes: Any, rows: Rows) -> None:
    """A marker for each schedule, a colour for each K; one line per K would be one claim per K."""
    names = list(dict.fromkeys(row["schedule"] for row in rows))
    counts = sorted({row["steps"] for row in rows})
    colours = {k: COLOURS[i % len(COLOURS)] for i, k in enumerate(counts)}
    markers = {name: MARKERS[i % len(MARKERS)] for i, name in enumerate(names)}
    for row in rows:
        look = {"fmt": markers[row["schedule"]], "color": colours[row["steps"]], "ms": 6, "lw": 0.8}
        axes.errorbar(row["score"], row["rmse"], yerr=row["rmse_std"], **look)
    for k, colour in colours.items():
        axes.plot([], [], "s", color=colour, label=f"K = {k}")
    for name, marker in markers.items():
        axes.plot([], [], marker, color="black", mfc="none", label=name)
    make_logarithmic(axes)
    axes.set(xlabel=r"projection score $\alpha_{traj}$ of the schedule", ylabel=AXIS_LABELS["rmse"])
    legend_beside(axes, fontsize=8)


BUDGET = PaperExperiment(
    "budget",
    "Figure 1b: the projection score falls log-linearly with NFE and steers the step-budget oracle",
    *(measure, CLAIMS, draw),
    quick={"samples": 16, "fine_steps": 40},
    note=note,
)
