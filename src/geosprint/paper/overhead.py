"""Appendix, computational overhead: what a schedule costs before the first sample, stage by stage."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from matplotlib.figure import Figure

from geosprint.geometry import mean_chord_scores
from geosprint.models.exact import Gaussian
from geosprint.paper.base import Experiment, Finding, Setting
from geosprint.paper.figures import in_both_formats
from geosprint.paper.measuring import recording_of
from geosprint.profile import Settings
from geosprint.report.plots import BLUE, GREEN, GREY, ORANGE, PINK
from geosprint.sampling import Counted, record
from geosprint.schedule import build_schedule
from geosprint.threshold import SEARCHES
from geosprint.trajectory import Trajectories

STAGES = ("record", "gram", "threshold search", "score table", "schedule")
ANALYSIS = ("gram", "threshold search", "score table")
CLAIMED_ANALYSIS = 40.0  # seconds, for CIFAR-10's 100 trajectories on a Xeon Gold 6248R
CLAIMED_SAVING = 0.25  # of the calls of a sample
SCHEDULED = 20  # K of the schedule that is built

Result = TypeVar("Result")


@dataclass(frozen=True)
class Size:
    """How much is recorded, and of what."""

    trajectories: int
    steps: int
    dimensions: int
    recorded_in: float | None = None  # seconds that the paper says its graphics card took


PAPER = {
    "CIFAR-10": Size(100, 200, 3 * 32 * 32, 16 * 60),
    "LSUN Church": Size(50, 200, 3 * 256 * 256, 90 * 60),
    "SD v1.5": Size(50, 200, 4 * 64 * 64, 5 * 3600),
}
MEASURED_SHAPE = (3, 32, 32)  # of the exact Gaussian that stands for CIFAR-10 in the analysis, which asks no network


def run(setting: Setting) -> Finding:
    """Time every stage here, and the analysis at the paper's size; carry both to the paper's three models."""
    here, nfe = _stages_here(setting)
    size = Size(setting.trajectories, setting.reference_steps, math.prod(setting.load().shape))
    per_call = here["record"] / nfe
    few = min(PAPER["CIFAR-10"].trajectories, max(4, setting.trajectories // 2))
    analysis = _analysis_at_paper_size(few)
    rows = _rows(f"{setting.model}, here", size, here, dict.fromkeys(STAGES, "measured"), nfe)
    for name, paper in PAPER.items():
        spent = extrapolated(analysis, paper, per_call, here["schedule"])
        calls = paper.trajectories * paper.steps
        rows += _rows(name, paper, spent, dict.fromkeys(STAGES, "extrapolated"), calls)
    numbers = {
        "seconds_per_call": per_call,
        "measured_trajectories_at_paper_size": few,
        "claimed_analysis_seconds": CLAIMED_ANALYSIS,
        "places": {
            place: _summary([row for row in rows if row["place"] == place], PAPER.get(place, size))
            for place in dict.fromkeys(row["place"] for row in rows)
        },
        "break_even_samples": {str(k): break_even(nfe, k) for k in setting.steps},
    }
    return Finding("overhead", setting, rows, numbers, verdict(numbers))


def extrapolated(analysis: dict[str, float], size: Size, per_call: float, schedule: float) -> dict[str, float]:
    """Seconds by stage at another size, from seconds per trajectory of 200 steps in 3,072 dimensions.

    Trajectories are independent, so all scales with their number; inner products also with the dimensions,
    while the searches see nothing but those products.
    """
    wider = size.dimensions / math.prod(MEASURED_SHAPE)
    return {
        "record": size.trajectories * size.steps * per_call,
        "gram": size.trajectories * analysis["gram"] * wider,
        "threshold search": size.trajectories * analysis["threshold search"],
        "score table": size.trajectories * analysis["score table"],
        "schedule": schedule,
    }


def break_even(nfe: int, steps: int) -> int:
    """After how many samples the recording is paid, if K steps stand for the K / (1 - 25 %) of a uniform spacing."""
    saved = steps / (1 - CLAIMED_SAVING) - steps
    return math.ceil(nfe / saved - 1e-9)


def _stages_here(setting: Setting) -> tuple[dict[str, float], int]:
    """Seconds of each stage on the setting's own model, and the network calls of the first."""
    recording = recording_of(setting, Counted(setting.load()))
    spent: dict[str, float] = {}
    walks = _timed(spent, "record", lambda: recording.walks)
    _analyse(spent, walks)
    profile = recording.profile
    _timed(spent, "schedule", lambda: build_schedule(profile, SCHEDULED))
    return spent, walks.nfe


def _analysis_at_paper_size(trajectories: int) -> dict[str, float]:
    """Seconds per trajectory of 200 steps in 3,072 dimensions: the exact Gaussian's, whose shape is CIFAR-10's."""
    walks = record(Gaussian.of_images(MEASURED_SHAPE), range(trajectories), PAPER["CIFAR-10"].steps)
    spent: dict[str, float] = {}
    _analyse(spent, walks)
    return {stage: seconds / trajectories for stage, seconds in spent.items()}


def _analyse(spent: dict[str, float], walks: Trajectories) -> None:
    """What `profile_trajectories` does, one part after the other."""
    settings = Settings()
    gram = _timed(spent, "gram", lambda: walks.gram(settings.normalisation))
    search = SEARCHES[settings.search]
    _timed(spent, "threshold search", lambda: search(gram, settings.target_score, settings.window, settings.levels))
    _timed(spent, "score table", lambda: mean_chord_scores(gram))


def _timed(spent: dict[str, float], stage: str, work: Callable[[], Result]) -> Result:
    begun = time.perf_counter()
    done = work()
    spent[stage] = time.perf_counter() - begun
    return done


def _rows(place: str, size: Size, spent: dict[str, float], how: dict[str, str], nfe: int) -> list[dict[str, Any]]:
    return [
        {
            "place": place,
            "stage": stage,
            "trajectories": size.trajectories,
            "reference_steps": size.steps,
            "dimensions": size.dimensions,
            "nfe": nfe if stage == "record" else 0,
            "seconds": spent[stage],
            "how": how[stage],
        }
        for stage in STAGES
    ]


def _summary(rows: list[dict[str, Any]], size: Size) -> dict[str, float]:
    """Totals of one place, and the share that recording takes: at this model's speed, or as the paper timed it."""
    seconds = {row["stage"]: row["seconds"] for row in rows}
    total = sum(seconds.values())
    timed = seconds["record"] if size.recorded_in is None else size.recorded_in
    return {
        "nfe": rows[0]["nfe"],
        "record_seconds": seconds["record"],
        "analysis_seconds": sum(seconds[stage] for stage in ANALYSIS),
        "schedule_seconds": seconds["schedule"],
        "total_seconds": total,
        "record_share": seconds["record"] / total,
        "record_share_as_timed": timed / (timed + total - seconds["record"]),
    }


def verdict(numbers: dict[str, Any]) -> str:
    """Whether recording dominates, and how our analysis compares with the paper's 40 seconds."""
    places = numbers["places"]
    shares = ", ".join(f"{name} {cell['record_share_as_timed']:.0%}" for name, cell in places.items())
    dominated = [name for name, cell in places.items() if cell["record_share_as_timed"] > 0.5]
    analysis = places["CIFAR-10"]["analysis_seconds"]
    times = CLAIMED_ANALYSIS / analysis
    against = f"{times:.0f} times less than" if times >= 1.5 else "about" if times > 0.67 else "more than"
    instant = all(cell["schedule_seconds"] < 0.1 for cell in places.values())
    pays = ", ".join(f"{count:,} samples at K = {k}" for k, count in numbers["break_even_samples"].items())
    return (
        f"Recording dominates the offline cost at {len(dominated)} of {len(places)} sizes (its share: {shares}; here "
        f"{numbers['seconds_per_call'] * 1000:.1f} ms per call, the paper's as it timed them); the analysis of "
        f"CIFAR-10's size takes "
        f"{analysis:.1f} s, {against} the paper's 40 s; building a schedule {'is' if instant else 'is not'} "
        f"instantaneous. If a quarter of the calls is saved, this recording is paid after {pays}."
    )


OVERHEAD = Experiment(
    "overhead",
    paper="Appendix, computational overhead: calls and seconds by stage",
    run=run,
)


COLOURS = {"record": GREY, "gram": BLUE, "threshold search": ORANGE, "score table": GREEN, "schedule": PINK}
HATCHES = {"record": "", "gram": "//", "threshold search": "..", "score table": "\\\\", "schedule": "xx"}


def plot(finding: Finding, path: Path) -> list[Path]:
    """A group of bars for each size, seconds on a logarithmic axis, values written on them."""
    places = list(finding.numbers["places"])
    figure = Figure(figsize=(2 + 2.7 * len(places), 4.6), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(COLOURS)
    for i, (stage, colour) in enumerate(COLOURS.items()):
        seconds = [row["seconds"] for row in finding.rows if row["stage"] == stage]
        across = [place + (i - (len(COLOURS) - 1) / 2) * width for place in range(len(places))]
        bars = axes.bar(across, seconds, width * 0.92, color=colour, hatch=HATCHES[stage], ec="white", label=stage)
        axes.bar_label(bars, [_short(value) for value in seconds], fontsize=7, padding=2)
    sizes = {row["place"]: row for row in finding.rows if row["stage"] == "record"}
    names = [
        f"{place}\nB = {sizes[place]['trajectories']}, N = {sizes[place]['reference_steps']}, "
        f"d = {sizes[place]['dimensions']:,}\n{sizes[place]['nfe']:,} calls, {sizes[place]['how']}"
        for place in places
    ]
    axes.set_xticks(range(len(places)), names)
    axes.set(yscale="log", ylabel="seconds")
    axes.margins(y=0.12)
    axes.legend(frameon=False, ncols=5, loc="upper center", bbox_to_anchor=(0.5, 1.12))
    figure.suptitle(
        f"Offline cost; a network call of {finding.setting.model} takes "
        f"{finding.numbers['seconds_per_call'] * 1000:.2g} ms here, and is assumed for every size"
    )
    return in_both_formats(figure, path)


def _short(seconds: float) -> str:
    return f"{seconds:.2g}" if seconds < 100 else f"{seconds:,.0f}"
