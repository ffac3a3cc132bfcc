"""A model's answers kept on disk: whoever makes the same calls again, in the same order, need not ask the model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from geosprint.models.base import Model
from geosprint.models.fingerprint import network_of, weights_digest
from geosprint.models.wrappers import Wrapped
from geosprint.runs.sharing import shard_key
from geosprint.runs.store import PROBE_STEPS, Store, begun_work
from geosprint.sampling import record

PAGE = 16
"""Calls to a file, each of a whole batch: a kill loses fewer answers than that."""


@contextmanager
def caching_calls(model: Model, work: Path | None, job: dict[str, Any]) -> Iterator[Model]:
    """This model; with a work directory, one whose answers are kept there and taken from there if a run was stopped.

    What is done with it must make the same calls in the same order every time. `job` is all that they depend on.
    """
    if work is None:
        yield model
        return
    weights = weights_digest(network_of(model))
    pages = Pages(begun_work(work, job, record(model, [0], PROBE_STEPS), weights))
    try:
        yield Cached(model, pages)
    finally:
        pages.keep()


@dataclass(frozen=True, eq=False)
class Cached(Wrapped):
    """A model that is called only with what it was never called with before at this point of the run."""

    pages: Pages
    rows: tuple[int, ...] = ()

    def __call__(self, x: Tensor, t: float) -> Tensor:
        call = _digest(self.rows, x, t)
        answer = self.pages.find(call)
        if answer is None:
            answer = self.inner(x, t)
            self.pages.write(call, answer)
        return answer.to(x.device, copy=True)  # whoever asked may change it

    def for_samples(self, rows: Sequence[int]) -> Cached:
        """The model of one batch; its calls are part of the same run."""
        return Cached(self.inner.for_samples(rows), self.pages, tuple(rows))


class Pages:
    """The answers of one run in the order of its calls, a file for every PAGE of them."""

    def __init__(self, store: Store) -> None:
        self._store, self._calls, self._new = store, 0, False

    def find(self, call: str) -> Tensor | None:
        """The answer to the next call of the run, if an earlier run made the same call around here."""
        page, on_page = divmod(self._calls, PAGE)
        if on_page == 0:
            self.keep()
            self._key = shard_key(range(page, page + 1))
            kept = self._store.read(self._key)
            self._answers: dict[str, Tensor] = kept[0] if kept else {}
        self._calls += 1
        return self._answers.get(call)

    def write(self, call: str, answer: Tensor) -> None:
        """Note the answer to the call that was just not found; a full page goes to the disk at once."""
        self._answers[call] = answer.detach().to("cpu", copy=True)  # a model may use its own tensor again
        self._new = True
        if self._calls % PAGE == 0:
            self.keep()

    def keep(self) -> None:
        """Put the page on the disk, if there is anything new on it."""
        if self._new:
            self._store.keep(self._key, self._answers, {})
            self._new = False


def _digest(rows: Sequence[int], x: Tensor, t: float) -> str:
    """A call by all its bits: only the answer to the very same call may stand for it."""
    whole = x.detach().cpu().contiguous()
    digest = hashlib.sha256(json.dumps([list(rows), float(t), str(whole.dtype), list(whole.shape)]).encode())
    digest.update(whole.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
