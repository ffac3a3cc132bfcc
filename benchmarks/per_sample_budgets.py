"""Do the first steps of a sample tell how many more it needs, and would it pay to listen?

python -m benchmarks.per_sample_budgets digits fashion
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from scipy.stats import spearmanr

from geosprint import load_model
from geosprint.baselines import BASELINES
from geosprint.estimates import Estimate, bootstrapped, endpoint_errors
from geosprint.models.base import Model
from geosprint.sampling import sample, walk
from geosprint.solvers import solver_named
from geosprint.teacher import FINE_SOLVER, fine_timesteps

FEWER, STEPS, MORE = 8, 10, 12
FIRST = 4  # steps that are listened to
SPACING = "uniform-trailing"
SEEDS = range(30_000_000, 30_000_128)


@torch.no_grad()
def first_signs(model: Model, seeds: range) -> dict[str, np.ndarray]:
    """What the first steps of each sample show: how far its x0 moves, and how sharply its path turns."""
    noise = torch.stack([torch.randn(model.shape, generator=torch.Generator().manual_seed(seed)) for seed in seeds])
    states = []
    for state in walk(model, noise, BASELINES[SPACING](model.noise, STEPS), solver_named("ddim"), lambda: noise):
        states.append(state)
        if len(states) == FIRST:
            break
    x0 = torch.stack([state.prediction.x0.flatten(1) for state in states if state.prediction]).double()
    changes = x0.diff(dim=0)
    turned = torch.nn.functional.cosine_similarity(changes[1:], changes[:-1], dim=2)
    return {
        "how far x0 moved last": changes[-1].norm(dim=1).numpy(),
        "how far x0 moved in all": changes.norm(dim=2).sum(dim=0).numpy(),
        "how sharply x0 turned": 1 - turned.mean(dim=0).numpy(),
    }


def told_and_gained(sign: np.ndarray, errors: dict[int, np.ndarray]) -> tuple[Estimate, Estimate]:
    """Rank correlation of a sign with the benefit of more steps, and the share of error that spending by it saves."""
    benefit = errors[FEWER] - errors[MORE]
    spent = np.where(sign > np.median(sign), errors[MORE], errors[FEWER])
    told = bootstrapped(lambda rows: spearmanr(sign[rows], benefit[rows])[0], len(sign))
    gained = bootstrapped(lambda rows: 1 - spent[rows].mean() / errors[STEPS][rows].mean(), len(sign))
    return told, gained


def main() -> None:
    """Print, for each model, what each sign predicts and what spending by it would gain."""
    for name in sys.argv[1:] or ["digits", "fashion"]:
        model = load_model(name)
        fine = sample(model, fine_timesteps(model.noise, 60), SEEDS, FINE_SOLVER)
        errors = {
            k: endpoint_errors(sample(model, BASELINES[SPACING](model.noise, k), SEEDS), fine)
            for k in (FEWER, STEPS, MORE)
        }
        print(f"{name}: error {errors[STEPS].mean():.4f} with {STEPS} steps for every sample")
        benefit = errors[FEWER] - errors[MORE]
        for sign, values in {**first_signs(model, SEEDS), "the benefit itself (nobody knows it)": benefit}.items():
            told, gained = told_and_gained(values, errors)
            print(
                f"  {sign}: Spearman with the benefit of {MORE} over {FEWER} steps {told.value:.2f} "
                f"({told.low:.2f} to {told.high:.2f}); {MORE} steps for the upper half and {FEWER} for the lower: "
                f"{gained.value:+.1%} ({gained.low:+.1%} to {gained.high:+.1%})"
            )


if __name__ == "__main__":
    main()
