"""What benchmarks of tuning over many seeds share: a CSV of runs that grows, and the command line around it."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

FRESH = 7_000_000  # seeds from here on are neither tuned on nor judged by anywhere else
APART = 1000  # seeds of one tuning and the next
FINE_STEPS = 100

Row = dict[str, str]


@dataclass(frozen=True)
class Runs:
    """A file with a row for each run; the first columns name the run."""

    path: Path
    columns: tuple[str, ...]
    naming: int  # how many of the columns name a run

    def read(self) -> list[Row]:
        """The runs that are there; a file for them, if there is none."""
        if not self.path.exists():
            self.path.write_text(",".join(self.columns) + "\n")
        with self.path.open(newline="") as file:
            return list(csv.DictReader(file))

    def known(self) -> set[tuple[str, ...]]:
        """The names of the runs that are there."""
        return {tuple(row[column] for column in self.columns[: self.naming]) for row in self.read()}

    def add(self, row: Sequence[object]) -> None:
        """One more run."""
        with self.path.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow(row)


def measure_or_read(
    results: Path,
    columns: tuple[str, ...],
    naming: int,
    solvers: str,
    seeds: int,
    measure: Callable[[str, argparse.Namespace, Runs], None],
    table: Callable[[list[Row]], str],
) -> None:
    """Add runs of the models that the command line names, and print the table of all runs."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*")
    parser.add_argument("--solvers", default=solvers)
    parser.add_argument("--steps", default="5,10")
    parser.add_argument("--budget", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--first", type=int, default=0, help="seed to begin with, in thousands")
    parser.add_argument("-n", "--number", type=int, default=512)
    parser.add_argument("--out", type=Path, default=results)
    asked = parser.parse_args()
    runs = Runs(asked.out, columns, naming)
    for name in asked.models:
        measure(name, asked, runs)
    print(table(runs.read()))
