"""Does uniform spacing get worse with more steps, or does `leading` spacing start too late? (Table 1, finding 3)"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from geosprint.baselines import BASELINES
from geosprint.errors import ScheduleError
from geosprint.estimates import jackknifed
from geosprint.metrics.distances import frechet_distance
from geosprint.noise import NoiseSchedule
from geosprint.paper.base import Numbers, PaperFinding, Rows, Setting
from geosprint.paper.claims import Claim, Evidence, PaperExperiment, above, estimates
from geosprint.paper.figures import AXIS_LABELS, cells_of, draw_intervals, panels
from geosprint.paper.measuring import Bench, SampleSet
from geosprint.report.plots import BLUE, GREY, ORANGE

STEPS = (25, 29, 34, 39, 40, 44, 50)  # 29 to 44: the paper's on Stable Diffusion; 25, 40 and 50 divide a thousand
REFERENCE = ("leading", 50)  # what the paper measures against there (Section 5.2.1)
WORTH = 0.01  # rises below a hundredth are no reason to doubt a spacing; the paper's are 9 and 16 %
SPACINGS = ("leading", "leading-from-noise", "trailing")

Array = NDArray[np.float64]
Samples = dict[tuple[str, int], SampleSet]  # by spacing and steps


def measure(setting: Setting) -> tuple[Rows, Numbers]:
    """Leading spacing, the same with its first step moved to pure noise, and trailing, at K of the paper's kind."""
    if not BASELINES["uniform-leading"].applies(setting.load().noise):
        raise ScheduleError(f"leading spacing needs whole timesteps, which {setting.model} has not; name another model")
    bench = Bench.of(setting)
    noise = bench.model.noise
    samples = {(spacing, k): bench.sample(times_of(spacing, noise, k)) for spacing in SPACINGS for k in STEPS}
    rows = [_row(bench, spacing, k, found, samples[REFERENCE]) for (spacing, k), found in samples.items()]
    numbers = {
        "rises": {spacing: _rises(bench, samples, spacing) for spacing in SPACINGS},
        "excess": {str(k): _excess(bench, samples, k) for k in STEPS},
    }
    return rows, numbers


def times_of(spacing: str, noise: NoiseSchedule, steps: int) -> Array:
    """A spacing of K steps; `leading-from-noise` differs from `leading` in its first step alone."""
    if spacing == "trailing":
        return BASELINES["uniform-trailing"](noise, steps)
    times = BASELINES["uniform-leading"](noise, steps)
    return times if spacing == "leading" else np.append(noise.first, times[1:])


def _row(bench: Bench, spacing: str, steps: int, found: SampleSet, reference: SampleSet) -> dict[str, Any]:
    """Start and distances, each with a 95 % interval over all samples."""
    first, start = bench.model.noise.first, float(found.timesteps[0])
    row: dict[str, Any] = {
        "spacing": spacing,
        "steps": steps,
        "divides": (first + 1) % steps == 0,
        "nfe": found.nfe,
        "start": start,
        "skipped": first - start,
    }
    distances = {metric: bench.estimate(found, metric) for metric in ("rmse", "frechet_fine")}
    there = jackknifed(_distance(found, reference), len(found.errors))
    for metric, distance in {**distances, "frechet_reference": asdict(there)}.items():
        row |= {metric: distance["value"], f"{metric}_low": distance["low"], f"{metric}_high": distance["high"]}
    return row


def _distance(samples: SampleSet, reference: SampleSet) -> Callable[[Tensor], float]:
    """Fréchet distance between two sets of samples, as a function of which are seen."""
    return lambda rows: frechet_distance(samples.features[rows], reference.features[rows])


def _rises(bench: Bench, samples: Samples, spacing: str) -> Numbers:
    """From each K to the next: how much the distance rises, also as a share of what it rises from."""
    found: Numbers = {"rmse": {}, "frechet_fine": {}, "frechet_reference": {}}
    for few, many in pairwise(STEPS):
        fewer, more = samples[spacing, few], samples[spacing, many]
        rises = {metric: bench.gap(more, fewer, metric) for metric in ("rmse", "frechet_fine")}
        before = {metric: bench.estimate(fewer, metric)["value"] for metric in rises}
        rises["frechet_reference"] = _rise_from(samples[REFERENCE], fewer, more)
        before["frechet_reference"] = frechet_distance(fewer.features, samples[REFERENCE].features)
        for metric, gap in rises.items():
            found[metric][f"{few}-{many}"] = {**gap, "share": gap["value"] / before[metric]}
    return found


def _rise_from(reference: SampleSet, fewer: SampleSet, more: SampleSet) -> Numbers:
    """How much higher the distance to the reference is with more steps than with fewer."""
    far, near = (_distance(one, reference) for one in (more, fewer))
    return asdict(jackknifed(lambda rows: far(rows) - near(rows), len(more.errors)))


def _excess(bench: Bench, samples: Samples, steps: int) -> Numbers:
    """What the late start costs: leading less the same spacing begun at pure noise, and less trailing."""
    late = samples["leading", steps]
    return {
        "over_same_from_noise": bench.gap(late, samples["leading-from-noise", steps], "rmse"),
        "over_trailing": bench.gap(late, samples["trailing", steps], "rmse"),
    }


def _clearest_rises(finding: PaperFinding) -> Evidence:
    """Of each spacing, the rise whose interval lies highest, as a share of the distance that it rises from."""
    found = {}
    for spacing, rises in finding.numbers["rises"].items():
        gaps = [
            {end: gap[end] * gap["share"] / gap["value"] for end in ("value", "low", "high")}
            for by_k in rises.values()
            for gap in by_k.values()
            if gap["value"]
        ]
        found[spacing] = max(gaps, key=lambda gap: gap["low"])
    return estimates(found)


CLAIMS = (
    Claim(
        "uniform DDIM gets worse at high NFE (5.2, finding 3)",
        "the clearest relative rise of RMSE or Fréchet distance from one K to the next, each spacing's",
        above(WORTH),
        _clearest_rises,
    ),
    Claim(
        "our question: leading spacing loses by starting late, below pure noise (not in the paper)",
        "RMSE of leading spacing minus the same with its first step at pure noise",
        above(),
        lambda found: estimates({k: cell["over_same_from_noise"] for k, cell in found.numbers["excess"].items()}),
    ),
)


LOOKS: dict[str, dict[str, Any]] = {
    "leading": {"color": ORANGE, "marker": "o", "label": "leading"},
    "leading-from-noise": {"color": GREY, "marker": "s", "ls": "--", "label": "leading, first step at pure noise"},
    "trailing": {"color": BLUE, "marker": "D", "label": "trailing"},
}
LABELS = {
    **{metric: AXIS_LABELS[metric] for metric in ("rmse", "frechet_fine")},
    "frechet_reference": "squared Fréchet distance to 50 leading steps",
    "start": "first timestep",
}


def draw(finding: PaperFinding) -> Figure:
    """Three distances with intervals, and the start, over K; filled where K divides the training timesteps."""
    figure, axes = panels(4, 17, 4.2)
    for panel, (quantity, label) in zip(axes, LABELS.items(), strict=True):
        for spacing, look in LOOKS.items():
            for filled in (False, True):
                rows = [row for row in finding.where(spacing=spacing) if row["divides"] or not filled]
                shape = {"color": look["color"], "marker": look["marker"], "ls": ""} if filled else look
                across = [row["steps"] for row in rows]
                panel.plot(across, [row[quantity] for row in rows], **shape, **({} if filled else {"mfc": "white"}))
                if quantity != "start" and not filled:
                    bars = {"fmt": "none", "ecolor": look["color"], "lw": 0.8, "capsize": 2, "alpha": 0.6}
                    draw_intervals(panel, across, cells_of(rows, quantity), **bars)
        panel.set(xlabel="steps K (filled: K divides the training timesteps)", ylabel=label)
        panel.set_xticks(sorted(finding.distinct("steps")))
        panel.tick_params(axis="x", rotation=60)
        panel.grid(alpha=0.25, lw=0.5)
    axes[0].legend(frameon=False)
    total = finding.setting.samples * finding.setting.repetitions
    figure.suptitle(f"{finding.setting.model}, ddim: {total} samples from the same noise, 95 % intervals over them")
    return figure


LEADING = PaperExperiment(
    "leading",
    'Table 1 and Figure 2: "uniform DDIM gets worse at high NFE", against the start of leading spacing',
    *(measure, CLAIMS, draw),
    quick={"samples": 24, "repetitions": 1},
)
