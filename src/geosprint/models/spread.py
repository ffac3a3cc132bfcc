"""Models that count their calls, and that answer a batch at a time, each by one process of the team."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from geosprint.errors import GeoSprintError, ScheduleError, TeamError
from geosprint.models.base import Model, ask
from geosprint.models.wrappers import Wrapped
from geosprint.runs import BATCH
from geosprint.runs.team import Team, this_team

T = TypeVar("T")

SHARERS = 8
"""Processes that have work with whatever is asked, if it is about as many samples."""

MOST_SAMPLES = 10_000_000
"""Of one run; the list of batches alone would fill the memory with a hundred times as many."""


def batches_of(count: int, size: int) -> list[range]:
    """The rows of each batch of a long list."""
    if count == 0:
        raise ScheduleError("at least one seed is needed, got none")
    if count > MOST_SAMPLES:
        raise ScheduleError(f"a run has up to {MOST_SAMPLES:,} samples, got {count:,}; divide it by seeds")
    if size < 1:
        raise ScheduleError(f"the batch size must be at least 1, got {size}")
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def shared_size(most: int, *rows: int) -> int:
    """Samples to a batch, at most so many, of lists of so many rows that are to be shared: the fewest in eight batches.

    It does not depend on how many processes there are. Who asks for more than the default wants few large batches.
    """
    if most > BATCH:
        return most
    sizes = range(max(math.ceil(sum(rows) / SHARERS), 1), most)
    return next((size for size in sizes if sum(math.ceil(own / size) for own in rows) <= SHARERS), most)


@dataclass
class Tally:
    """Network calls so far, summed over samples."""

    nfe: int = 0
    backprops: int = 0  # of these, gone through backwards for a gradient
    halves: bool = False  # batches, because a whole one did not fit into memory


@dataclass(frozen=True, eq=False)
class Counted(Wrapped):
    """A model that counts what it was asked; the models of its batches count together."""

    tally: Tally = field(default_factory=Tally)

    @property
    def nfe(self) -> int:
        """Network calls so far."""
        return self.tally.nfe

    def __call__(self, x: Tensor, t: float) -> Tensor:
        self.tally.nfe += len(x) * self.calls
        return self._watched(self.inner(x, t), len(x))

    def _watched(self, answer: Tensor, count: int) -> Tensor:
        """An answer that counts when a gradient passes back through it, which is what costs."""

        def passed(_: Tensor) -> None:
            self.tally.backprops += count * self.calls

        if isinstance(answer, Tensor) and answer.requires_grad:  # what is no tensor is refused by who asked for it
            answer.register_hook(passed)
        return answer


@dataclass(frozen=True, eq=False)
class Spread(Counted):
    """A model that is asked about all samples at once, and asks the one inside a batch at a time.

    Where batches begin does not depend on the number of processes, and each is answered by one of them: the bits are
    those of one process. All must ask the same, so everything around the model is computed by each of them.
    """

    batch: int = BATCH
    rows: tuple[int, ...] | None = None  # which samples these are; None: the first ones
    parts: dict[range, Model] = field(default_factory=dict, repr=False)  # the models of the batches
    answers: int = 1  # to a sample: 2 with the conditional prediction

    def for_samples(self, rows: Sequence[int]) -> Spread:
        return replace(self, rows=tuple(rows), parts={})

    def with_conditional(self) -> Spread:
        inner = self.inner.with_conditional()
        return self if inner is self.inner else replace(self, inner=inner, parts={}, answers=2)

    def __call__(self, x: Tensor, t: float) -> Tensor:
        self.tally.nfe += len(x) * self.calls
        team = this_team()
        batches = batches_of(len(x), self.batch if team.is_at_a_job else shared_size(self.batch, len(x)))
        if team.size == 1 or (x.requires_grad and torch.is_grad_enabled()):  # gradients are of this process
            return self._watched(torch.cat([self._answer(rows, x, t) for rows in batches]), len(x))
        mine = [self._answer(rows, x, t).flatten() for rows in batches[team.rank :: team.size]]
        return _exchanged(mine, batches, x, t, team, self.answers)

    def each(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """What every job gives, each done by one process; its calls count everywhere."""

        def counted(job: Callable[[], T]) -> tuple[T, int]:
            before = self.nfe
            return job(), self.nfe - before

        before = self.nfe
        found = this_team().each([partial(counted, job) for job in jobs])
        self.tally.nfe = before + sum(nfe for _, nfe in found)
        return [made for made, _ in found]

    def _answer(self, rows: range, x: Tensor, t: float) -> Tensor:
        """Of one batch, in two halves where the device has no memory for it."""
        if not self.tally.halves:
            try:
                return self._asked(rows, x, t)
            except (torch.OutOfMemoryError, GeoSprintError) as wrong:
                if len(rows) == 1 or not isinstance(wrong.__cause__ or wrong, torch.OutOfMemoryError):
                    raise
            self.tally.halves = True
            warnings.warn(
                f"{self.device} has no memory for a batch of {self.batch}, which is halved from now on and so rounded "
                f"differently; with --batch {(len(rows) + 1) // 2} every run has the same bits",
                stacklevel=2,
            )
        middle = (rows.start + rows.stop + 1) // 2
        halves = (range(rows.start, middle), range(middle, rows.stop))
        return torch.cat([self._asked(half, x, t) for half in halves if half])

    def _asked(self, rows: range, x: Tensor, t: float) -> Tensor:
        if rows not in self.parts:
            own = rows if self.rows is None else self.rows[rows.start : rows.stop]
            self.parts[rows] = self.inner.for_samples(own)
        return ask(self.parts[rows], x[rows.start : rows.stop], t)


def _exchanged(mine: list[Tensor], batches: list[range], x: Tensor, t: float, team: Team, each: int) -> Tensor:
    """The answers of all processes in order; with them goes a number by which is seen that all asked the same."""
    sizes = [[len(rows) for rows in batches[rank :: team.size]] for rank in range(team.size)]
    shape = x.shape[1:] if each == 1 else (each, *x.shape[1:])
    buffer = x.new_zeros(sum(sizes[0]) * each * x[0].numel() + 1)  # nobody has more than the first
    question = torch.nan_to_num(x.sum() + t)
    answers = torch.cat([question[None], *mine])
    buffer[: len(answers)] = answers
    given = team.gathered(buffer)
    if (given[:, 0] != question).any():
        raise TeamError(
            "the processes have computed different states; run all of them on machines of one kind and with as many "
            "threads each (OMP_NUM_THREADS)"
        )
    parts = [own[1:].view(-1, *shape)[: sum(rows)].split(rows) for own, rows in zip(given, sizes, strict=True)]
    return torch.cat([parts[i % team.size][i // team.size] for i in range(len(batches))])
