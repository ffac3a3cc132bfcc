"""All benchmarks find what they import; some of them run, small."""

from __future__ import annotations

import csv
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import benchmarks
from benchmarks.tune_ablation import stages
from benchmarks.tune_budgets import BUDGETS

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


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(benchmarks.__path__)])
def test_a_benchmark_finds_what_it_imports(name):
    importlib.import_module(f"benchmarks.{name}")


@pytest.mark.slow
def test_extraction_holds_no_more_than_a_batch_of_raw_states():
    """24 trajectories of 477 MB in all, two at a time: 40 MB, and what the inner products of one need."""
    small = ("--size", 128, "--trajectories", 24, "--steps", 100, "--held", 40)
    said = benchmark("memory", "extract", *small, "--limit", 100)
    assert "raw states 477 MB, 2 in a batch" in said
    peak = int(re.search(r"above the model (\d+) MB", said).group(1))
    assert peak > 35  # it was measured


@pytest.mark.slow
def test_damaged_files_of_each_kind_are_used_or_refused():
    said = benchmark("fuzz", "--files", 12)
    tried = dict(re.findall(r"^(.+): 12 mutated files, \d+ used, (\d+) refused, 0 foreign$", said, flags=re.MULTILINE))
    assert len(tried) >= 20
    assert sum(map(int, tried.values())) > 6 * len(tried)


@pytest.mark.slow
def test_each_verb_that_is_stopped_goes_on_to_the_same_bytes():
    said = benchmark("kills", "--moments", 1, "--verbs", "extract", "tune", "fit", "compare", "sample")
    assert len(re.findall(r": 1 stopped, (\d+) run again, \1 with the same bytes", said)) == 15


@pytest.mark.slow
def test_tunings_of_every_budget_stay_within_it_and_are_told_in_multiples_of_the_full_one(tmp_path):
    small = ("--solvers", "ddim", "--steps", 3, "--seeds", 1, "-n", 16, "--out", tmp_path / "runs.csv")
    said = benchmark("tune_budgets", "mixture", *small)
    with (tmp_path / "runs.csv").open(newline="") as file:
        known, *rows = csv.DictReader(file)
    assert [int(row["budget"]) for row in rows] == list(BUDGETS)
    assert all(0 < int(row["calls"]) <= int(row["budget"]) for row in rows)
    full = float(rows[-1]["rmse"])
    ratios = " | ".join(f"{float(row['rmse']) / full:.2f}" for row in (known, *rows[:-1]))
    assert f"| mixture | ddim | 3 | 1 | {ratios} | {full:.4f} |" in said


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["ddim", "fitted"])
def test_tunings_without_a_stage_are_kept_with_their_calls(solver, tmp_path):
    small = ("--solvers", solver, "--steps", 3, "--budget", 1500, "--seeds", 1, "-n", 8, "--out", tmp_path / "runs.csv")
    said = benchmark("tune_ablation", "mixture", *small)
    with (tmp_path / "runs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["without"] for row in rows] == list(stages(solver, 3))
    assert all(0 < int(row["nfe"]) <= 1500 for row in rows)
    assert all(f"| {stage} |" in said for stage in list(stages(solver, 3))[1:])
