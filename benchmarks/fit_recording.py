"""How far the fine walks of a fit are from the truth: `python -m benchmarks.fit_recording gaussian digits fashion`."""

from __future__ import annotations

import sys

import geosprint
from geosprint.metrics.endpoint import endpoint_errors
from geosprint.sampling import sample
from geosprint.search.fine import FINE_SOLVER, fine_timesteps
from geosprint.search.fine_walks import SOLVER, STEPS, fine_steps

SEEDS = range(16)
TRUTH = 250  # Heun steps


def main(names):
    print(f"| RMSE of {STEPS} steps | {SOLVER} on the 1.5th power | unipc on the square |\n|---|---:|---:|")
    for name in names:
        model = geosprint.load_model(name)
        truth = sample(model, fine_timesteps(model.noise, TRUTH), SEEDS, FINE_SOLVER)
        ways = [(fine_steps(model.noise), SOLVER), (fine_timesteps(model.noise, STEPS), "unipc")]
        errors = [endpoint_errors(sample(model, times, SEEDS, solver), truth).mean() for times, solver in ways]
        print(f"| {name} | " + " | ".join(f"{one:.5f}" for one in errors) + " |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
