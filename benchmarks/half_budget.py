"""What half of the calls gives, in the cells that `benchmarks.quality` measures with all of them, on the same samples.

python -m benchmarks.half_budget fashion -n 48   adds a model's cells to docs/results/tune/half.csv
python -m benchmarks.half_budget                 prints the table of all that are there
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import torch

from benchmarks.quality import EXACT, FINE_STEPS, SOLVERS, STEPS, geometric_mean, judged
from geosprint import load_model
from geosprint.comparison.plan import FRESH_SEED
from geosprint.estimates import bootstrap_mean, endpoint_errors
from geosprint.metrics.distances import frechet_distance
from geosprint.metrics.features import default_features, load_features
from geosprint.sampling import Counted, sample
from geosprint.teacher import FINE_SOLVER, TeacherSets, fine_timesteps
from geosprint.tuning.schedules import TuningProblem, least_budget, tune_schedule

HALF = 10_000
RESULTS = Path("docs/results/tune")
COLUMNS = ("model", "solver", "steps", "nfe", "chosen", "rmse", "low", "high", "frechet")


def measure(name: str, samples: int, out: Path) -> None:
    """Tune every cell of a model that half of the calls pays for, and add what it gives on fresh noise."""
    model = Counted(load_model(name))
    seeds = range(FRESH_SEED, FRESH_SEED + samples)
    truth = sample(model, fine_timesteps(model.noise, FINE_STEPS), seeds, FINE_SOLVER)
    features = load_features(default_features(model.name, model.shape))
    fine = TeacherSets.recorded(model, HALF)
    known = {(row["model"], row["solver"], int(row["steps"])) for row in read(out)}
    for solver in SOLVERS[name]:
        for steps in STEPS:
            if least_budget(model, steps, solver) > HALF or (name, solver, steps) in known:
                continue
            tuned = tune_schedule(TuningProblem.of(model, fine, solver, HALF), steps)
            drawn = sample(model, tuned.schedule.timesteps, seeds, solver)
            error = bootstrap_mean(endpoint_errors(drawn, truth))
            distance = frechet_distance(features(drawn), features(truth))
            figures = (f"{number:.6g}" for number in (error.value, error.low, error.high, distance))
            with out.open("a", newline="") as file:
                csv.writer(file, lineterminator="\n").writerow([name, solver, steps, tuned.nfe, tuned.chosen, *figures])


def read(out: Path) -> list[dict[str, str]]:
    """The cells that are there; a file for them, if there is none."""
    if not out.exists():
        out.write_text(",".join(COLUMNS) + "\n")
    with out.open(newline="") as file:
        return list(csv.DictReader(file))


def table(rows: list[dict[str, str]], results: Path) -> str:
    """Each cell beside the one with all calls, and the means over models and networks."""
    whole = {
        (one.model, one.solver, one.steps): one for model in SOLVERS for one in judged(results / model / "results.csv")
    }
    lines = ["| model | solver | K | half of the calls | all calls | best rival |", "|---|---|---:|---|---:|---|"]
    ratios: dict[str, list[float]] = {}
    for row in rows:
        one = whole[row["model"], row["solver"], int(row["steps"])]
        rmse, low, high = (float(row[column]) for column in ("rmse", "low", "high"))
        found = f"{rmse:.4f} ({low:.4f} to {high:.4f})" + ("" if row["chosen"] == "tuned" else f" {row['chosen']}")
        lines.append(
            f"| {one.model} | {one.solver} | {one.steps} | {found} | {one.tuned:.4f} | "
            f"{one.rival[0]} {one.rival[1]:.4f} |"
        )
        ratios.setdefault(one.model, []).append(rmse / one.tuned)
    lines.append("")
    lines += [f"- {model}: {geometric_mean(some):.3f} times the error of all calls" for model, some in ratios.items()]
    networks = [ratio for model, some in ratios.items() if model not in EXACT for ratio in some]
    lines.append(f"- trained networks, {len(networks)} cells: {geometric_mean(networks):.3f} times")
    return "\n".join(lines)


def main() -> None:
    """Measure a model, or read."""
    asked = argparse.ArgumentParser()
    asked.add_argument("model", nargs="?", choices=list(SOLVERS))
    asked.add_argument("-n", "--number", type=int, default=48)
    asked.add_argument("--results", type=Path, default=RESULTS)
    asked = asked.parse_args()
    out = asked.results / "half.csv"
    if asked.model:
        measure(asked.model, asked.number, out)
    print(table(read(out), asked.results))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
