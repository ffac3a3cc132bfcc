"""What a directory remembers of a comparison: read again without the model."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from geosprint.comparison.cells import Cell, Fine, Memory, cell_key, fine_key
from geosprint.comparison.methods import METHODS
from geosprint.comparison.plan import Plan
from geosprint.comparison.results import Row, read_csv
from geosprint.files import finite, read_json, refusing_damage
from geosprint.solvers import solver_named
from geosprint.trajectory import Origin

FORMAT = "geosprint-comparison"


@dataclass(frozen=True, eq=False)
class Remembered:
    """The numbers of a comparison, and the samples behind them where they are still there."""

    model: str
    plan: Plan
    command: str
    machine: str
    rows: list[Row]
    cells: list[Cell]  # as far as this version of the package finds them
    fine: Fine | None
    origin: Origin | None

    def column(self, solver: str, steps: int) -> list[Cell]:
        """All methods at one number of steps."""
        return [cell for cell in self.cells if (cell.solver, cell.steps) == (solver, steps)]


def remembered(summary: Path) -> Remembered:
    """The comparison whose summary.json this is; results.csv and cells lie beside it."""
    content = read_json(summary, FORMAT)
    with refusing_damage(summary):
        words = {name: content[name] for name in ("model", "command", "machine")}
        if not all(isinstance(word, str) for word in words.values()):
            raise ValueError("model, command and machine must be texts")
        plan = _plan(content["plan"])
    memory = Memory(summary.parent / "cells")
    return Remembered(
        **words,
        plan=plan,
        rows=read_csv(summary.parent / "results.csv"),
        cells=_cells(memory, plan),
        fine=memory.recall_fine(fine_key(plan)),
        origin=memory.origin(),
    )


def _plan(described: dict[str, Any]) -> Plan:
    """The plan of a file; parts that only other versions know are left out."""
    known = {part.name for part in fields(Plan)}
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in described.items()
    }
    plan = Plan(**{name: value for name, value in given.items() if name in known})
    finite([*plan.steps, *plan.ruler, plan.samples, plan.trajectories, plan.reference_steps, plan.fine_steps])
    if not all(isinstance(count, int) for count in (*plan.steps, *plan.ruler, plan.samples, plan.seed)):
        raise ValueError("steps, samples and seed must be whole numbers")
    if not plan.steps or not plan.solvers or min(*plan.steps, plan.samples) < 1:
        raise ValueError("there must be steps, solvers and samples")
    for solver in plan.solvers:
        solver_named(solver)
    return plan


def _cells(memory: Memory, plan: Plan) -> list[Cell]:
    places = [(solver, method, k) for solver in plan.solvers for method in METHODS.values() for k in plan.steps]
    uniform = [method for name, method in METHODS.items() if name.startswith("uniform")]
    places += [(solver, method, k) for solver in plan.solvers for method in uniform for k in plan.ruler]
    found = [memory.recall_cell(cell_key(plan, *place)) for place in places]
    return [cell for cell in found if cell is not None]
