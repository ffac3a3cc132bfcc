"""What more or fewer network calls give a tuning, over several seeds, on fresh noise that none of them has seen.

python -m benchmarks.tune_budgets digits --solvers fitted,ddim --steps 5,10 --seeds 6 -n 512
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

import geosprint
from benchmarks.quality import geometric_mean
from benchmarks.tune_runs import APART, FINE_STEPS, FRESH
from geosprint.baselines import closed_forms
from geosprint.estimates import endpoint_errors
from geosprint.sampling import sample
from geosprint.teacher import FINE_SOLVER, fine_timesteps
from geosprint.tuned import FITTED
from geosprint.tuning.candidates import KNOWN_SOLVERS

BUDGETS = (2_500, 5_000, 10_000, 20_000)


def main() -> None:
    """For each solver and number of steps what is known already, and below it a line for each budget."""
    asked = argparse.ArgumentParser()
    asked.add_argument("model")
    asked.add_argument("--solvers", default=f"{FITTED},ddim,dpmpp-2m")
    asked.add_argument("--steps", default="5,10,20")
    asked.add_argument("--seeds", type=int, default=6)
    asked.add_argument("-n", "--number", type=int, default=512)
    asked = asked.parse_args()
    model = geosprint.load_model(asked.model)
    fresh = range(FRESH, FRESH + asked.number)
    truth = sample(model, fine_timesteps(model.noise, FINE_STEPS), fresh, FINE_SOLVER)

    def error(made, solver=None):
        return endpoint_errors(sample(model, made, fresh, solver), truth).mean()

    for solver in asked.solvers.split(","):
        for steps in map(int, asked.steps.split(",")):
            known = {
                f"{one}, {form}": error(times, one)
                for one in (KNOWN_SOLVERS if solver == FITTED else (solver,))
                for form, times in closed_forms(model.noise, steps).items()
            }
            best = min(known, key=known.__getitem__)
            cell = f"{asked.model} {solver:8} {steps:2}"
            print(f"{cell}  best known {best} {known[best]:.4f}", flush=True)
            for budget in BUDGETS:
                seeds = range(0, APART * asked.seeds, APART)
                found = [
                    geosprint.tune(model, steps, solver=solver, budget_nfe=budget, seed=seed, progress=False)
                    for seed in seeds
                ]
                errors, calls = np.array([error(one) for one in found]), np.mean([one.nfe for one in found])
                print(
                    f"{cell}  {calls:6,.0f} calls  {geometric_mean(errors):.4f} ({errors.min():.4f} to "
                    f"{errors.max():.4f}), {(errors > known[best]).sum()} of {len(found)} above the best known",
                    flush=True,
                )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
