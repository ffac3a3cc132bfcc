"""How many of 100 trajectories `extract --until-stable` saves on every model in the box, and what the schedule loses.

`python -m benchmarks.until_stable` records all 100 once, shard by shard, into out/bench/until-stable (stopped, it goes
on from there), finds the first shards whose halves agree, and draws fresh samples with the schedule of these and of
all.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from geosprint import Flow, build_schedule, extract, load_model, sample
from geosprint.comparison.plan import FRESH_SEED
from geosprint.estimates import bootstrap_mean, endpoint_errors
from geosprint.teacher import FINE_SOLVER, fine_timesteps

MODELS = ("gaussian", "mixture", "digits", "fashion", "fashion-flow", "fashion-reflow", "cifar10")
SHARD = 20


def first_so_many(profile, count):
    """What a run that stopped after so many trajectories holds."""
    some = {name: getattr(profile, name)[:count] for name in ("kept", "thresholds", "scores", "seeds")}
    return replace(profile, **some)


def enough(profile, threshold):
    """After how many trajectories `--until-stable` stops."""
    counts = range(SHARD, len(profile.kept) + 1, SHARD)
    return next((c for c in counts if first_so_many(profile, c).stability().fuzzy_jaccard >= threshold), counts[-1])


def row(name, asked):
    model = load_model(name)
    solver = "euler" if isinstance(model.noise, Flow) else "ddim"
    profile = extract(model, 100, 200, solver, batch=SHARD, progress=True, work=asked.out / name)
    count = enough(profile, asked.threshold)
    agreement = first_so_many(profile, count).stability().fuzzy_jaccard
    seeds = range(FRESH_SEED, FRESH_SEED + asked.samples)
    fine = sample(model, fine_timesteps(model.noise, asked.fine_steps), seeds, FINE_SOLVER)
    cells = [f"`{name}`", str(count), f"{agreement:.2f}", str(100 - count)]
    for steps in asked.steps:
        few, all_of_them = (
            endpoint_errors(sample(model, build_schedule(p, steps).timesteps, seeds, solver), fine)
            for p in (first_so_many(profile, count), profile)
        )
        lost = bootstrap_mean(few - all_of_them)
        cells += [f"{all_of_them.mean():.4f}", f"{lost.value:+.4f} ({lost.low:+.4f} to {lost.high:+.4f})"]
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--threshold", type=float, default=0.8)
    parser.add_argument("--steps", type=int, nargs="*", default=[10, 20])
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--fine-steps", type=int, default=50)
    parser.add_argument("-o", "--out", type=Path, default=Path("out/bench/until-stable"))
    asked = parser.parse_args()
    columns = "".join(f" RMSE at {k} steps, all 100 | lost by stopping |" for k in asked.steps)
    print(f"| model | stopped at | agreement | saved of 100 |{columns}")
    print("|---" * (4 + 2 * len(asked.steps)) + "|")
    for name in asked.models:
        print(row(name, asked), flush=True)


if __name__ == "__main__":
    main()
