"""What more or fewer network calls give a tuning, on fresh noise: `python -m benchmarks.tune_budgets fashion`."""

from __future__ import annotations

import sys

import torch

import geosprint
from geosprint.baselines import BASELINES, applicable_baselines
from geosprint.comparison.plan import FRESH_SEED
from geosprint.metrics.endpoint import bootstrap_mean, endpoint_errors
from geosprint.sampling import sample
from geosprint.search.fine import FINE_SOLVER, fine_timesteps
from geosprint.tuning.run import least_budget

FRESH = 48
FINE_STEPS = 100
STEPS = (5, 10, 20)
BUDGETS = (5_000, 10_000, 20_000)


def main() -> None:
    """A line for each solver, number of steps and budget, below the best uniform spacing."""
    for name in sys.argv[1:] or ["digits"]:
        model = geosprint.load_model(name)
        seeds = range(FRESH_SEED, FRESH_SEED + FRESH)
        truth = sample(model, fine_timesteps(model.noise, FINE_STEPS), seeds, FINE_SOLVER)

        def error(times, solver, model=model, seeds=seeds, truth=truth):
            return bootstrap_mean(endpoint_errors(sample(model, times, seeds, solver), truth))

        for solver in ("ddim", "dpmpp-2m"):
            for steps in STEPS:
                spacings = [place for place in applicable_baselines(model.noise) if place.startswith("uniform")]
                uniform = min((error(BASELINES[place](model.noise, steps), solver) for place in spacings), key=_value)
                print(f"{name} {solver:8} {steps:2}  best uniform {_shown(uniform)}", flush=True)
                for budget in BUDGETS:
                    if budget >= least_budget(model, steps, solver):
                        tuned = geosprint.tune(model, steps, solver, budget_nfe=budget)
                        found = _shown(error(tuned.schedule.timesteps, solver))
                        print(
                            f"{name} {solver:8} {steps:2}  {tuned.nfe:6,} calls {found}  {tuned.verdict.chosen}",
                            flush=True,
                        )


def _value(estimate):
    return estimate.value


def _shown(estimate):
    return f"{estimate.value:.4f} ({estimate.low:.4f} to {estimate.high:.4f})"


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
