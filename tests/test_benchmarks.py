"""The benchmarks of memory and of damaged files, small; `make bench` runs them whole."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def benchmark(name, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.mark.slow
def test_extraction_holds_no_more_than_a_batch_of_raw_states():
    """24 trajectories of 477 MB in all, two at a time: 40 MB, and what the inner products of one need."""
    small = ("--size", 128, "--trajectories", 24, "--steps", 100, "--held", 40)
    said = benchmark("memory", "extract", *small, "--limit", 100)
    assert "raw states 477 MB, 2 in a batch" in said
    peak = int(re.search(r"above the model (\d+) MB", said).group(1))
    assert peak > 35  # it was measured


@pytest.mark.slow
def test_a_thousand_damaged_files_of_each_kind_are_loaded_or_refused():
    said = benchmark("fuzz", "--files", 1000)
    tried = dict(re.findall(r"^(.+): 1000 mutated files, \d+ loaded, (\d+) refused$", said, flags=re.MULTILINE))
    assert tried.keys() >= {
        *(
            "profile",
            "schedule",
            "solver",
            "trajectories",
            "states",
            "shard",
            "manifest",
            "cell",
            "fine solve",
            "cells' manifest",
        ),
        *("card", "config", "weights", "statistics", "finding", "checkpoint", "pairs"),
    }
    assert all(int(refused) > 100 for refused in tried.values())
