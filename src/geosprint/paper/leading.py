"""Does uniform spacing get worse with more steps, or does `leading` spacing start too late? (Table 1, finding 3)"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from geosprint.baselines import BASELINES
from geosprint.errors import ScheduleError
from geosprint.metrics.distances import frechet_distance
from geosprint.metrics.estimates import jackknifed
from geosprint.noise import NoiseSchedule
from geosprint.paper.base import Experiment, Finding, Setting
from geosprint.paper.figures import AXIS_LABELS, in_both_formats
from geosprint.paper.measuring import Judged, Yardstick, and_list, interval, rank_correlation
from geosprint.report.plots import BLUE, GREY, ORANGE

STEPS = (25, 29, 34, 39, 40, 44, 50)  # 29 to 44: the paper's on Stable Diffusion; 25, 40 and 50 divide a thousand
REFERENCE = ("leading", 50)  # what the paper measures against there (Section 5.2.1)
WORTH = 0.01  # rises below a hundredth are no reason to doubt a spacing; the paper's are 9 and 16 %
SPACINGS = ("leading", "leading-from-noise", "trailing")

Array = NDArray[np.float64]
Place = tuple[str, int]  # spacing, steps


def run(setting: Setting) -> Finding:
    """Leading spacing, the same with its first step moved to pure noise, and trailing, at K of the paper's kind."""
    if not BASELINES["uniform-leading"].applies(setting.load().noise):
        raise ScheduleError(f"leading spacing needs whole timesteps, which {setting.model} has not; name another model")
    yardstick = Yardstick.of(setting)
    judged = {
        (spacing, k): yardstick.judge(times_of(spacing, yardstick.model.noise, k))
        for spacing in SPACINGS
        for k in STEPS
    }
    rows = [_row(yardstick, spacing, k, found, judged[REFERENCE]) for (spacing, k), found in judged.items()]
    numbers = {
        "rises": {spacing: _rises(yardstick, judged, spacing) for spacing in SPACINGS},
        "excess": {str(k): _excess(yardstick, judged, k) for k in STEPS},
        "excess_rank_with_skipped": _excess_ranks(rows),
    }
    return Finding("leading", setting, rows, numbers, verdict(numbers))


def times_of(spacing: str, noise: NoiseSchedule, steps: int) -> Array:
    """A spacing of K steps; `leading-from-noise` differs from `leading` in its first step alone."""
    if spacing == "trailing":
        return BASELINES["uniform-trailing"](noise, steps)
    times = BASELINES["uniform-leading"](noise, steps)
    return times if spacing == "leading" else np.append(noise.first, times[1:])


def _row(yardstick: Yardstick, spacing: str, steps: int, found: Judged, reference: Judged) -> dict[str, Any]:
    """Start and distances, each with a 95 % interval over all samples."""
    first, start = yardstick.model.noise.first, float(found.timesteps[0])
    row: dict[str, Any] = {
        "spacing": spacing,
        "steps": steps,
        "divides": (first + 1) % steps == 0,
        "nfe": found.nfe,
        "start": start,
        "skipped": first - start,
    }
    distances = {metric: yardstick.estimate(found, metric) for metric in ("rmse", "frechet_fine")}
    there = jackknifed(lambda rows: frechet_distance(found.features[rows], reference.features[rows]), len(found.errors))
    for metric, distance in {**distances, "frechet_reference": interval(there)}.items():
        row |= {metric: distance["value"], f"{metric}_low": distance["low"], f"{metric}_high": distance["high"]}
    return row


def _rises(yardstick: Yardstick, judged: dict[Place, Judged], spacing: str) -> dict[str, Any]:
    """From each K to the next: how much the distance rises, where theory says it falls."""
    found: dict[str, Any] = {"rmse": {}, "frechet_fine": {}, "frechet_reference": {}}
    reference = judged[REFERENCE].features
    for low, high in pairwise(STEPS):
        fewer, more = judged[spacing, low], judged[spacing, high]
        for metric in ("rmse", "frechet_fine"):
            before = yardstick.estimate(fewer, metric)["value"]
            found[metric][f"{low}-{high}"] = _with_share(yardstick.gap(more, fewer, metric), before)
        rise, before = _rise_from(reference, fewer, more), frechet_distance(fewer.features, reference)
        found["frechet_reference"][f"{low}-{high}"] = _with_share(interval(jackknifed(rise, len(reference))), before)
    return found


def _with_share(gap: dict[str, float], before: float) -> dict[str, float]:
    """A rise, and its share of the distance that it rises from."""
    return {**gap, "share": gap["value"] / before}


def _rise_from(reference: Tensor, fewer: Judged, more: Judged) -> Callable[[Tensor], float]:
    """How much farther from the reference more steps are than fewer, as a function of which samples are seen."""

    def rise(rows: Tensor) -> float:
        far, near = (frechet_distance(one.features[rows], reference[rows]) for one in (more, fewer))
        return far - near

    return rise


def _excess(yardstick: Yardstick, judged: dict[Place, Judged], steps: int) -> dict[str, Any]:
    """What the late start costs: leading less the same spacing begun at pure noise, and less trailing."""
    late = judged["leading", steps]
    return {
        "over_same_from_noise": yardstick.gap(late, judged["leading-from-noise", steps], "rmse"),
        "over_trailing": yardstick.gap(late, judged["trailing", steps], "rmse"),
    }


def _excess_ranks(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Rank correlation over K of the timesteps skipped and leading's distance relative to trailing's."""
    late = {row["steps"]: row for row in rows if row["spacing"] == "leading"}
    on_time = {row["steps"]: row for row in rows if row["spacing"] == "trailing"}
    skipped = np.array([late[k]["skipped"] for k in late])
    return {
        metric: rank_correlation(skipped, np.array([late[k][metric] / on_time[k][metric] for k in late]))
        for metric in ("rmse", "frechet_fine")
    }


def verdict(numbers: dict[str, Any]) -> str:
    """Where each spacing gets worse with more steps, and whether its start is the reason."""
    rises = numbers["rises"]
    said = [
        f"{spacing.capitalize()} spacing rises {_where(rises[spacing]['rmse'])} by RMSE, "
        f"{_where(rises[spacing]['frechet_fine'])} by Fréchet distance to the fine solve and "
        f"{_where(rises[spacing]['frechet_reference'])} by that to 50 leading steps"
        for spacing in ("leading", "trailing")
    ]
    excess = {k: cell["over_same_from_noise"] for k, cell in numbers["excess"].items()}
    nearer = [k for k, gap in excess.items() if gap["low"] > 0]
    farther = [k for k, gap in excess.items() if gap["high"] < 0]
    moved = (
        f"moving leading's first step to pure noise, and nothing else, makes it nearer "
        f"{'at K = ' + and_list(nearer) if nearer else 'at no K'} and farther "
        f"{'at K = ' + and_list(farther) if farther else 'at no K'}"
    )
    return f"{'. '.join(said)}. {_cause(rises)}; {moved}."


def _cause(rises: dict[str, dict[str, Any]]) -> str:
    """Only what vanishes with the late start is explained by it."""
    sure = {spacing: _sure(found["rmse"]) + _sure(found["frechet_fine"]) for spacing, found in rises.items()}
    if sure["trailing"]:
        return "Trailing, which starts at pure noise, gets worse too: a late start is not the whole reason"
    if not sure["leading"] and not _sure(rises["leading"]["frechet_reference"]):
        return "Uniform spacing does not get worse with more steps here by more than chance"
    if sure["leading-from-noise"]:
        return "A late start alone is not the reason: leading gets worse without it too"
    return "The late start explains it: no spacing that starts at pure noise gets worse"


def _sure(gaps: dict[str, dict[str, float]]) -> list[str]:
    """Where the distance rises by more than chance and by more than a trifle."""
    return [place for place, gap in gaps.items() if gap["low"] > 0 and gap["share"] >= WORTH]


def _where(gaps: dict[str, dict[str, float]]) -> str:
    """Every rise that was seen, with its size, and whether chance explains it."""
    seen = {place: gap for place, gap in gaps.items() if gap["share"] >= WORTH}
    if not seen:
        return "nowhere"
    doubts = {place: "" if gap["low"] > 0 else ", within chance" for place, gap in seen.items()}
    said = [f"{place} (by {gap['share']:.0%}{doubts[place]})" for place, gap in seen.items()]
    return f"at K = {and_list(said)}"


LEADING = Experiment(
    "leading",
    paper='Table 1 and Figure 2: "uniform DDIM gets worse at high NFE", against the start of leading spacing',
    run=run,
    quick={"samples": 24, "repetitions": 1},
)


LOOKS: dict[str, dict[str, Any]] = {
    "leading": {"color": ORANGE, "marker": "o", "label": "leading"},
    "leading-from-noise": {"color": GREY, "marker": "s", "ls": "--", "label": "leading, first step at pure noise"},
    "trailing": {"color": BLUE, "marker": "D", "label": "trailing"},
}
LABELS = {
    **AXIS_LABELS,
    "frechet_reference": "squared Fréchet distance to 50 leading steps",
    "start": "first timestep",
}


def plot(finding: Finding, path: Path) -> list[Path]:
    """Three distances with intervals, and the start, over K; filled where K divides the training timesteps."""
    figure = Figure(figsize=(17, 4.2), layout="constrained")
    panels = figure.subplots(1, 4)
    for axes, quantity in zip(panels, ("rmse", "frechet_fine", "frechet_reference", "start"), strict=True):
        for spacing, look in LOOKS.items():
            rows = [row for row in finding.rows if row["spacing"] == spacing]
            axes.plot([row["steps"] for row in rows], [row[quantity] for row in rows], mfc="white", **look)
            even = [row for row in rows if row["divides"]]
            places, values = [row["steps"] for row in even], [row[quantity] for row in even]
            axes.plot(places, values, color=look["color"], marker=look["marker"], ls="")
            if quantity != "start":
                lows = [row[quantity] - row[f"{quantity}_low"] for row in rows]
                highs = [row[f"{quantity}_high"] - row[quantity] for row in rows]
                means = [row[quantity] for row in rows]
                bars = {"fmt": "none", "ecolor": look["color"], "lw": 0.8, "capsize": 2, "alpha": 0.6}
                axes.errorbar([row["steps"] for row in rows], means, yerr=[lows, highs], **bars)
        axes.set(xlabel="steps K (filled: K divides the training timesteps)", ylabel=LABELS[quantity])
        axes.set_xticks(sorted({row["steps"] for row in finding.rows}))
        axes.tick_params(axis="x", rotation=60)
        axes.grid(alpha=0.25, lw=0.5)
    panels[0].legend(frameon=False)
    total = finding.setting.samples * finding.setting.repetitions
    figure.suptitle(f"{finding.setting.model}, ddim: {total} samples from the same noise, 95 % intervals over them")
    return in_both_formats(figure, path)
