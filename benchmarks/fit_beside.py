"""Fitted solvers beside every schedule of `geosprint compare`, in the same run, on the same noise.

python -m benchmarks.fit_beside DIR    reads what `geosprint compare` left in DIR/MODEL and prints the table
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.quality import EXACT, LIMIT, OURS, SOLVERS, geometric_mean

FITS = ("fitted", "tuned+fitted")
FIRST_ORDER, MULTISTEP = ("ddim", "euler"), "dpmpp-2m"


@dataclass(frozen=True)
class Beside:
    """One number of steps of one model; an error and a squared Fréchet distance each."""

    model: str
    steps: int
    fits: dict[str, tuple[float, float]]
    lows: dict[str, float]  # lower ends of the fits' intervals
    tuned: tuple[float, float] | None  # the first-order solver on the schedule tuned for it
    best_multistep: tuple[str, float, float] | None  # DPM++ 2M on the schedule of all known ones that is best for it


def beside(results: Path) -> Iterator[Beside]:
    """The numbers of steps of one results.csv that have a fitted solver."""
    values: dict[tuple[int, str, str, str], tuple[float, float]] = {}
    model = ""
    with results.open(newline="") as file:
        for row in csv.DictReader(file):
            model = row["model"]
            place = (int(row["steps"]), row["solver"], row["method"], row["metric"])
            values[place] = (float(row["value"]), float(row["low"] or "nan"))
    by_steps: dict[int, dict[tuple[str, str], tuple[float, float, float]]] = defaultdict(dict)
    for (steps, solver, method, metric), (value, low) in values.items():
        if metric == "rmse":
            frechet = values[steps, solver, method, "frechet-fine"][0]
            by_steps[steps][solver, method] = (value, frechet, low)
    for steps, cells in sorted(by_steps.items()):
        solver = next(solver for solver, _ in cells)
        fits = {name: cells[solver, name] for name in FITS if (solver, name) in cells}
        if not fits:
            continue
        tuned = next((cells[first, "tuned"] for first in FIRST_ORDER if (first, "tuned") in cells), None)
        known = {m: v for (s, m), v in cells.items() if s == MULTISTEP and m not in (*OURS, LIMIT)}
        best = min(known, key=lambda name: known[name][0], default=None)
        yield Beside(
            model,
            steps,
            {name: value[:2] for name, value in fits.items()},
            {name: value[2] for name, value in fits.items()},
            tuned[:2] if tuned else None,
            (best, *known[best][:2]) if best else None,
        )


def report(found: list[Beside]) -> str:
    """The table and the geometric means, in Markdown."""
    lines = [
        "| model | K | fitted | tuned+fitted | tuned, first order | DPM++ 2M on its best schedule |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for one in found:
        fits = [_pair(one.fits.get(name)) for name in FITS]
        best = f"{one.best_multistep[0]} {_pair(one.best_multistep[1:])}" if one.best_multistep else "–"
        lines.append(f"| {one.model} | {one.steps} | {fits[0]} | {fits[1]} | {_pair(one.tuned)} | {best} |")
    trained = [one for one in found if one.model not in EXACT]
    groups = (
        {"trained networks": trained} if len(trained) == len(found) else {"all": found, "trained networks": trained}
    )
    for label, some in groups.items():
        for name in FITS:
            having = [one for one in some if name in one.fits]
            lines += ["", *_means(label, name, having)] if having else []
    return "\n".join(lines)


def _means(label: str, name: str, found: list[Beside]) -> Iterator[str]:
    tuned = [(one.tuned, one.fits[name]) for one in found if one.tuned]
    multistep = [(one.best_multistep[1:], one.fits[name]) for one in found if one.best_multistep]
    for rival, pairs in (("the tuned first-order solver", tuned), ("DPM++ 2M on its best schedule", multistep)):
        if pairs:
            rmse, frechet = (geometric_mean(theirs[i] / ours[i] for theirs, ours in pairs) for i in (0, 1))
            yield f"- {label}, {rival} over `{name}`: RMSE {rmse:.2f}, F² {frechet:.2f} ({len(pairs)} cells)"
    behind = [one for one in found if one.best_multistep and one.best_multistep[1] < one.fits[name][0]]
    beyond = sum(one.best_multistep[1] < one.lows[name] for one in behind if one.best_multistep)
    yield (
        f"- {label}, DPM++ 2M on its best schedule is nearer than `{name}` in {len(behind)} of {len(multistep)} cells, "
        f"below its 95 % interval in {beyond}"
    )


def _pair(value: tuple[float, ...] | None) -> str:
    return f"{value[0]:.4f} ({value[1]:.3g})" if value else "–"


def main() -> None:
    """Read and print."""
    out = Path(sys.argv[1])
    files = [out / model / "results.csv" for model in SOLVERS]
    print(report([one for file in files if file.exists() for one in beside(file)]))


if __name__ == "__main__":
    main()
