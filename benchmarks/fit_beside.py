"""Fitted solvers beside every schedule of `geosprint compare`, in the same run, on the same noise.

python -m benchmarks.fit_beside DIR    reads what `benchmarks.quality` left in DIR/MODEL and prints the table

Where fits have changed since, DIR/MODEL/fits.csv has them: the results.csv of a `geosprint compare` of `fitted` and
`tuned+fitted` on the same samples. Known solvers have not changed.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.quality import EXACT, KNOWN_SOLVERS, LIMIT, OURS, SOLVERS, geometric_mean

FITS = ("fitted", "tuned+fitted")
FIRST_ORDER = ("ddim", "euler")
MULTISTEP = ("dpmpp-2m", *KNOWN_SOLVERS)
FEW, LONG = 10, 50  # fitted steps, and the uniform DDIM steps that they are to replace


class Cell(NamedTuple):
    """How far a method came."""

    method: str
    rmse: float
    frechet: float
    low: float  # end of the interval of the RMSE

    def __str__(self) -> str:
        return f"{self.rmse:.4f} ({self.frechet:.3g})"


@dataclass(frozen=True)
class Beside:
    """One number of steps of one model."""

    model: str
    steps: int
    fits: dict[str, Cell]
    tuned: Cell | None  # the first-order solver on the schedule tuned for it
    known: dict[str, Cell]  # each multi-step solver on the schedule, of all known ones, that is best for it
    long: Cell | None  # LONG first-order steps on the best uniform spacing, beside FEW fitted ones


def cells_of(directory: Path) -> dict[tuple[int, str], dict[str, Cell]]:
    """Everything that was measured, by steps and solver, and by method."""
    values: dict[tuple[int, str, str], dict[str, tuple[float, float]]] = defaultdict(dict)
    again = directory / "fits.csv"
    for path in (directory / "results.csv", directory / "solvers.csv", again):
        if path.exists():
            with path.open(newline="") as file:
                for row in csv.DictReader(file):
                    place = (int(row["steps"]), row["solver"], row["method"])
                    if row["method"] not in FITS or path == again or not again.exists():
                        values[place][row["metric"]] = (float(row["value"]), float(row["low"] or "nan"))
    found: dict[tuple[int, str], dict[str, Cell]] = defaultdict(dict)
    for (steps, solver, method), metrics in sorted(values.items()):
        rmse, low = metrics["rmse"]
        found[steps, solver][method] = Cell(method, rmse, metrics["frechet-fine"][0], low)
    return found


def beside(directory: Path) -> Iterator[Beside]:
    """The numbers of steps of one model that have a fitted solver."""
    cells = cells_of(directory)
    for steps in sorted({steps for steps, _ in cells}):
        here = {solver: cells[k, solver] for k, solver in cells if k == steps}
        fits = {name: cell for of_solver in here.values() for name, cell in of_solver.items() if name in FITS}
        if fits:
            first = [here[solver] for solver in FIRST_ORDER if solver in here]
            tuned = next((of_solver["tuned"] for of_solver in first if "tuned" in of_solver), None)
            known = {solver: _best(here[solver]) for solver in MULTISTEP if solver in here}
            long = [cells[LONG, solver] for solver in FIRST_ORDER if steps == FEW and (LONG, solver) in cells]
            yield Beside(directory.name, steps, fits, tuned, known, _best(long[0]) if long else None)


def report(found: list[Beside]) -> str:
    """The table and the geometric means, in Markdown."""
    solvers = [solver for solver in MULTISTEP if any(solver in one.known for one in found)]
    lines = [
        f"| model | K | fitted | tuned+fitted | tuned, first order | {' | '.join(solvers)} |",
        f"|---|---:|---:|---:|---:|{'---|' * len(solvers)}",
    ]
    for one in found:
        ours = [str(cell or "–") for cell in (*(one.fits.get(name) for name in FITS), one.tuned)]
        known = [
            f"{one.known[solver]} {one.known[solver].method}" if solver in one.known else "–" for solver in solvers
        ]
        lines.append(f"| {one.model} | {one.steps} | {' | '.join([*ours, *known])} |")
    trained = [one for one in found if one.model not in EXACT]
    groups = (
        {"Trained networks": trained} if len(trained) == len(found) else {"All": found, "Trained networks": trained}
    )
    for label, some in groups.items():
        for name in FITS:
            having = [one for one in some if name in one.fits]
            lines += ["", *_means(label, name, solvers, having)] if having else []
    long = {name: _over_long(found, name) for name in FITS}
    each = [f"{model} {ratio:.2f} (`{name}`)" for name in FITS for model, ratio in long[name].items()]
    if each:
        lines += ["", f"RMSE of {LONG} uniform steps of first order over that of {FEW} fitted ones: {', '.join(each)}."]
    return "\n".join([*lines, *(["", few_for_many(trained)] if _over_long(trained, FITS[-1]) else [])])


def few_for_many(found: list[Beside]) -> str:
    """What may be said of few fitted steps in the place of many uniform ones."""
    ratios = list(_over_long(found, FITS[-1]).values())
    lower = sum(ratio > 1 for ratio in ratios)
    return (
        f"{FEW} steps of `{FITS[-1]}` have a lower error than {LONG} uniform steps of first order on {lower} of "
        f"{len(ratios)} bundled networks: those have {min(ratios):.1f} to {max(ratios):.1f} times the error."
    )


def _over_long(found: list[Beside], name: str) -> dict[str, float]:
    """By model, the error of many uniform steps in multiples of that of few steps of a fit."""
    return {
        one.model: one.long.rmse / one.fits[name].rmse for one in found if one.long is not None and name in one.fits
    }


def _means(label: str, name: str, solvers: list[str], found: list[Beside]) -> Iterator[str]:
    """The errors of the others in multiples of that of one fit, and where they are lower."""
    yield f"| {label}, over `{name}` | RMSE | F² | lower error | below the interval |"
    yield "|---|---:|---:|---:|---:|"
    rivals = {"tuned, first order": [(one.tuned, one.fits[name]) for one in found if one.tuned]}
    for solver in solvers:
        rivals[solver] = [(one.known[solver], one.fits[name]) for one in found if solver in one.known]
    if len(solvers) > 1:
        whole = [one for one in found if len(one.known) == len(solvers)]
        rivals["the best of these"] = [(min(one.known.values(), key=_rmse), one.fits[name]) for one in whole]
    for rival, pairs in rivals.items():
        if pairs:
            rmse = geometric_mean(theirs.rmse / ours.rmse for theirs, ours in pairs)
            frechet = geometric_mean(theirs.frechet / ours.frechet for theirs, ours in pairs)
            lower = sum(theirs.rmse < ours.rmse for theirs, ours in pairs)
            surely = sum(theirs.rmse < ours.low for theirs, ours in pairs)
            yield f"| {rival} | {rmse:.2f} | {frechet:.2f} | {lower} of {len(pairs)} | {surely} |"


def _best(cells: dict[str, Cell]) -> Cell:
    """Of what is known without us."""
    return min((cell for name, cell in cells.items() if name not in (*OURS, LIMIT)), key=_rmse)


def _rmse(cell: Cell) -> float:
    return cell.rmse


def main() -> None:
    """Read and print."""
    print(report(measured_in(Path(sys.argv[1]))))


def measured_in(out: Path) -> list[Beside]:
    """Of all models whose results are there."""
    directories = [out / model for model in SOLVERS if (out / model / "results.csv").exists()]
    return [one for directory in directories for one in beside(directory)]


if __name__ == "__main__":
    main()
