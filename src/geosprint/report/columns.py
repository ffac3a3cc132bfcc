"""Methods side by side: a column holds all that was measured at one number of steps of one solver, best first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from torch import Tensor

from geosprint.comparison.cells import Cell
from geosprint.comparison.methods import LIMITS, METHODS, OURS
from geosprint.comparison.plan import is_uniform
from geosprint.comparison.results import Comparison, Row
from geosprint.errors import GeoSprintError
from geosprint.estimates import Estimate, UniformSteps, bootstrap_mean, uniform_steps_with
from geosprint.fitted_solver import FittedSolver
from geosprint.linear_solver import LinearSolver
from geosprint.noise import Array
from geosprint.report.findings import Findings
from geosprint.report.pictures import are_pictures, sheets
from geosprint.report.tables import Table, number, short
from geosprint.report.tuned import calls_of
from geosprint.rivals.base import OwnSolver
from geosprint.schedule import StepSchedule
from geosprint.tuned import OURS as THESE
from geosprint.tuned import TODAY, Tuned, TunedSteps

UNIFORM = "uniform"
UNIFORM_STEPS, TODAYS = "uniform steps", "today's steps"  # what errors are told in
PICTURES = 10  # samples of the reference solve that are shown
NO_PICTURES = "Samples are not shown: they are no pictures of one or three channels, or too large for a page."
NO_CELLS = (
    "Steps and samples are not shown: the cells of this comparison are not beside it, or another version of geosprint "
    "made them; the same command measures them again."
)
COLOURS = ("blue", "green", "pink", "ink")  # names of variables in report.css
OF_KIND = {"ours": "red", "uniform": "grey", "limit": "ink", "today": "blue"}
DASHES = ("solid", "dash", "dot", "dashdot")
MARKS = (
    *("circle", "square", "diamond", "triangle-up", "triangle-down", "cross"),
    *("x", "star", "hexagon", "bowtie", "pentagon"),
)
METRICS = {
    "rmse": "RMSE to the reference solve",
    "frechet-fine": "squared Fréchet distance to the reference solve",
    "frechet-data": "squared Fréchet distance to the data",
}


@dataclass(frozen=True, eq=False)
class Entry:
    """One method: its error, where and how it steps, and how many uniform steps, or of today's, have the same error."""

    name: str
    measured: dict[str, Estimate] = field(default_factory=dict)  # by metric, the error first
    made: StepSchedule | OwnSolver | None = None
    gap: Estimate | None = None  # mean of its errors minus those of the best uniform spacing, sample by sample
    matched: Estimate | None = None
    pictures: Tensor | None = None  # (few, *shape)
    calls: float = 0  # per sample
    cost: tuple[int, int] | None = None  # of building it: network calls, and back-propagations

    @property
    def error(self) -> Estimate | None:
        """What it is ranked by."""
        return next(iter(self.measured.values()), None)

    @property
    def schedule(self) -> StepSchedule | None:
        """Where it steps."""
        return self.made.schedule if isinstance(self.made, OwnSolver) else self.made

    @property
    def of_files(self) -> StepSchedule | FittedSolver | None:
        """What a file can hold of it."""
        return None if isinstance(self.made, LinearSolver) else self.made

    @property
    def is_matched(self) -> bool:
        """Whether the number of steps with the same error is known, and not only bounded."""
        found = self.matched
        return found is not None and not (isinstance(found, UniformSteps) and (found.is_below or found.is_beyond))

    @property
    def kind(self) -> str:
        """Whose it is, for colours."""
        if is_uniform(self.name):
            return UNIFORM
        if self.name in LIMITS:
            return "limit"
        if self.name.startswith(TODAY):
            return TODAY
        return "ours" if self.name in OURS else "other"

    def for_script(self, picture: str | None) -> dict[str, Any]:
        """What the charts show of it."""
        error, steps, places = self.error, self.schedule, None
        if steps:
            axes = {"t": steps.timesteps, "sigma": steps.sigmas[:-1], "logsnr": steps.log_snr}
            places = {name: short(values) for name, values in axes.items()}
        return {
            "name": self.name,
            "kind": self.kind,
            "error": short([error.value, error.low, error.high]) if error else None,
            "matches": str(self.matched or "–"),
            "places": places,
            "picture": picture,
        }


@dataclass(frozen=True, eq=False)
class Column:
    """All methods at one number of steps, lowest error first."""

    label: str
    solver: str
    steps: int
    measure: str
    samples: int
    entries: list[Entry]
    reference: Tensor | None = None  # pictures of the reference solve
    ruler: str = UNIFORM_STEPS
    is_longer: bool = False  # uniform spacings alone, of more steps than were asked for

    @property
    def rivals(self) -> list[Entry]:
        """Those that compete: limits do not."""
        measured = [entry for entry in self.entries if entry.error]
        return [entry for entry in measured if entry.kind != "limit"] or measured

    @property
    def best_uniform(self) -> Entry | None:
        """What a user has without any of this."""
        return next((entry for entry in self.rivals if entry.kind == UNIFORM), None)

    @property
    def table(self) -> Table:
        """The numbers."""
        header = ["method", self.measure or "error", "95 % interval", f"same error in {self.ruler}", "steps at t"]
        has_costs = any(entry.cost for entry in self.entries)
        header += ["calls to build it", "back-propagations"] if has_costs else []
        lines = []
        for entry in self.entries:
            name = f"{entry.name} (limit)" if entry.kind == "limit" else entry.name
            error = (number(entry.error.value), entry.error.interval) if entry.error else ("–", "–")
            times = ", ".join(f"{t:.4g}" for t in entry.schedule.timesteps) if entry.schedule else "–"
            cost = [f"{count:,}" for count in entry.cost or ()]
            lines.append([name, *error, str(entry.matched or "–"), times, *cost])
        return Table(header, lines, f"{self.label}, lowest error first." if self.samples else f"{self.label}.")


def columns_of(findings: Findings) -> list[Column]:
    """Of all comparisons, of all tuned files with errors, or else of the schedules that lie about."""
    found = [column for comparison in findings.comparisons.values() for column in compared(comparison)]
    for name, tuned in findings.tuned.items():
        label = name if len(findings.tuned) > 1 else ""
        found += [_tuned(one, tuned, label) for one in tuned.results if THESE in one.errors]
    if findings.tuned and not found:
        entries = [Entry(name, made=one.made) for name, tuned in findings.tuned.items() for one in tuned.results]
        found.append(Column("the files here", "", 0, "", 0, entries))
    return found


def for_script(columns: list[Column]) -> list[dict[str, Any]]:
    """What the charts show of every column, with pictures of all samples that are pictures."""
    drawn: dict[tuple[int, str | None], Tensor | None]
    drawn = {(i, None): column.reference for i, column in enumerate(columns)}
    drawn |= {(i, entry.name): entry.pictures for i, column in enumerate(columns) for entry in column.entries}
    pictures = sheets({place: some for place, some in drawn.items() if some is not None and are_pictures(some)})
    return [
        {
            "label": column.label,
            "measure": column.measure,
            "ruler": column.ruler,
            "reference": pictures.get((i, None)),
            "entries": [entry.for_script(pictures.get((i, entry.name))) for entry in column.entries],
        }
        for i, column in enumerate(columns)
    ]


def missing_parts(columns: list[Column], shown: list[dict[str, Any]]) -> list[str]:
    """A sentence for what a comparison should show and does not."""
    measured = [column for column in columns if column.samples]
    if measured and not any(entry.schedule for column in measured for entry in column.entries):
        return [NO_CELLS]
    if any(column.reference is not None for column in measured) and not any(one["reference"] for one in shown):
        return [NO_PICTURES]
    return []


@lru_cache(maxsize=1)  # the terminal and results.md tell the same comparison, and it takes a second
def compared(comparison: Comparison) -> tuple[Column, ...]:
    """Of every solver and every number of steps."""
    plan, found = comparison.plan, list[Column]()
    pictures = comparison.reference.samples[:PICTURES] if comparison.reference else None
    for solver in plan.solvers:
        best = {k: comparison.best_uniform(solver, k) for k in (*plan.steps, *plan.ruler)}
        uniform = {k: cell.errors for k, cell in best.items() if cell and len(cell.errors) == plan.samples}
        for steps in (*plan.steps, *plan.ruler):
            rows = [row for row in comparison.rows if (row.solver, row.steps, row.metric) == (solver, steps, "rmse")]
            cells = {cell.method: cell for cell in comparison.column(solver, steps)}
            rows.sort(key=lambda row: row.value)
            entries = [_measured(comparison, row, cells.get(row.method), uniform) for row in rows]
            if entries:
                place, is_longer = (f"{steps} steps of {solver}", solver, steps), steps in plan.ruler
                found.append(Column(*place, "RMSE", plan.samples, entries, pictures, is_longer=is_longer))
    return tuple(found)


def _measured(comparison: Comparison, row: Row, cell: Cell | None, uniform: dict[int, Array]) -> Entry:
    measured = {metric: found.estimate for metric in METRICS if (found := comparison.value(row, metric))}
    gap, made, matched = comparison.value(row, "rmse-gap"), None, None
    if cell and uniform and len(cell.errors) == comparison.plan.samples:
        matched = uniform_steps_with(cell.errors, uniform)
    with suppress(GeoSprintError):  # times that do not fall or are not the model's: a file may have been edited
        made = comparison.made(cell) if cell else None
    pictures, cost = cell.pictures if cell else None, (row.build_nfe, row.build_backprops)
    return Entry(row.method, measured, made, gap.estimate if gap else None, matched, pictures, row.nfe, cost)


def _tuned(one: TunedSteps, tuned: Tuned, label: str) -> Column:
    """These steps and all that they were compared with, on the same held-out noise."""
    method = str(one.schedule.provenance.get("method"))
    is_of_comparison = tuned.today is None and method in METHODS
    names = {THESE: method if is_of_comparison else "tuned", TODAY: f"{TODAY}, {tuned.today}"}
    uniform = next((errors for name, errors in one.errors.items() if is_uniform(name)), None)
    calls, entries = calls_of(tuned, one.solver, one.steps), []
    for name, errors in sorted(one.errors.items(), key=lambda item: item[1].mean()):
        gap = None if uniform is None else bootstrap_mean(errors - uniform)
        made, matched = (one.made, one.today_steps) if name == THESE else (None, None)
        measured = {tuned.measure: one.error(name)}
        entries.append(Entry(names.get(name, name), measured, made, gap, matched, calls=calls))
    of_solver = "" if one.solver in (None, "fitted") else f" of {one.solver}"
    title = f"{one.steps} steps{of_solver}" + (f", {label}" if label else "")
    measure = "RMSE" if tuned.measure == "rmse" else tuned.measure
    samples = len(one.errors[THESE])
    return Column(title, label or "tuned", one.steps, measure, samples, entries, ruler=TODAYS)


Point = tuple[int, float, float, float, float]
"""Steps, calls, value, and both ends of its interval."""


@dataclass(frozen=True)
class Curves:
    """One metric with one solver against network calls, a curve per method."""

    solver: str
    metric: str
    title: str  # of the metric
    series: dict[str, list[Point]]

    @classmethod
    def of(cls, columns: Iterable[Column]) -> list[Curves]:
        """For every solver and metric, of what was measured at more than one number of steps."""
        found: dict[tuple[str, str], dict[str, list[Point]]] = {}
        for column in sorted(columns, key=lambda column: column.steps):
            for entry in column.entries:
                for metric, of in entry.measured.items():
                    series = found.setdefault((column.solver, metric), {}).setdefault(entry.name, [])
                    series.append((column.steps, entry.calls, of.value, of.low, of.high))
        drawn = {
            of: {name: points for name, points in all_of.items() if len(points) > 1} for of, all_of in found.items()
        }
        return [cls(*of, METRICS.get(of[1], of[1]), series) for of, series in drawn.items() if series]

    @property
    def uniform_calls(self) -> dict[int, float]:
        """Network calls of uniform spacings by their number of steps."""
        points = [point for name, some in self.series.items() if is_uniform(name) for point in some]
        return {steps: calls for steps, calls, *_ in sorted(points, key=lambda point: point[:2])}

    @property
    def table(self) -> Table:
        """The numbers."""
        lines = [[name, *map(number, point)] for name, points in self.series.items() for point in points]
        return Table(["method", "K", "calls", "value", "low", "high"], lines, f"{self.solver}: {self.title}.")


def looks(series: Sequence[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """A look for each (name, kind), kind being ours, uniform, today, limit or other."""
    found: dict[str, dict[str, Any]] = {}
    for i, (name, kind) in enumerate(series):
        rank = sum(other == kind for _, other in series[:i])
        colour = OF_KIND.get(kind, COLOURS[rank % len(COLOURS)])
        dash = DASHES[((rank if kind in OF_KIND else rank // len(COLOURS)) + (kind == "today")) % len(DASHES)]
        kinds = {"strong": kind == "ours", "level": kind == "today"}
        found[name] = {"colour": colour, "dash": dash, "mark": MARKS[i % len(MARKS)], **kinds}
    return found
