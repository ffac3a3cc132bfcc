"""The command line: one verb per user's question."""

from __future__ import annotations

import io
import logging
import os
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer

from geosprint import __version__
from geosprint.cli.comparing import compare, demo
from geosprint.cli.drawing import export, sample
from geosprint.cli.improving import fit, tune
from geosprint.cli.looking import doctor, inspect, models, report
from geosprint.cli.paper import budget, claims, extract, merge, reproduce, schedule
from geosprint.errors import GeoSprintError

# Everything that needs torch is imported inside a verb: --help must answer at once.

VERBS: dict[str, tuple[Callable[..., None], ...]] = {
    "Make it faster": (tune, fit, sample, export),
    "Look": (compare, inspect, report, demo),
    "The paper": (extract, merge, schedule, budget, reproduce, claims),
    "The rest": (models, doctor),
}

app = typer.Typer(
    help="Fewer network calls for the same samples: schedules from the geometry of denoising trajectories.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for question, verbs in VERBS.items():
    for verb in verbs:
        app.command(rich_help_panel=question)(verb)


def main() -> None:
    """Run a verb; what the user can mend is one sentence and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a letter is no reason to fail
    warnings.showwarning = _show_warning
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # else it asks for torchvision, which no verb needs
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # its first run tells of fonts
    try:
        app()
    except GeoSprintError as wrong:
        print(f"geosprint: {wrong}", file=sys.stderr)
        sys.exit(2)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"geosprint: warning: {message}", file=sys.stderr)


def _version(asked: bool) -> None:
    if asked:
        print(f"geosprint {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of the command itself."""
