"""How far a long run is: a bar on a terminal, a line for every finished shard elsewhere."""

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
            share = self._finished / self._samples
            left = timedelta(seconds=round(self._seconds * (1 - share) / share))
            print(
                f"{self._name}: {self._finished} of {self._samples}, {left} left, {self._speed()}",
                file=sys.stderr,
                flush=True,
            )

    def _speed(self) -> str:
        return f"{self._nfe / self._seconds:.3g} NFE/s, {peak_memory() / 1e9:.2f} GB"

    @property
    def _seconds(self) -> float:
        return max(time.monotonic() - self._begun, 1e-9)


def peak_memory() -> int:
    """The most bytes that this process has held so far, on the GPU if it uses one; 0 where nobody tells."""
    if torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated()
    if resource is None:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
