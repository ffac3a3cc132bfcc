"""How a figure of an experiment is put on disk: as pixels and as vectors."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from geosprint.files import write_whole
from geosprint.report.plots import saved


def in_both_formats(figure: Figure, path: Path) -> list[Path]:
    """`path`.png and `path`.svg, the same bytes for the same figure."""
    path = Path(path)
    # Without these two, matplotlib writes random names and the time of day into the file.
    with matplotlib.rc_context({"svg.hashsalt": "geosprint"}):
        pixels = saved(figure, path.with_name(f"{path.name}.png"))
        vectors = path.with_name(f"{path.name}.svg")
        write_whole(vectors, lambda to: figure.savefig(to, format="svg", metadata={"Date": None}))
    return [pixels, vectors]
