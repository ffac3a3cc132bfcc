"""How far a long run is: a bar on a terminal; elsewhere a line for every finished shard, or for every minute."""

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


class Bar:
    """Tells how much is done and the time left, if it is to be shown."""

    def __init__(self, name: str, total: int, unit: str, shown: bool) -> None:
        on_terminal = sys.stderr.isatty()
        self._name, self._total, self._unit, self._note = name, total, unit, ""
        self._bar = tqdm(total=total, desc=name, unit=unit, disable=not (shown and on_terminal), delay=1)
        self._in_lines = shown and not on_terminal
        self._begun = self._last_line = time.monotonic()
        self.done = 0

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, kind: type[BaseException] | None, wrong: object, trace: TracebackType | None) -> None:
        self._bar.close()

    def say(self, note: str) -> None:
        """What is being done now, from the next look on."""
        self._note = f", {note}"
        self._bar.set_postfix_str(note, refresh=False)

    def update(self, count: int) -> None:
        """So much more is done."""
        self.done += count
        self._bar.update(count)
        now = time.monotonic()
        if self._in_lines and self.done and now - self._last_line >= EVERY:
            self._last_line = now
            left = time_left(now - self._begun, self.done / self._total)
            _tell(f"{self._name}: {self.done:,} of {self._total:,} {self._unit}s, {left} left{self._note}")


class Progress:
    """Tells the time left, network calls per second and the peak of memory, if it is to be shown."""

    def __init__(self, name: str, samples: int, steps: int, shown: bool) -> None:
        on_terminal = sys.stderr.isatty()
        self._name, self._samples, self._in_lines = name, samples, shown and not on_terminal
        self._bar = tqdm(total=samples * steps, desc=name, unit="step", disable=not (shown and on_terminal), delay=1)
        self._begun, self._finished, self._nfe = time.monotonic(), 0, 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, wrong: object, trace: TracebackType | None) -> None:
        self._bar.close()

    def advance(self, steps: int, nfe: int) -> None:
        """Some steps more, that took so many network calls."""
        self._nfe += nfe
        self._bar.set_postfix_str(self._speed(), refresh=False)
        self._bar.update(steps)

    def finish(self, samples: int) -> None:
        """A shard of so many samples is done."""
        self._finished += samples
        if self._in_lines:
            left = time_left(self._seconds, self._finished / self._samples)
            _tell(f"{self._name}: {self._finished} of {self._samples}, {left} left, {self._speed()}")

    def _speed(self) -> str:
        return f"{self._nfe / self._seconds:.3g} NFE/s, {peak_memory() / 1e9:.2f} GB"

    @property
    def _seconds(self) -> float:
        return max(time.monotonic() - self._begun, 1e-9)


def time_left(gone: float, share: float) -> timedelta:
    """Until all is done, if the rest goes as fast as this share did in so many seconds."""
    return timedelta(seconds=round(gone * max(1 - share, 0) / share))


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def peak_memory() -> int:
    """The most bytes that this process has held so far, on the GPU if it uses one; 0 where nobody tells."""
    if torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated()
    if resource is None:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
