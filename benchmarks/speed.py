"""How fast profiling is against the paper's algorithms written plainly, in one run on the same data.

`python -m benchmarks.speed` prints the table and leaves out/bench/speed.json and scaling.png.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from tqdm import tqdm

import geosprint
from benchmarks import literal
from geosprint.models.exact import Gaussian
from geosprint.noise import CLEAN
from geosprint.threshold import SEARCHES
from geosprint.trajectory import Origin, Trajectories

WINDOW, TARGET = 2, 1e-3


def smooth_curves(count, steps, dimensions, seed=0):
    """Random cosine series: curves that bend everywhere a little."""
    generator = torch.Generator().manual_seed(seed)
    waves = torch.stack([torch.cos(k * torch.pi * torch.linspace(0, 1, steps + 1)) / k**1.5 for k in range(1, 12)])
    states = torch.empty(count, steps + 1, dimensions)
    for i in range(count):
        states[i] = (torch.randn(dimensions, len(waves), generator=generator) @ waves).T
    return states


def gaussian_trajectories(count, steps, seed=0):
    """Recorded DDIM trajectories of the Gaussian model at 3×32×32."""
    return geosprint.record(Gaussian.of_images(), range(seed, seed + count), steps, progress=True).states


def as_trajectories(states):
    count, points, _ = states.shape
    model = Gaussian(torch.ones(states.shape[2], dtype=torch.float64), in_cosine_basis=False)
    timesteps = np.append(np.round(np.linspace(999, 0, points - 1)), CLEAN)
    return Trajectories(states, timesteps, tuple(range(count)), Origin.of(model, "ddim", 0.0))


def ours(states, search):
    """From raw states to the kept sets, whose mean is w(t)."""
    return SEARCHES[search](as_trajectories(states).gram(), TARGET, WINDOW).kept


def timed(function, *arguments, repeats=1):
    """The result and the shortest of several times, in seconds."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = function(*arguments)
        seconds.append(time.perf_counter() - start)
    return result, min(seconds)


def compare(name, states):
    """Both versions on the same states: seconds, ratio, and whether the kept sets agree."""
    expected, plain_seconds = timed(
        literal.retention, states.numpy(), WINDOW, TARGET, lambda s: tqdm(s, desc=f"literal, {name}")
    )
    bisected, bisection_seconds = timed(ours, states, "bisection", repeats=3)
    exact, exact_seconds = timed(ours, states, "exact", repeats=3)
    return {
        "data": name,
        "literal_seconds": plain_seconds,
        "bisection_seconds": bisection_seconds,
        "exact_seconds": exact_seconds,
        "bisection_ratio": plain_seconds / bisection_seconds,
        "exact_ratio": plain_seconds / exact_seconds,
        "bisection_same_sets": int((bisected == expected).all(axis=1).sum()),
        "exact_same_sets": int((exact == expected).all(axis=1).sum()),
        "exact_prunes_more": int((exact.sum(axis=1) < expected.sum(axis=1)).sum()),
        "exact_prunes_fewer": int((exact.sum(axis=1) > expected.sum(axis=1)).sum()),
        "trajectories": len(states),
    }


def peak_memory_ratio(count, steps):
    """In a fresh process: the most memory that states and profiling take together, over the raw states."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.memory",
        "profile",
        "--trajectories",
        str(count),
        "--steps",
        str(steps),
    ]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def scaling(states):
    """Seconds against the number of trajectories and against the dimension."""
    by_count = {b: timed(ours, states[:b], "exact", repeats=3)[1] for b in (25, 50, 100, 200, 400) if b <= len(states)}
    by_dimension = {}
    for d in (768, 1536, 3072, 6144, 12288):
        by_dimension[d] = timed(ours, smooth_curves(50, states.shape[1] - 1, d), "exact", repeats=3)[1]
    return by_count, by_dimension


def plot_scaling(by_count, by_dimension, path):
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    for axes, curve, label in zip(
        figure.subplots(1, 2), (by_count, by_dimension), ("trajectories B", "dimension d (B = 50)"), strict=True
    ):
        axes.plot(list(curve), list(curve.values()), "o-", color="#0072b2")
        axes.set(xlabel=label, ylabel="seconds", ylim=(0, None), xlim=(0, None))
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def help_seconds():
    """Wall-clock time of `geosprint --help`, the shortest of five."""
    return timed(
        lambda: subprocess.run([sys.executable, "-m", "geosprint.cli", "--help"], capture_output=True), repeats=5
    )[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trajectories", type=int, default=100)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("-o", "--out", type=Path, default=Path("out/bench"))
    asked = parser.parse_args()
    curves = smooth_curves(asked.trajectories, asked.steps, 3072)
    rows = [
        compare("smooth curves", curves),
        compare("gaussian model", gaussian_trajectories(asked.trajectories, asked.steps)),
    ]
    memory = peak_memory_ratio(asked.trajectories, asked.steps)
    by_count, by_dimension = scaling(torch.cat([curves] * 4))
    plot_scaling(by_count, by_dimension, asked.out / "scaling.png")
    machine = f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    result = {
        "date": date.today().isoformat(), "machine": machine, "rows": rows, "peak_memory_over_raw": memory,
        "seconds_by_trajectories": by_count, "seconds_by_dimension": by_dimension, "help_seconds": help_seconds(),
    }  # fmt: skip
    (asked.out / "speed.json").write_text(json.dumps(result, indent=2) + "\n")
    print(
        f"\n{asked.trajectories} trajectories of {asked.steps} steps in 3,072 dimensions ({machine}, {result['date']})"
    )
    for row in rows:
        count = row["trajectories"]
        print(f"{row['data']}: literal {row['literal_seconds']:.2f} s")
        print(f"  bisection {row['bisection_seconds']:.3f} s, {row['bisection_ratio']:.0f} times faster, "
              f"same kept sets for {row['bisection_same_sets']} of {count}")  # fmt: skip
        print(f"  exact     {row['exact_seconds']:.3f} s, {row['exact_ratio']:.0f} times faster, "
              f"same kept sets for {row['exact_same_sets']}, prunes more in {row['exact_prunes_more']}, "
              f"fewer in {row['exact_prunes_fewer']}")  # fmt: skip
    print(f"peak memory of profiling: {memory:.2f} times the raw states")
    print("seconds by B: " + ", ".join(f"{b}: {s:.3f}" for b, s in by_count.items()))
    print("seconds by d: " + ", ".join(f"{d}: {s:.3f}" for d, s in by_dimension.items()))
    print(f"geosprint --help: {result['help_seconds']:.2f} s")


if __name__ == "__main__":
    main()
