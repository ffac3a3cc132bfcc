"""How far a long run is."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from types import TracebackType

import torch
from tqdm import tqdm

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


EVERY = 60  # seconds between lines where there is no terminal


class Progress:
    """A bar with the time left on a terminal; elsewhere a line a minute, and one for every finished shard."""

    def __init__(self, name: str, total: int, unit: str, shown: bool, samples: int = 0) -> None:
        on_terminal = sys.stderr.isatty()
        self._name, self._total, self._unit, self._samples = name, total, unit, samples
        self._bar = tqdm(total=total, desc=name, unit=unit, disable=not (shown and on_terminal), delay=1)
        self._in_lines = shown and not on_terminal
        self._begun = self._last_line = time.monotonic()
        self._note, self._nfe, self._finished = "", 0, 0
        self.done = 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, wrong: object, trace: TracebackType | None) -> None:
        self._bar.close()

    def say(self, note: str) -> None:
        """What is being done now, from the next look on."""
        self._note = note
        self._bar.set_postfix_str(note, refresh=False)

    def update(self, count: int, nfe: int = 0) -> None:
        """So much more is done; where it took network calls, their speed and the peak of memory are said."""
        self.done += count
        self._nfe += nfe
        if nfe:
            self.say(self._speed())
        self._bar.update(count)
        if self.done and time.monotonic() - self._last_line >= EVERY:
            self._write(f"{self.done:,} of {self._total:,} {self._unit}s")

    def finish(self, samples: int) -> None:
        """A shard of so many samples is done."""
        self._finished += samples
        self.say(self._speed())
        self._write(f"{self._finished} of {self._samples}")

    def _write(self, done: str) -> None:
        if not self._in_lines:
            return
        self._last_line = time.monotonic()
        share = self.done / self._total
        left = timedelta(seconds=round((self._last_line - self._begun) * max(1 - share, 0) / share))
        note = f", {self._note}" if self._note else ""
        print(f"{self._name}: {done}, {left} left{note}", file=sys.stderr, flush=True)

    def _speed(self) -> str:
        seconds = max(time.monotonic() - self._begun, 1e-9)
        return f"{self._nfe / seconds:.3g} NFE/s, {peak_memory() / 1e9:.2f} GB"


def peak_memory() -> int:
    """The most bytes that this process has held so far, on the GPU if it uses one; 0 where nobody tells."""
    if torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated()
    if resource is None:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
