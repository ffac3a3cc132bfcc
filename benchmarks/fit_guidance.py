"""A solver fitted at one guidance scale and used at another: `python -m benchmarks.fit_guidance` prints the table."""

from __future__ import annotations

import warnings

import geosprint
from geosprint.baselines import baseline_schedule
from geosprint.comparison.plan import FRESH_SEED
from geosprint.estimates import endpoint_errors
from geosprint.sampling import sample
from geosprint.teacher import FINE_SOLVER, fine_timesteps

SCALES = (1.5, 4.0)
STEPS = 8
LABEL = 3
SEEDS = range(FRESH_SEED, FRESH_SEED + 24)


def main():
    warnings.simplefilter("ignore", UserWarning)  # that a fit is used at another scale is what is measured
    models = {scale: geosprint.load_model("fashion", LABEL, scale) for scale in SCALES}
    noise = models[SCALES[0]].noise
    schedule = baseline_schedule("beta", noise, STEPS)
    fitted = {f"fitted at {scale:g}": (geosprint.fit(model, STEPS, schedule), None) for scale, model in models.items()}
    ways = fitted | {solver: (schedule, solver) for solver in ("dpmpp-2m", "unipc")}
    print("| RMSE, used at guidance | " + " | ".join(ways) + " |\n|---|" + "---:|" * len(ways))
    for scale, model in models.items():
        fine = sample(model, fine_timesteps(noise, 60), SEEDS, FINE_SOLVER)
        errors = [endpoint_errors(sample(model, made, SEEDS, solver), fine).mean() for made, solver in ways.values()]
        print(f"| {scale:g} | " + " | ".join(f"{one:.4f}" for one in errors) + " |", flush=True)


if __name__ == "__main__":
    main()
