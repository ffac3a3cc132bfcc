"""Table 2 right and Figure 4: how straight the trajectories of different solvers are, at equal terms.

The paper compares DDPM at 79 % pruned with DDIM at 82 %. Here all are pruned alike: the same share of
the points, and then the same score.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from geosprint.estimates import bootstrap_mean
from geosprint.models.base import Model
from geosprint.noise import Flow
from geosprint.paper.base import Numbers, PaperFinding, Rows, Setting
from geosprint.paper.claims import Claim, Evidence, PaperExperiment, above
from geosprint.paper.figures import draw_intervals, panels
from geosprint.paper.measuring import as_numbers, estimate_in, ratio_of_means, recorded_seeds, spread
from geosprint.profile import TARGET_SCORE
from geosprint.report.plots import BLUE, GREEN, ORANGE, RED
from geosprint.sampling import record_batches
from geosprint.threshold import least_score_at_share, most_pruned_below_score

Array = NDArray[np.float64]

SHARE = 0.8  # of the points, near the paper's 79, 82 and 84 %
SOLVERS = ("ddpm", "ddim", "dpmpp-2m", "heun")


def measure(setting: Setting) -> tuple[Rows, Numbers]:
    """Record the same seeds with every solver, and prune all to the same share and to the same score."""
    model = setting.load()
    rows = [row for solver in solvers_for(model) for row in _rows_of(solver, model, setting)]
    return rows, numbers_from(rows)


def solvers_for(model: Model) -> list[str]:
    """All of them; ancestral sampling is not defined for a flow."""
    return [solver for solver in SOLVERS if solver != "ddpm" or not isinstance(model.noise, Flow)]


def _rows_of(solver: str, model: Model, setting: Setting) -> Rows:
    """A row for every trajectory of this solver."""
    seeds, batch = recorded_seeds(setting), setting.batch
    parts = record_batches(model, seeds, setting.reference_steps, solver, batch=batch, progress=setting.progress)
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


def numbers_from(rows: Rows) -> Numbers:
    """Means of every solver and the two comparisons of the paper, seeds paired."""
    solvers = list(dict.fromkeys(row["solver"] for row in rows))
    scores, shares = (
        {solver: np.array([row[name] for row in rows if row["solver"] == solver]) for solver in solvers}
        for name in ("score_at_share", "share_at_score")
    )
    numbers: Numbers = {"share": SHARE, "target_score": TARGET_SCORE, "solvers": solvers}
    for solver in solvers:
        numbers |= as_numbers(f"{solver}_score", bootstrap_mean(scores[solver]))
        numbers |= {f"{solver}_score_std": spread(scores[solver])}
        numbers |= as_numbers(f"{solver}_pruned", bootstrap_mean(shares[solver]))
    if "ddpm" in solvers:
        numbers |= as_numbers("ddpm_over_ddim", ratio_of_means(scores["ddpm"], scores["ddim"]))
        numbers |= as_numbers("ddim_prunes_more", bootstrap_mean(shares["ddim"] - shares["ddpm"]))
    return numbers


def _estimate(finding: PaperFinding, name: str) -> Evidence:
    """One comparison with DDPM, which a flow has not."""
    return {"": estimate_in(finding.numbers, name)} if name in finding.numbers else {}


CLAIMS = (
    Claim(
        "the score drops 450 times from DDPM to DDIM (Table 2, right)",
        f"score of DDPM over that of DDIM at {SHARE:.0%} pruned",
        above(1, 450),
        lambda found: _estimate(found, "ddpm_over_ddim"),
    ),
    Claim(
        "straighter trajectories are more compressible (Figure 4b)",
        f"share of points pruned at a score of {TARGET_SCORE:g}, DDIM's minus DDPM's",
        above(),
        lambda found: _estimate(found, "ddim_prunes_more"),
    ),
)


COLOURS = {"ddpm": RED, "ddim": BLUE, "dpmpp-2m": GREEN, "heun": ORANGE}
NAMES = {"ddpm": "DDPM", "ddim": "DDIM", "dpmpp-2m": "DPM++ 2M", "heun": "Heun"}


def draw(finding: PaperFinding) -> Figure:
    """Every trajectory a dot, every solver's mean with its 95 % interval."""
    figure, (scores, shares) = panels(2, 8.5, 3.6)
    numbers = finding.numbers
    for number, solver in enumerate(numbers["solvers"]):
        rows = finding.where(solver=solver)
        aside = number + np.linspace(-0.22, 0.22, len(rows))  # spread, so that no dot hides another
        for axes, column, mean, scale in (
            (scores, "score_at_share", "score", 1),
            (shares, "share_at_score", "pruned", 100),
        ):
            axes.plot(aside, [scale * float(row[column]) for row in rows], ".", ms=4, alpha=0.45, color=COLOURS[solver])
            found = estimate_in(numbers, f"{solver}_{mean}")
            cell = {end: scale * value for end, value in vars(found).items()}
            look = {"fmt": "D", "ms": 4, "capsize": 4, "color": "black"}
            draw_intervals(axes, [number + 0.34], [cell], **look, label=None if number else "mean, 95 % interval")
    scores.set(yscale="log", ylabel=r"projection score $\alpha_{traj}$", title=f"At {numbers['share']:.0%} pruned")
    shares.set(ylabel="points pruned (%)", title=rf"At $\alpha_{{traj}} \leq$ {numbers['target_score']:g}")
    for axes in (scores, shares):
        axes.set_xticks(range(len(numbers["solvers"])), [NAMES[solver] for solver in numbers["solvers"]])
        axes.set_xlabel("solver")
    scores.legend(frameon=False)
    figure.suptitle(f"{finding.setting.model}: {finding.setting.reference_steps} steps of each solver, same seeds")
    return figure


STRAIGHTNESS = PaperExperiment(
    "straightness",
    "Table 2 right, Figure 4: the score drops 450 times from DDPM to DDIM",
    *(measure, CLAIMS, draw),
    quick={"trajectories": 50},
)
