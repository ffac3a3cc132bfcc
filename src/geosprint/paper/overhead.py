"""Appendix, computational overhead: what a schedule costs before the first sample, stage by stage."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from geosprint.extraction import profile_trajectories
from geosprint.models.exact import Gaussian
from geosprint.paper.base import Numbers, Rows, Setting
from geosprint.paper.claims import PaperExperiment, above, at, at_most
from geosprint.paper.fid_vs_nfe import CLAIMED_SAVING
from geosprint.paper.figures import Panel
from geosprint.sampling import record
from geosprint.schedule import build_schedule

CLAIMED_ANALYSIS = 40.0  # seconds, for CIFAR-10's 100 trajectories on a Xeon Gold 6248R
INSTANT = 0.1  # seconds that a user does not notice
SCHEDULED = 20  # K of the schedule that is built

Seconds = dict[str, float]  # by stage: record, analysis, schedule


@dataclass(frozen=True)
class Size:
    """How much is recorded, and of what."""

    trajectories: int
    steps: int
    dimensions: int
    recorded_in: float | None = None  # seconds that the paper says its graphics card took

    @property
    def nfe(self) -> int:
        """Network calls of the recording."""
        return self.trajectories * self.steps


PAPER = {
    "CIFAR-10": Size(100, 200, 3 * 32 * 32, 16 * 60),
    "LSUN Church": Size(50, 200, 3 * 256 * 256, 90 * 60),
    "SD v1.5": Size(50, 200, 4 * 64 * 64, 5 * 3600),
}
MEASURED_SHAPE = (3, 32, 32)  # of the analysis that is timed: CIFAR-10's


def measure(setting: Setting) -> tuple[Rows, Numbers]:
    """Time every stage here, and the analysis at the paper's size; carry both to the paper's three models."""
    recording, here = setting.recording(setting.load()), f"{setting.model}, here"
    spent = {
        here: {
            "record": _seconds(lambda: recording.walks),
            "analysis": _seconds(lambda: recording.profile),
            "schedule": _seconds(lambda: build_schedule(recording.profile, SCHEDULED)),
        }
    }
    shape, nfe = recording.model.shape, recording.walks.nfe
    sizes = {here: Size(setting.trajectories, setting.reference_steps, math.prod(shape)), **PAPER}
    few, per_call = min(PAPER["CIFAR-10"].trajectories, max(4, setting.trajectories // 2)), spent[here]["record"] / nfe
    # The analysis asks no network: an exact Gaussian of CIFAR-10's shape stands for it, from raw states to a profile.
    walks = record(Gaussian.of_images(MEASURED_SHAPE), range(few), PAPER["CIFAR-10"].steps)
    known = (_seconds(lambda: profile_trajectories(walks)) / few, per_call, spent[here]["schedule"])
    spent |= {name: extrapolated(size, *known) for name, size in PAPER.items()}
    rows = [
        {
            "place": name,
            "stage": stage,
            "trajectories": size.trajectories,
            "reference_steps": size.steps,
            "dimensions": size.dimensions,
            "nfe": size.nfe if stage == "record" else 0,
            "seconds": seconds,
            "how": "measured" if name == here else "extrapolated",
        }
        for name, size in sizes.items()
        for stage, seconds in spent[name].items()
    ]
    numbers: Numbers = {
        "seconds_per_call": per_call,
        "measured_trajectories_at_paper_size": few,
        "claimed_analysis_seconds": CLAIMED_ANALYSIS,
        "places": {name: _summary(spent[name], size) for name, size in sizes.items()},
        "break_even_samples": {str(k): break_even(nfe, k) for k in setting.steps},
    }
    return rows, numbers


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def extrapolated(size: Size, analysis: float, per_call: float, schedule: float) -> Seconds:
    """Seconds by stage at another size, from the analysis of one trajectory of 200 steps in 3,072 dimensions.

    Trajectories are independent. The analysis is scaled with the dimensions, too, though only its inner products are:
    in more of them it takes at most this long.
    """
    wider = size.dimensions / math.prod(MEASURED_SHAPE)
    return {"record": size.nfe * per_call, "analysis": size.trajectories * analysis * wider, "schedule": schedule}


def break_even(nfe: int, steps: int) -> int:
    """After how many samples the recording is paid, if K steps stand for the K / (1 - 25 %) of a uniform spacing."""
    saved = steps / (1 - CLAIMED_SAVING) - steps
    return math.ceil(nfe / saved - 1e-9)


def _summary(spent: Seconds, size: Size) -> Numbers:
    """Totals of one size, and the share that recording takes: at this model's speed, or as the paper timed it."""
    total = sum(spent.values())
    timed = size.recorded_in or spent["record"]
    return {
        "nfe": size.nfe,
        **{f"{stage}_seconds": seconds for stage, seconds in spent.items()},
        "total_seconds": total,
        "record_share": spent["record"] / total,
        "record_share_as_timed": timed / (timed + total - spent["record"]),
    }


def note(numbers: Numbers) -> str:
    """When a recording pays."""
    pays = ", ".join(f"{count:,} samples at K = {k}" for k, count in numbers["break_even_samples"].items())
    return f"If a quarter of the calls is saved, this recording is paid after {pays}."


RECORDED = "{place}\nB = {trajectories}, N = {reference_steps}, d = {dimensions:,}\n{how}"
OVERHEAD = PaperExperiment(
    "overhead",
    "Appendix, computational overhead: calls and seconds by stage",
    measure,
    figure=(Panel(RECORDED, "seconds", "", "seconds", by="stage", kind="bars", log="y", width=11),),
    note=note,
    claims={
        "curvature analysis takes about 40 s for 100 trajectories of 200 steps in 3,072 dimensions (C.4)": at_most(
            "seconds at that size", CLAIMED_ANALYSIS, of=at("places", "CIFAR-10", "analysis_seconds")
        ),
        "schedule construction is instantaneous (C.4)": at_most(
            f"seconds (instantaneous: up to {INSTANT})", INSTANT, of=at("places", "CIFAR-10", "schedule_seconds")
        ),
        "the offline cost is dominated by recording (C.4)": above(
            "share of recording, as the paper timed its own", 0.5, of=at("places", "*", "record_share_as_timed")
        ),
    },
)
