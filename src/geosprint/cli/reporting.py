"""The verb that makes a page of what other verbs have left: report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from geosprint.cli.running import require_suffix


def report(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="What compare, demo, tune, extract, fit or reproduce has left.")
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Where the page goes; DIR/report.html if left out.")
    ] = None,
) -> None:
    """Make one HTML page of everything in a directory; it opens anywhere, without network."""
    from geosprint.report.page import write_report

    destination = out or directory / "report.html"
    require_suffix(destination, ".html")
    print(write_report(directory, destination))
