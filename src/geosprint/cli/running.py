"""What verbs share while they run: how they end, what they print and what they refuse."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from geosprint.errors import FileError, ScheduleError, TeamError


@contextmanager
def long_run(how: str) -> Iterator[None]:
    """Ctrl-C, the SIGTERM of a cluster and a lost process end a run with a word on how it goes on."""
    in_charge = threading.current_thread() is threading.main_thread()  # signals never reach other threads
    before = signal.signal(signal.SIGTERM, signal.default_int_handler) if in_charge else None
    try:
        yield
    except KeyboardInterrupt:
        print(f"geosprint: stopped; {how}", file=sys.stderr)
        raise typer.Exit(130) from None
    except TeamError as lost:
        raise TeamError(f"{lost}; {how}") from lost
    finally:
        if in_charge:
            signal.signal(signal.SIGTERM, before)


def tell(as_json: bool, content: Any, show: Callable[[], None]) -> None:
    """Print what was found, for machines or for people."""
    if as_json:
        print(json.dumps(content))
    else:
        show()


def this_command() -> str:
    """The line that was typed, to be named beside its results."""
    return shlex.join(["geosprint", *sys.argv[1:]])


def listed(text: str) -> tuple[str, ...]:
    """The words of an option that takes several, separated by commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def listed_numbers(text: str, option: str) -> tuple[int, ...]:
    """The whole numbers of an option that takes several, separated by commas."""
    for part in listed(text):
        if not part.isdecimal():
            raise ScheduleError(f"{option} takes whole numbers separated by commas, got {part!r}")
    return tuple(int(part) for part in listed(text))


def prompts_in(path: Path | None) -> tuple[str, ...]:
    """The prompts of a file, one per line, empty lines left out."""
    if path is None:
        return ()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as wrong:
        raise FileError(f"cannot read the prompts in {path}: {wrong}") from wrong
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def require_suffix(path: Path, *suffixes: str) -> None:
    """Refuse an output of a kind that cannot be written."""
    if path.suffix not in suffixes:
        raise FileError(f"the output must end in {' or '.join(filter(None, suffixes))}, got {path.name!r}")


def require_another(out: Path, source: Path) -> None:
    """Refuse to write over what is being read."""
    if out.resolve() == source.resolve():
        raise FileError(f"{out} is what is being read; choose another path with -o")
