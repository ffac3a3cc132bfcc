"""How files are written, whole or not at all, and how damaged ones are refused."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from geosprint.errors import FileError, GeoSprintError

VERSION = 1
"""The version of every file format of this package."""


MOST_BYTES = 2**27
"""Of a text that is read: the largest profile, of 100,000 trajectories of 1,000 steps, has four fifths of this."""

MOST_PARTS, MOST_DEPTH = 2**22, 32
"""Brackets and commas of a JSON text, each of which may take a hundred bytes of memory; and how deep they may stand."""

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that move a terminal's cursor, colour it or turn its text around; a tab and a new line are none."""

STRANGE = (TypeError, ValueError, ArithmeticError, AttributeError, IndexError, RuntimeError)
"""What content of another kind provokes."""

UNFINISHED = re.compile(r"\.[0-9a-f]{16}\.unfinished")
STALE = 3600.0
"""Seconds without a change after which an unfinished file was left by a kill; a younger one may be in the making."""

WAY_OUT = "choose another path with -o"


def write_whole(path: Path, write: Callable[[Path], object], way_out: str = WAY_OUT) -> Path:
    """Let `write` fill a file beside the target, then put it in place in one step: a kill leaves the old or the new."""
    path = Path(path)
    unfinished = path.parent / f".{secrets.token_hex(8)}.unfinished"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_what_kills_left(path.parent.resolve())
        unfinished.touch()
        mode = unfinished.stat().st_mode  # as the umask has it
        write(unfinished)
        unfinished.chmod(mode)  # safetensors would let nobody else read it
        with open(unfinished, "rb+") as file:
            os.fsync(file.fileno())  # else a machine that loses power may keep the new name and forget the content
        os.replace(unfinished, path)
    except (OSError, SafetensorError) as wrong:
        reason = getattr(wrong, "strerror", None) or wrong
        raise FileError(f"cannot write {path}: {reason}; {way_out}") from wrong
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
    return path


def write_json(path: Path, kind: str, content: dict[str, Any], way_out: str = WAY_OUT) -> Path:
    """A JSON file that says what it is."""
    return write_text(path, _readable_json({"format": kind, "version": VERSION, **content}) + "\n", way_out)


def write_text(path: Path, text: str, way_out: str = WAY_OUT) -> Path:
    """A text file."""
    return write_whole(path, lambda to: to.write_text(text, encoding="utf-8"), way_out)


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """A line per row under the names of the first one; nothing where a value is None."""
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows({name: _inert(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _inert(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula gets an apostrophe before it; a number may have a minus."""
    return f"'{value}" if isinstance(value, str) and value[:1] in {"=", "+", "-", "@", "\t", "\r"} else value


def read_json(path: Path, kind: str) -> dict[str, Any]:
    """The content of a JSON file of this kind and version."""
    content = json_in(Path(path))
    check_format(path, content, kind)
    return content


def read_tensors(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensors of a safetensors file of this kind and version, and what its header says of them."""
    try:
        check_file(path)
        with refusing_damage(path), safe_open(path, "pt") as file:
            about = parsed_json((file.metadata() or {}).get("geosprint", "null"))
            check_format(path, about, kind)
            return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118
    except OSError as wrong:
        raise FileError(f"cannot read {path}: {wrong.strerror or wrong}") from wrong


def kind_of(path: Path) -> str | None:
    """What a JSON file says that it is; None if it says nothing."""
    content = json_in(Path(path))
    kind = content.get("format") if isinstance(content, dict) else None
    return kind if isinstance(kind, str) else None


def json_in(path: Path) -> Any:
    """What a JSON file says, of whatever kind."""
    text = read_text(path)
    try:
        return parsed_json(text)
    except ValueError as wrong:
        raise FileError(f"{path} is not a whole JSON file ({wrong}); make it again") from wrong


def parsed_json(text: str) -> Any:
    """What a JSON text says, if it is of a size, a depth and of letters that a file of this package can have."""
    if sum(map(text.count, "[{,")) > MOST_PARTS:
        raise ValueError(f"it has more than {MOST_PARTS} brackets and commas")
    try:
        said = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as wrong:
        raise ValueError("its lists and objects stand too deep") from wrong
    _check_tree(said, MOST_DEPTH)
    return said


def _check_tree(part: Any, deeper: int) -> None:
    """No nesting beyond the bound, and no text that would command a terminal."""
    if isinstance(part, str) and CONTROL.search(part):
        raise ValueError(f"it holds control characters: {part[:60]!r}")
    if isinstance(part, dict | list):
        if deeper == 0:
            raise ValueError(f"its lists and objects stand more than {MOST_DEPTH} deep")
        for inner in (*part, *part.values()) if isinstance(part, dict) else part:
            if not isinstance(inner, int | float):
                _check_tree(inner, deeper - 1)


def read_text(path: Path) -> str:
    """A text file of up to MOST_BYTES."""
    try:
        return read_bytes(path, MOST_BYTES).decode("utf-8")
    except UnicodeDecodeError as wrong:
        raise FileError(f"{path} is not a text file ({wrong}); make it again") from wrong


def read_bytes(path: Path, most: float = math.inf) -> bytes:
    """What a file holds, if it holds no more than this."""
    try:
        check_file(path)
        if (size := os.stat(path).st_size) > most:
            raise FileError(f"{path} must have up to {most} bytes, it has {size}")
        return Path(path).read_bytes()
    except OSError as wrong:
        raise FileError(f"cannot read {path}: {wrong.strerror or wrong}") from wrong


def check_file(path: Path) -> None:
    """Refuse what is no file: opening a pipe waits for somebody to write, and a device has no end."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise FileError(f"{path} must be a file, and is a directory, a pipe or a device")


def check_sha256(path: Path, sha256: str, way_out: str) -> None:
    """Refuse a file that is not there or not the one that is meant."""
    if not path.is_file():
        raise FileError(f"expected {path}, found no such file; {way_out}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != sha256:
        raise FileError(f"{path} must have sha256 {sha256}, it has {digest}; {way_out}")


def check_format(path: Path, content: Any, kind: str) -> None:
    """Refuse a file of another kind or of another version."""
    found = content.get("format") if isinstance(content, dict) else None
    if found != kind:
        raise FileError(f"{path} must be a {kind} file, but its format is {found!r}")
    if content.get("version") != VERSION:
        raise FileError(
            f"{path} must have version {VERSION}, got {content.get('version')!r}; "
            "make it again with this version of geosprint"
        )


@contextmanager
def refusing_damage(path: Path) -> Iterator[None]:
    """Turn whatever a damaged file provokes into a FileError that names the file."""
    try:
        yield
    except FileError:
        raise
    except KeyError as wrong:
        raise FileError(f"{path} is damaged: {wrong} is missing; make it again") from wrong
    except (GeoSprintError, SafetensorError, *STRANGE) as wrong:
        raise FileError(f"{path} is damaged: {wrong}; make it again") from wrong


def finite(numbers: Any) -> list[float]:
    """A list of finite numbers, as a file should hold them."""
    if not isinstance(numbers, list) or not all(_is_finite_number(x) for x in numbers):
        raise ValueError(f"expected a list of finite numbers, got {str(numbers)[:60]}")
    return [float(x) for x in numbers]


@cache  # once a run is enough, and a directory can be long
def _remove_what_kills_left(directory: Path) -> None:
    for path in directory.glob(".*.unfinished"):
        with suppress(OSError):  # others may be tidying up, too
            if UNFINISHED.fullmatch(path.name) and time.time() - path.stat().st_mtime > STALE:
                path.unlink()


def _is_finite_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number JSON knows")


def _readable_json(content: Any, indent: str = "\n") -> str:
    """A line per field and per list of numbers, so that people can read the file and diff it."""
    deeper = f"{indent}  "
    if isinstance(content, dict) and content:
        fields = (f"{deeper}{json.dumps(key)}: {_readable_json(value, deeper)}" for key, value in content.items())
        return "{" + ",".join(fields) + indent + "}"
    if isinstance(content, list | tuple) and any(isinstance(item, dict | list | tuple) for item in content):
        return "[" + ",".join(f"{deeper}{_readable_json(item, deeper)}" for item in content) + indent + "]"
    return json.dumps(content, allow_nan=False)
