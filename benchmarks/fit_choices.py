"""What the choices of a fit are worth on exact models: `python -m benchmarks.fit_choices` prints the table."""

from __future__ import annotations

import geosprint
from geosprint.baselines import baseline_schedule
from geosprint.comparison.plan import FRESH_SEED
from geosprint.estimates import endpoint_errors
from geosprint.fitting import stepwise as least_squares
from geosprint.fitting.fit import calls_needed, fit
from geosprint.sampling import sample
from geosprint.teacher import FINE_SOLVER, fine_timesteps

SEEDS = range(FRESH_SEED, FRESH_SEED + 128)
CELLS = [("gaussian", 5), ("gaussian", 10), ("digits", 5), ("digits", 10), ("digits", 20)]
WAYS = {
    "the default: order 4, 48 trajectories": {},
    "order 1": {"order": 1},
    "order 2": {"order": 2},
    "order 3": {"order": 3},
    "16 trajectories": {"trajectories": 16},
    "32 trajectories": {"trajectories": 32},
    "64 trajectories": {"trajectories": 64},
    "step by step alone, not refined on the end": {"refine": False},
    "step by step alone, squares instead of distances": {"refine": False, "squares": True},
}


def error(name, steps, truth, refine=True, squares=False, **asked):
    """On fresh noise, on the quadratic spacing, so that nothing but the fit differs."""
    model = geosprint.load_model(name)
    place = baseline_schedule("quadratic", model.noise, steps)
    rounds = least_squares.ROUNDS
    least_squares.ROUNDS = 1 if squares else rounds
    if not refine:
        asked["budget_nfe"] = calls_needed(model, steps, 48, 32)
    found = fit(model, steps, place, **asked)
    least_squares.ROUNDS = rounds
    return endpoint_errors(sample(model, place.timesteps, SEEDS, found), truth).mean()


def main():
    truths = {}
    for name in {name for name, _ in CELLS}:
        model = geosprint.load_model(name)
        truths[name] = sample(model, fine_timesteps(model.noise, 100), SEEDS, FINE_SOLVER)
    print("| RMSE on fresh noise | " + " | ".join(f"{name}, K = {steps}" for name, steps in CELLS) + " |")
    print("|---|" + "---:|" * len(CELLS))
    for about, asked in WAYS.items():
        errors = [error(name, steps, truths[name], **asked) for name, steps in CELLS]
        print(f"| {about} | " + " | ".join(f"{one:.4f}" for one in errors) + " |", flush=True)


if __name__ == "__main__":
    main()
