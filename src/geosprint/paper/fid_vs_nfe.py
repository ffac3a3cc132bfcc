"""Table 1, Figures 1a and 2: Fréchet distance of GeoSPRINT and of uniform spacings at matched network calls."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from geosprint.estimates import steps_reaching
from geosprint.paper.base import Numbers, PaperFinding, Rows, Setting
from geosprint.paper.claims import MINIATURE, Evidence, PaperExperiment, above, at, below, estimates, exactly, untested
from geosprint.paper.figures import over_nfe
from geosprint.paper.measuring import PAPERS, Bench, Line, SampleSet

UNIFORM = ("uniform-leading", "uniform-trailing", "uniform-linspace")
OURS = ("ddim", "geosprint")
OTHERS = (("ddim", "quadratic"), ("dpmpp-2m", "uniform-trailing"), ("dpmpp-2m", "logsnr"))
# DPM-Solver++ by default steps at 999 - i·999 / K in diffusers: within a timestep of uniform-trailing.
CLAIMED_SAVING = 0.25  # Section 5.2, finding 5: 60 steps match 80
REFERENCE: Line = ("ddim", "uniform-leading", 50)  # what the paper measures against for Stable Diffusion (5.2.1)
PROTOCOLS = ("frechet_data", "frechet_fine", PAPERS)  # of Section 5.1; ours; of Section 5.2.1


def measure(setting: Setting) -> tuple[Rows, Numbers]:
    """Every schedule at every K, uniform ones also at the K that would be the claimed saving beyond the last."""
    bench = Bench.of(setting)
    uniform = bench.applicable(UNIFORM)
    beyond = math.ceil(max(setting.steps) / (1 - CLAIMED_SAVING))
    lines: list[Line] = [(*line, k) for line in (OURS, *OTHERS) for k in setting.steps]
    lines += [("ddim", name, k) for name in uniform for k in (*setting.steps, beyond)]
    samples = bench.sample_lines(lines)
    if REFERENCE[1] in uniform:
        bench = replace(bench, papers_features=bench.sample_lines([REFERENCE])[REFERENCE].features)
    rows = bench.rows(("solver", "schedule", "steps"), samples)
    numbers: Numbers = {"features": bench.features.name, "uniform": uniform, "fine_to_data": _reference_to_data(bench)}
    for metric in [metric for metric in PROTOCOLS if metric in bench.metrics]:
        numbers[metric] = {
            "gap": {other: bench.gaps(samples, OURS, ("ddim", other), metric) for other in uniform},
            "same_distance": {other: _same_distances(rows, other, setting, metric) for other in uniform},
        }
    return rows, numbers


def _reference_to_data(bench: Bench) -> float | None:
    """The reference solve's own distance to the data, in the mean over repetitions: the paper's line of DDIM-200."""
    if "frechet_data" not in bench.metrics:
        return None
    reference = SampleSet(np.empty(0), 0.0, np.zeros(len(bench.reference)), bench.reference_features)
    return float(bench.repeated(reference, "frechet_data").mean())


def _same_distances(rows: Rows, uniform: str, setting: Setting, metric: str) -> dict[str, Any]:
    """How many uniform steps match GeoSPRINT at every K, and the share of calls that it saves."""
    ours, curve = (
        {row["steps"]: row[metric] for row in rows if (row["solver"], row["schedule"]) == line}
        for line in (OURS, ("ddim", uniform))
    )
    found = {}
    for k in setting.steps:
        needed, known = steps_for_distance(ours[k], curve)
        found[str(k)] = {"steps": needed, "saved": 1 - k / needed, "known": known}
    return found


def steps_for_distance(distance: float, curve: Mapping[int, float]) -> tuple[float, str]:
    """Where a measured curve first falls to a distance, and whether that is known.

    Nothing is guessed beyond what was measured: there the number is the end of the curve and known only as "at least"
    (the curve stays above) or "at most" (its first K is below already).
    """
    known = "at most" if distance > curve[min(curve)] else "at least" if distance < min(curve.values()) else "exactly"
    return steps_reaching(curve, distance), known


def _gaps_to_uniform(finding: PaperFinding, *metrics: str) -> Evidence:
    """GeoSPRINT minus every uniform spacing at every K but the lowest, by the first of these that was measured."""
    gaps = next(finding.numbers[metric]["gap"] for metric in metrics if metric in finding.numbers)
    return estimates({name: dict(list(by_k.items())[1:]) for name, by_k in gaps.items()})


def _changes_with_steps(finding: PaperFinding) -> Evidence:
    ours = sorted(finding.where(solver=OURS[0], schedule=OURS[1]), key=lambda row: row["steps"])
    return {
        f"K = {few['steps']} to {many['steps']}": exactly(many["frechet_fine"] - few["frechet_fine"])
        for few, many in pairwise(ours)
    }


PANELS = over_nfe(("schedule", "solver"), "frechet_fine", "frechet_data", PAPERS)
_GPU = "needs the paper's own model, 10,000 samples and a GPU: `geosprint reproduce fid-vs-nfe --preset {}`"
FID_VS_NFE = PaperExperiment(
    "fid-vs-nfe",
    "Table 1, Figures 1a and 2: GeoSPRINT against uniform DDIM and DPM-Solver++ at matched NFE",
    measure,
    figure=(PANELS[0], replace(PANELS[1], level="fine_to_data"), PANELS[2]),
    quick={"samples": 48, "fine_steps": 40},
    claims={
        "GeoSPRINT outperforms uniform DDIM at every NFE but the lowest (5.2, finding 1)": below(
            "Fréchet distance to the data (to the reference solve where there is none), ours minus a uniform spacing's",
            of=lambda found: _gaps_to_uniform(found, *PROTOCOLS),
        ),
        "so it does against samples of the reference solve (5.2.1, for Stable Diffusion)": below(
            "Fréchet distance to the reference solve, ours minus a uniform spacing's",
            of=lambda found: _gaps_to_uniform(found, "frechet_fine"),
        ),
        "it matches DDIM with 25 % fewer network calls (60 steps against 80) (5.2, finding 5)": above(
            "share of calls saved at equal Fréchet distance to the reference solve",
            0,
            CLAIMED_SAVING,
            of=at("frechet_fine", "same_distance", "*", "*", "saved"),
        ),
        "GeoSPRINT improves monotonically with NFE (5.2, finding 3)": below(
            "change of the Fréchet distance to the reference solve", of=_changes_with_steps
        ),
        "FID on CIFAR-10 is 0.7 to 1.1 lower than DDIM's from NFE 20 on (Table 1)": untested(_GPU.format("cifar10")),
        "FID on LSUN Church is 0.22 to 1.06 lower (Table 1)": untested(_GPU.format("church")),
        "FID on Stable Diffusion 1.5 is up to 1.93 lower (Table 1)": below(
            "Fréchet distance to 50 DDIM steps at guidance 7.5, ours minus a uniform spacing's",
            of=lambda found: _gaps_to_uniform(found, PAPERS) if found.setting.model == MINIATURE else {},
            needs=_GPU.format("sd15"),
        ),
        "improvements grow with model complexity (5.2, finding 2)": untested(
            "needs the three models of Table 1 and one metric that is comparable between them"
        ),
    },
)
