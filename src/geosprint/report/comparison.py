"""A comparison for people: the table in the terminal and as Markdown, a sentence for each K, and all files of a run."""

from __future__ import annotations

from dataclasses import asdict
from itertools import product
from pathlib import Path

from geosprint.comparison.cells import Cell
from geosprint.comparison.methods import LIMITS
from geosprint.comparison.results import FORMAT, Comparison, write_csv
from geosprint.estimates import bootstrap_mean
from geosprint.files import write_json, write_text
from geosprint.report.columns import compared
from geosprint.report.headline import headline_of
from geosprint.report.machine import machine
from geosprint.report.tables import Table, table_console

TIE = "≈"
LEGEND = (
    "RMSE to the reference solve from the same noise; F² is the squared Fréchet distance to its samples. Bold: lowest "
    f"error; {TIE}: higher by no more than chance (paired 95 % interval)."
)
COST_LEGEND = (
    "Where each schedule starts, and what building it cost at the largest K: network calls on one sample, the "
    "recording included, how many of them a gradient went back through, and seconds."
)


def leave_files(comparison: Comparison, out: Path, command: str) -> list[Path]:
    """results.csv, summary.json, results.md, the best of each solver and K, and profile.json if there is a recording.

    Cells that were remembered need none.
    """
    about = {"command": command, "machine": machine(), "plan": asdict(comparison.plan)}
    files = [
        write_csv(comparison.rows, out / "results.csv"),
        write_json(out / "summary.json", FORMAT, {**comparison.summary(), **about}),
        write_text(out / "results.md", markdown(comparison, command)),
        *(
            comparison.best(solver, k).save(out / best_file(solver, k))
            for solver, k in product(comparison.plan.solvers, comparison.plan.steps)
            if comparison.fit_for_files(solver, k)
        ),
    ]
    if comparison.recording and comparison.recording.is_made:
        files.append(comparison.recording.profile.save(out / "profile.json"))
    return files


def best_file(solver: str, steps: int) -> str:
    """Where the winner of a column lies in the directory of a comparison."""
    return f"best/{solver}-{steps}.json"


def show_comparison(comparison: Comparison, files: list[Path]) -> None:
    """The tables, the sentence of each K, and where the files are."""
    console = table_console()
    for solver in comparison.plan.solvers:
        console.print(f"\n[bold]{comparison.model}, {solver}[/bold]")
        table_of(comparison, solver).show()
        for said in headlines(comparison, solver):
            console.print(said, highlight=False)
    console.print(LEGEND, style="dim", highlight=False)
    costs_of(comparison).show()
    console.print(COST_LEGEND, style="dim", highlight=False)
    for file in files:
        print(f"  {file}")


def headlines(comparison: Comparison, solver: str) -> list[str]:
    """What won at each number of steps, in a sentence or two, also when it is not us."""
    columns = [one for one in compared(comparison) if one.solver == solver and not one.is_longer]
    return [f"{said.sentence}. {said.beside}" for said in map(headline_of, columns)]


def table_of(comparison: Comparison, solver: str) -> Table:
    """A method per line; RMSE and Fréchet distance for every K."""
    all_steps = comparison.plan.steps
    lines = []
    for method in comparison.methods:
        cells = [comparison.cell(solver, method, k) for k in all_steps]
        measured = [text for cell in cells for text in (_rmse(comparison, cell), _frechet(comparison, cell))]
        lines.append([f"{method} (limit)" if method in LIMITS else method, *measured])
    return Table(["method", *(title for k in all_steps for title in (f"K={k}", "F²"))], lines)


def costs_of(comparison: Comparison) -> Table:
    """Where every method starts for each K, and what building the longest schedule cost."""
    solver, all_steps = comparison.plan.solvers[0], comparison.plan.steps
    lines = []
    for method in comparison.methods:
        cells = [comparison.cell(solver, method, k) for k in all_steps]
        last = cells[-1]
        cost = (f"{last.build_nfe:,}", f"{last.build_backprops:,}", f"{last.build_seconds:.1f}")
        lines.append([method, *(f"{cell.start:.4g}" for cell in cells), *cost])
    return Table(["method", *(f"start, K={k}" for k in all_steps), "calls", "back-propagations", "seconds"], lines)


def markdown(comparison: Comparison, command: str) -> str:
    """The tables with the command, the machine and the date, for a page of results."""
    plan, seeds = comparison.plan, comparison.plan.fresh_seeds
    parts = [
        f"# {comparison.model}\n",
        f"```\n{command}\n```\n",
        f"{machine()}. {plan.samples} samples from held-out noise (seeds {seeds[0]}..{seeds[-1]}); "
        f"{plan.trajectories} recorded trajectories of {plan.reference_steps} steps; the reference solve has "
        f"{plan.fine_steps} Heun steps; Fréchet distances in {plan.features} features. {LEGEND}\n",
    ]
    for solver in plan.solvers:
        parts += [f"## {solver}\n", table_of(comparison, solver).markdown]
        parts += [*(f"- {said}" for said in headlines(comparison, solver)), ""]
        parts += _beside_exact(comparison, solver)
    return "\n".join([*parts, f"## Cost\n\n{COST_LEGEND}\n", costs_of(comparison).markdown])


def _rmse(comparison: Comparison, cell: Cell) -> str:
    if cell is comparison.winner(cell.solver, cell.steps):
        return f"**{cell.error:.4f}**"
    return f"{TIE if comparison.ties_with_best(cell) else ''}{cell.error:.4f}"


def _frechet(comparison: Comparison, cell: Cell) -> str:
    row = comparison.value(cell, "frechet-fine")
    if row is None:
        return ""
    column = [other for other in comparison.column(cell.solver, cell.steps) if other.method not in LIMITS]
    lowest = min(one.value for other in column or [cell] if (one := comparison.value(other, "frechet-fine")))
    return f"**{row.value:.3g}**" if row.value == lowest else f"{row.value:.3g}"


def _beside_exact(comparison: Comparison, solver: str) -> list[str]:
    """Estimates beside exact values, where the model knows its own, and how many intervals hold them."""
    cells = [cell for cell in comparison.cells if cell.solver == solver]
    inside, lines = 0, []
    for cell in cells:
        if exact := comparison.value(cell, "rmse-exact"):
            rmse, data = bootstrap_mean(cell.errors), comparison.value(cell, "frechet-data")
            inside += rmse.low <= exact.value <= rmse.high
            interval = f"{rmse.value:.5f} ({rmse.low:.5f} – {rmse.high:.5f})"
            distance = f"{data.value:.4g}" if data else ""
            lines.append([cell.method, str(cell.steps), interval, f"{exact.value:.5f}", distance])
    if not lines:
        return []
    table = Table(["method", "K", "RMSE, 95 % interval", "exact RMSE", "exact F² to the data"], lines)
    return [f"The exact RMSE lies in {inside} of {len(lines)} intervals.\n", table.markdown]
