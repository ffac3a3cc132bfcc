"""What more or fewer network calls give a tuning, over several seeds, on fresh noise that none of them has seen.

python -m benchmarks.tune_budgets fashion cifar10 --steps 5,10   adds runs to docs/results/tune/budgets.csv
python -m benchmarks.tune_budgets                                prints the table of all runs
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import geosprint
from benchmarks.quality import geometric_mean
from benchmarks.tune_runs import APART, FINE_STEPS, FRESH, Row, Runs, measure_or_read
from geosprint.baselines import closed_forms
from geosprint.estimates import endpoint_errors
from geosprint.sampling import sample
from geosprint.teacher import FINE_SOLVER, fine_timesteps
from geosprint.tuned import FITTED
from geosprint.tuning.candidates import KNOWN_SOLVERS

RESULTS = Path("docs/results/tune/budgets.csv")
COLUMNS = ("model", "solver", "steps", "budget", "seed", "calls", "rmse")
BUDGETS = (1_000, 2_500, 5_000, 10_000, 20_000)
KNOWN = "0"  # the budget of known solvers, best first


def measure(name: str, asked: argparse.Namespace, runs: Runs) -> None:
    """Tune with every budget, one seed after another; whatever is in the file already is left out."""
    model, fresh, known = geosprint.load_model(name), range(FRESH, FRESH + asked.number), runs.known()
    truth = sample(model, fine_timesteps(model.noise, FINE_STEPS), fresh, FINE_SOLVER)

    def error(made: object, solver: str | None = None) -> float:
        return float(endpoint_errors(sample(model, made, fresh, solver), truth).mean())  # type: ignore[arg-type]

    def best_known(solver: str, steps: int) -> float:
        solvers = KNOWN_SOLVERS if solver == FITTED else (solver,)
        return min(error(times, one) for one in solvers for times in closed_forms(model.noise, steps).values())

    for solver in asked.solvers.split(","):
        for steps in map(int, asked.steps.split(",")):
            cell = (name, solver, str(steps))
            if (*cell, KNOWN, "0") not in known:
                runs.add([*cell, KNOWN, 0, 0, f"{best_known(solver, steps):.6g}"])
            for seed in range(APART * asked.first, APART * (asked.first + asked.seeds), APART):
                for budget in BUDGETS:
                    if (*cell, str(budget), str(seed)) not in known:
                        found = geosprint.tune(
                            model, steps, solver=solver, budget_nfe=budget, seed=seed, progress=False
                        )
                        runs.add([*cell, budget, seed, found.nfe, f"{error(found):.6g}"])


def table(rows: list[Row]) -> str:
    """A line for each model, solver and number of steps, and one for all: errors in multiples of the full budget's."""
    cells: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        cells.setdefault((row["model"], row["solver"], row["steps"]), []).append(row)
    whole = {cell: own for cell, own in cells.items() if _seeds(own)}
    head = " | ".join(f"{budget:,} calls" for budget in BUDGETS)
    lines = [f"| model | solver | K | seeds | best known solver | {head} |", "|---|---|" + "---:|" * (3 + len(BUDGETS))]
    fewer = (int(KNOWN), *BUDGETS[:-1])
    for cell, own in whole.items():
        full = geometric_mean(_by_seed(own, BUDGETS[-1])[seed] for seed in _seeds(own))
        numbers = " | ".join(f"{_ratio(own, budget):.2f}" for budget in fewer)
        lines.append(f"| {' | '.join(cell)} | {len(_seeds(own))} | {numbers} | {full:.4f} |")
    means = " | ".join(f"{geometric_mean(_ratio(own, budget) for own in whole.values()):.2f}" for budget in fewer)
    return "\n".join([*lines, f"| geometric mean | | | | {means} | 1 |"])


def _by_seed(rows: Sequence[Row], budget: int) -> dict[str, float]:
    return {row["seed"]: float(row["rmse"]) for row in rows if row["budget"] == str(budget)}


def _seeds(rows: Sequence[Row]) -> list[str]:
    """Of which every budget was run."""
    return [seed for seed in _by_seed(rows, BUDGETS[-1]) if all(seed in _by_seed(rows, budget) for budget in BUDGETS)]


def _ratio(rows: Sequence[Row], budget: int) -> float:
    """Errors with this budget in multiples of those with the full one, in the geometric mean over seeds."""
    some, full = _by_seed(rows, budget), _by_seed(rows, BUDGETS[-1])
    return geometric_mean([some["0" if budget == int(KNOWN) else seed] / full[seed] for seed in _seeds(rows)])


if __name__ == "__main__":
    measure_or_read(RESULTS, COLUMNS, 5, FITTED, 3, measure, table)
