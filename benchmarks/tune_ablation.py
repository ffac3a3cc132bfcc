"""What each stage of tuning earns: switched off in turn, on the same held-out noise as the full method.

python -m benchmarks.tune_ablation digits gaussian --solvers fitted   adds runs to docs/results/tune/ablation.csv
python -m benchmarks.tune_ablation                                     prints the table of all runs

`--solvers fitted`, the default of `tune`, has the stages that propose schedules for fits, and those of fits. A solver
that is kept, as with `--solvers ddim,dpmpp-2m`, has those of the search. A stage is not tried where it changes nothing.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.quality import geometric_mean
from benchmarks.tune_runs import APART, FINE_STEPS, FRESH, Row, Runs, measure_or_read
from geosprint import load_model
from geosprint.estimates import Estimate, bootstrapped, endpoint_errors
from geosprint.models.spread import Spread
from geosprint.sampling import sample
from geosprint.teacher import FINE_SOLVER, TeacherSets, fine_timesteps
from geosprint.tuned import FITTED, Tuned
from geosprint.tuning.config import DEFAULT, TuneConfig
from geosprint.tuning.fewest import tuned_steps
from geosprint.tuning.problem import TuningProblem
from geosprint.tuning.today import todays_run
from geosprint.tuning.wish import Wish

FULL = "full method"
FIT = DEFAULT.fit
OF_SEARCHES = {
    "published starts": replace(DEFAULT, published_starts=False),
    "predicted ranking": replace(DEFAULT, ranks_by_prediction=False),
    "descents before halving": replace(DEFAULT, radii=()),
    "corrected descents": replace(DEFAULT, descent_share=0.0),
    "secants": replace(DEFAULT, secant_reach=0.0),
    "full-range variant": replace(DEFAULT, full_range_variant=False),
    "learning the response": replace(DEFAULT, learns_response=False),
}
OF_FITS = {
    "always tried schedules": replace(DEFAULT, always_tried=()),
    "descents for fits": replace(DEFAULT, moved_starts=0),
    "schedules for DPM++ 2M": replace(DEFAULT, joint_from=10**9),
    "fits on several schedules": replace(DEFAULT, fit=replace(FIT, finalists=1)),
    "refining several a little first": replace(DEFAULT, fit=replace(FIT, refined_first=1)),
    "refinement": replace(DEFAULT, fit=replace(FIT, rounds=0)),
    "moved times": replace(DEFAULT, fit=replace(FIT, moved_times=0)),
    "weighing errors": replace(DEFAULT, fit=replace(FIT, weighs_errors=False)),
}
RESULTS = Path("docs/results/tune/ablation.csv")
COLUMNS = ("model", "solver", "steps", "budget", "seed", "without", "chosen", "nfe", "rmse")


def stages(solver: str, steps: int) -> dict[str, TuneConfig]:
    """The full method, and each stage that so many steps of this solver have, switched off."""
    found = {FULL: DEFAULT, **(OF_FITS if solver == FITTED else OF_SEARCHES)}
    if steps > FIT.moved_times:
        found.pop("moved times", None)
    if steps < DEFAULT.joint_from:
        found.pop("schedules for DPM++ 2M", None)
    return found


def measure(name: str, asked: argparse.Namespace, runs: Runs) -> None:
    """Tune with all stages and without each, seed by seed; whatever is in the file already is left out."""
    model, fresh = Spread(load_model(name)), range(FRESH, FRESH + asked.number)
    truth = sample(model, fine_timesteps(model.noise, FINE_STEPS), fresh, FINE_SOLVER)
    known = runs.known()
    for seed in range(APART * asked.first, APART * (asked.first + asked.seeds), APART):
        teacher = TeacherSets.recorded(model, asked.budget, seed)
        for solver in asked.solvers.split(","):
            for steps in map(int, asked.steps.split(",")):
                for without, config in stages(solver, steps).items():
                    cell = (name, solver, str(steps), str(asked.budget), str(seed), without)
                    if cell in known:
                        continue
                    begun = model.nfe - teacher.nfe
                    problem = TuningProblem.of(model, teacher, config=config)
                    wish = Wish((steps,), todays_run(model, None), solver)
                    found = tuned_steps(problem, wish, steps, asked.budget - teacher.nfe, None).result
                    chosen, nfe = found.schedule.provenance["method"], model.nfe - begun
                    error = endpoint_errors(sample(model, Tuned((found,)), fresh), truth).mean()
                    runs.add([*cell, chosen, nfe, f"{error:.6g}"])


def ratios(rows: list[Row]) -> dict[str, dict[str, list[float]]]:
    """Error without a stage over the error of the full method of the same run, by stage and model."""
    run = ("model", "solver", "steps", "budget", "seed")
    full = {tuple(row[part] for part in run): float(row["rmse"]) for row in rows if row["without"] == FULL}
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["without"] != FULL:
            ratio = float(row["rmse"]) / full[tuple(row[part] for part in run)]
            found[row["without"]][row["model"]].append(ratio)
    return found


def mean_ratio(some: list[float]) -> Estimate:
    """Geometric mean over runs, with the interval of drawing as many runs again."""
    logs = np.log(some)
    mean = bootstrapped(lambda rows: float(logs[rows].mean()), len(logs))
    return Estimate(*(float(np.exp(part)) for part in (mean.value, mean.low, mean.high)))


def table(rows: list[Row]) -> str:
    """A row for each stage, a column for each model with the number of runs; models count alike in the last one."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    lines = [f"| without | {' | '.join(models)} | mean |", "|---|" + "---|" * (len(models) + 1)]
    for stage, by_model in ratios(rows).items():
        cells = [_cell(by_model[model]) for model in models]
        mean = geometric_mean([mean_ratio(some).value for some in by_model.values() if some])
        lines.append(f"| {stage} | {' | '.join(cells)} | {mean:.3f} |")
    return "\n".join(lines)


def _cell(some: list[float]) -> str:
    if len(some) < 2:
        return f"{some[0]:.3f}, one run" if some else "–"
    one = mean_ratio(some)
    return f"{one.value:.3f} ({one.low:.3f} to {one.high:.3f}), {len(some)} runs"


if __name__ == "__main__":
    measure_or_read(RESULTS, COLUMNS, 6, "ddim", 3, measure, table)
