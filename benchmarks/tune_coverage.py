"""How often tuning returns a schedule whose true error is above that of the best closed form, and by how much.

python -m benchmarks.tune_coverage digits gaussian mixture   adds runs to docs/results/tune/coverage.csv
python -m benchmarks.tune_coverage                           prints the table of all runs

Every run has a teacher of its own; solvers take turns. The true error is the mean over held-out noise.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks.quality import geometric_mean
from benchmarks.tune_runs import APART, FINE_STEPS, FRESH, Runs, measure_or_read
from geosprint import load_model
from geosprint.baselines import closed_forms
from geosprint.estimates import endpoint_errors
from geosprint.sampling import Counted, sample
from geosprint.teacher import FINE_SOLVER, TeacherSets, fine_timesteps
from geosprint.tuning.schedules import TuningProblem, tune_schedule

RESULTS = Path("docs/results/tune/coverage.csv")
COLUMNS = ("model", "solver", "steps", "budget", "seed", "chosen", "rmse", "best closed form", "its rmse")


def measure(name: str, asked: argparse.Namespace, runs: Runs) -> None:
    """Tune with one seed after another; whatever is in the file already is left out."""
    model, fresh = Counted(load_model(name)), range(FRESH, FRESH + asked.number)
    truth = sample(model, fine_timesteps(model.noise, FINE_STEPS), fresh, FINE_SOLVER, batch=128)
    known = runs.known()
    solvers, forms = asked.solvers.split(","), dict[tuple[str, int], dict[str, float]]()

    def true_error(times: np.ndarray, solver: str) -> float:
        return float(endpoint_errors(sample(model, times, fresh, solver, batch=128), truth).mean())

    for turn in range(asked.seeds):
        seed, solver = APART * turn, solvers[turn % len(solvers)]
        cells = {k: (name, solver, str(k), str(asked.budget), str(seed)) for k in map(int, asked.steps.split(","))}
        missing = {steps: cell for steps, cell in cells.items() if cell not in known}
        if not missing:
            continue
        teacher = TeacherSets.recorded(model, asked.budget, seed)
        for steps, cell in missing.items():
            if (solver, steps) not in forms:
                schedules = closed_forms(model.noise, steps)
                forms[solver, steps] = {form: true_error(times, solver) for form, times in schedules.items()}
            errors = forms[solver, steps]
            best = min(errors, key=errors.__getitem__)
            found = tune_schedule(TuningProblem.of(model, teacher, solver, asked.budget), steps)
            error = true_error(found.schedule.timesteps, solver)
            runs.add([*cell, found.chosen, f"{error:.6g}", best, f"{errors[best]:.6g}"])


def table(rows: list[dict[str, str]]) -> str:
    """A line for each model, solver and number of steps, and one for all."""
    cells = list(dict.fromkeys((row["model"], row["solver"], int(row["steps"])) for row in rows))
    heads = f"{'runs':>5} {'tuned':>6} {'worse':>6}  {'closed':>6} {'worse':>6}  error / best closed form"
    lines = [f"{'model':9} {'solver':8} {'K':>2} {heads}"]
    for model, solver, steps in sorted(cells):
        some = [row for row in rows if (row["model"], row["solver"], int(row["steps"])) == (model, solver, steps)]
        lines.append(f"{model:9} {solver:8} {steps:>2} {_line(some)}")
    return "\n".join([*lines, f"{'all':21} {_line(rows)}"])


def _line(rows: list[dict[str, str]]) -> str:
    ratios = np.array([float(row["rmse"]) / float(row["its rmse"]) for row in rows])
    is_tuned, is_worse = np.array([row["chosen"] == "tuned" for row in rows]), ratios > 1 + 1e-6
    tuned, closed = (f"{some.sum():>6} {(some & is_worse).sum():>6}" for some in (is_tuned, ~is_tuned))
    return f"{len(rows):>5} {tuned}  {closed}  {geometric_mean(ratios):.3f} in the mean, {ratios.max():.3f} at worst"


if __name__ == "__main__":
    measure_or_read(RESULTS, COLUMNS, 5, "ddim,dpmpp-2m", 40, measure, table)
