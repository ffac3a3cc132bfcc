"""What one `GeoSprintDDIMScheduler.step` costs against diffusers' own, interleaved in one run.

`python -m benchmarks.scheduler_step` prints the ratios and fails above the limit.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
import torch
from diffusers import DDIMScheduler
from tqdm import tqdm

from geosprint.integrations.schedulers import GeoSprintDDIMScheduler

LIMIT = 1.1
SHAPES = {"one CIFAR image": (1, 3, 32, 32), "one SD latent": (1, 4, 64, 64), "eight SD latents": (8, 4, 64, 64)}


def schedulers(steps):
    """The stock one, ours with a list, and ours without one, on the same timesteps."""
    stock, listed, empty = DDIMScheduler(), GeoSprintDDIMScheduler(), GeoSprintDDIMScheduler()
    stock.set_timesteps(steps)
    listed.set_timesteps(timesteps=stock.timesteps.tolist())
    empty.set_timesteps(steps)
    return {"stock": stock, "with a list": listed, "without": empty}


def seconds_per_step(scheduler, x, output):
    """Mean over one whole walk."""
    start = time.perf_counter()
    for t in scheduler.timesteps:
        scheduler.step(output, t, x)
    return (time.perf_counter() - start) / len(scheduler.timesteps)


def compare(name, shape, rounds, steps=50):
    """Ratios to stock of the medians over interleaved rounds, whose order turns so that nobody is always first."""
    x, output = (torch.randn(shape, generator=torch.Generator().manual_seed(i)) for i in range(2))
    made = schedulers(steps)
    taken = {kind: [] for kind in made}
    for i in tqdm(range(rounds), desc=name, delay=1):
        kinds = list(made)
        for kind in kinds[i % len(kinds) :] + kinds[: i % len(kinds)]:
            taken[kind].append(seconds_per_step(made[kind], x, output))
    medians = {kind: float(np.median(seconds)) for kind, seconds in taken.items()}
    return medians["stock"], {kind: medians[kind] / medians["stock"] for kind in made if kind != "stock"}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    asked = parser.parse_args()
    worst = 0.0
    print(f"seconds of GeoSprintDDIMScheduler.step over DDIMScheduler.step (limit {LIMIT}), torch {torch.__version__}")
    for name, shape in SHAPES.items():
        stock, ratios = compare(name, shape, asked.rounds)
        worst = max(worst, *ratios.values())
        told = ", ".join(f"{kind} {ratio:.2f}" for kind, ratio in ratios.items())
        print(f"{name}: stock {stock * 1e6:.0f} µs; {told}")
    if worst > LIMIT:
        sys.exit(f"the ratio {worst:.2f} is above {LIMIT}")


if __name__ == "__main__":
    main()
