"""Table 1, Figures 1a and 2: Fréchet distance of GeoSPRINT and of uniform spacings at matched network calls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from geosprint.baselines import BASELINES
from geosprint.paper.base import Experiment, Finding, Setting
from geosprint.paper.figures import AXIS_LABELS, draw_band, in_both_formats, known_metrics, make_logarithmic
from geosprint.paper.measuring import Judged, Yardstick, and_list
from geosprint.report.plots import BLUE, GREEN, GREY, ORANGE, RED, SKY

UNIFORM = ("uniform-leading", "uniform-trailing", "uniform-linspace")
OURS = ("ddim", "geosprint")
OTHERS = (("ddim", "quadratic"), ("dpmpp-2m", "uniform-trailing"), ("dpmpp-2m", "logsnr"))
# DPM-Solver++ by default steps at 999 - i·999 / K in diffusers: never farther than a timestep from uniform-trailing.
CLAIMED_SAVING = 0.25  # Section 5.2, finding 5: 60 steps match 80
PROTOCOLS = ("frechet_data", "frechet_fine")  # of Section 5.1 and of Section 5.2.1

Place = tuple[str, str, int]  # solver, schedule, steps


def run(setting: Setting) -> Finding:
    """Measure every spacing at every K, uniform ones also at the K that the paper says ours saves at the end."""
    yardstick = Yardstick.of(setting)
    uniform = [name for name in UNIFORM if BASELINES[name].applies(yardstick.model.noise)]
    beyond = math.ceil(max(setting.steps) / (1 - CLAIMED_SAVING))
    places: list[Place] = [(solver, name, k) for solver, name in (OURS, *OTHERS) for k in setting.steps]
    places += [("ddim", name, k) for name in uniform for k in (*setting.steps, beyond)]
    judged = {place: yardstick.judge(yardstick.times_of(place[1], place[2], place[0]), place[0]) for place in places}
    rows = [
        {"solver": solver, "schedule": name, "steps": k, **yardstick.columns(judged[solver, name, k])}
        for solver, name, k in places
    ]
    numbers: dict[str, Any] = {
        "features": yardstick.features.name,
        "uniform": uniform,
        "fine_to_data": _floor(yardstick),
    }
    for metric in [metric for metric in PROTOCOLS if metric in yardstick.metrics]:
        numbers[metric] = {
            "gap": _gaps(yardstick, judged, uniform, metric),
            "best": {str(k): _best(rows, k, metric) for k in setting.steps},
            "same_distance": _same_distances(rows, uniform, setting.steps, metric),
        }
    return Finding("fid-vs-nfe", setting, rows, numbers, verdict(numbers))


def _floor(yardstick: Yardstick) -> float | None:
    """The fine solve's own distance to the data, in the mean over repetitions: the paper's line of DDIM-200."""
    if "frechet_data" not in yardstick.metrics:
        return None
    fine = Judged(np.empty(0), 0.0, np.zeros(len(yardstick.fine.samples)), yardstick.fine.features)
    return float(yardstick.repeated(fine, "frechet_data").mean())


def _gaps(yardstick: Yardstick, judged: dict[Place, Judged], uniform: Sequence[str], metric: str) -> dict[str, Any]:
    """GeoSPRINT minus each uniform spacing at every K: below zero where ours is nearer."""
    return {
        name: {
            str(k): yardstick.gap(judged[(*OURS, k)], judged["ddim", name, k], metric) for k in yardstick.setting.steps
        }
        for name in uniform
    }


def _best(rows: Sequence[dict[str, Any]], steps: int, metric: str) -> str:
    """The solver and schedule with the smallest mean at this K."""
    best = min((row for row in rows if row["steps"] == steps), key=lambda row: row[metric])
    return f"{best['solver']} on {best['schedule']}"


def _same_distances(
    rows: Sequence[dict[str, Any]], uniform: Sequence[str], all_steps: Sequence[int], metric: str
) -> dict[str, Any]:
    """How many steps each uniform spacing needs to be as near as GeoSPRINT, and the share of calls that ours saves."""
    ours = {row["steps"]: row[metric] for row in rows if (row["solver"], row["schedule"]) == OURS}
    found: dict[str, Any] = {}
    for name in uniform:
        curve = {row["steps"]: row[metric] for row in rows if (row["solver"], row["schedule"]) == ("ddim", name)}
        found[name] = {}
        for k in all_steps:
            needed, known = steps_for_distance(ours[k], curve)
            found[name][str(k)] = {"steps": needed, "saved": 1 - k / needed, "known": known}
    return found


def steps_for_distance(distance: float, curve: dict[int, float]) -> tuple[float, str]:
    """Where a measured curve first falls to a distance, between measured K linearly in log-log.

    Nothing is guessed beyond what was measured: there the number is the end of the curve and known only as "at least"
    (the curve never comes so near) or "at most" (its first K is nearer already).
    """
    steps = sorted(curve)
    if distance >= curve[steps[0]]:
        return float(steps[0]), "exactly" if distance == curve[steps[0]] else "at most"
    for low, high in pairwise(steps):
        if 0 < curve[high] <= distance:
            share = math.log(curve[low] / distance) / math.log(curve[low] / curve[high])
            return math.exp(math.log(low) + share * math.log(high / low)), "exactly"
    return float(steps[-1]), "at least"


def verdict(numbers: dict[str, Any]) -> str:
    """Whether ours beats every uniform spacing at every K, and which saving of calls was seen."""
    said = []
    for metric, name in (("frechet_data", "the data"), ("frechet_fine", "the fine solve")):
        if metric not in numbers:
            continue
        gaps = [(name, int(k), gap) for name, by_k in numbers[metric]["gap"].items() for k, gap in by_k.items()]
        nearer = [place for place in gaps if place[2]["high"] < 0]
        farther = [place for place in gaps if place[2]["low"] > 0]
        text = (
            f"Against {name}, GeoSPRINT is nearer than a uniform spacing in {len(nearer)} of {len(gaps)} comparisons "
            f"and farther in {len(farther)} (95 % intervals without zero)"
        )
        if farther:
            text += f", farther at K = {and_list(sorted({k for _, k, _ in farther}))}"
        said.append(f"{text}; {_said_of_saving(numbers[metric]['same_distance'])}.")
    return " ".join(said)


def _said_of_saving(same: dict[str, Any]) -> str:
    """How often the claimed saving was reached; a bound that leaves it open counts for neither side."""
    cells = [cell for by_k in same.values() for cell in by_k.values()]
    reached = [cell for cell in cells if cell["saved"] >= CLAIMED_SAVING - 1e-9 and cell["known"] != "at most"]
    missed = [cell for cell in cells if cell["saved"] < CLAIMED_SAVING - 1e-9 and cell["known"] != "at least"]
    return (
        f"as near as a uniform spacing with a third more calls, the claimed 25 % saving, "
        f"in {len(reached)} of {len(cells)}, not in {len(missed)}"
    )


FID_VS_NFE = Experiment(
    "fid-vs-nfe",
    paper="Table 1, Figures 1a and 2: GeoSPRINT against uniform DDIM and DPM-Solver++ at matched NFE",
    run=run,
    quick={"samples": 48, "fine_steps": 40},
)


LOOKS: dict[tuple[str, str], dict[str, Any]] = {
    ("ddim", "geosprint"): {"color": RED, "marker": "o", "lw": 2.2, "zorder": 3},
    ("ddim", "uniform-leading"): {"color": GREY, "marker": "v", "ls": "-"},
    ("ddim", "uniform-trailing"): {"color": GREY, "marker": "s", "ls": "--"},
    ("ddim", "uniform-linspace"): {"color": GREY, "marker": "^", "ls": ":"},
    ("ddim", "quadratic"): {"color": GREEN, "marker": "D", "ls": "-."},
    ("dpmpp-2m", "uniform-trailing"): {"color": BLUE, "marker": "P", "ls": "--"},
    ("dpmpp-2m", "logsnr"): {"color": SKY, "marker": "X", "ls": "-."},
}
OTHER: dict[str, Any] = {"color": ORANGE, "marker": "."}


def plot(finding: Finding, path: Path) -> list[Path]:
    """A line for each solver and schedule, bands of one standard deviation over repetitions."""
    metrics = [metric for metric in known_metrics(finding.rows) if metric != "rmse"]
    figure = Figure(figsize=(5.6 * len(metrics) + 2.2, 4.6), layout="constrained")
    lines = list(dict.fromkeys((row["solver"], row["schedule"]) for row in finding.rows))
    panels = figure.subplots(1, len(metrics), squeeze=False)[0]
    for axes, metric in zip(panels, metrics, strict=True):
        for solver, schedule in lines:
            rows = [row for row in finding.rows if (row["solver"], row["schedule"]) == (solver, schedule)]
            look = {"ms": 5, "lw": 1.3, **LOOKS.get((solver, schedule), OTHER)}
            draw_band(axes, rows, "nfe", metric, label=f"{solver}, {schedule}", **look)
        if metric == "frechet_data":
            axes.axhline(finding.numbers["fine_to_data"], color="black", ls="--", lw=1, label="fine solve")
        make_logarithmic(axes, [row["nfe"] for row in finding.rows])
        axes.set(xlabel="network calls per sample (NFE)", ylabel=AXIS_LABELS[metric])
    panels[-1].legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    setting = finding.setting
    figure.suptitle(
        f"{setting.model}, {finding.numbers['features']} features: {setting.samples} samples, "
        f"mean ± std over {setting.repetitions} seeds"
    )
    return in_both_formats(figure, path)
