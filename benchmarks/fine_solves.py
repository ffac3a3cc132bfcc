"""How far fine solves are from a much finer one: `python -m benchmarks.fine_solves gaussian digits fashion`.

Both matter: a fit learns the errors of the walks it follows, and a comparison cannot see what its truth gets wrong.
"""

from __future__ import annotations

import argparse

import geosprint
from geosprint.baselines import quadratic
from geosprint.estimates import endpoint_errors
from geosprint.sampling import sample
from geosprint.teacher import FINE_SOLVER, GUIDED_SOLVER, POWER, SOLVER, STEPS, fine_steps, fine_timesteps

HEUN = (60, 100, 200)


def main(names, truth, samples):
    """A row for each solve, a column for each model."""
    seeds = range(samples)
    models = {name: geosprint.load_model(name) for name in names}
    solves = {
        f"{STEPS} {SOLVER} steps, power {POWER} (teacher trajectories)": (fine_steps, SOLVER),
        f"{STEPS} {GUIDED_SOLVER} steps, power {POWER} (teacher trajectories of guided models)": (
            fine_steps,
            GUIDED_SOLVER,
        ),
        f"{STEPS} unipc steps, power 2": (lambda noise: quadratic(noise, STEPS), "unipc"),
    }
    for steps in [steps for steps in HEUN if steps < truth]:
        label = f"{steps} {FINE_SOLVER} steps, power"
        solves[f"{label} {POWER} (reference of comparisons)"] = (
            lambda noise, n=steps: fine_timesteps(noise, n),
            FINE_SOLVER,
        )
        solves[f"{label} 2"] = (lambda noise, n=steps: quadratic(noise, n), FINE_SOLVER)
    truths = {
        name: sample(model, fine_timesteps(model.noise, truth), seeds, FINE_SOLVER) for name, model in models.items()
    }
    print(f"| RMSE to {truth} {FINE_SOLVER} steps | {' | '.join(names)} |\n|---|{'---:|' * len(names)}")
    for label, (places, solver) in solves.items():
        errors = [
            endpoint_errors(sample(model, places(model.noise), seeds, solver), truths[name]).mean()
            for name, model in models.items()
        ]
        print(f"| {label} | " + " | ".join(f"{one:.5f}" for one in errors) + " |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--truth", type=int, default=1000, help="Heun steps, of two calls each")
    parser.add_argument("--samples", type=int, default=12)
    options = parser.parse_args()
    main(options.models, options.truth, options.samples)
