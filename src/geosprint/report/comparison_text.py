"""A comparison for people: the table in the terminal and as Markdown, the figures, and all files of one run."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator
from rich.table import Table

from geosprint.comparison.cells import Cell
from geosprint.comparison.remembered import FORMAT
from geosprint.comparison.results import Comparison, summary, write_csv
from geosprint.comparison.run import schedules_of
from geosprint.files import write_json, write_text
from geosprint.metrics.estimates import bootstrap_mean
from geosprint.report.machine import machine
from geosprint.report.plots import BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, plot_samples, plot_steps, saved
from geosprint.report.terminal import table_console

TIE = "≈"
LEGEND = (
    "RMSE to the fine solve from the same noise; F² is the squared Fréchet distance to its samples. Bold: nearest; "
    f"{TIE}: behind it by no more than chance (paired 95 % interval)."
)
COST_LEGEND = (
    "Where each schedule starts, and what building it cost at the largest K, the recording included in the calls."
)


def leave_files(comparison: Comparison, out: Path, command: str) -> list[Path]:
    """results.csv, summary.json, results.md, a figure of errors, steps and samples for every solver, and the profile.

    The profile only if somebody looked at the recording: cells that were remembered need none.
    """
    content = {**summary(comparison), "command": command, "machine": machine(), "plan": comparison.plan.__dict__}
    files = [
        write_csv(comparison.rows, out / "results.csv"),
        write_json(out / "summary.json", FORMAT, content),
        write_text(out / "results.md", markdown(comparison, command)),
    ]
    if comparison.recording.is_made:
        files.append(comparison.recording.profile.save(out / "profile.json"))
    for solver in comparison.plan.solvers:
        if len(comparison.plan.steps) > 1:
            files.append(plot_errors(comparison, solver, out / f"errors-{solver}.png"))
        for steps in comparison.plan.steps:
            files.append(plot_steps(schedules_of(comparison, solver, steps), out / f"steps-{solver}-{steps}.png"))
            pictures = {cell.method: cell.pictures for cell in comparison.column(solver, steps)}
            pictures["fine solve"] = comparison.fine.samples[: len(next(iter(pictures.values())))]
            title = f"{comparison.model.name}: {steps} steps of {solver} from the same noise"
            files.append(plot_samples(pictures, out / f"samples-{solver}-{steps}.png", title))
    return files


def show_comparison(comparison: Comparison, files: list[Path]) -> None:
    """The tables, the sentence of each K, and where the files are."""
    console = table_console()
    for solver in comparison.plan.solvers:
        console.print(f"\n[bold]{comparison.model.name}, {solver}[/bold]")
        console.print(_rich(table_of(comparison, solver)))
        for steps in comparison.plan.steps:
            console.print(headline(comparison, solver, steps), highlight=False)
    console.print(LEGEND, style="dim", highlight=False)
    console.print(_rich(costs_of(comparison)))
    console.print(COST_LEGEND, style="dim", highlight=False)
    for file in files:
        if file.suffix != ".png":
            print(f"  {file}")
    print(f"  and {sum(file.suffix == '.png' for file in files)} figures beside them")


def headline(comparison: Comparison, solver: str, steps: int) -> str:
    """What won at this number of steps, in one sentence, also when it is not us."""
    best, uniform = comparison.best(solver, steps), comparison.best_uniform(solver, steps)
    begin = f"{steps} steps: {best.method} is nearest"
    if uniform is None or uniform is best:
        return f"{begin}."
    gap = bootstrap_mean(uniform.errors - best.errors)
    ratio = uniform.errors.mean() / best.errors.mean()
    chance = "" if gap.low > 0 else ", which may be chance"
    return (
        f"{begin}, {ratio:.2f} times nearer than the best uniform spacing, {uniform.method} "
        f"(by {gap.value:.4f}, 95 % interval {gap.low:.4f} to {gap.high:.4f}{chance})."
    )


@dataclass(frozen=True)
class Sheet:
    """A table: titles, and lines of texts of which some are bold."""

    header: list[str]
    lines: list[list[tuple[str, bool]]]


def table_of(comparison: Comparison, solver: str) -> Sheet:
    """A method per line; RMSE and Fréchet distance for every K."""
    all_steps = comparison.plan.steps
    lines = []
    for method in _methods(comparison):
        cells = [comparison.cell(solver, method, k) for k in all_steps]
        measured = [text for cell in cells for text in (_rmse(comparison, cell), _frechet(comparison, cell))]
        name = f"{method} (limit)" if method in comparison.limits else method
        lines.append([(name, False), *measured])
    return Sheet(["method", *(title for k in all_steps for title in (f"K={k}", "F²"))], lines)


def costs_of(comparison: Comparison) -> Sheet:
    """Where every method starts for each K, and what building the longest schedule cost."""
    solver, all_steps = comparison.plan.solvers[0], comparison.plan.steps
    lines = []
    for method in _methods(comparison):
        cells = [comparison.cell(solver, method, k) for k in all_steps]
        cost = (f"{cells[-1].build_nfe:,}", f"{cells[-1].build_seconds:.1f}")
        lines.append([(text, False) for text in (method, *(f"{cell.start:.4g}" for cell in cells), *cost)])
    return Sheet(["method", *(f"start, K={k}" for k in all_steps), "calls", "seconds"], lines)


def markdown(comparison: Comparison, command: str) -> str:
    """The tables with the command, the machine and the date, for a page of results."""
    plan, model = comparison.plan, comparison.model
    parts = [
        f"# {model.name}\n",
        f"```\n{command}\n```\n",
        f"{machine()}. {plan.samples} samples from seeds {plan.fresh_seeds[0]}..{plan.fresh_seeds[-1]}, which nothing "
        f"was made from; {plan.trajectories} recorded trajectories of {plan.reference_steps} steps; the fine solve is "
        f"{plan.fine_steps} Heun steps; Fréchet distances in {plan.features} features. {LEGEND}\n",
    ]
    for solver in plan.solvers:
        parts += [f"## {solver}\n", *_markdown_lines(table_of(comparison, solver)), ""]
        parts += [f"- {headline(comparison, solver, steps)}" for steps in plan.steps]
        parts.append("")
        if exact := _exact_sheet(comparison, solver):
            inside, sheet = exact
            parts += [
                f"The exact RMSE lies in {inside} of {len(sheet.lines)} intervals.\n",
                *_markdown_lines(sheet),
                "",
            ]
    return "\n".join([*parts, f"## Cost\n\n{COST_LEGEND}\n", *_markdown_lines(costs_of(comparison)), ""])


def plot_errors(comparison: Comparison, solver: str, path: Path) -> Path:
    """Error against network calls, a line per method with its interval as a band."""
    methods = _methods(comparison)
    figure = Figure(figsize=(10, 6), layout="constrained")
    axes = figure.subplots()
    looks = _looks(methods)
    for method in sorted(methods, key=lambda m: -_last_error(comparison, solver, m)):
        cells = [comparison.cell(solver, method, k) for k in comparison.plan.steps]
        calls, errors = [cell.nfe for cell in cells], [comparison.value(cell, "rmse") for cell in cells]
        lows, means, highs = np.array([(row.low, row.value, row.high) for row in errors if row], dtype=float).T
        axes.plot(calls, means, label=method, **looks[method])
        axes.fill_between(calls, lows, highs, color=looks[method]["color"], alpha=0.12, lw=0)
    ticks = sorted({comparison.cell(solver, methods[0], k).nfe for k in comparison.plan.steps})
    axes.set(xscale="log", yscale="log", xlabel="network calls per sample", ylabel="RMSE to the fine solve")
    axes.set_xticks(ticks, [f"{calls:g}" for calls in ticks])
    axes.minorticks_off()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_title(f"{comparison.model.name}, {solver}: {comparison.plan.samples} samples, bands are 95 % intervals")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), title="worst to best at the end")
    return saved(figure, path)


def _looks(methods: list[str]) -> dict[str, dict[str, Any]]:
    """Ours in red; uniform spacings in grey; the rest by colour, dash and marker, so that no two look alike."""
    dashes, markers = cycle(["-", "--", ":", "-."]), cycle("osD^v<>PX*")
    colours = cycle([BLUE, ORANGE, GREEN, PINK, SKY])
    looks: dict[str, dict[str, Any]] = {}
    for i, method in enumerate(methods):
        if i % 5 == 0:
            dash = next(dashes)
        looks[method] = {"color": next(colours), "ls": dash, "marker": next(markers), "ms": 5, "lw": 1.3}
        if method.startswith("uniform"):
            looks[method]["color"] = GREY
        if method.startswith("geosprint"):
            looks[method] |= {"color": RED, "lw": 2}
    return looks


def _rmse(comparison: Comparison, cell: Cell) -> tuple[str, bool]:
    is_best = cell is comparison.best(cell.solver, cell.steps)
    ties = cell.method not in comparison.limits and comparison.ties_with_best(cell)
    return f"{TIE if ties else ''}{cell.errors.mean():.4f}", is_best


def _frechet(comparison: Comparison, cell: Cell) -> tuple[str, bool]:
    column = [other for other in comparison.column(cell.solver, cell.steps) if other.method not in comparison.limits]
    values = [row.value for other in column if (row := comparison.value(other, "frechet-fine"))]
    row = comparison.value(cell, "frechet-fine")
    return (f"{row.value:.3g}", row.value == min(values)) if row else ("", False)


def _exact_sheet(comparison: Comparison, solver: str) -> tuple[int, Sheet] | None:
    """Estimated beside exact, where the model knows its own figures, and how many intervals hold the exact value."""
    cells = [cell for cell in comparison.cells if cell.solver == solver]
    exact = [(cell, row) for cell in cells if (row := comparison.value(cell, "rmse-exact"))]
    if not exact:
        return None
    inside, lines = 0, []
    for cell, row in exact:
        rmse, data = bootstrap_mean(cell.errors), comparison.value(cell, "frechet-data")
        inside += rmse.low <= row.value <= rmse.high
        interval = f"{rmse.value:.5f} ({rmse.low:.5f} – {rmse.high:.5f})"
        texts = (cell.method, str(cell.steps), interval, f"{row.value:.5f}", f"{data.value:.4g}" if data else "")
        lines.append([(text, False) for text in texts])
    return inside, Sheet(["method", "K", "RMSE, 95 % interval", "exact RMSE", "exact F² to the data"], lines)


def _rich(sheet: Sheet) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for i, title in enumerate(sheet.header):
        table.add_column(title, justify="right" if i else "left", no_wrap=True)
    for line in sheet.lines:
        table.add_row(*(f"[bold]{text}[/bold]" if strong else text for text, strong in line))
    return table


def _markdown_lines(sheet: Sheet) -> list[str]:
    rule = "|---" + "|---:" * (len(sheet.header) - 1) + "|"
    bold = [[f"**{text}**" if strong else text for text, strong in line] for line in sheet.lines]
    return ["| " + " | ".join(sheet.header) + " |", rule, *("| " + " | ".join(line) + " |" for line in bold)]


def _methods(comparison: Comparison) -> list[str]:
    return list(dict.fromkeys(cell.method for cell in comparison.cells))


def _last_error(comparison: Comparison, solver: str, method: str) -> float:
    return float(comparison.cell(solver, method, comparison.plan.steps[-1]).errors.mean())
