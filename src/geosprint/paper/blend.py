"""Table 2, left: how much curvature to blend with log-SNR, and how wide the optimum is."""

from __future__ import annotations

from matplotlib.figure import Figure

from geosprint.paper.base import Numbers, PaperFinding, Rows, Setting
from geosprint.paper.claims import Claim, Evidence, PaperExperiment, above, estimates, not_above
from geosprint.paper.figures import AXIS_LABELS, STEP_LOOKS, known_metrics, panels, repetitions_of
from geosprint.paper.measuring import Bench, SampleSet
from geosprint.report.plots import GREY
from geosprint.schedule import build_schedule

BLENDS = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0)  # the paper's, and steps of 0.2
CLAIMED = (0.5, 0.7)  # where the paper sees the optimum
UNIFORM = ("uniform-leading", "uniform-trailing")


def measure(setting: Setting) -> tuple[Rows, Numbers]:
    """Every blend at every K, with uniform spacings beside."""
    bench = Bench.of(setting)
    profile, names = bench.recording.profile, bench.applicable(UNIFORM)
    blends = {
        k: {blend: bench.sample(build_schedule(profile, k, blend).timesteps) for blend in BLENDS} for k in setting.steps
    }
    uniform = {k: {name: bench.sample(bench.times_of(name, k)) for name in names} for k in setting.steps}
    rows: Rows = [
        {"schedule": "geosprint", "blend": blend, "steps": k, **bench.columns(found)}
        for k, by_blend in blends.items()
        for blend, found in by_blend.items()
    ]
    rows += [
        {"schedule": name, "blend": None, "steps": k, **bench.columns(uniform[k][name])}
        for name in names
        for k in setting.steps
    ]
    numbers = {
        metric: {str(k): _optimum(bench, blends[k], uniform[k], metric) for k in setting.steps}
        for metric in bench.metrics
    }
    return rows, numbers


def _optimum(bench: Bench, blends: dict[float, SampleSet], uniform: dict[str, SampleSet], metric: str) -> Numbers:
    """The best blend, those that chance alone could have put behind it, and uniform steps beside it."""
    means = {blend: float(bench.repeated(found, metric).mean()) for blend, found in blends.items()}
    best = min(means, key=lambda blend: means[blend])
    behind = {blend: bench.gap(found, blends[best], metric) for blend, found in blends.items() if blend != best}
    return {
        "best": best,
        "within_chance": sorted([best, *(blend for blend, gap in behind.items() if gap["low"] <= 0)]),
        "behind_best": {f"{blend:g}": gap for blend, gap in behind.items()},
        "log_snr_minus_uniform": {name: bench.gap(blends[0.0], found, metric) for name, found in uniform.items()},
    }


def _behind_best(finding: PaperFinding, blends: tuple[float, ...]) -> dict[str, list[Numbers]]:
    """How far these blends are behind the best one, by K."""
    nothing = {"value": 0.0, "low": 0.0, "high": 0.0}
    cells = finding.numbers["frechet_fine"]
    return {
        k: [nothing if blend == cell["best"] else cell["behind_best"][f"{blend:g}"] for blend in blends]
        for k, cell in cells.items()
    }


def _claimed_blends(finding: PaperFinding) -> Evidence:
    """The best of the claimed blends, at every K."""
    claimed = tuple(blend for blend in BLENDS if CLAIMED[0] <= blend <= CLAIMED[1])
    found = _behind_best(finding, claimed)
    return estimates({f"K = {k}": min(gaps, key=lambda gap: gap["value"]) for k, gaps in found.items()})


def _ends(finding: PaperFinding) -> Evidence:
    found = _behind_best(finding, (0.0, 1.0))
    names = ("log-SNR", "curvature")
    return estimates({f"{name} {k}": gap for k in found for name, gap in zip(names, found[k], strict=True)})


CLAIMS = (
    Claim(
        "the blend has a broad optimum at 0.5 to 0.7 (Table 2, left)",
        "Fréchet distance to the reference solve, the best of 0.5, 0.6 and 0.7 minus the best of all",
        not_above(),
        _claimed_blends,
    ),
    Claim(
        "log-SNR alone is worse than DDIM uniform (5.3)",
        "Fréchet distance to the reference solve, log-SNR's minus a uniform spacing's",
        above(),
        lambda found: estimates(
            {k: cell["log_snr_minus_uniform"] for k, cell in found.numbers["frechet_fine"].items()}
        ),
    ),
    Claim(
        "neither log-SNR nor curvature alone suffices (5.3)",
        "Fréchet distance to the reference solve, either alone minus the best blend",
        above(),
        _ends,
    ),
)


def draw(finding: PaperFinding) -> Figure:
    """A line for each K, bands of one standard deviation over repetitions, rings on the blends within chance."""
    metrics = known_metrics(finding.rows)
    figure, axes = panels(len(metrics), 4.6 * len(metrics), 4.2)
    for panel, metric in zip(axes, metrics, strict=True):
        panel.axvspan(*CLAIMED, color=GREY, alpha=0.12, lw=0, label="the paper's optimum")
        for i, k in enumerate(sorted(finding.distinct("steps"))):
            colour, marker = STEP_LOOKS[i % len(STEP_LOOKS)]
            rows = finding.where(steps=k, schedule="geosprint")
            least = min(row[metric] for row in rows)
            shares = {row["blend"]: row[metric] / least for row in rows}
            panel.plot(list(shares), list(shares.values()), color=colour, marker=marker, ms=4, lw=1.5, label=f"K = {k}")
            if all(row[f"{metric}_std"] is not None for row in rows):
                ends = [[(row[metric] + side * row[f"{metric}_std"]) / least for row in rows] for side in (-1, 1)]
                panel.fill_between(list(shares), *ends, color=colour, alpha=0.08, lw=0)
            rings = finding.numbers[metric][str(k)]["within_chance"]
            panel.plot(rings, [shares[blend] for blend in rings], "o", mfc="none", mec=colour, ms=11, lw=0)
        label = f"{AXIS_LABELS[metric]},\nrelative to the best blend"
        panel.set(xlabel="blend: share of curvature (0: log-SNR alone)", ylabel=label)
        panel.grid(alpha=0.25, lw=0.5)
    axes[0].legend(frameon=False)
    figure.suptitle(f"{finding.setting.model}: {repetitions_of(finding)}; rings: within chance of the best")
    return figure


BLEND = PaperExperiment(
    "blend",
    "Table 2, left: blend of log-SNR and curvature, optimum at 0.5 to 0.7",
    *(measure, CLAIMS, draw),
    quick={"samples": 16, "fine_steps": 40},
)
