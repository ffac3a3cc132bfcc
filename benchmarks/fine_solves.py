"""How far fine solves are from a much finer one: `python -m benchmarks.fine_solves gaussian digits fashion`.

Both matter: a fit learns the errors of the walks it follows, and a comparison cannot see what its truth gets wrong.
"""

from __future__ import annotations

import sys

import geosprint
from geosprint.baselines import quadratic
from geosprint.estimates import endpoint_errors
from geosprint.sampling import sample
from geosprint.teacher import FINE_SOLVER, GUIDED_SOLVER, POWER, SOLVER, STEPS, fine_steps, fine_timesteps

SEEDS = range(12)
TRUTH = 1000  # Heun steps, twice as many calls; all that a model of whole timesteps has
HEUN = (60, 100, 200)


def main(names):
    """A row for each solve, a column for each model."""
    models = {name: geosprint.load_model(name) for name in names}
    solves = {
        f"{STEPS} {SOLVER} steps, power {POWER} (teacher trajectories)": (fine_steps, SOLVER),
        f"{STEPS} {GUIDED_SOLVER} steps, power {POWER} (teacher trajectories of guided models)": (
            fine_steps,
            GUIDED_SOLVER,
        ),
        f"{STEPS} unipc steps, power 2": (lambda noise: quadratic(noise, STEPS), "unipc"),
    }
    for steps in HEUN:
        label = f"{steps} {FINE_SOLVER} steps, power"
        solves[f"{label} {POWER} (reference of comparisons)"] = (
            lambda noise, n=steps: fine_timesteps(noise, n),
            FINE_SOLVER,
        )
        solves[f"{label} 2"] = (lambda noise, n=steps: quadratic(noise, n), FINE_SOLVER)
    truths = {
        name: sample(model, fine_timesteps(model.noise, TRUTH), SEEDS, FINE_SOLVER) for name, model in models.items()
    }
    print(f"| RMSE to {TRUTH} {FINE_SOLVER} steps | {' | '.join(names)} |\n|---|{'---:|' * len(names)}")
    for label, (places, solver) in solves.items():
        errors = [
            endpoint_errors(sample(model, places(model.noise), SEEDS, solver), truths[name]).mean()
            for name, model in models.items()
        ]
        print(f"| {label} | " + " | ".join(f"{one:.5f}" for one in errors) + " |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
