"""Figure 1b: how the projection score falls with K, what the oracle asks for, and what the score foretells."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from geosprint.baselines import BASELINES
from geosprint.errors import ScheduleError
from geosprint.extraction import find_budget
from geosprint.metrics.estimates import bootstrapped
from geosprint.paper.base import Experiment, Finding, Setting
from geosprint.paper.figures import in_both_formats, make_logarithmic
from geosprint.paper.measuring import Judged, Yardstick, as_numbers, rank_correlation
from geosprint.profile import CurvatureProfile
from geosprint.report.plots import BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY
from geosprint.schedule import build_schedule

TARGETS = (1e-2, 1e-3, 1e-4)
SCHEDULES = (
    "uniform-leading",
    "uniform-trailing",
    "uniform-linspace",
    "quadratic",
    "logsnr",
    "karras",
    "beta",
    "kl-optimal",
    "geosprint-literal",
    "geosprint",
)
OURS = "geosprint"
RESAMPLES = 500
CLEAR = 0.65  # ten unrelated schedules reach this rank correlation once in twenty times
STRAIGHT = 0.99  # an R² above which a line is called straight

Array = NDArray[np.float64]


def run(setting: Setting) -> Finding:
    """The score of every K, and the quality of schedules of several K and of several makers."""
    yardstick = Yardstick.of(setting)
    profile, noise = yardstick.recording.profile, yardstick.model.noise
    curve = score_curve(profile, setting.reference_steps // 2)
    names = [name for name in SCHEDULES if name not in BASELINES or BASELINES[name].applies(noise)]
    more = [k for k in steps_between(setting.steps) if k not in setting.steps]
    places = [(name, k) for k in setting.steps for name in names] + [(OURS, k) for k in more]
    judged = {place: yardstick.judge(yardstick.times_of(*place)) for place in places}
    scores = {place: profile.score_of_steps(found.timesteps) for place, found in judged.items()}
    curve_rows = [_row("curve", OURS, k, score) for k, score in curve.items()]
    quality_rows = [
        _row("quality", name, k, scores[name, k]) | yardstick.columns(found) for (name, k), found in judged.items()
    ]
    numbers = {
        **fits(curve),
        "budget": {f"{target:g}": _budget(profile, target) for target in TARGETS},
        "over_steps": _foretold(yardstick, [(OURS, k) for k in sorted({*setting.steps, *more})], judged, scores),
        "over_schedules": {
            str(k): _foretold(yardstick, [(name, k) for name in names], judged, scores) for k in setting.steps
        },
    }
    return Finding("budget", setting, curve_rows + quality_rows, numbers, verdict(numbers))


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


def steps_between(steps: Sequence[int]) -> list[int]:
    """These K and, for ranks that mean something, the geometric mean of each two neighbours."""
    between = [round(float(np.sqrt(low * high))) for low, high in pairwise(sorted(steps))]
    return sorted({*steps, *between})


def _line(x: Array, y: Array) -> tuple[float, float]:
    """Slope and R² of the least-squares line."""
    slope, offset = np.polyfit(x, y, 1)
    left = ((y - slope * x - offset) ** 2).sum()
    return float(slope), float(1 - left / ((y - y.mean()) ** 2).sum())


def _budget(profile: CurvatureProfile, target: float) -> dict[str, Any]:
    """What the oracle asks for; None where no K within the reference steps reaches the target."""
    try:
        found = find_budget(profile, target)
    except ScheduleError:
        return {"steps": None, "score": None, "settled": None}
    return {"steps": len(found.schedule), "score": found.score, "settled": found.settled}


def _foretold(
    yardstick: Yardstick,
    places: Sequence[tuple[str, int]],
    judged: dict[tuple[str, int], Judged],
    scores: dict[tuple[str, int], float],
) -> dict[str, Any]:
    """Rank correlation of score and each metric over these schedules: 1 where the lowest score is the nearest."""
    asked = np.array([scores[place] for place in places])
    errors = np.array([judged[place].errors for place in places])  # (schedules, samples)
    ranks = bootstrapped(lambda rows: rank_correlation(asked, errors[:, rows].mean(axis=1)), errors.shape[1], RESAMPLES)
    found: dict[str, Any] = {"schedules": len(places), **as_numbers("rmse", ranks)}
    for metric in yardstick.metrics[1:]:
        by_repetition = np.array([yardstick.repeated(judged[place], metric) for place in places]).T
        found[metric] = rank_correlation(asked, by_repetition.mean(axis=0))
        found[f"{metric}_repetitions"] = [rank_correlation(asked, one) for one in by_repetition]
    return found


def _row(part: str, schedule: str, steps: int, score: float) -> dict[str, Any]:
    """A row of either part; the curve is not sampled, so its metrics are unknown."""
    unknown = dict.fromkeys(
        ("nfe", "start", "rmse", "rmse_std", "frechet_fine", "frechet_fine_std", "frechet_data", "frechet_data_std")
    )
    return {"part": part, "schedule": schedule, "steps": steps, "score": score, **unknown}


def verdict(numbers: dict[str, Any]) -> str:
    """Which line fits better, what the oracle asks for, and whether the score can be trusted between schedules."""
    power, exponential = numbers["r2_log_steps"], numbers["r2_steps"]
    better = "over log K (a power law)" if power >= exponential else "over K (an exponential)"
    straight = "is" if max(power, exponential) >= STRAIGHT else "is not"
    asked = ", ".join(f"{target}: {cell['steps'] or 'unreachable'}" for target, cell in numbers["budget"].items())
    between = numbers["over_schedules"].values()
    ranks = [found["rmse"] for found in between]
    clear = min(ranks) >= CLEAR and min(found["rmse_low"] for found in between) > 0
    foretells = "foretells" if clear else "does not reliably foretell"
    return (
        f"Log score {straight} a straight line: R² {power:.3f} over log K, {exponential:.3f} over K, "
        f"so better {better}; the oracle's K by target: {asked}. Over K the score's rank correlation with RMSE is "
        f"{numbers['over_steps']['rmse']:.2f}; between schedules of equal K, {min(ranks):.2f} to {max(ranks):.2f}: "
        f"it {foretells} which of them is nearer."
    )


BUDGET = Experiment(
    "budget",
    paper="Figure 1b: the projection score falls log-linearly with NFE and steers the step-budget oracle",
    run=run,
    quick={"samples": 16, "fine_steps": 40},
)


COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY, GREY)
MARKERS = "vs^DXP*<>o"


def plot(finding: Finding, path: Path) -> list[Path]:
    """Left: the curve, the straight lines and the oracle's choices. Right: does a low score mean a low error?"""
    figure = Figure(figsize=(12, 4.6), layout="constrained")
    curve, quality = figure.subplots(1, 2)
    _draw_curve(curve, finding)
    _draw_quality(quality, [row for row in finding.rows if row["part"] == "quality"])
    figure.suptitle(
        f"{finding.setting.model}: profile of {finding.setting.trajectories} trajectories of "
        f"{finding.setting.reference_steps} steps; error of {finding.setting.samples} samples, "
        f"mean ± std over {finding.setting.repetitions} seeds"
    )
    return in_both_formats(figure, path)


def _draw_curve(axes: Any, finding: Finding) -> None:
    rows = [row for row in finding.rows if row["part"] == "curve" and row["score"] > 0]
    counts, scores = np.array([row["steps"] for row in rows]), np.array([row["score"] for row in rows])
    axes.plot(counts, scores, color=RED, lw=2, label="geosprint")
    power = np.polyfit(np.log(counts), np.log(scores), 1)
    exponential = np.polyfit(counts, np.log(scores), 1)
    r2 = (finding.numbers["r2_log_steps"], finding.numbers["r2_steps"])
    axes.plot(
        counts, np.exp(np.polyval(power, np.log(counts))), "--", color=GREY, lw=1.2, label=f"power law, R² {r2[0]:.3f}"
    )
    axes.plot(
        counts, np.exp(np.polyval(exponential, counts)), ":", color=GREY, lw=1.2, label=f"exponential, R² {r2[1]:.3f}"
    )
    for (steps, score), targets in _choices(finding.numbers["budget"]).items():
        axes.plot([steps], [score], "o", color=BLUE, zorder=3)
        label = f"target {' and '.join(targets)}: K = {steps}"
        axes.annotate(label, (steps, score), xytext=(6, 4), textcoords="offset points", fontsize=8)
    axes.set(xlabel="steps K", ylabel=r"projection score $\alpha_{traj}$", yscale="log", ylim=(scores.min() / 2, None))
    axes.grid(alpha=0.25, lw=0.5)
    axes.legend(frameon=False)


def _choices(budget: dict[str, dict[str, Any]]) -> dict[tuple[int, float], list[str]]:
    """The targets that each K of the oracle answers: two targets may get the same."""
    found: dict[tuple[int, float], list[str]] = {}
    for target, cell in budget.items():
        if cell["steps"] is not None:
            found.setdefault((cell["steps"], cell["score"]), []).append(target)
    return found


def _draw_quality(axes: Any, rows: list[dict[str, Any]]) -> None:
    """A marker for each schedule, a colour for each K; one line per K would be one claim per K."""
    names = list(dict.fromkeys(row["schedule"] for row in rows))
    counts = sorted({row["steps"] for row in rows})
    for row in rows:
        colour = COLOURS[counts.index(row["steps"]) % len(COLOURS)]
        marker = MARKERS[names.index(row["schedule"]) % len(MARKERS)]
        axes.errorbar(row["score"], row["rmse"], yerr=row["rmse_std"], fmt=marker, color=colour, ms=6, lw=0.8)
    for i, steps in enumerate(counts):
        axes.plot([], [], "s", color=COLOURS[i % len(COLOURS)], label=f"K = {steps}")
    for i, name in enumerate(names):
        axes.plot([], [], MARKERS[i % len(MARKERS)], color="black", mfc="none", label=name)
    make_logarithmic(axes)
    axes.set(xlabel=r"projection score $\alpha_{traj}$ of the schedule", ylabel="RMSE to the fine solve")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
