"""Does uniform spacing get worse with more steps, or does `leading` spacing start too late? (Table 1, finding 3)"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from geosprint.baselines import BASELINES
from geosprint.errors import ScheduleError
from geosprint.estimates import Estimate
from geosprint.noise import NoiseSchedule
from geosprint.paper.base import Numbers, PaperFinding, Rows, Setting, as_numbers
from geosprint.paper.claims import Evidence, PaperExperiment, above, at, estimates
from geosprint.paper.figures import METRIC_LABELS, Panel
from geosprint.paper.measuring import PAPERS, Array, Bench, SampleSet

STEPS = (25, 29, 34, 39, 40, 44, 50)  # 29 to 44: the paper's on Stable Diffusion; 25, 40 and 50 divide a thousand
REFERENCE = ("leading", 50)  # what the paper measures against there (Section 5.2.1)
WORTH = 0.01  # rises below a hundredth are no reason to doubt a spacing; the paper's are 9 and 16 %
SPACINGS = ("leading", "leading-from-noise", "trailing")
METRICS = ("rmse", "frechet_fine", PAPERS)

Samples = dict[tuple[str, int], SampleSet]  # by spacing and steps


def measure(setting: Setting) -> tuple[Rows, Numbers]:
    """Leading spacing, the same with its first step moved to pure noise, and trailing, at K of the paper's kind."""
    if not BASELINES["uniform-leading"].applies(setting.load().noise):
        raise ScheduleError(f"leading spacing needs whole timesteps, which {setting.model} has not; name another model")
    bench = Bench.of(setting)
    noise = bench.model.noise
    samples = {(spacing, k): bench.sample(times_of(spacing, noise, k)) for spacing in SPACINGS for k in STEPS}
    bench = replace(bench, papers_features=samples[REFERENCE].features)
    rows = [_row(bench, *key, found) for key, found in samples.items()]
    rises = {spacing: {metric: _rises(bench, samples, spacing, metric) for metric in METRICS} for spacing in SPACINGS}
    return rows, {"rises": rises, "excess": {str(k): _excess(bench, samples, k) for k in STEPS}}


def times_of(spacing: str, noise: NoiseSchedule, steps: int) -> Array:
    """A spacing of K steps; `leading-from-noise` differs from `leading` in its first step alone."""
    if spacing == "trailing":
        return BASELINES["uniform-trailing"](noise, steps)
    times = BASELINES["uniform-leading"](noise, steps)
    return times if spacing == "leading" else np.append(noise.first, times[1:])


def _row(bench: Bench, spacing: str, steps: int, found: SampleSet) -> dict[str, Any]:
    """Start and distances, each with a 95 % interval over all samples."""
    first, start = bench.model.noise.first, float(found.timesteps[0])
    row = {"spacing": spacing, "steps": steps, "divides": (first + 1) % steps == 0, "nfe": found.nfe, "start": start}
    row |= {"skipped": first - start}
    for metric in METRICS:
        row |= as_numbers(metric, Estimate(**bench.estimate(found, metric)))
    return row


def _rises(bench: Bench, samples: Samples, spacing: str, metric: str) -> Numbers:
    """From each K to the next: how much the distance rises, also as a share of what it rises from."""
    found = {}
    for few, many in pairwise(STEPS):
        gap = bench.gap(samples[spacing, many], samples[spacing, few], metric)
        before = bench.estimate(samples[spacing, few], metric)["value"]
        found[f"{few}-{many}"] = {**gap, "share": gap["value"] / before}
    return found


def _excess(bench: Bench, samples: Samples, steps: int) -> Numbers:
    """What the late start costs: leading less the same spacing begun at pure noise, and less trailing."""
    others = {"over_same_from_noise": "leading-from-noise", "over_trailing": "trailing"}
    late = samples["leading", steps]
    return {name: bench.gap(late, samples[other, steps], "rmse") for name, other in others.items()}


def _clearest_rises(finding: PaperFinding) -> Evidence:
    """Of each spacing, the rise whose interval lies highest, as a share of the distance that it rises from."""
    found = {}
    for spacing, rises in finding.numbers["rises"].items():
        gaps = [gap for by_k in rises.values() for gap in by_k.values() if gap["value"]]
        shares = [{end: gap[end] * gap["share"] / gap["value"] for end in ("value", "low", "high")} for gap in gaps]
        found[spacing] = max(shares, key=lambda gap: gap["low"])
    return estimates(found)


LABELS = {metric: METRIC_LABELS[metric] for metric in METRICS} | {"start": "first timestep"}
LEADING = PaperExperiment(
    "leading",
    'Table 1 and Figure 2: "uniform DDIM gets worse at high NFE", against the start of leading spacing',
    measure,
    figure=tuple(
        Panel("steps", name, "steps K", label, "95 % intervals over samples", by="spacing")
        for name, label in LABELS.items()
    ),
    quick={"samples": 24, "repetitions": 1},
    claims={
        "uniform DDIM gets worse at high NFE (5.2, finding 3)": above(
            "the clearest relative rise of RMSE or Fréchet distance from one K to the next, each spacing's",
            WORTH,
            of=_clearest_rises,
        ),
        "our question: leading spacing loses by starting late, below pure noise (not in the paper)": above(
            "RMSE of leading spacing minus the same with its first step at pure noise",
            of=at("excess", "*", "over_same_from_noise"),
        ),
    },
)
