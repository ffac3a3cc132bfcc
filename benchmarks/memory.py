"""Prints the peak memory of holding and profiling raw states, as a multiple of the raw states."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.speed import ours, smooth_curves


def peak_bytes():
    """The high-water mark of this process; getrusage would count its parent's too. Linux only."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def main():
    count, steps = (int(argument) for argument in sys.argv[1:])
    ours(smooth_curves(2, steps, 3072), "exact")  # whatever libraries set aside once
    before = peak_bytes()
    states = smooth_curves(count, steps, 3072)
    ours(states, "exact")
    print((peak_bytes() - before) / (states.numel() * states.element_size()))


if __name__ == "__main__":
    main()
