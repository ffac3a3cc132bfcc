"""The command line: one verb per user's question."""

from __future__ import annotations

import io
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from geosprint import __version__
from geosprint.cli.improving import export, fit, sample, save, tune
from geosprint.cli.looking import compare, demo, doctor, inspect, models, report
from geosprint.cli.paper import budget, claims, extract, merge, reproduce, schedule
from geosprint.cli.running import printable, take_idle_cores
from geosprint.errors import GeoSprintError
from geosprint.runs.signals import handling_signals, stop_at_once

# Everything that needs torch is imported inside a verb: --help must answer at once.

VERBS: dict[str, tuple[Callable[..., None], ...]] = {
    "Make it faster": (tune, fit, export, save, sample),
    "Look": (inspect, report, compare, demo),
    "The paper": (extract, schedule, budget, reproduce, claims, merge),
    "The rest": (models, doctor),
}

DEBUG = "--debug"
COMPUTING = {"tune", "fit", "sample", "compare", "demo", "extract", "reproduce"}
UsageError: Any = typer.BadParameter.__mro__[1]  # of click, or of the copy that typer brings along


class _PlainFlags:
    """Its flags show no type in the help."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for flag in (one for one in parameters if getattr(one, "is_flag", False)):
            flag.metavar = ""  # else: --json <bool>
        return parameters


class _Verb(_PlainFlags, TyperCommand):
    """A verb that computes takes no more cores than stand idle."""

    def invoke(self, ctx: Any) -> Any:
        if self.name in COMPUTING:
            take_idle_cores()
        return super().invoke(ctx)


class _Verbs(_PlainFlags, TyperGroup):
    """All of them."""


app = typer.Typer(
    cls=_Verbs,
    help="As good as what you run today, in fewer network calls: steps tuned to your diffusion or flow model.",
    pretty_exceptions_enable=False,
)
for question, verbs in VERBS.items():
    for verb in verbs:
        app.command(cls=_Verb, rich_help_panel=question)(verb)


def main() -> None:
    """Run a verb; what goes wrong is one sentence and exit code 2, or 1 where the user could not know."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a letter is no reason to fail
    warnings.showwarning = _show_warning
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # else it asks for torchvision, which no verb needs
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # its first run tells of fonts
    given = [word for word in sys.argv[1:] if word != DEBUG]
    try:
        with handling_signals(stop_at_once):
            sys.exit(app(given or ["--help"], prog_name="geosprint", standalone_mode=False) or 0)
    except Exception as wrong:
        if DEBUG in sys.argv:
            traceback.print_exc()
        print("geosprint:", printable(" ".join(_sentence(wrong).splitlines())), file=sys.stderr)
        sys.exit(2 if isinstance(wrong, GeoSprintError | UsageError) else 1)


def _sentence(wrong: Exception) -> str:
    if isinstance(wrong, GeoSprintError):
        return str(wrong)
    if isinstance(wrong, UsageError):
        said = wrong.format_message().rstrip(".")
        return said if said.endswith("?") else f"{said}; try `{wrong.ctx.command_path} --help`"
    return f"unexpected {type(wrong).__name__}: {wrong}; {DEBUG} shows where"


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"geosprint: warning: {printable(str(message))}", file=sys.stderr)


def _version(asked: bool) -> None:
    if asked:
        print(f"geosprint {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option(DEBUG, help="Of any verb: where it failed, as a traceback.")] = False,
) -> None:
    """Options of the command itself; `main` takes --debug out, wherever it stands."""
