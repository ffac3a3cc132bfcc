"""The peak of memory, each measured in a process of its own (Linux only).

`python -m benchmarks.memory profile` prints that of holding and profiling raw states, as a multiple of them.
`python -m benchmarks.memory extract` records and profiles a synthetic model of 256×256×3 pixels, prints the peak
above that of the model alone and fails above the limit.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

import torch

from benchmarks.speed import analysis, smooth_curves
from geosprint import DiscreteVP, Network, extract, extraction
from geosprint.sampling import sample


def peak_bytes():
    """The high-water mark of this process; getrusage would count its parent's too."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def profile_ratio(count, steps):
    """Peak of holding raw states and profiling them, over the raw states."""
    analysis(smooth_curves(2, steps, 3072))  # whatever libraries set aside once
    before = peak_bytes()
    states = smooth_curves(count, steps, 3072)
    analysis(states)
    return (peak_bytes() - before) / (states.numel() * states.element_size())


def synthetic(shape):
    """A denoiser that bends its trajectories everywhere a little, at next to no cost."""
    return Network(lambda x, t: torch.tanh((1 + t / 500) * x), shape, DiscreteVP.named(), "x0", name="synthetic")


def extraction_peak(size, count, steps):
    """Bytes of the peak of `extract` above that of sampling the same batch, and of the raw states."""
    model = synthetic((3, size, size))
    batch = extraction.ReferencePass(count, steps).with_batch(model.shape).batch
    sample(model, [999, 500, 0], range(batch), batch=batch)
    extract(model, 2, 4)  # whatever libraries set aside once
    before = peak_bytes()
    extract(model, count, steps, progress=True)
    return peak_bytes() - before, count * (steps + 1) * math.prod(model.shape) * 4, batch


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["profile", "extract"])
    parser.add_argument("--trajectories", type=int, default=50)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--size", type=int, default=256, help="pixels along a side")
    parser.add_argument("--held", type=float, help="megabytes of raw states in a batch, instead of the package's own")
    parser.add_argument("--limit", type=float, default=1000, help="megabytes")
    asked = parser.parse_args()
    if asked.what == "profile":
        print(profile_ratio(asked.trajectories, asked.steps))
        return
    if asked.held:
        extraction.HELD_BYTES = int(asked.held * 2**20)
    begun = time.perf_counter()
    peak, raw, batch = extraction_peak(asked.size, asked.trajectories, asked.steps)
    print(
        f"extract: {asked.trajectories} trajectories of {asked.steps} steps, 3×{asked.size}×{asked.size}: raw states "
        f"{raw / 1e6:.0f} MB, {batch} in a batch; peak above the model {peak / 1e6:.0f} MB "
        f"(limit {asked.limit:.0f}), {time.perf_counter() - begun:.0f} s"
    )
    if peak > asked.limit * 1e6:
        sys.exit("the peak is above the limit")


if __name__ == "__main__":
    main()
