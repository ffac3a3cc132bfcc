"""The verb that looks whether all is there: doctor."""

from __future__ import annotations

from dataclasses import asdict

import typer

from geosprint.cli.options import Json
from geosprint.cli.running import tell


def doctor(as_json: Json = False) -> None:
    """Say what is installed, which devices and models there are, and what is missing for which feature."""
    from geosprint.doctor import examine
    from geosprint.report.terminal import show_findings

    found = examine()
    tell(as_json, [asdict(finding) for finding in found], lambda: show_findings(found))
    if any(finding.is_broken for finding in found):
        raise typer.Exit(1)
