"""What a model answered, kept on disk: whoever asks the same again, in the same order, need not ask the model."""

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

from geosprint.extraction import PROBE_STEPS, begun_work
from geosprint.models.base import Model
from geosprint.models.wrappers import Wrapped
from geosprint.runs.store import Shard, Shards
from geosprint.sampling import record

PAGE = 16
"""Questions to a shard, each of a whole batch: a kill loses fewer answers than that."""


@contextmanager
def caching_calls(model: Model, work: Path | None, job: dict[str, Any]) -> Iterator[Model]:
    """This model; with a work directory, one whose answers are kept there and taken from there if a run was stopped.

    What is done with it must ask the same questions in the same order every time. `job` is all that they depend on.
    """
    if work is None:
        yield model
        return
    pages = Pages(begun_work(work, job, record(model, [0], PROBE_STEPS)))
    try:
        yield Cached(model, pages)
    finally:
        pages.keep()


@dataclass(frozen=True, eq=False)
class Cached(Wrapped):
    """A model that is asked only what it was never asked before at this place."""

    pages: Pages
    rows: tuple[int, ...] = ()

    def __call__(self, x: Tensor, t: float) -> Tensor:
        question = _named(self.rows, x, t)
        told = self.pages.find(question)
        if told is None:
            told = self.inner(x, t)
            self.pages.write(question, told)
        return told.to(x.device, copy=True)  # whoever asked may change it

    def for_samples(self, rows: Sequence[int]) -> Cached:
        """The model of one batch; its questions are part of the same run."""
        return Cached(self.inner.for_samples(rows), self.pages, tuple(rows))


class Pages:
    """The answers of one run in the order in which they were given, a shard to a page."""

    def __init__(self, store: Shards) -> None:
        self._store = store
        self._open(0)

    def find(self, question: str) -> Tensor | None:
        """What an earlier run was told at this place, if it asked the same."""
        if self._asked == PAGE:
            self.keep()
            self._open(self._number + 1)
        self._asked += 1
        return self._told.get(question)

    def write(self, question: str, answer: Tensor) -> None:
        """Note the answer to what was just not found; a full page goes to the disk at once."""
        self._told[question] = answer.detach().to("cpu", copy=True)  # a model may use its own tensor again
        self._new = True
        if self._asked == PAGE:
            self.keep()

    def keep(self) -> None:
        """Put the page on the disk, if there is anything new on it."""
        if self._new:
            self._store.keep(Shard(self._rows, self._told, {}))
            self._new = False

    def _open(self, number: int) -> None:
        self._number, self._asked, self._new = number, 0, False
        left = self._store.read(self._rows)
        self._told: dict[str, Tensor] = left.tensors if left else {}

    @property
    def _rows(self) -> range:
        return range(self._number, self._number + 1)


def _named(rows: Sequence[int], x: Tensor, t: float) -> str:
    """A question by all its bits: only an answer to the very same one may stand for asking."""
    whole = x.detach().cpu().contiguous()
    digest = hashlib.sha256(json.dumps([list(rows), float(t), str(whole.dtype), list(whole.shape)]).encode())
    digest.update(whole.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
