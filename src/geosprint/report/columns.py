"""Schedules side by side: a column holds all schedules of one number of steps of one solver, lowest error first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from geosprint.comparison.cells import Cell
from geosprint.comparison.methods import LIMITS, OURS
from geosprint.comparison.plan import is_uniform
from geosprint.comparison.results import Comparison, Row
from geosprint.errors import ScheduleError
from geosprint.estimates import Estimate, UniformSteps, bootstrap_mean, uniform_steps_with
from geosprint.report.charts import short
from geosprint.report.findings import Findings
from geosprint.report.pictures import sheets
from geosprint.report.plots import are_pictures
from geosprint.report.tables import Table, number
from geosprint.schedule import StepSchedule
from geosprint.trajectory import Origin
from geosprint.tuning.config import DEFAULT
from geosprint.tuning.result import StepRecord, TuningRecord

Array = NDArray[np.float64]

UNIFORM = "uniform"
PICTURES = 10  # samples of the reference solve that are shown
NO_PICTURES = "Samples are not shown: they are no pictures of one or three channels, or too large for a page."
NO_CELLS = (
    "Steps and samples are not shown: the cells of this comparison are not beside it, or another version of geosprint "
    "made them; the same command measures them again."
)


@dataclass(frozen=True, eq=False)
class RankedSchedule:
    """One schedule: where it steps, its error, and how many uniform steps have the same error."""

    name: str
    error: Estimate | None
    schedule: StepSchedule | None
    gap: Estimate | None = None  # mean of its errors minus those of the best uniform spacing, sample by sample
    uniform_steps: UniformSteps | None = None
    pictures: Tensor | None = None  # (few, *shape)
    own_solver: bool = False

    @property
    def is_matched(self) -> bool:
        """Whether the number of uniform steps with the same error is known, and not only bounded."""
        found = self.uniform_steps
        return found is not None and not found.is_below and not found.is_beyond

    @property
    def matches(self) -> str:
        """How many uniform steps have the same error, in few words."""
        found = self.uniform_steps
        if found is None or found.fewest == found.most:
            return "–"
        if found.is_below:
            return f"at most {found.fewest}"
        return f"{found.most} or more" if found.is_beyond else f"{found.value:.1f} ({found.interval})"

    @property
    def kind(self) -> str:
        """Whose it is, for colours."""
        if self.name in OURS:
            return "ours"
        if is_uniform(self.name):
            return UNIFORM
        return "limit" if self.name in LIMITS else "other"

    def for_script(self, picture: str | None) -> dict[str, Any]:
        """What the charts show of it."""
        error, steps, places = self.error, self.schedule, None
        if steps:
            axes = (steps.timesteps, steps.sigmas[:-1], steps.log_snr)
            places = dict(zip(("t", "sigma", "logsnr"), map(short, axes), strict=True))
        return {
            "name": self.name,
            "kind": self.kind,
            "error": short([error.value, error.low, error.high]) if error else None,
            "matches": self.matches,
            "places": places,
            "picture": picture,
        }


@dataclass(frozen=True, eq=False)
class Column:
    """All schedules of one number of steps, lowest error first."""

    label: str
    solver: str
    steps: int
    measure: str
    samples: int
    entries: list[RankedSchedule]
    reference: Tensor | None = None  # pictures of the reference solve

    @property
    def rivals(self) -> list[RankedSchedule]:
        """Those that compete: limits do not."""
        measured = [entry for entry in self.entries if entry.error]
        return [entry for entry in measured if entry.kind != "limit"] or measured

    @property
    def best_uniform(self) -> RankedSchedule | None:
        """What a user has without any of this."""
        return next((entry for entry in self.rivals if entry.kind == UNIFORM), None)

    @property
    def table(self) -> Table:
        """The numbers."""
        header = ["schedule", self.measure or "error", "95 % interval", "same error in uniform steps", "steps at t"]
        lines = []
        for entry in self.entries:
            error, times = entry.error, entry.schedule.timesteps if entry.schedule else None
            lines.append(
                [
                    entry.name + (" (limit)" if entry.kind == "limit" else ""),
                    number(error.value if error else None),
                    f"{error.low:.4g} to {error.high:.4g}" if error else "–",
                    entry.matches,
                    ", ".join(f"{t:.4g}" for t in times) if times is not None else "–",
                ]
            )
        return Table(header, lines, f"{self.label}, lowest error first." if self.samples else f"{self.label}.")


def columns_of(findings: Findings) -> list[Column]:
    """Of all comparisons, all tunings and the schedules that lie about."""
    found = [column for comparison in findings.comparisons.values() for column in _compared(comparison)]
    found += [_tuned(one, record) for record in findings.tunings.values() for one in record.judged]
    files = {**findings.schedules, **{name: fitted.schedule for name, fitted in findings.solvers.items()}}
    if files and not found:
        entries = [RankedSchedule(name, None, schedule) for name, schedule in files.items()]
        found.append(Column("the files here", "", 0, "", 0, entries))
    return found


def for_script(columns: list[Column]) -> list[dict[str, Any]]:
    """What the charts of each column show."""
    drawn: dict[tuple[int, str | None], Tensor] = {}  # None: the reference solve
    for i, column in enumerate(columns):
        for name, samples in ((None, column.reference), *((one.name, one.pictures) for one in column.entries)):
            if samples is not None and are_pictures(samples):
                drawn[i, name] = samples
    pictures = sheets(drawn)
    return [
        {
            "label": column.label,
            "measure": column.measure,
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


def _compared(comparison: Comparison) -> list[Column]:
    plan = comparison.plan
    pictures = comparison.reference.samples[:PICTURES] if comparison.reference else None
    columns = []
    for solver in plan.solvers:
        best = {k: comparison.best_uniform(solver, k) for k in (*plan.steps, *plan.ruler)}
        uniform = {k: cell.errors for k, cell in best.items() if cell and len(cell.errors) == plan.samples}
        for steps in plan.steps:
            rows = [row for row in comparison.rows if (row.solver, row.steps, row.metric) == (solver, steps, "rmse")]
            rows.sort(key=lambda row: row.value)
            cells = {cell.method: cell for cell in comparison.column(solver, steps)}
            entries = [_measured(comparison, row, cells.get(row.method), uniform) for row in rows]
            columns.append(Column(f"{steps} steps of {solver}", solver, steps, "RMSE", plan.samples, entries, pictures))
    return [column for column in columns if column.entries]


def _measured(comparison: Comparison, row: Row, cell: Cell | None, uniform: dict[int, Array]) -> RankedSchedule:
    error, gap = row.estimate or Estimate(row.value, row.value, row.value), comparison.value(row, "rmse-gap")
    behind = gap.estimate if gap else None
    if cell is None:
        return RankedSchedule(row.method, error, None, behind)
    is_whole = uniform and len(cell.errors) == comparison.plan.samples
    matched = uniform_steps_with(cell.errors, uniform) if is_whole else None
    schedule = _schedule(cell.timesteps, comparison.origin, row.method)
    return RankedSchedule(row.method, error, schedule, behind, matched, cell.pictures, cell.own_solver)


def _schedule(times: Array, origin: Origin | None, method: str) -> StepSchedule | None:
    """None where the times do not fall or are not the model's: a file may have been edited."""
    try:
        return StepSchedule.at(times, origin.noise, {"method": method, "origin": origin.to_dict()}) if origin else None
    except ScheduleError:
        return None


def _tuned(one: StepRecord, record: TuningRecord) -> Column:
    entries = []
    for name, errors in sorted(one.errors.items(), key=lambda item: item[1].mean()):
        schedule, gap = _schedule(one.timesteps[name], record.origin, name), errors - one.errors[one.uniform]
        matched = _matched(one) if name == one.chosen else None
        entries.append(RankedSchedule(name, bootstrap_mean(errors), schedule, bootstrap_mean(gap), matched))
    measure = "RMSE" if one.measure == "rmse" else one.measure
    return Column(
        f"{one.steps} steps of {one.solver}", one.solver, one.steps, measure, len(one.errors[one.chosen]), entries
    )


def _matched(one: StepRecord) -> UniformSteps | None:
    """What the tuning itself found when it looked at uniform spacings of up to so many times the steps."""
    found, most = one.uniform_steps, DEFAULT.longest * one.steps
    if found is None:
        return UniformSteps(most, most, most, one.steps, most)
    if found.value <= one.steps:
        return None  # the chosen schedule is no better than the uniform one
    return UniformSteps(found.value, found.low, found.high, one.steps, max(most, int(np.ceil(found.high)) + 1))
