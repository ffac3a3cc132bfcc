"""Table 2 right and Figure 4: how straight the paths of different solvers are, at equal terms.

The paper compares DDPM at 79 % pruned with DDIM at 82 %. Here all are pruned alike: the same share of
the points, and then the same score.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from geosprint.metrics.estimates import bootstrap_mean
from geosprint.models.base import Model
from geosprint.noise import Flow
from geosprint.paper.base import Experiment, Finding, Setting
from geosprint.paper.figures import in_both_formats
from geosprint.paper.measuring import as_numbers, ratio_of_means, spread
from geosprint.profile import TARGET_SCORE
from geosprint.report.plots import BLUE, GREEN, ORANGE, RED
from geosprint.sampling import record_batches
from geosprint.threshold import least_score_at_share, most_pruned_below_score

Array = NDArray[np.float64]

SHARE = 0.8  # of the points, near the paper's 79, 82 and 84 %
SOLVERS = ("ddpm", "ddim", "dpmpp-2m", "heun")
PAPER_RATIO = 450.0


def run(setting: Setting) -> Finding:
    """Record the same seeds with every solver, and prune all to the same share and to the same score."""
    model = setting.load()
    rows = [row for solver in solvers_for(model) for row in rows_of(solver, model, setting)]
    numbers = numbers_from(rows)
    return Finding("straightness", setting, rows, numbers, verdict(numbers))


def solvers_for(model: Model) -> list[str]:
    """All of them; ancestral sampling is not defined for a flow."""
    return [solver for solver in SOLVERS if solver != "ddpm" or not isinstance(model.noise, Flow)]


def rows_of(solver: str, model: Model, setting: Setting) -> list[dict[str, Any]]:
    """A row for every trajectory of this solver."""
    seeds = range(setting.seed, setting.seed + setting.trajectories)
    parts = record_batches(
        model, seeds, setting.reference_steps, solver, batch=setting.batch, progress=setting.progress
    )
    gram = np.concatenate([part.gram() for part in parts])
    at_share, at_score = least_score_at_share(gram, SHARE), most_pruned_below_score(gram, TARGET_SCORE)
    return [
        {
            "solver": solver,
            "seed": seed,
            "score_at_share": float(at_share.scores[i]),
            "share_reached": float((~at_share.kept[i]).mean()),
            "share_at_score": float((~at_score.kept[i]).mean()),
            "reference_steps": setting.reference_steps,
        }
        for i, seed in enumerate(seeds)
    ]


def numbers_from(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means of every solver and the two comparisons of the paper, seeds paired."""
    solvers = list(dict.fromkeys(row["solver"] for row in rows))
    numbers: dict[str, Any] = {"share": SHARE, "target_score": TARGET_SCORE, "solvers": solvers}
    for solver in solvers:
        scores = column(rows, solver, "score_at_share")
        numbers |= as_numbers(f"{solver}_score", bootstrap_mean(scores)) | {f"{solver}_score_std": spread(scores)}
        numbers |= as_numbers(f"{solver}_pruned", bootstrap_mean(column(rows, solver, "share_at_score")))
    for above, below in (("ddpm", "ddim"), ("ddim", "dpmpp-2m")):
        if above in solvers:
            one, other = (column(rows, solver, "score_at_share") for solver in (above, below))
            numbers |= as_numbers(f"{above}_over_{below}", ratio_of_means(one, other))
    smooth = [numbers[f"{solver}_score"] for solver in solvers if solver != "ddpm"]
    numbers["largest_over_smallest_without_noise"] = max(smooth) / min(smooth)
    if "ddpm" in solvers:
        gained = column(rows, "ddim", "share_at_score") - column(rows, "ddpm", "share_at_score")
        numbers |= as_numbers("ddim_prunes_more", bootstrap_mean(gained))
    return numbers


def column(rows: list[dict[str, Any]], solver: str, name: str) -> Array:
    """One number of each trajectory of a solver."""
    return np.array([row[name] for row in rows if row["solver"] == solver])


def verdict(numbers: dict[str, Any]) -> str:
    """Whether the score drops from DDPM to DDIM, and how far the paper's factor is."""
    if "ddpm_over_ddim" not in numbers:
        return (
            "No verdict on the drop from DDPM to DDIM: ancestral sampling is not defined for this flow. "
            f"Its DDIM paths score {numbers['ddim_score']:.2g} at {SHARE:.0%} pruned."
        )
    ratio, low, high = (numbers[f"ddpm_over_ddim{end}"] for end in ("", "_low", "_high"))
    said = (
        f"At {SHARE:.0%} pruned DDPM scores {ratio:.3g} times as high as DDIM (95 % interval {low:.3g} to {high:.3g})"
    )
    if low <= 1:
        return f"{said}: the drop that the paper puts at {PAPER_RATIO:g} times is not there."
    size = "as large as" if low <= PAPER_RATIO <= high else "larger than" if low > PAPER_RATIO else "smaller than"
    more, apart = numbers["ddim_prunes_more_low"], numbers["largest_over_smallest_without_noise"]
    compressible = (
        f"At a score of {TARGET_SCORE:g} DDIM can be pruned by {numbers['ddim_pruned']:.0%} and DDPM by "
        f"{numbers['ddpm_pruned']:.0%}, so straighter paths are {'' if more > 0 else 'not '}more compressible."
    )
    among = f"Among solvers that draw no noise it differs {apart:.2f} times at most."
    return f"{said}: there is a drop, {size} the paper's {PAPER_RATIO:g} times. {compressible} {among}"


STRAIGHTNESS = Experiment(
    "straightness",
    paper="Table 2 right, Figure 4: the score drops 450 times from DDPM to DDIM",
    run=run,
    quick={"trajectories": 50},
)


COLOURS = {"ddpm": RED, "ddim": BLUE, "dpmpp-2m": GREEN, "heun": ORANGE}
NAMES = {"ddpm": "DDPM", "ddim": "DDIM", "dpmpp-2m": "DPM++ 2M", "heun": "Heun"}


def plot(finding: Finding, path: Path) -> list[Path]:
    """Every trajectory a dot, every solver's mean with its 95 % interval."""
    figure = Figure(figsize=(8.5, 3.6), layout="constrained")
    scores, shares = figure.subplots(1, 2)
    numbers = finding.numbers
    for place, solver in enumerate(numbers["solvers"]):
        rows = [row for row in finding.rows if row["solver"] == solver]
        aside = place + np.linspace(-0.22, 0.22, len(rows))  # spread, so that no dot hides another
        for axes, column, mean in ((scores, "score_at_share", "score"), (shares, "share_at_score", "pruned")):
            scale = 1 if column == "score_at_share" else 100
            axes.plot(aside, [scale * float(row[column]) for row in rows], ".", ms=4, alpha=0.45, color=COLOURS[solver])
            value, low, high = (scale * numbers[f"{solver}_{mean}{end}"] for end in ("", "_low", "_high"))
            label = "mean, 95 % interval" if place == 0 else None
            axes.errorbar(
                place + 0.34,
                value,
                [[value - low], [high - value]],
                fmt="D",
                ms=4,
                capsize=4,
                color="black",
                label=label,
            )
    scores.set(yscale="log", ylabel=r"projection score $\alpha_{traj}$", title=f"At {numbers['share']:.0%} pruned")
    shares.set(ylabel="points pruned (%)", title=rf"At $\alpha_{{traj}} \leq$ {numbers['target_score']:g}")
    for axes in (scores, shares):
        axes.set_xticks(range(len(numbers["solvers"])), [NAMES[solver] for solver in numbers["solvers"]])
        axes.set_xlabel("solver")
    scores.legend(frameon=False)
    figure.suptitle(f"{finding.setting.model}: {finding.setting.reference_steps} steps of each solver, same seeds")
    return in_both_formats(figure, path)
