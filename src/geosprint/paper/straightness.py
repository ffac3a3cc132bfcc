"""Table 2 right and Figure 4: how straight the trajectories of different solvers are, at equal terms.

The paper compares DDPM at 79 % pruned with DDIM at 82 %. Here all are pruned alike: the same share of
the points, and then the same score.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from geosprint.estimates import bootstrap_mean
from geosprint.models.base import Model
from geosprint.models.spread import batches_of
from geosprint.noise import Flow
from geosprint.paper.base import Numbers, PaperFinding, Rows, Setting, as_numbers, estimate_in
from geosprint.paper.claims import PaperExperiment, above, at
from geosprint.paper.figures import Panel
from geosprint.paper.measuring import SHARE, ratio_of_means, spread
from geosprint.profile import TARGET_SCORE
from geosprint.runs.store import Shard, shards_in_order
from geosprint.sampling import record_batches
from geosprint.threshold import least_score_at_share, most_pruned_below_score

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
    size = (setting.seeds, setting.reference_steps, solver)

    def grams(batches: Sequence[range]) -> Iterator[Shard]:
        for part in record_batches(model, *size, progress=setting.progress, batches=batches):
            yield {"gram": torch.from_numpy(part.gram())}, {}

    shards = shards_in_order(batches_of(len(setting.seeds), setting.batch), grams)
    gram = np.concatenate([tensors["gram"].numpy() for tensors, _ in shards])
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
        for i, seed in enumerate(setting.seeds)
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


def _means(finding: PaperFinding) -> Rows:
    """Of every solver, with 95 % intervals over trajectories."""
    numbers = finding.numbers
    return [
        {"solver": solver}
        | as_numbers("score", estimate_in(numbers, f"{solver}_score"))
        | as_numbers("pruned", estimate_in(numbers, f"{solver}_pruned"))
        for solver in numbers["solvers"]
    ]


STRAIGHTNESS = PaperExperiment(
    "straightness",
    "Table 2 right, Figure 4: the score drops 450 times from DDPM to DDIM",
    measure,
    figure=(
        Panel("solver", "score", "solver", f"score at {SHARE:.0%} pruned", kind="bars", log="y", rows=_means),
        Panel("solver", "pruned", "solver", f"share pruned at a score of {TARGET_SCORE:g}", kind="bars", rows=_means),
    ),
    quick={"trajectories": 50},
    claims={
        "the score drops 450 times from DDPM to DDIM (Table 2, right)": above(
            f"score of DDPM over that of DDIM at {SHARE:.0%} pruned", 1, 450, of=at("ddpm_over_ddim")
        ),
        "straighter trajectories are more compressible (Figure 4b)": above(
            f"share of points pruned at a score of {TARGET_SCORE:g}, DDIM's minus DDPM's", of=at("ddim_prunes_more")
        ),
    },
)
