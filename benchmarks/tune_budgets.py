"""What more or fewer network calls give a tuning, over several seeds, on fresh noise that none of them has seen.

python -m benchmarks.tune_budgets digits --seeds 6 -n 512
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

import geosprint
from benchmarks.quality import geometric_mean
from geosprint.baselines import closed_forms
from geosprint.estimates import endpoint_errors
from geosprint.sampling import sample
from geosprint.teacher import FINE_SOLVER, fine_timesteps
from geosprint.tuning.schedules import least_budget

FRESH = 7_000_000  # seeds from here on are neither tuned on nor judged by anywhere else
APART = 1000  # seeds of one tuning and the next
FINE_STEPS = 100
BUDGETS = (5_000, 10_000, 20_000)


def main() -> None:
    """For each solver and number of steps the closed forms, and below them a line for each budget."""
    asked = argparse.ArgumentParser()
    asked.add_argument("model")
    asked.add_argument("--solver", default="ddim,dpmpp-2m")
    asked.add_argument("--steps", default="5,10,20")
    asked.add_argument("--seeds", type=int, default=6)
    asked.add_argument("-n", "--number", type=int, default=512)
    asked = asked.parse_args()
    model = geosprint.load_model(asked.model)
    fresh = range(FRESH, FRESH + asked.number)
    truth = sample(model, fine_timesteps(model.noise, FINE_STEPS), fresh, FINE_SOLVER)

    def error(times, solver):
        return endpoint_errors(sample(model, times, fresh, solver), truth).mean()

    for solver in asked.solver.split(","):
        for steps in map(int, asked.steps.split(",")):
            forms = {name: error(times, solver) for name, times in closed_forms(model.noise, steps).items()}
            uniform = min(value for name, value in forms.items() if name.startswith("uniform"))
            best = min(forms, key=forms.__getitem__)
            place = f"{asked.model} {solver:8} {steps:2}"
            print(f"{place}  best uniform {uniform:.4f}, best closed form {best} {forms[best]:.4f}", flush=True)
            for budget in BUDGETS:
                if budget >= least_budget(model, steps, solver):
                    seeds = range(0, APART * asked.seeds, APART)
                    found = [
                        geosprint.tune(model, steps, solver=solver, budget_nfe=budget, seed=seed) for seed in seeds
                    ]
                    errors = np.array([error(one[steps].timesteps, solver) for one in found])
                    calls = np.mean([one.nfe for one in found])
                    worse = f"{(errors > forms[best]).sum()} of {len(found)} above the best closed form"
                    print(
                        f"{place}  {calls:6,.0f} calls  {geometric_mean(errors):.4f} "
                        f"({errors.min():.4f} to {errors.max():.4f}), {worse}",
                        flush=True,
                    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
