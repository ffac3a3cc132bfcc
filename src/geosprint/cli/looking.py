"""Verbs that show what there is: inspect, report, models, doctor."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geosprint.cli.options import (
    Json,
    ProfilePath,
)
from geosprint.cli.running import require_suffix, tell

if TYPE_CHECKING:
    pass


def inspect(
    profile: ProfilePath,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Also plot the profile into this PNG.")] = None,
    as_json: Json = False,
) -> None:
    """Show what a profile holds."""
    from geosprint.profile import CurvatureProfile
    from geosprint.report.terminal import show_profile, summary

    if out:
        require_suffix(out, ".png")
    loaded = CurvatureProfile.load(profile)
    if out:
        from geosprint.report.plots import plot_profile

        plot_profile(loaded, out)
    tell(as_json, summary(loaded), lambda: show_profile(loaded, profile))


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


def models(as_json: Json = False) -> None:
    """List the models in the box."""
    from geosprint.models.registry import models_in_the_box
    from geosprint.report.terminal import show_table

    rows = list(models_in_the_box().items())
    content = [{"name": name, "description": text} for name, text in rows]
    tell(as_json, content, lambda: show_table(("model", "what it is"), rows))


def doctor(as_json: Json = False) -> None:
    """Say what is installed, which devices and models there are, and what is missing for which feature."""
    from geosprint.doctor import examine
    from geosprint.report.terminal import show_findings

    found = examine()
    tell(as_json, [asdict(finding) for finding in found], lambda: show_findings(found))
    if any(finding.is_broken for finding in found):
        raise typer.Exit(1)
