"""What verbs share while they run: how they end, what they print and what they refuse."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from geosprint.errors import FileError, ModelFailed, ScheduleError, TeamError
from geosprint.files import CONTROL, WAY_OUT, json_in, read_text
from geosprint.runs.signals import STOPPED, handling_signals

if TYPE_CHECKING:
    from geosprint.runs.team import Team

STAT = Path("/proc/stat")
CORES = Path("/sys/devices/system/cpu")


@contextmanager
def long_run(how: str) -> Iterator[Team]:
    """A run with all processes that were started; afterwards, only the first of them goes on.

    A signal, a model that fails and a lost process end it with a word on how it goes on.
    """
    from geosprint.runs.team import joined_team

    with handling_signals(signal.default_int_handler):
        try:
            with joined_team() as team:
                yield team
            if not team.leads:
                raise typer.Exit
        except KeyboardInterrupt:
            print(f"geosprint: stopped; {how}", file=sys.stderr)
            raise typer.Exit(STOPPED) from None
        except (TeamError, ModelFailed) as lost:
            raise type(lost)(f"{lost}; {how}") from lost


def how_to_go_on(kept: str, work: Path | None) -> str:
    """What remains of a run that was stopped, with a work directory and without."""
    if work:
        return f"{kept} in {work}, and the same command goes on"
    return "nothing was kept; with --work DIR, a stopped run can go on"


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
    return tuple(line.strip() for line in read_text(path).splitlines() if line.strip())


def call_of(said: Iterable[str]) -> dict[str, Any]:
    """Arguments of a pipeline from words like num_frames=17 or image=cat.png, and from .json files of them."""
    call: dict[str, Any] = {}
    for word in said:
        name, equals, value = word.partition("=")
        if not equals and not word.endswith(".json"):
            raise FileError(f"--call takes NAME=VALUE or a .json file of such names and values, got {word!r}")
        given = {name: _value_of(value)} if equals else json_in(Path(word))
        if not isinstance(given, dict):
            raise FileError(f"{word} must hold an object of names and values, got a {type(given).__name__}")
        call |= {name: _with_pictures(value) for name, value in given.items()}
    return call


def _value_of(word: str) -> Any:
    try:
        return json.loads(word)
    except ValueError:
        return word


def _with_pictures(value: Any) -> Any:
    """Names of image files as the pictures in them."""
    if isinstance(value, list):
        return [_with_pictures(part) for part in value]
    if not isinstance(value, str) or Path(value).suffix.lower() not in (".png", ".jpg", ".jpeg", ".webp", ".bmp"):
        return value
    from PIL import Image

    try:
        return Image.open(value).convert("RGB")
    except OSError as wrong:
        raise FileError(f"cannot read a picture from {value}: {wrong}") from wrong


def require_suffix(path: Path, *suffixes: str) -> None:
    """Refuse an output of a kind that cannot be written; without suffixes, every kind can."""
    if suffixes and path.suffix not in suffixes:
        raise FileError(f"the output must end in {' or '.join(filter(None, suffixes))}, got {path.name!r}")


def require_writable(*paths: Path, is_directory: bool = False, reads: Path | None = None) -> None:
    """Refuse outputs that could not be written, or that are what is being read, before anything runs for them."""
    for path in paths:
        if reads and path.resolve() == reads.resolve():
            raise FileError(f"{path} is what is being read; choose another path with -o")
        try:
            if path.exists() and path.is_dir() != is_directory:
                raise FileError(f"{path} is a {'directory' if path.is_dir() else 'file'}; {WAY_OUT}")
            tried = path if is_directory else path.parent
            while not tried.exists():
                tried = tried.parent
            tempfile.TemporaryFile(dir=tried).close()
        except OSError as wrong:
            raise FileError(f"cannot write {path}: {wrong.strerror or wrong}; {WAY_OUT}") from wrong


def printable(text: str) -> str:
    """The text without what would move a terminal's cursor or colour it."""
    return CONTROL.sub(lambda one: repr(one[0])[1:-1], text)
