"""How series are told apart: by colour, dash and mark at once, so that no colour vision is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

COLOURS = ("blue", "green", "pink", "ink")  # names of variables in report.css
OF_KIND = {"ours": "red", "uniform": "grey", "limit": "ink"}
DASHES = ("solid", "dash", "dot", "dashdot")
MARKS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star")


def looks(series: Sequence[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """A look for each (name, kind), kind being ours, uniform, limit or other."""
    found: dict[str, dict[str, Any]] = {}
    for i, (name, kind) in enumerate(series):
        rank = sum(other == kind for _, other in series[:i])
        colour = OF_KIND.get(kind, COLOURS[rank % len(COLOURS)])
        dash = DASHES[(rank if kind in OF_KIND else rank // len(COLOURS)) % len(DASHES)]
        found[name] = {"colour": colour, "dash": dash, "mark": MARKS[i % len(MARKS)], "strong": kind == "ours"}
    return found
