"""How far a long run is."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from datetime import timedelta

import torch
from tqdm import tqdm

from geosprint.runs.team import repeating, this_team

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

EVERY = 60  # seconds between lines where there is no terminal
CALL = "call"  # of a network, for one sample
BAR = "{desc}: {percentage:3.0f}%|{bar}| {n:,}/{total:,} [{elapsed}<{remaining}{postfix}]"


class Progress(ExitStack):
    """A bar with the time left on a terminal; elsewhere a line a minute, and one for every finished shard."""

    def __init__(self, name: str, total: int, unit: str, shown: bool, samples: int = 0) -> None:
        super().__init__()
        on_terminal, shown = sys.stderr.isatty(), shown and this_team().leads
        self._name, self._total, self._unit, self._samples = name, total, unit, samples
        self._bar = tqdm(total=total, desc=name, bar_format=BAR, disable=not (shown and on_terminal), delay=1)
        self._in_lines, self._begun = shown and not on_terminal, time.monotonic()
        self.done, self._nfe, self._finished, self._note = 0, 0, 0, ""
        self.callback(self._bar.close)
        if self._in_lines:  # whatever the run is doing: also while its first network call still lasts
            self.enter_context(repeating(EVERY, self._write))

    def say(self, note: str) -> None:
        """What is being done now."""
        self._note = note
        self.update(0)

    def update(self, count: int, nfe: int = 0) -> None:
        """So much more is done, with so many network calls, if those are not what is counted."""
        self.done += count
        self._nfe += count if self._unit == CALL else nfe
        self._bar.set_postfix_str(self._beside(), refresh=False)
        self._bar.update(count)

    def finish(self, samples: int) -> None:
        """A shard of so many samples is done."""
        self._finished += samples
        if self._in_lines:
            self._write(f"{self._finished:,} of {self._samples:,} samples")

    def _write(self, done: str = "") -> None:
        done = done or f"{self.done:,} of {self._total:,} {self._unit}s"
        seconds = (time.monotonic() - self._begun) * max(self._total / max(self.done, 1) - 1, 0)
        left = f"{timedelta(seconds=round(seconds))} left" if self.done else ""
        print(", ".join(filter(None, (f"{self._name}: {done}", left, self._beside()))), file=sys.stderr, flush=True)

    def _beside(self) -> str:
        """Speed, the peak of memory, and what is being done."""
        if not self._nfe:
            return self._note
        speed = self._nfe / max(time.monotonic() - self._begun, 1e-9)
        told = f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}"
        return ", ".join(filter(None, (f"{told} calls/s", f"{peak_memory() / 1e9:.2f} GB", self._note)))


def peak_memory() -> int:
    """The most bytes that this process has held so far, on the GPU if it uses one; 0 where nobody tells."""
    if torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated()
    if resource is None:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
