"""Does tuning keep its promise? Every schedule on every model in the box, and what the tuned one is worth.

python -m benchmarks.quality             measures all (hours on two cores) into out/quality and prints the table
python -m benchmarks.quality digits      one model
python -m benchmarks.quality --read DIR  only reads what `geosprint compare` left in DIR/MODEL
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from geosprint import load_model
from geosprint.comparison.plan import Plan
from geosprint.comparison.results import write_csv
from geosprint.comparison.run import compare
from geosprint.estimates import steps_reaching
from geosprint.report.comparison import leave_files

SOLVERS = {
    "gaussian": ("ddim", "dpmpp-2m"),
    "digits": ("ddim", "dpmpp-2m"),
    "fashion": ("ddim", "dpmpp-2m"),
    "fashion-flow": ("euler", "heun", "dpmpp-2m"),
    "cifar10": ("ddim", "dpmpp-2m"),
    "fashion-reflow": ("euler", "dpmpp-2m"),
}
STEPS = (5, 8, 10, 15, 20)
FINE_STEPS = 200  # of the reference solve: on some networks 20 fitted steps have a lower error than 100 of Heun's
RULER = {True: (30, 50, 100, 200), False: (30, 50, 100)}  # exact models, networks
KNOWN_SOLVERS = ("unipc", "deis", "ipndm")  # beside those above, for fitted solvers to be compared with
OURS = ("tuned", "weighted-path", "fitted", "tuned+fitted")
LIMIT = "ld3-l2"
OTHER_SOLVERS = ("s4s-alt", "dyweight", "neural-solver", "bns-l2")  # learnt: the table is of schedules
EXACT = ("gaussian", "digits")  # the models that are no networks
Numbers = dict[tuple[str, str], float]  # (method, metric) to value


@dataclass(frozen=True)
class Judged:
    """One number of steps of one solver on one model."""

    model: str
    solver: str
    steps: int
    tuned: float
    uniform: tuple[str, float]
    rival: tuple[str, float]
    limit: float | None
    frechet: tuple[float, float]  # of the tuned schedule and of the best uniform spacing
    worth: float  # uniform steps with the tuned error
    is_worth_more: bool  # even the most that were tried have a higher error
    ties: bool  # the best rival has a higher error, or one within the interval of the tuned one


def measured(model: str, out: Path) -> None:
    """Run the comparisons; cells that are there already are not measured again."""
    loaded, command = load_model(model), f"python -m benchmarks.quality {model}"
    known = Plan(steps=STEPS, solvers=KNOWN_SOLVERS, fine_steps=FINE_STEPS, leave_out=(*OURS, *OTHER_SOLVERS, LIMIT))
    write_csv(compare(loaded, out, known, progress=True).rows, out / "solvers.csv")
    steps = {"steps": STEPS, "fine_steps": FINE_STEPS, "ruler": RULER[model in EXACT]}
    plan = Plan(**steps, solvers=SOLVERS[model], leave_out=OTHER_SOLVERS)
    leave_files(compare(loaded, out, plan, progress=True), out, command)


def judged(results: Path) -> Iterator[Judged]:
    """The cells of one results.csv that hold a tuned schedule."""
    cells: dict[tuple[str, str, int], Numbers] = defaultdict(dict)
    lows: dict[tuple[str, str, int], float] = {}
    with results.open(newline="") as file:
        for row in csv.DictReader(file):
            place = (row["model"], row["solver"], int(row["steps"]))
            cells[place][row["method"], row["metric"]] = float(row["value"])
            if (row["method"], row["metric"]) == ("tuned", "rmse"):
                lows[place] = float(row["low"])
    for (model, solver, steps), numbers in cells.items():
        errors = {method: value for (method, metric), value in numbers.items() if metric == "rmse"}
        if "tuned" not in errors:
            continue
        uniform = min((name for name in errors if name.startswith("uniform")), key=errors.__getitem__)
        rival = min((name for name in errors if name not in (*OURS, LIMIT)), key=errors.__getitem__)
        curve = {
            k: min(value for (name, metric), value in other.items() if metric == "rmse" and name.startswith("uniform"))
            for (other_model, other_solver, k), other in cells.items()
            if (other_model, other_solver) == (model, solver)
        }
        yield Judged(
            model,
            solver,
            steps,
            errors["tuned"],
            (uniform, errors[uniform]),
            (rival, errors[rival]),
            errors.get(LIMIT),
            (numbers["tuned", "frechet-fine"], numbers[uniform, "frechet-fine"]),
            steps_reaching(curve, errors["tuned"]),
            min(curve.values()) > errors["tuned"],
            errors[rival] >= lows[model, solver, steps],
        )


def geometric_mean(ratios: Iterable[float]) -> float:
    """Of ratios."""
    return float(np.exp(np.mean(np.log(list(ratios)))))


def means(found: list[Judged]) -> dict[str, float]:
    """What tuning is worth over these cells."""
    ratios = {
        "lower RMSE than the best uniform spacing, times": [one.uniform[1] / one.tuned for one in found],
        "lower RMSE than the best rival, times": [one.rival[1] / one.tuned for one in found],
        "uniform steps that one tuned step is worth, at least": [one.worth / one.steps for one in found],
        "of the limit ld3-l2, times": [one.tuned / one.limit for one in found if one.limit],
    }
    return {name: geometric_mean(some) for name, some in ratios.items() if some}


def report(found: list[Judged]) -> str:
    """The table and the means, in Markdown."""
    head = "| model | solver | K | tuned | best uniform | best rival | ld3-l2 | F² tuned / uniform | uniform steps |"
    lines = [head, "|---|---|---:|---:|---|---|---:|---|---:|"]
    for one in found:
        worth = f"{'>' if one.is_worth_more else ''}{one.worth:.1f}"
        limit = "–" if one.limit is None else f"{one.limit:.4f}"
        rival = f"{one.rival[0]} {one.rival[1]:.4f}"
        if one.rival[1] < one.tuned:
            rival = f"**{rival}**{' (within the interval)' if one.ties else ''}"
        lines.append(
            f"| {one.model} | {one.solver} | {one.steps} | {one.tuned:.4f} | {one.uniform[0]} {one.uniform[1]:.4f} | "
            f"{rival} | {limit} | {one.frechet[0]:.3g} / {one.frechet[1]:.3g} | {worth} |"
        )
    lines += ["", *(f"- {name}: {value:.2f}" for name, value in means(found).items())]
    beaten = sum(one.tuned <= one.rival[1] for one in found)
    tied = sum(one.tuned > one.rival[1] and one.ties for one in found)
    lines.append(
        f"- lowest error of all in {beaten} of {len(found)} cells, within the interval of the lowest in {tied} more"
    )
    lower = sum(one.frechet[0] <= one.frechet[1] for one in found)
    lines.append(f"- Fréchet distance at or below the best uniform spacing's in {lower} of {len(found)} cells")
    trained = [one for one in found if one.model not in EXACT]
    if trained and len(trained) < len(found):
        lines += ["", "Trained networks alone:", ""]
        lines += [f"- {name}: {value:.2f}" for name, value in means(trained).items()]
    return "\n".join(lines)


def main() -> None:
    """Measure, or read, and print."""
    asked = sys.argv[1:]
    out = Path("out/quality")
    if asked[:1] == ["--read"]:
        out, asked = Path(asked[1]), []
    else:
        for model in asked or SOLVERS:
            measured(model, out / model)
    files = [out / model / "results.csv" for model in asked or SOLVERS]
    print(report([one for file in files if file.exists() for one in judged(file)]))


if __name__ == "__main__":
    main()
