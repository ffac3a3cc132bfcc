"""Schedules side by side: a column is one number of steps of one solver, an entry one schedule in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from geosprint.comparison.cells import Cell
from geosprint.comparison.plan import is_uniform
from geosprint.comparison.results import LIMITS, Comparison, Row
from geosprint.errors import ScheduleError
from geosprint.metrics.estimates import Estimate, UniformSteps, bootstrap_mean, uniform_steps_with
from geosprint.report.findings import Findings
from geosprint.schedule import StepSchedule
from geosprint.trajectory import Origin
from geosprint.tuning.config import DEFAULT
from geosprint.tuning.result import StepRecord, TuningRecord

Array = NDArray[np.float64]

OURS = ("tuned", "tuned+fitted", "fitted", "weighted-path", "geosprint", "geosprint-literal")
UNIFORM = "uniform"


@dataclass(frozen=True, eq=False)
class Entry:
    """One schedule: where it steps, how far its samples are from the fine solve, and what that is worth."""

    name: str
    error: Estimate | None
    schedule: StepSchedule | None
    errors: Array | None = None  # (samples,)
    behind_uniform: Estimate | None = None  # mean of error less that of the best uniform spacing, sample by sample
    worth: UniformSteps | None = None
    pictures: Tensor | None = None  # (few, *shape)
    own_solver: bool = False

    @property
    def is_matched(self) -> bool:
        """Whether as many uniform steps are known to err as little, and not only a bound."""
        return self.worth is not None and not self.worth.is_below and not self.worth.is_beyond

    @property
    def kind(self) -> str:
        """Whose it is, for colours."""
        if self.name in OURS:
            return "ours"
        if is_uniform(self.name):
            return UNIFORM
        return "limit" if self.name in LIMITS else "other"


@dataclass(frozen=True, eq=False)
class Column:
    """All schedules of one number of steps, nearest first."""

    label: str
    solver: str
    steps: int
    measure: str
    samples: int
    entries: list[Entry]
    fine: Tensor | None = None  # the fine solve's own pictures

    @property
    def rivals(self) -> list[Entry]:
        """Those that compete: limits do not."""
        measured = [entry for entry in self.entries if entry.error]
        return [entry for entry in measured if entry.kind != "limit"] or measured

    @property
    def best_uniform(self) -> Entry | None:
        """What a user has without any of this."""
        return next((entry for entry in self.rivals if entry.kind == UNIFORM), None)


def columns_of(findings: Findings) -> list[Column]:
    """Of all comparisons, all tunings and the schedules that lie about."""
    found = [column for comparison in findings.comparisons.values() for column in _compared(comparison)]
    found += [_judged(one, figures) for figures in findings.tunings.values() for one in figures.judged]
    files = {**findings.schedules, **{name: fitted.schedule for name, fitted in findings.solvers.items()}}
    if files and not found:
        entries = [Entry(name, None, schedule) for name, schedule in files.items()]
        found.append(Column("the files here", "", 0, "", 0, entries))
    return found


def _compared(comparison: Comparison) -> list[Column]:
    plan = comparison.plan
    columns = []
    for solver in plan.solvers:
        best = {k: comparison.best_uniform(solver, k) for k in (*plan.steps, *plan.ruler)}
        uniform = {k: cell.errors for k, cell in best.items() if cell and len(cell.errors) == plan.samples}
        for steps in plan.steps:
            rows = [row for row in comparison.rows if (row.solver, row.steps, row.metric) == (solver, steps, "rmse")]
            rows.sort(key=lambda row: row.value)
            cells = {cell.method: cell for cell in comparison.column(solver, steps)}
            entries = [_entry(comparison, row, cells.get(row.method), uniform) for row in rows]
            shown = comparison.reference.samples[:10] if comparison.reference else None
            label = f"{steps} steps of {solver}"
            columns.append(Column(label, solver, steps, "RMSE", plan.samples, entries, shown))
    return [column for column in columns if column.entries]


def _entry(comparison: Comparison, row: Row, cell: Cell | None, uniform: dict[int, Array]) -> Entry:
    error, gap = row.estimate or Estimate(row.value, row.value, row.value), comparison.value(row, "rmse-gap")
    behind = gap.estimate if gap else None
    if cell is None:
        return Entry(row.method, error, None, behind_uniform=behind)
    return Entry(
        row.method,
        error,
        _schedule(cell.timesteps, comparison.origin, row.method),
        cell.errors,
        behind,
        uniform_steps_with(cell.errors, uniform) if uniform and len(cell.errors) == comparison.plan.samples else None,
        cell.pictures,
        cell.own_solver,
    )


def _schedule(times: Array, origin: Origin | None, method: str) -> StepSchedule | None:
    """None where the times do not fall or are not the model's: a file may have been edited."""
    try:
        return StepSchedule.at(times, origin.noise, {"method": method, "origin": origin.to_dict()}) if origin else None
    except ScheduleError:
        return None


def _judged(one: StepRecord, figures: TuningRecord) -> Column:
    order = sorted(one.errors, key=lambda name: one.errors[name].mean())
    entries = []
    for name in order:
        errors = one.errors[name]
        schedule = _schedule(one.timesteps[name], figures.origin, name)
        worth = _worth(one) if name == one.chosen else None
        behind = bootstrap_mean(errors - one.errors[one.uniform])
        entries.append(Entry(name, bootstrap_mean(errors), schedule, errors, behind, worth))
    label = f"{one.steps} steps of {one.solver}"
    measure = "RMSE" if one.measure == "rmse" else one.measure
    return Column(label, one.solver, one.steps, measure, len(one.errors[one.chosen]), entries)


def _worth(one: StepRecord) -> UniformSteps | None:
    """What the tuning itself found when it looked at uniform spacings of up to so many times the steps."""
    found, most = one.uniform_steps, DEFAULT.longest * one.steps
    if found is None:
        return UniformSteps(most, most, most, one.steps, most)
    if found.value <= one.steps:
        return None  # the chosen schedule is no better than the uniform one
    return UniformSteps(found.value, found.low, found.high, one.steps, max(most, int(np.ceil(found.high)) + 1))
