"""Appendix, computational overhead: what a schedule costs before the first sample, stage by stage."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from matplotlib.figure import Figure

from geosprint.extraction import profile_trajectories
from geosprint.models.exact import Gaussian
from geosprint.paper.base import Numbers, PaperFinding, Rows, Setting
from geosprint.paper.claims import Claim, Evidence, PaperExperiment, above, at_most, exactly
from geosprint.paper.figures import panels
from geosprint.paper.measuring import recording_of
from geosprint.report.plots import BLUE, GREY, PINK
from geosprint.sampling import Counted, record
from geosprint.schedule import build_schedule

LOOKS = {"record": (GREY, ""), "analysis": (BLUE, "//"), "schedule": (PINK, "xx")}
STAGES = tuple(LOOKS)
CLAIMED_ANALYSIS = 40.0  # seconds, for CIFAR-10's 100 trajectories on a Xeon Gold 6248R
CLAIMED_SAVING = 0.25  # of the calls of a sample
INSTANT = 0.1  # seconds that a user does not notice
SCHEDULED = 20  # K of the schedule that is built

Result = TypeVar("Result")
Seconds = dict[str, float]  # by stage


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


def measure(setting: Setting) -> tuple[Rows, Numbers]:
    """Time every stage here, and the analysis at the paper's size; carry both to the paper's three models."""
    recording = recording_of(setting, Counted(setting.load()))
    record_seconds, walks = _timed(lambda: recording.walks)
    analysis_seconds, profile = _timed(lambda: profile_trajectories(walks))
    schedule_seconds, _ = _timed(lambda: build_schedule(profile, SCHEDULED))
    name, per_call = f"{setting.model}, here", record_seconds / walks.nfe
    sizes = {name: Size(setting.trajectories, setting.reference_steps, math.prod(recording.model.shape)), **PAPER}
    spent = {name: dict(zip(STAGES, (record_seconds, analysis_seconds, schedule_seconds), strict=True))}
    few = min(PAPER["CIFAR-10"].trajectories, max(4, setting.trajectories // 2))
    per_trajectory = _analysis_at_paper_size(few) / few
    spent |= {paper: extrapolated(per_trajectory, size, per_call, schedule_seconds) for paper, size in PAPER.items()}
    rows = [
        {
            "place": one,
            "stage": stage,
            "trajectories": sizes[one].trajectories,
            "reference_steps": sizes[one].steps,
            "dimensions": sizes[one].dimensions,
            "nfe": sizes[one].trajectories * sizes[one].steps if stage == "record" else 0,
            "seconds": seconds,
            "how": "measured" if one == name else "extrapolated",
        }
        for one in sizes
        for stage, seconds in spent[one].items()
    ]
    numbers: Numbers = {
        "seconds_per_call": per_call,
        "measured_trajectories_at_paper_size": few,
        "claimed_analysis_seconds": CLAIMED_ANALYSIS,
        "places": {one: _summary(spent[one], sizes[one]) for one in sizes},
        "break_even_samples": {str(k): break_even(walks.nfe, k) for k in setting.steps},
    }
    return rows, numbers


def _timed(work: Callable[[], Result]) -> tuple[float, Result]:
    begun = time.perf_counter()
    done = work()
    return time.perf_counter() - begun, done


def _analysis_at_paper_size(trajectories: int) -> float:
    """Seconds from raw states to a profile that is ready to save, of an exact Gaussian whose shape is CIFAR-10's."""
    walks = record(Gaussian.of_images(MEASURED_SHAPE), range(trajectories), PAPER["CIFAR-10"].steps)
    return _timed(lambda: profile_trajectories(walks))[0]


def extrapolated(analysis: float, size: Size, per_call: float, schedule: float) -> Seconds:
    """Seconds by stage at another size, from the analysis of one trajectory of 200 steps in 3,072 dimensions.

    Trajectories are independent. The analysis is scaled with the dimensions, too, though only its inner products are:
    in more of them it takes at most this long.
    """
    wider = size.dimensions / math.prod(MEASURED_SHAPE)
    return {
        "record": size.trajectories * size.steps * per_call,
        "analysis": size.trajectories * analysis * wider,
        "schedule": schedule,
    }


def break_even(nfe: int, steps: int) -> int:
    """After how many samples the recording is paid, if K steps stand for the K / (1 - 25 %) of a uniform spacing."""
    saved = steps / (1 - CLAIMED_SAVING) - steps
    return math.ceil(nfe / saved - 1e-9)


def _summary(spent: Seconds, size: Size) -> Numbers:
    """Totals of one size, and the share that recording takes: at this model's speed, or as the paper timed it."""
    total = sum(spent.values())
    timed = size.recorded_in or spent["record"]
    return {
        "nfe": size.trajectories * size.steps,
        **{f"{stage}_seconds": seconds for stage, seconds in spent.items()},
        "total_seconds": total,
        "record_share": spent["record"] / total,
        "record_share_as_timed": timed / (timed + total - spent["record"]),
    }


def _by_size(finding: PaperFinding, number: str) -> Evidence:
    return {name: exactly(cell[number]) for name, cell in finding.numbers["places"].items()}


CLAIMS = (
    Claim(
        "curvature analysis takes about 40 s for 100 trajectories of 200 steps in 3,072 dimensions (C.4)",
        "seconds at that size",
        at_most(CLAIMED_ANALYSIS),
        lambda found: {"": _by_size(found, "analysis_seconds")["CIFAR-10"]},
    ),
    Claim(
        "schedule construction is instantaneous (C.4)",
        f"seconds (instantaneous: up to {INSTANT})",
        at_most(INSTANT),
        lambda found: {"": max(_by_size(found, "schedule_seconds").values(), key=lambda one: one.value)},
    ),
    Claim(
        "the offline cost is dominated by recording (C.4)",
        "share of recording, as the paper timed its own",
        above(0.5),
        lambda found: _by_size(found, "record_share_as_timed"),
    ),
)


def note(numbers: Numbers) -> str:
    """When a recording pays."""
    pays = ", ".join(f"{count:,} samples at K = {k}" for k, count in numbers["break_even_samples"].items())
    return f"If a quarter of the calls is saved, this recording is paid after {pays}."


def draw(finding: PaperFinding) -> Figure:
    """A group of bars for each size, seconds on a logarithmic axis, values written on them."""
    first = finding.where(stage="record")
    figure, (axes,) = panels(1, 2 + 2.7 * len(first), 4.6)
    width = 0.8 / len(LOOKS)
    for i, (stage, (colour, hatch)) in enumerate(LOOKS.items()):
        seconds = [row["seconds"] for row in finding.where(stage=stage)]
        across = [group + (i - (len(LOOKS) - 1) / 2) * width for group in range(len(first))]
        bars = axes.bar(across, seconds, width * 0.92, color=colour, hatch=hatch, ec="white", label=stage)
        axes.bar_label(bars, [f"{s:.2g}" if s < 100 else f"{s:,.0f}" for s in seconds], fontsize=7, padding=2)
    names = [
        f"{row['place']}\nB = {row['trajectories']}, N = {row['reference_steps']}, d = {row['dimensions']:,}\n"
        f"{row['nfe']:,} calls, {row['how']}"
        for row in first
    ]
    axes.set_xticks(range(len(first)), names)
    axes.set(yscale="log", ylabel="seconds")
    axes.margins(y=0.12)
    axes.legend(frameon=False, ncols=5, loc="upper center", bbox_to_anchor=(0.5, 1.12))
    figure.suptitle(
        f"Offline cost; a network call of {finding.setting.model} takes "
        f"{finding.numbers['seconds_per_call'] * 1000:.2g} ms here, and is assumed for every size"
    )
    return figure


OVERHEAD = PaperExperiment(
    "overhead", "Appendix, computational overhead: calls and seconds by stage", measure, CLAIMS, draw, note=note
)
