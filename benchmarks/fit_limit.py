"""How near `tuned+fitted` comes to the limit of its family, on fresh noise, against 100 Heun steps.

python -m benchmarks.fit_limit fashion --steps 5,10 -n 64   adds runs to docs/results/tune/limit.csv
python -m benchmarks.fit_limit                              prints the table of all runs

The limit is `bns-l2`: gradient descent through the network on all times and coefficients, from where `tuned+fitted`
ended and on the same teacher trajectories. A ratio below 1 says that the descent carried over worse than what it began
from.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import geosprint
from benchmarks.quality import geometric_mean
from benchmarks.tune_runs import APART, FINE_STEPS, FRESH, Row, Runs, measure_or_read
from geosprint.comparison.methods import tuned_and_fitted
from geosprint.estimates import bootstrapped_from_means
from geosprint.fitting.stepwise import distances
from geosprint.models.spread import Spread
from geosprint.rivals.base import Recording, Task
from geosprint.rivals.bns import bns_l2
from geosprint.teacher import FINE_SOLVER, fine_timesteps
from geosprint.tuned import FITTED

RESULTS = Path("docs/results/tune/limit.csv")
COLUMNS = ("model", "steps", "seed", "tuned+fitted", "bns-l2", "ratio", "low", "high")


def measure(name: str, asked: argparse.Namespace, runs: Runs) -> None:
    """Tune and descend with one seed after another; whatever is in the file already is left out."""
    model, fresh, known = Spread(geosprint.load_model(name), batch=32), range(FRESH, FRESH + asked.number), runs.known()
    fine = geosprint.sample(model, fine_timesteps(model.noise, FINE_STEPS), fresh, FINE_SOLVER, batch=32)
    for seed in range(APART * asked.first, APART * (asked.first + asked.seeds), APART):
        task = Task(model, "ddim", Recording(model, seed=seed))
        for steps in map(int, asked.steps.split(",")):
            if (name, str(steps), str(seed)) in known:
                continue
            ours = tuned_and_fitted(task, steps)
            ends = [geosprint.sample(model, one, fresh, batch=32) for one in (ours, bns_l2(task, ours))]
            errors = [distances(end, fine) for end in ends]
            ratio = bootstrapped_from_means(lambda a, b: a / b, *errors)
            numbers = (*(own.mean() for own in errors), ratio.value, ratio.low, ratio.high)
            runs.add([name, steps, seed, *(f"{number:.6g}" for number in numbers)])


def table(rows: list[Row]) -> str:
    """A line for each model and number of steps, in the geometric mean over seeds, and one for all."""
    cells: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        cells.setdefault((row["model"], row["steps"]), []).append(row)
    lines = [
        "| model | K | seeds | tuned+fitted | bns-l2 | ratio | over seeds |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    ratios = []
    for (model, steps), own in cells.items():
        ours, limit, ratio = (geometric_mean(float(row[name]) for row in own) for name in COLUMNS[3:6])
        each = ", ".join(
            f"{float(row['ratio']):.2f} ({float(row['low']):.2f} to {float(row['high']):.2f})" for row in own
        )
        lines.append(f"| {model} | {steps} | {len(own)} | {ours:.4f} | {limit:.4f} | {ratio:.2f} | {each} |")
        ratios.append(ratio)
    mean = f"{geometric_mean(ratios):.2f}" if ratios else "–"
    return "\n".join([*lines, f"| geometric mean | | | | | {mean} | |"])


if __name__ == "__main__":
    measure_or_read(RESULTS, COLUMNS, 3, FITTED, 3, measure, table)
