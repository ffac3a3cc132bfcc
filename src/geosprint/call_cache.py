"""A network's outputs kept on disk: whoever makes the same calls again need not ask the network."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from geosprint.models.base import Model
from geosprint.models.fingerprint import PROBE_STEPS, begun_store, network_of, versions
from geosprint.models.wrappers import Wrapped
from geosprint.runs.store import Store, digest_of
from geosprint.sampling import record

PAGE = 16
"""Calls to a file, each of a whole batch: a kill loses fewer outputs than that, of each process."""

OPEN = 8
"""Pages in memory: a run of eight processes leaves neighbouring calls on as many."""


@contextmanager
def caching_calls(model: Model, work: Path | None, job: dict[str, Any]) -> Iterator[Model]:
    """This model; with a work directory, one that keeps outputs there and finds there those of a run that was stopped.

    `job` is all that the calls depend on. Processes that see one directory find the outputs of all of them.
    """
    if work is None:
        yield model
        return
    job = {**job, "versions": versions()}
    pages = Pages(begun_store(work, job, record(model, [0], PROBE_STEPS), network_of(model)))
    try:
        yield Cached(model, pages)
    finally:
        pages.keep()


@dataclass(frozen=True, eq=False)
class Cached(Wrapped):
    """A model that is called only with what it was never called with before."""

    pages: Pages
    rows: tuple[int, ...] = ()
    kind: str = ""  # of its outputs

    def __call__(self, x: Tensor, t: float) -> Tensor:
        call = _digest(self.kind, self.rows, x, t)
        output = self.pages.find(call)
        if output is None:
            output = self.inner(x, t)
            self.pages.write(call, output)
        return output.to(x.device, copy=True)  # whoever asked may change it

    def for_samples(self, rows: Sequence[int]) -> Cached:
        """The model of one batch; its calls are part of the same run."""
        return replace(self, inner=self.inner.for_samples(rows), rows=tuple(rows))

    def with_conditional(self) -> Cached:
        inner = self.inner.with_conditional()
        return self if inner is self.inner else replace(self, inner=inner, kind="with conditional")


class Pages:
    """Outputs by their calls: those that earlier runs left, and new ones, a file for every PAGE of them."""

    def __init__(self, store: Store) -> None:
        self._store, self._left = store, store.keys_by_tensor()
        self._page = lru_cache(OPEN)(self._read_page)  # neighbouring calls stand on few of them
        self._new: dict[str, Tensor] = {}

    def find(self, call: str) -> Tensor | None:
        """The output of this call, if an earlier run has left it."""
        return self._page(self._left[call]).get(call) if call in self._left else None

    def _read_page(self, key: str) -> dict[str, Tensor]:
        kept = self._store.read(key)
        if kept is None:
            self._store.discard(key)  # its calls go to other pages
        return kept[0] if kept else {}

    def write(self, call: str, output: Tensor) -> None:
        """Note the output of a call that was not found; a full page goes to the disk at once."""
        self._new[call] = output.detach().to("cpu", copy=True)  # a model may use its own tensor again
        if len(self._new) == PAGE:
            self.keep()

    def keep(self) -> None:
        """Put on the disk what is new, under a name that no other calls have."""
        if self._new:
            self._store.keep(f"calls-{digest_of(sorted(self._new))[:16]}", self._new, {})
            self._new = {}


def _digest(kind: str, rows: Sequence[int], x: Tensor, t: float) -> str:
    """A call by all its bits: only the output of the very same call may stand for it."""
    whole = x.detach().cpu().contiguous()
    asked = [kind, list(rows), float(t), str(whole.dtype), list(whole.shape)]
    digest = hashlib.sha256(json.dumps(asked).encode())
    digest.update(whole.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
