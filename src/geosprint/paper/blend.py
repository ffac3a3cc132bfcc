"""Table 2, left: how much curvature to blend with log-SNR, and how wide the optimum is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from geosprint.baselines import BASELINES
from geosprint.paper.base import Experiment, Finding, Setting
from geosprint.paper.figures import AXIS_LABELS, in_both_formats, known_metrics
from geosprint.paper.measuring import Judged, Yardstick, and_list
from geosprint.report.plots import BLUE, GREEN, GREY, ORANGE, PINK, SKY
from geosprint.schedule import build_schedule

BLENDS = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0)  # the paper's, and steps of 0.2
CLAIMED = (0.5, 0.7)  # where the paper sees the optimum
UNIFORM = ("uniform-leading", "uniform-trailing")

Judgements = dict[int, dict[float, Judged]]  # by K and blend


def run(setting: Setting) -> Finding:
    """Every blend at every K, with uniform spacings beside."""
    yardstick = Yardstick.of(setting)
    profile, noise = yardstick.recording.profile, yardstick.model.noise
    judged = {
        k: {blend: yardstick.judge(build_schedule(profile, k, blend).timesteps) for blend in BLENDS}
        for k in setting.steps
    }
    uniform = {
        (name, k): yardstick.judge(yardstick.times_of(name, k))
        for name in UNIFORM
        if BASELINES[name].applies(noise)
        for k in setting.steps
    }
    rows = [
        {"schedule": "geosprint", "blend": blend, "steps": k, **yardstick.columns(found)}
        for k, by_blend in judged.items()
        for blend, found in by_blend.items()
    ]
    rows += [
        {"schedule": name, "blend": None, "steps": k, **yardstick.columns(found)}
        for (name, k), found in uniform.items()
    ]
    numbers = {
        metric: {str(k): _optimum(yardstick, judged[k], uniform, k, metric) for k in setting.steps}
        for metric in yardstick.metrics
    }
    return Finding("blend", setting, rows, numbers, verdict(numbers))


def _optimum(
    yardstick: Yardstick, judged: dict[float, Judged], uniform: dict[tuple[str, int], Judged], steps: int, metric: str
) -> dict[str, Any]:
    """The best blend, those that chance alone could have put behind it, and uniform steps beside it."""
    means = {blend: float(yardstick.repeated(found, metric).mean()) for blend, found in judged.items()}
    best = min(means, key=lambda blend: means[blend])
    behind = {b: yardstick.gap(judged[b], judged[best], metric) for b in judged if b != best}
    beside = {name: found for (name, k), found in uniform.items() if k == steps}
    return {
        "best": best,
        "within_chance": sorted([best, *(b for b, gap in behind.items() if gap["low"] <= 0)]),
        "behind_best": {f"{b:g}": gap for b, gap in behind.items()},
        "best_minus_uniform": {name: yardstick.gap(judged[best], found, metric) for name, found in beside.items()},
        "log_snr_minus_uniform": {name: yardstick.gap(judged[0.0], found, metric) for name, found in beside.items()},
    }


def verdict(numbers: dict[str, Any]) -> str:
    """Where the optimum lies, whether the paper's range holds it, and whether either end suffices alone."""
    said = []
    for metric, name in (("rmse", "RMSE"), ("frechet_fine", "Fréchet distance to the fine solve")):
        found = numbers[metric]
        best = ", ".join(f"{cell['best']:g} at K = {k} ({_range(cell['within_chance'])})" for k, cell in found.items())
        held = [k for k, cell in found.items() if any(CLAIMED[0] <= b <= CLAIMED[1] for b in cell["within_chance"])]
        claim = f"the paper's 0.5 to 0.7 is within chance of it at {len(held)} of {len(found)} K"
        said.append(f"By {name} the best blend is {best}; {claim}.")
    cells = numbers["rmse"]
    alone = {end: [k for k, cell in cells.items() if end in cell["within_chance"]] for end in (0.0, 1.0)}
    ends = " and ".join(
        f"{name} alone {'is as good at K = ' + and_list(ks) if ks else 'is worse at every K'}"
        for name, ks in (("log-SNR", alone[0.0]), ("curvature", alone[1.0]))
    )
    against = {
        what: [k for k, cell in cells.items() if any(gap["low"] > 0 for gap in cell[f"{what}_minus_uniform"].values())]
        for what in ("best", "log_snr")
    }
    uniform = (
        f"log-SNR alone is farther than a uniform spacing {_at(against['log_snr'])}, "
        f"and even the best blend is {_at(against['best'])}"
    )
    return f"{' '.join(said)} By RMSE {ends}; {uniform}."


def _at(steps: list[str]) -> str:
    return f"at K = {and_list(steps)}" if steps else "at no K"


def _range(blends: list[float]) -> str:
    """The blends that are as good as the best one, as far as these samples tell."""
    if len(blends) == 1:
        return "no other within chance"
    return f"within chance: {and_list([f'{b:g}' for b in blends])}"


BLEND = Experiment(
    "blend",
    paper="Table 2, left: blend of log-SNR and curvature, optimum at 0.5 to 0.7",
    run=run,
    quick={"samples": 16, "fine_steps": 40},
)


LOOKS = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "D"), (PINK, "^"), (SKY, "v"))


def plot(finding: Finding, path: Path) -> list[Path]:
    """A line for each K, bands of one standard deviation over repetitions, rings on the blends within chance."""
    metrics = known_metrics(finding.rows)
    figure = Figure(figsize=(4.6 * len(metrics), 4.2), layout="constrained")
    panels = figure.subplots(1, len(metrics), squeeze=False)[0]
    for axes, metric in zip(panels, metrics, strict=True):
        axes.axvspan(0.5, 0.7, color=GREY, alpha=0.12, lw=0, label="the paper's optimum")
        for i, k in enumerate(sorted({row["steps"] for row in finding.rows})):
            colour, marker = LOOKS[i % len(LOOKS)]
            rows = [row for row in finding.rows if row["steps"] == k and row["blend"] is not None]
            least = min(row[metric] for row in rows)
            blends, shares = [row["blend"] for row in rows], [row[metric] / least for row in rows]
            axes.plot(blends, shares, color=colour, marker=marker, ms=4, lw=1.5, label=f"K = {k}")
            if all(row[f"{metric}_std"] is not None for row in rows):
                errors = [row[f"{metric}_std"] / least for row in rows]
                lows = [share - error for share, error in zip(shares, errors, strict=True)]
                highs = [share + error for share, error in zip(shares, errors, strict=True)]
                axes.fill_between(blends, lows, highs, color=colour, alpha=0.08, lw=0)
            chosen = finding.numbers[metric][str(k)]["within_chance"]
            rings = [(b, s) for b, s in zip(blends, shares, strict=True) if b in chosen]
            axes.plot(*zip(*rings, strict=True), "o", mfc="none", mec=colour, ms=11, lw=0)
        axes.set(
            xlabel="blend: share of curvature (0: log-SNR alone)",
            ylabel=f"{AXIS_LABELS[metric]},\nrelative to the best blend",
        )
        axes.grid(alpha=0.25, lw=0.5)
    panels[0].legend(frameon=False)
    setting = finding.setting
    figure.suptitle(
        f"{setting.model}: {setting.samples} samples, mean ± std over {setting.repetitions} seeds; "
        "rings: as good as the best, as far as chance tells"
    )
    return in_both_formats(figure, path)
