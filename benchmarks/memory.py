"""Prints the peak memory of holding and profiling raw states, as a multiple of the raw states."""

from __future__ import annotations

import resource
import sys

from benchmarks.speed import ours, smooth_curves

UNIT = 1 if sys.platform == "darwin" else 1024  # what ru_maxrss counts in


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT


def main():
    count, steps = (int(argument) for argument in sys.argv[1:])
    ours(smooth_curves(2, steps, 3072), "exact")  # whatever libraries set aside once
    before = peak_bytes()
    states = smooth_curves(count, steps, 3072)
    ours(states, "exact")
    print((peak_bytes() - before) / (states.numel() * states.element_size()))


if __name__ == "__main__":
    main()
