"""What a comparison found: a table of all numbers, the cells behind them, and both as files."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from geosprint.comparison.cells import Cell, Memory, ReferenceSolve, cell_key, reference_key, wanted_cells
from geosprint.comparison.methods import LIMITS, METHODS
from geosprint.comparison.plan import Plan, is_uniform
from geosprint.errors import FileError, ScheduleError
from geosprint.estimates import Estimate, bootstrapped_from_means
from geosprint.files import as_csv, finite, read_json, read_text, refusing_damage, write_text
from geosprint.fitted_solver import FittedSolver
from geosprint.linear_solver import LinearSolver
from geosprint.rivals.base import OwnSolver, Recording
from geosprint.schedule import StepSchedule
from geosprint.solvers import solver_named
from geosprint.trajectory import Origin
from geosprint.tuned import FITTED, OURS, Tuned, TunedSteps

FORMAT = "geosprint-comparison"


@dataclass(frozen=True)
class Row:
    """One number of the comparison, as results.csv holds it."""

    model: str
    solver: str
    method: str
    steps: int
    nfe: float
    metric: str
    value: float
    low: float | None
    high: float | None
    build_nfe: int
    build_seconds: float
    start: float
    build_backprops: int = 0

    @classmethod
    def of(cls, model: str, cell: Cell, metric: str, found: Estimate | float) -> Row:
        """What was found of a cell; a number alone has no interval."""
        naming, cost = (cell.solver, cell.method, cell.steps), (cell.build_nfe, cell.build_seconds, cell.start)
        value, low, high = (found, None, None) if isinstance(found, float) else (found.value, found.low, found.high)
        return cls(model, *naming, cell.nfe, metric, value, low, high, *cost, cell.build_backprops)

    @property
    def estimate(self) -> Estimate:
        """The number with its interval, which is itself where none is known."""
        low, high = (self.value if end is None else end for end in (self.low, self.high))
        return Estimate(self.value, low, high)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Everything measured on one model, from a run or from the files that it left.

    Files give the cells, the reference solve and the origin as far as this version of the package finds them, and no
    recording.
    """

    model: str
    plan: Plan
    rows: list[Row]
    cells: list[Cell]
    reference: ReferenceSolve | None
    origin: Origin | None
    recording: Recording | None = None

    @classmethod
    def load(cls, summary: Path) -> Comparison:
        """The comparison whose summary.json this is; results.csv and cells lie beside it."""
        content = read_json(summary, FORMAT)
        with refusing_damage(summary):
            model, plan = content["model"], _plan(content["plan"])
            if not all(isinstance(word, str) for word in (model, content["command"], content["machine"])):
                raise ValueError("model, command and machine must be texts")
        memory, rows = Memory(summary.parent / "cells"), read_csv(summary.parent / "results.csv")
        reference = memory.recall_reference(reference_key(plan))
        cells = [
            cell for one in wanted_cells(plan, METHODS.values()) if (cell := memory.recall_cell(cell_key(plan, *one)))
        ]
        return cls(model, plan, rows, cells, reference, memory.origin())

    @property
    def methods(self) -> list[str]:
        """All methods, in their order."""
        return list(dict.fromkeys(cell.method for cell in self.cells))

    def cell(self, solver: str, method: str, steps: int) -> Cell:
        """The cell of these three."""
        return next(cell for cell in self.column(solver, steps) if cell.method == method)

    def column(self, solver: str, steps: int) -> list[Cell]:
        """All methods at one number of steps."""
        return [cell for cell in self.cells if (cell.solver, cell.steps) == (solver, steps)]

    def best_uniform(self, solver: str, steps: int) -> Cell | None:
        """The uniform spacing with the lowest error."""
        uniform = [cell for cell in self.column(solver, steps) if is_uniform(cell.method)]
        return min(uniform, key=lambda cell: cell.error, default=None)

    def winner(self, solver: str, steps: int) -> Cell:
        """The method with the lowest error; limits do not compete."""
        return self._ranked(solver, steps)[0]

    def best(self, solver: str, steps: int) -> Tuned:
        """The best to take along: `apply`, `sample`, `export` and `save` take it, coefficients and all."""
        found = self.fit_for_files(solver, steps)
        if not found:
            raise ScheduleError(
                f"no file holds how the methods of {steps} steps of {solver} step; compare tuned+fitted, too"
            )
        return self.tuned(found[0])

    def fit_for_files(self, solver: str, steps: int) -> list[Cell]:
        """All that compete and that a file can hold, lowest error first: linear solvers remember too much for that."""
        return [cell for cell in self._ranked(solver, steps) if not cell.linear]

    def made(self, cell: Cell) -> StepSchedule | OwnSolver:
        """Where a cell steps, and how, if in its own way."""
        if self.origin is None:
            raise FileError("the files of this comparison no longer say which model it is of; run it again")
        solver = FITTED if cell.coefficients is not None else cell.solver
        provenance = {"method": cell.method, "solver": solver, "origin": self.origin.to_dict()}
        schedule = StepSchedule.at(cell.timesteps, self.origin.noise, provenance)
        if cell.linear:
            return LinearSolver(schedule, cell.linear)
        return schedule if cell.coefficients is None else FittedSolver(schedule, cell.coefficients, cell.guided)

    def tuned(self, cell: Cell) -> Tuned:
        """A cell to take along, its errors beside those of the best uniform spacing and of the best other method."""
        made = self.made(cell)
        if isinstance(made, LinearSolver):
            raise ScheduleError(f"no file holds how {cell.method} steps; take another method along")
        others = [self.best_uniform(cell.solver, cell.steps), *self._ranked(cell.solver, cell.steps)[:2]]
        beside = {other.method: other.errors for other in others if other and other is not cell}
        solver = FITTED if isinstance(made, FittedSolver) else cell.solver
        one = TunedSteps(made, solver, {OURS: cell.errors, **beside})
        return Tuned((one,), made_for=one.schedule.provenance["origin"], seed=self.plan.seed, nfe=cell.build_nfe)

    def _ranked(self, solver: str, steps: int) -> list[Cell]:
        """All that compete, lowest error first."""
        column = self.column(solver, steps)
        return sorted([cell for cell in column if cell.method not in LIMITS] or column, key=lambda cell: cell.error)

    def ties_with_best(self, cell: Cell) -> bool:
        """Whether chance alone could have put this method behind the best one; a limit never ties."""
        best = self.winner(cell.solver, cell.steps)
        competes = cell is not best and cell.method not in LIMITS
        return competes and bootstrapped_from_means(lambda mean: mean, cell.errors - best.errors).low <= 0

    def value(self, of: Cell | Row, metric: str) -> Row | None:
        """Another number of the same cell, if it was measured."""
        return self._by_cell.get((of.solver, of.method, of.steps, metric))

    @cached_property
    def _by_cell(self) -> dict[tuple[str, str, int, str], Row]:
        return {(row.solver, row.method, row.steps, row.metric): row for row in self.rows}

    def summary(self) -> dict[str, Any]:
        """What won where, for machines."""
        columns = list(product(self.plan.solvers, self.plan.steps))
        return {"model": self.model, "columns": [self._summed_up(*one) for one in columns if self.column(*one)]}

    def _summed_up(self, solver: str, steps: int) -> dict[str, Any]:
        best, uniform = self.winner(solver, steps), self.best_uniform(solver, steps)
        return {
            "solver": solver,
            "steps": steps,
            "best": best.method,
            "rmse": best.error,
            "ties": [cell.method for cell in self.column(solver, steps) if self.ties_with_best(cell)],
            "best_uniform": uniform.method if uniform else None,
            "uniform_rmse": uniform.error if uniform else None,
            "timesteps": best.timesteps.tolist(),
        }


def _plan(described: dict[str, Any]) -> Plan:
    """The plan of a file; parts that only other versions know are left out."""
    known = {part.name for part in fields(Plan)}
    plan = Plan().changed({name: value for name, value in described.items() if name in known})
    finite([*plan.steps, *plan.ruler, plan.samples, plan.trajectories, plan.reference_steps, plan.fine_steps])
    if not all(isinstance(count, int) for count in (*plan.steps, *plan.ruler, plan.samples, plan.seed)):
        raise ValueError("steps, samples and seed must be whole numbers")
    if not plan.steps or not plan.solvers or min(*plan.steps, plan.samples) < 1:
        raise ValueError("there must be steps, solvers and samples")
    for solver in plan.solvers:
        solver_named(solver)
    return plan


def write_csv(rows: Sequence[Row], path: Path) -> Path:
    """results.csv: a row per number; an empty cell where no interval is known."""
    return write_text(path, as_csv([asdict(row) for row in rows]))


def read_csv(path: Path) -> list[Row]:
    """The inverse of `write_csv`."""
    try:
        lines = list(csv.DictReader(read_text(Path(path)).splitlines()))
    except csv.Error as wrong:
        raise FileError(f"{path} is not a CSV file ({wrong}); make it again") from wrong
    with refusing_damage(Path(path)):
        return [_row(line) for line in lines]


def _row(line: dict[str, Any]) -> Row:
    if None in line.values():
        raise ValueError("a line is shorter than the first one")
    read: dict[str, Any] = {name: line[name] for name in ("model", "solver", "method", "metric")}
    read |= {name: int(line[name]) for name in ("steps", "build_nfe")}
    read["build_backprops"] = int(line.get("build_backprops") or 0)  # earlier versions did not count them
    read |= {name: float(line[name]) for name in ("nfe", "value", "build_seconds", "start")}
    read |= {name: float(line[name]) if line[name] else None for name in ("low", "high")}
    finite([number for number in read.values() if isinstance(number, float)])
    return Row(**read)
