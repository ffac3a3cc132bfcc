"""Table 2, left: how much curvature to blend with log-SNR, and how wide the optimum is."""

from __future__ import annotations

from typing import Any

from geosprint.estimates import Estimate
from geosprint.paper.base import Numbers, PaperFinding, Rows, Setting, as_numbers
from geosprint.paper.claims import Evidence, PaperExperiment, above, at, estimates, not_above
from geosprint.paper.figures import METRIC_LABELS, Panel
from geosprint.paper.measuring import METRICS, Bench, SampleSet
from geosprint.schedule import build_schedule

BLENDS = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0)  # the paper's, and steps of 0.2
CLAIMED = (0.5, 0.7)  # where the paper sees the optimum
UNIFORM = ("uniform-leading", "uniform-trailing")
NOTHING = {"value": 0.0, "low": 0.0, "high": 0.0}  # that the best blend is behind itself


def measure(setting: Setting) -> tuple[Rows, Numbers]:
    """Every blend at every K, with uniform spacings beside."""
    bench = Bench.of(setting)
    uniform, profile = bench.applicable(UNIFORM), bench.recording.profile
    places = [(blend, k) for k in setting.steps for blend in BLENDS]
    samples: dict[Any, SampleSet] = {
        ("geosprint", blend, k): bench.sample(build_schedule(profile, k, blend).timesteps) for blend, k in places
    }
    samples |= {(name, None, k): bench.sample(bench.times_of(name, k)) for name in uniform for k in setting.steps}
    numbers = {
        metric: {str(k): _optimum(bench, samples, k, uniform, metric) for k in setting.steps}
        for metric in bench.metrics
    }
    return bench.rows(("schedule", "blend", "steps"), samples), numbers


def _optimum(bench: Bench, samples: dict[Any, SampleSet], steps: int, uniform: list[str], metric: str) -> Numbers:
    """The best blend, those that chance alone could have put behind it, and uniform steps beside it."""
    blends = {blend: samples["geosprint", blend, steps] for blend in BLENDS}
    means = {blend: float(bench.repeated(found, metric).mean()) for blend, found in blends.items()}
    best = min(means, key=lambda blend: means[blend])
    behind = {blend: bench.gap(found, blends[best], metric) for blend, found in blends.items() if blend != best}
    return {
        "best": best,
        "within_chance": sorted([best, *(blend for blend, gap in behind.items() if gap["low"] <= 0)]),
        "behind_best": {f"{blend:g}": gap for blend, gap in behind.items()},
        "log_snr_minus_uniform": {name: bench.gap(blends[0], samples[name, None, steps], metric) for name in uniform},
    }


def _behind_best(finding: PaperFinding, metric: str = "frechet_fine") -> dict[tuple[str, float], Numbers]:
    """How far every blend is behind the best one, by K and blend."""
    cells = finding.numbers.get(metric, {}).items()
    return {(k, blend): cell["behind_best"].get(f"{blend:g}", NOTHING) for k, cell in cells for blend in BLENDS}


def _claimed_blends(finding: PaperFinding) -> Evidence:
    """The best of the claimed blends, at every K."""
    behind, found = _behind_best(finding), {}
    for k in finding.numbers["frechet_fine"]:
        gaps = [behind[k, blend] for blend in BLENDS if CLAIMED[0] <= blend <= CLAIMED[1]]
        found[f"K = {k}"] = min(gaps, key=lambda gap: gap["value"])
    return estimates(found)


def _ends(finding: PaperFinding) -> Evidence:
    names = {0.0: "log-SNR", 1.0: "curvature"}
    return estimates({f"{names[b]} {k}": gap for (k, b), gap in _behind_best(finding).items() if b in names})


def _shares_behind(finding: PaperFinding) -> Rows:
    """How much worse every blend is than the best of its K, as a share of it, with paired intervals."""
    rows: dict[tuple[str, float], dict[str, Any]] = {}
    for metric in METRICS:
        for (k, blend), gap in _behind_best(finding, metric).items():
            (best,) = finding.where(steps=int(k), blend=finding.numbers[metric][k]["best"])
            share = Estimate(*(gap[end] / best[metric] for end in NOTHING))
            row = rows.setdefault((k, blend), {"steps": int(k), "blend": blend, **dict.fromkeys(METRICS)})
            row |= as_numbers(metric, share)
    return list(rows.values())


CURVATURE, EXCESS = "share of curvature (0: log-SNR alone)", "excess over the best blend, relative"
BLEND = PaperExperiment(
    "blend",
    "Table 2, left: blend of log-SNR and curvature, optimum at 0.5 to 0.7",
    measure,
    figure=tuple(
        Panel("blend", metric, CURVATURE, METRIC_LABELS[metric], EXCESS, by="steps", rows=_shares_behind)
        for metric in METRICS
    ),
    quick={"samples": 16, "fine_steps": 40},
    claims={
        "the blend has a broad optimum at 0.5 to 0.7 (Table 2, left)": not_above(
            "Fréchet distance to the reference solve, the best of 0.5, 0.6 and 0.7 minus the best of all",
            of=_claimed_blends,
        ),
        "log-SNR alone is worse than DDIM uniform (5.3)": above(
            "Fréchet distance to the reference solve, log-SNR's minus a uniform spacing's",
            of=at("frechet_fine", "*", "log_snr_minus_uniform"),
        ),
        "neither log-SNR nor curvature alone suffices (5.3)": above(
            "Fréchet distance to the reference solve, either alone minus the best blend", of=_ends
        ),
    },
)
