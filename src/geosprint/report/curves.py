"""The part of a report about error against network calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from geosprint.comparison.results import Comparison, Row
from geosprint.report.charts import short
from geosprint.report.columns import UNIFORM, Column
from geosprint.report.side_by_side import in_uniform_steps
from geosprint.report.tables import Table, number

METRICS = {
    "rmse": "RMSE to the fine solve",
    "frechet-fine": "squared Fréchet distance to the fine solve",
    "frechet-data": "squared Fréchet distance to the data",
}

Curves = dict[str, Any]
"""solver, metric, and series: by method, its points (steps, calls, value, low, high)."""


def curves_of(comparisons: Iterable[Comparison]) -> list[Curves]:
    """A curve per method, for every solver and metric that has more than one number of steps."""
    found = []
    for comparison in comparisons:
        for solver in comparison.plan.solvers:
            for metric in METRICS:
                rows = [row for row in comparison.rows if (row.solver, row.metric) == (solver, metric)]
                if len({row.steps for row in rows}) > 1:
                    found.append({"solver": solver, "metric": metric, "series": _by_method(rows)})
    return found


def _by_method(rows: list[Row]) -> dict[str, list[tuple[Any, ...]]]:
    series: dict[str, list[tuple[Any, ...]]] = {row.method: [] for row in rows}
    for row in sorted(rows, key=lambda row: row.steps):
        series[row.method].append((row.steps, row.nfe, row.value, row.low, row.high))
    return series


def match_in(curves: list[Curves], column: Column) -> dict[str, Any] | None:
    """The headline as something to draw: from the nearest schedule across to as many uniform calls."""
    best = column.rivals[0]
    if not best.is_matched or best.worth is None or best.error is None:
        return None
    for i, one in enumerate(curves):
        uniform = {point[:2] for name, points in one["series"].items() if name.startswith(UNIFORM) for point in points}
        if (one["solver"], one["metric"]) == (column.solver, "rmse") and uniform:
            steps, calls = zip(*sorted(uniform), strict=True)
            ends = np.interp([column.steps, best.worth.value, best.worth.low, best.worth.high], steps, calls)
            worth = in_uniform_steps(best)
            return {"curve": i, "name": best.name, "error": best.error.value, "calls": short(ends), "worth": worth}
    return None


def table_of(one: Curves) -> Table:
    """The numbers of all curves of one solver and metric."""
    lines = [[name, *map(number, point)] for name, points in one["series"].items() for point in points]
    caption = f"{one['solver']}: {METRICS[one['metric']]}."
    return Table(["schedule", "K", "calls", "value", "low", "high"], lines, caption)
