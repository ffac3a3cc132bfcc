"""How a process ends when it is told to; imported before everything else, so it imports nothing that takes time."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STOPPED = 130  # what shells say of a command that Ctrl-C ended


def stop_at_once(*_: Any) -> None:
    """While there is no run to stop, a signal ends the process: an exception could end up in anybody's import."""
    os.write(2, b"geosprint: stopped; the same command starts again\n")
    os._exit(STOPPED)


@contextmanager
def handling_signals(handler: Any, *numbers: int) -> Iterator[None]:
    """Ctrl-C and the SIGTERM of a cluster do the same inside; signals never reach other threads than the first."""
    is_first = threading.current_thread() is threading.main_thread()
    before = handle_signals(handler, *numbers) if is_first else {}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def handle_signals(handler: Any, *numbers: int) -> dict[int, Any]:
    """Ctrl-C and SIGTERM, or these, do the same from now on; what they did before."""
    return {number: signal.signal(number, handler) for number in numbers or (signal.SIGINT, signal.SIGTERM)}
