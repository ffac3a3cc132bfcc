"""Verbs that show what there is: inspect, report, models, doctor."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geosprint.cli.options import Json, argument, output
from geosprint.cli.running import require_suffix, require_writable, tell
from geosprint.errors import FileError

if TYPE_CHECKING:
    from geosprint.tuned import Tuned


def inspect(
    file: Annotated[Path, argument("FILE", "Made by tune, fit, extract, schedule or budget.")],
    out: Annotated[Path | None, output("Also plot a profile into this PNG.")] = None,
    as_json: Json = False,
) -> None:
    """Show what a file holds: tuned steps, a schedule, or a profile of the paper's method."""
    from geosprint.report.terminal import show_profile, summary
    from geosprint.tuned import Tuned, load_made

    require_suffix(out, ".png")
    require_writable(out)
    held = load_made(file)
    if isinstance(held, Tuned):
        if out:
            raise FileError(f"-o plots a profile, and {file} holds none; leave it out")
        tell(as_json, held.to_dict(), lambda: _show_steps(held, file))
        return
    if out:
        from geosprint.report.plots import plot_profile

        plot_profile(held, out)
    tell(as_json, summary(held), lambda: show_profile(held, file))


def _show_steps(tuned: Tuned, path: Path) -> None:
    from geosprint.report.tuned import show_tuned

    print(f"{path}: {tuned!r}")
    show_tuned(tuned, [])
    about = tuned.made_for
    drawn = ", ".join(f"{name} {said}" for name, said in about.get("conditions", {}).items() if said is not None)
    if about:
        print(f"  made for {about.get('model')}{f' drawing {drawn}' if drawn else ''}")
    if tuned.nfe:
        print(f"  found with {tuned.nfe:,} network calls")
    for one in tuned.results:
        print(f"  {one.steps} steps at t = " + ", ".join(f"{t:g}" for t in one.schedule.timesteps.round(4)))


def report(
    directory: Annotated[Path, argument("DIR", "What compare, demo, tune, extract, fit or reproduce has left.")],
    out: Annotated[Path | None, output("Where the page goes; DIR/report.html if left out.")] = None,
) -> None:
    """Make one HTML page of everything in a directory; it opens anywhere, without network."""
    from geosprint.report.page import write_report

    destination = out or directory / "report.html"
    require_suffix(destination, ".html")
    if directory.is_dir():  # else it is refused by name
        require_writable(destination)
    print(write_report(directory, destination))


def models(as_json: Json = False) -> None:
    """List the models in the box."""
    from geosprint.models.registry import models_in_the_box
    from geosprint.report.tables import Table

    rows = list(models_in_the_box().items())
    content = [{"name": name, "description": text} for name, text in rows]
    tell(as_json, content, lambda: Table.of(("model", "what it is"), rows).show())


def doctor(as_json: Json = False) -> None:
    """Say what is installed, which devices and models there are, and what is missing for which feature."""
    from geosprint.doctor import examine
    from geosprint.report.terminal import show_findings

    found = examine()
    tell(as_json, [asdict(finding) for finding in found], lambda: show_findings(found))
    if any(finding.is_broken for finding in found):
        raise typer.Exit(1)
