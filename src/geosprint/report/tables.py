"""Tables, one kind for the terminal, for Markdown and for the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table as RichTable

UNCUT = 10_000  # columns: wider than any table here


@dataclass(frozen=True)
class Table:
    """Titles and lines of texts, the first of a line being its name; `**text**` is strong, as in Markdown."""

    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    caption: str = ""

    @classmethod
    def of(cls, header: Sequence[str], rows: Iterable[Sequence[Any]], strong: Any = None) -> Table:
        """Of any values, one row in bold."""
        lines = [[f"**{cell}**" if row[0] == strong else str(cell) for cell in row] for row in rows]
        return cls(header, lines)

    @property
    def markdown(self) -> str:
        """As Markdown, numbers to the right."""
        rule = "|---" + "|---:" * (len(self.header) - 1) + "|"
        lines = ["| " + " | ".join(line) + " |" for line in (self.header, *self.lines)]
        return "\n".join([lines[0], rule, *lines[1:], ""])

    def show(self) -> None:
        """On the terminal: columns without frames, numbers to the right."""
        table = RichTable(box=None, pad_edge=False, header_style="dim")
        for i, title in enumerate(self.header):
            is_number = any(line[i].lstrip("*≈")[:1].isdigit() for line in self.lines)
            table.add_column(title, justify="right" if is_number else "left", no_wrap=is_number)
        for line in self.lines:
            table.add_row(*(f"[bold]{text[2:-2]}[/bold]" if text.startswith("**") else text for text in line))
        table_console().print(table)


def table_console() -> Console:
    """As wide as the terminal; in a file or a pipe as wide as a table needs, where rich would cut at 80 columns."""
    console = Console()
    return console if console.is_terminal else Console(width=UNCUT)


def number(x: Any) -> str:
    """Four digits; whole ones as they are; a dash for none."""
    if x is None:
        return "–"
    return f"{x:.4g}" if isinstance(x, float) else str(x)


def short(numbers: Any) -> list[float]:
    """Five digits are more than a screen shows."""
    return [float(f"{x:.5g}") for x in np.asarray(numbers, dtype=np.float64).ravel()]
