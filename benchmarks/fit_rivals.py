"""`tuned+fitted` beside one learnt rival after another, on fresh noise, against 200 Heun steps.

python -m benchmarks.fit_rivals fashion --steps 5,10 -n 96 --solvers bns-l2,dyweight   adds runs to the file of runs
python -m benchmarks.fit_rivals                                                        prints the tables of all runs

All learn from the same teacher trajectories. `bns-l2` is the limit of the family: gradient descent through the network
on all times and coefficients, from where `tuned+fitted` ended. `before` is `tuned+fitted` of another version: files
MODEL-K-SEED.json that it made, in out/fits/before. Ours and their limits are kept in out/fits, so that a rival that
comes later meets the same steps: remove them when fits have changed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import cast

import geosprint
from benchmarks.quality import geometric_mean
from benchmarks.tune_runs import APART, FRESH, Row, Runs, measure_or_read
from geosprint.comparison.methods import METHODS, tuned_and_fitted
from geosprint.estimates import bootstrapped_from_means
from geosprint.fitted_solver import FittedSolver
from geosprint.fitting.stepwise import distances
from geosprint.models.spread import Spread
from geosprint.rivals.base import OwnSolver, Recording, Task
from geosprint.rivals.bns import bns_l2
from geosprint.teacher import FINE_SOLVER, fine_timesteps
from geosprint.tuned import Tuned, as_tuned

RESULTS = Path("docs/results/tune/rivals.csv")
COLUMNS = ("rival", "model", "steps", "seed", "ours", "theirs", "ratio", "low", "high")
KEPT = Path("out/fits")
OURS, LIMIT, BEFORE = "tuned+fitted", "bns-l2", "before"
FINE_STEPS = 200  # with twenty fitted steps, errors of a hundred would count


def measure(name: str, asked: argparse.Namespace, runs: Runs) -> None:
    """Meet the rivals with one seed after another; whatever is in the file already is left out."""
    model, fresh, known = Spread(geosprint.load_model(name), batch=32), range(FRESH, FRESH + asked.number), runs.known()
    fine = geosprint.sample(model, fine_timesteps(model.noise, FINE_STEPS), fresh, FINE_SOLVER, batch=32)
    for seed in range(APART * asked.first, APART * (asked.first + asked.seeds), APART):
        task = Task(model, "ddim", Recording(model, seed=seed))
        for steps in map(int, asked.steps.split(",")):
            for rival in asked.solvers.split(","):
                if (rival, name, str(steps), str(seed)) in known:
                    continue
                both = (ours(name, task, steps), theirs(rival, name, task, steps))
                ends = [geosprint.sample(model, one.schedule, fresh, one, batch=32) for one in both]
                errors = [distances(end, fine) for end in ends]
                ratio = bootstrapped_from_means(lambda one, other: one / other, *errors)
                numbers = (*(own.mean() for own in errors), ratio.value, ratio.low, ratio.high)
                runs.add([rival, name, steps, seed, *(f"{number:.6g}" for number in numbers)])


def ours(name: str, task: Task, steps: int) -> FittedSolver:
    """What we make of the teacher trajectories."""
    return kept(OURS, name, task, steps, lambda: tuned_and_fitted(task, steps))


def theirs(rival: str, name: str, task: Task, steps: int) -> OwnSolver:
    """What the rival makes of the same teacher trajectories."""
    if rival == BEFORE:
        return kept(BEFORE, name, task, steps, None)
    if rival == LIMIT:
        return kept(LIMIT, name, task, steps, lambda: bns_l2(task, ours(name, task, steps)))
    return cast(OwnSolver, METHODS[rival].build(task, steps))


def kept(method: str, name: str, task: Task, steps: int, make: Callable[[], FittedSolver] | None) -> FittedSolver:
    """Made once and kept; what cannot be made must be there."""
    path = KEPT / method / f"{name}-{steps}-{task.recording.seed}.json"
    if make and not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        as_tuned(make()).save(path)
    return cast(FittedSolver, Tuned.load(path).result().made)


def table(rows: list[Row]) -> str:
    """Of each rival, a line for each model and number of steps, in the geometric mean over seeds, and one for all."""
    return "\n\n".join(
        rival_table(rival, [row for row in rows if row["rival"] == rival])
        for rival in dict.fromkeys(row["rival"] for row in rows)
    )


def rival_table(rival: str, rows: list[Row]) -> str:
    """Ours over theirs: below 1, ours is better."""
    cells: dict[tuple[str, int], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row["model"], int(row["steps"]), int(row["seed"]))):
        cells.setdefault((row["model"], int(row["steps"])), []).append(row)
    lines = [
        f"| model | K | {OURS} | {rival} | ratio | of each seed, 95 % interval |",
        "|---|---:|---:|---:|---:|---|",
    ]
    ratios = []
    for (model, steps), own in cells.items():
        fit, other, ratio = (geometric_mean(float(row[name]) for row in own) for name in ("ours", "theirs", "ratio"))
        each = ", ".join(
            f"{float(row['ratio']):.2f} ({float(row['low']):.2f} to {float(row['high']):.2f})" for row in own
        )
        lines.append(f"| {model} | {steps} | {fit:.4f} | {other:.4f} | {ratio:.2f} | {each} |")
        ratios.append(ratio)
    return "\n".join([*lines, f"| geometric mean | | | | {geometric_mean(ratios):.2f} | |"])


if __name__ == "__main__":
    measure_or_read(RESULTS, COLUMNS, 4, LIMIT, 3, measure, table)
