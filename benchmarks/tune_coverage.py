"""How often "not worse with 95 % confidence" is wrong, and how often a known solver would have been better.

python -m benchmarks.tune_coverage digits gaussian mixture   adds runs to docs/results/tune/coverage.csv
python -m benchmarks.tune_coverage                           prints the table of all runs

Every run is a whole `tune` with a teacher of its own. True errors are means over held-out noise that no run has seen.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks.quality import geometric_mean
from benchmarks.tune_runs import APART, FINE_STEPS, FRESH, Row, Runs, measure_or_read
from geosprint import load_model, tune
from geosprint.baselines import closed_forms
from geosprint.estimates import endpoint_errors
from geosprint.sampling import sample
from geosprint.teacher import FINE_SOLVER, fine_timesteps
from geosprint.tuned import FITTED
from geosprint.tuning.candidates import KNOWN_SOLVERS

RESULTS = Path("docs/results/tune/coverage.csv")
COLUMNS = ("model", "solver", "budget", "seed", "steps", "proved", "rmse", "today's rmse", "known", "its rmse")


def measure(name: str, asked: argparse.Namespace, runs: Runs) -> None:
    """Tune with one seed after another; whatever is in the file already is left out."""
    model, fresh = load_model(name), range(FRESH, FRESH + asked.number)
    truth = sample(model, fine_timesteps(model.noise, FINE_STEPS), fresh, FINE_SOLVER, batch=128)
    known, solvers = runs.known(), asked.solvers.split(",")
    errors: dict[tuple[str, str, int], float] = {}

    def true_error(made: object, solver: str | None) -> float:
        return float(endpoint_errors(sample(model, made, fresh, solver, batch=128), truth).mean())  # type: ignore[arg-type]

    def error_of(solver: str, form: str, steps: int) -> float:
        if (solver, form, steps) not in errors:
            errors[solver, form, steps] = true_error(closed_forms(model.noise, steps)[form], solver)
        return errors[solver, form, steps]

    for turn in range(asked.first, asked.first + asked.seeds):
        seed, solver = APART * turn, solvers[turn % len(solvers)]
        cell = (name, solver, str(asked.budget), str(seed))
        if cell in known:
            continue
        found = tune(model, solver=solver, budget_nfe=asked.budget, seed=seed, progress=False)
        assert found.today is not None
        steps = found.proved or max(found.steps)
        today = error_of(found.today.solver, found.today.spacing, found.today.steps)
        others = {
            f"{one} {form}": error_of(one, form, steps)
            for one in (KNOWN_SOLVERS if solver == FITTED else (solver,))
            for form in closed_forms(model.noise, steps)
        }
        best = min(others, key=others.__getitem__)
        numbers = (f"{error:.6g}" for error in (true_error(found[steps], None), today))
        runs.add([*cell, steps, found.proved is not None, *numbers, best, f"{others[best]:.6g}"])


def table(rows: list[Row]) -> str:
    """A line for each model and solver, and one for all."""
    cells = list(dict.fromkeys((row["model"], row["solver"]) for row in rows))
    lines = [
        f"{'model':9} {'solver':8} {'runs':>5} {'proved':>7} {'wrong':>6}  steps, mean   error / best known solver"
    ]
    for model, solver in sorted(cells):
        some = [row for row in rows if (row["model"], row["solver"]) == (model, solver)]
        lines.append(f"{model:9} {solver:8} {_line(some)}")
    return "\n".join([*lines, f"{'all':18} {_line(rows)}"])


def _line(rows: list[Row]) -> str:
    proved = [row for row in rows if row["proved"] == "True"]
    wrong = sum(float(row["rmse"]) > float(row["today's rmse"]) for row in proved)
    steps = np.mean([int(row["steps"]) for row in proved]) if proved else np.nan
    ratios = np.array([float(row["rmse"]) / float(row["its rmse"]) for row in rows])
    beside = f"{geometric_mean(ratios):.3f} in the mean, above 1 in {(ratios > 1 + 1e-6).sum()}"
    return f"{len(rows):>5} {len(proved):>7} {wrong:>6}  {steps:>11.1f}   {beside}"


if __name__ == "__main__":
    measure_or_read(RESULTS, COLUMNS, 4, f"{FITTED},ddim", 40, measure, table)
