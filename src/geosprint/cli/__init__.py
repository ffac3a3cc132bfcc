"""The command line: one verb per arrow from a model to samples."""

from __future__ import annotations

import io
import logging
import os
import sys
import warnings
from typing import Annotated, Any

import typer

from geosprint import __version__
from geosprint.cli.checking import doctor
from geosprint.cli.comparing import compare, demo
from geosprint.cli.drawing import sample
from geosprint.cli.improving import fit, tune
from geosprint.cli.networks import models
from geosprint.cli.paper import claims, reproduce
from geosprint.cli.recording import extract, inspect, merge
from geosprint.cli.reporting import report
from geosprint.cli.scheduling import budget, export, schedule
from geosprint.errors import GeoSprintError

# Everything that needs torch is imported inside a verb: --help must answer at once.

VERBS = (
    *(models, extract, merge, inspect, schedule, budget, sample, export),
    *(tune, fit, compare, demo, report, reproduce, claims, doctor),
)

app = typer.Typer(
    help="Fewer network calls for the same samples: schedules from the geometry of denoising trajectories.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for verb in VERBS:
    app.command()(verb)


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
