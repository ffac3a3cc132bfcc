"""How fast the analysis is against the paper's algorithms written plainly, in one run on the same data.

The analysis is all that `extract` does with recorded states, in memory: from raw states in single precision to a
profile that is ready to save. The plain version finds the kept sets alone, without the table of scores.

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
from geosprint.extraction import profile_trajectories
from geosprint.models.exact import Gaussian
from geosprint.noise import CLEAN
from geosprint.profile import Settings
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


def analysis(states, search="exact"):
    """From raw states to a profile that is ready to save."""
    return profile_trajectories(as_trajectories(states), Settings(WINDOW, 1, TARGET, search))


def pruning(states, search="exact"):
    """From raw states to the kept sets alone, whose mean is w(t)."""
    return SEARCHES[search](as_trajectories(states).gram(), TARGET, WINDOW).kept


def timed(function, *arguments, repeats=1):
    """The result, and the shortest of several times in seconds: on the clock and of the processor."""
    clock, processor = [], []
    for _ in range(repeats):
        start, start_processor = time.perf_counter(), time.process_time()
        result = function(*arguments)
        clock.append(time.perf_counter() - start)
        processor.append(time.process_time() - start_processor)
    return result, min(clock), min(processor)


def compare(name, states, repeats):
    """Both versions on the same states: seconds, ratios, and whether the kept sets agree."""
    expected, plain, plain_processor = timed(
        literal.retention, states.numpy(), WINDOW, TARGET, lambda s: tqdm(s, desc=f"literal, {name}")
    )
    row = {"data": name, "trajectories": len(states), "literal_seconds": plain, "literal_processor": plain_processor}
    for search in ("exact", "bisection"):
        profile, seconds, processor = timed(analysis, states, search, repeats=repeats)
        _, pruning_seconds, _ = timed(pruning, states, search, repeats=repeats)
        kept = profile.kept
        row[search] = {
            "seconds": seconds,
            "processor_seconds": processor,
            "ratio": plain / seconds,
            "processor_ratio": plain_processor / processor,
            "pruning_seconds": pruning_seconds,
            "pruning_ratio": plain / pruning_seconds,
            "same_sets": int((kept == expected).all(axis=1).sum()),
            "prunes_more": int((kept.sum(axis=1) < expected.sum(axis=1)).sum()),
            "prunes_fewer": int((kept.sum(axis=1) > expected.sum(axis=1)).sum()),
        }
    return row


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
    by_count = {b: timed(analysis, states[:b], repeats=3)[1] for b in (25, 50, 100, 200, 400) if b <= len(states)}
    by_dimension = {}
    for d in (768, 1536, 3072, 6144, 12288):
        by_dimension[d] = timed(analysis, smooth_curves(50, states.shape[1] - 1, d), repeats=3)[1]
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
    parser.add_argument("--repeats", type=int, default=5, help="of ours; the shortest counts")
    parser.add_argument("-o", "--out", type=Path, default=Path("out/bench"))
    asked = parser.parse_args()
    curves = smooth_curves(asked.trajectories, asked.steps, 3072)
    rows = [
        compare("smooth curves", curves, asked.repeats),
        compare("gaussian model", gaussian_trajectories(asked.trajectories, asked.steps), asked.repeats),
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
        exact = row["exact"]
        print(f"{row['data']}: from raw states to a profile in {exact['seconds']:.2f} s, {exact['ratio']:.0f} times "
              f"faster than the paper's algorithms written plainly ({row['literal_seconds']:.1f} s)")  # fmt: skip
        print(f"  processor time {exact['processor_seconds']:.2f} s against {row['literal_processor']:.1f} s, "
              f"{exact['processor_ratio']:.0f} times less")  # fmt: skip
        for search in ("exact", "bisection"):
            found = row[search]
            print(f"  {search}: pruning alone {found['pruning_seconds']:.3f} s, {found['pruning_ratio']:.0f} times "
                  f"faster; same kept sets for {found['same_sets']} of {row['trajectories']}, prunes more in "
                  f"{found['prunes_more']}, fewer in {found['prunes_fewer']}")  # fmt: skip
    print(f"peak memory of profiling: {memory:.2f} times the raw states")
    print("seconds by B: " + ", ".join(f"{b}: {s:.3f}" for b, s in by_count.items()))
    print("seconds by d: " + ", ".join(f"{d}: {s:.3f}" for d, s in by_dimension.items()))
    print(f"geosprint --help: {result['help_seconds']:.2f} s")


if __name__ == "__main__":
    main()
