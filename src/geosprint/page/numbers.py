"""Numbers for charts, and the tables behind them for eyes, ears and spreadsheets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MOST_LINES = 60


@dataclass(frozen=True)
class Table:
    """A caption, titles, and lines of texts."""

    caption: str
    header: list[str]
    lines: list[list[str]]


def table_of_series(caption: str, header: Sequence[str], *series: Sequence[Any]) -> Table:
    """A line per point; of very many points only some, and the caption says so."""
    every = -(-len(series[0]) // MOST_LINES)
    said = f"{caption} One line in {every} is shown." if every > 1 else caption
    lines = [[number(x) for x in point] for point in list(zip(*series, strict=True))[:: max(every, 1)]]
    return Table(said, list(header), lines)


def number(x: Any) -> str:
    """Four digits; whole ones as they are; a dash for none."""
    if x is None:
        return "–"
    return f"{x:.4g}" if isinstance(x, float) else str(x)


def short(numbers: Any) -> list[float]:
    """Five digits are more than a screen shows."""
    return [float(f"{x:.5g}") for x in np.asarray(numbers, dtype=np.float64).ravel()]
