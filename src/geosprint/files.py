"""How files are written, whole or not at all, and how damaged ones are refused."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from geosprint.errors import FileError, GeoSprintError

VERSION = 1
"""The version of every file format of this package."""


MOST_BYTES = 2**28
"""Of a JSON file that is read: the largest profile that can be made has a tenth of this."""

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that move a terminal's cursor, colour it or turn its text around; a tab and a new line are none."""

UNFINISHED = re.compile(r"\.[0-9a-f]{16}\.unfinished")
STALE = 3600.0
"""Seconds without a change after which an unfinished file was left by a kill; a younger one may be in the making."""

WAY_OUT = "choose another path with -o"


def write_whole(path: Path, write: Callable[[Path], object], way_out: str = WAY_OUT) -> Path:
    """Let `write` fill a file beside the target, then put it in place in one step: a kill leaves the old or the new."""
    path = Path(path)
    unfinished = path.with_name(f".{secrets.token_hex(8)}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_what_kills_left(path.parent.resolve())
        write(unfinished)
        _reach_the_disk(unfinished)
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
    table.writerows(rows)
    return text.getvalue()


def read_json(path: Path, kind: str) -> dict[str, Any]:
    """The content of a JSON file of this kind and version."""
    content = _json(Path(path))
    check_format(path, content, kind)
    return content


def kind_of(path: Path) -> str | None:
    """What a JSON file says that it is; None if it says nothing."""
    content = _json(Path(path))
    kind = content.get("format") if isinstance(content, dict) else None
    return kind if isinstance(kind, str) else None


def _json(path: Path) -> Any:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise FileError(f"{path} must have up to {MOST_BYTES} bytes, it has {path.stat().st_size}")
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except OSError as wrong:
        raise FileError(f"cannot read {path}: {wrong.strerror or wrong}") from wrong
    except (ValueError, RecursionError) as wrong:
        raise FileError(f"{path} is not a whole JSON file ({wrong}); make it again") from wrong


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
    except (GeoSprintError, TypeError, ValueError, ArithmeticError, AttributeError, IndexError, RuntimeError) as wrong:
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


def _reach_the_disk(path: Path) -> None:
    """Without this, a machine that loses power may keep the new name and forget the content."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


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
