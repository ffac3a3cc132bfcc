"""How near `tuned+fitted` comes to the limit of its family: `python -m benchmarks.fit_limit fashion --steps 5 10`.

The limit is `bns-l2`: gradient descent through the network on all times and coefficients, from where `tuned+fitted`
ended and on the same teacher trajectories. Errors are on fresh noise, against 100 Heun steps; a ratio below 1 says that
the descent carried over worse than what it began from.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

import geosprint
from benchmarks.tune_runs import APART, FINE_STEPS, FRESH
from geosprint.comparison.methods import tuned_and_fitted
from geosprint.estimates import bootstrapped
from geosprint.fitting.stepwise import distances
from geosprint.models.spread import Spread
from geosprint.rivals.base import Recording, Task
from geosprint.rivals.bns import bns_l2
from geosprint.teacher import FINE_SOLVER, fine_timesteps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="+")
    parser.add_argument("--steps", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--seeds", type=int, default=1, help="tunings, each with trajectories of its own")
    parser.add_argument("-n", "--number", type=int, default=64, help="of fresh samples")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| model | K | tuned+fitted | bns-l2 | tuned+fitted over bns-l2 |\n|---|---:|---:|---:|---:|")
    for name in options.model:
        model, fresh = Spread(geosprint.load_model(name), batch=32), range(FRESH, FRESH + options.number)
        fine = geosprint.sample(model, fine_timesteps(model.noise, FINE_STEPS), fresh, FINE_SOLVER, batch=32)
        for steps in options.steps:
            rows = []
            for seed in range(options.seeds):
                task = Task(model, "ddim", Recording(model, seed=seed * APART))
                ours = tuned_and_fitted(task, steps)
                ends = [geosprint.sample(model, one, fresh, batch=32) for one in (ours, bns_l2(task, ours))]
                rows.append([distances(end, fine) for end in ends])
            ours_errors, limit_errors = np.mean(rows, axis=0)
            ratio = bootstrapped(
                lambda some, a=ours_errors, b=limit_errors: a[some].mean() / b[some].mean(), len(fresh)
            )
            print(f"| {name} | {steps} | {ours_errors.mean():.4f} | {limit_errors.mean():.4f} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
