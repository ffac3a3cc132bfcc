"""What verbs share while they run: how they end, what they print and what they refuse."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from geosprint.errors import FileError, ScheduleError, TeamError

if TYPE_CHECKING:
    from geosprint.runs.team import Team

STAT = Path("/proc/stat")
CORES = Path("/sys/devices/system/cpu")


@contextmanager
def long_run(how: str) -> Iterator[Team]:
    """A run with all processes that were started; afterwards, only the first of them goes on.

    Ctrl-C, the SIGTERM of a cluster and a lost process end it with a word on how it goes on.
    """
    from geosprint.runs.team import joined_team

    in_charge = threading.current_thread() is threading.main_thread()  # signals never reach other threads
    before = signal.signal(signal.SIGTERM, signal.default_int_handler) if in_charge else None
    try:
        with joined_team() as team:
            yield team
        if not team.leads:
            raise typer.Exit
    except KeyboardInterrupt:
        print(f"geosprint: stopped; {how}", file=sys.stderr)
        raise typer.Exit(130) from None
    except TeamError as lost:
        raise TeamError(f"{lost}; {how}") from lost
    finally:
        if in_charge:
            signal.signal(signal.SIGTERM, before)


def take_idle_cores() -> None:
    """As many threads as cores stand idle, and none that spins while it waits; what the user has set wins.

    By default OpenMP takes every core, and its threads spin until the slowest of them arrives. Where other programs
    hold the cores they do little else: 30 calls of `fashion` beside eight busy programs on two cores cost 22 s of
    processor time, and 2.7 s so. torch and NumPy read these names when they are imported, which no verb has done yet.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("KMP_BLOCKTIME", "0")  # the same for LLVM's and Intel's OpenMP
    if "OMP_NUM_THREADS" not in os.environ and (idle := _idle_cores()) is not None:
        os.environ["OMP_NUM_THREADS"] = str(idle)


def _idle_cores() -> int | None:
    """Physical cores that nobody uses at this moment, at least one; None where the system does not say (Linux does)."""
    if not STAT.exists():
        return None
    ticks, begun = _idle_ticks(), time.monotonic()
    time.sleep(0.1)
    seconds = (_idle_ticks() - ticks) / os.sysconf("SC_CLK_TCK")
    idle = round(seconds / (time.monotonic() - begun))
    physical = len({path.read_text() for path in CORES.glob("cpu[0-9]*/topology/thread_siblings_list")})
    allowed = len(os.sched_getaffinity(0))
    return max(1, min(idle, allowed, physical or allowed))


def _idle_ticks() -> int:
    """Of all processors, since the system began. A load average would still count what ended a minute ago."""
    idle, waiting = STAT.read_text().split(maxsplit=6)[4:6]
    return int(idle) + int(waiting)


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
