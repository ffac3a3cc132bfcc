"""Work on a long list by batches: what was kept is read, others are made, each whole by one process, with its bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from geosprint.errors import FileError, ScheduleError
from geosprint.runs import BATCH
from geosprint.runs.store import Store
from geosprint.runs.team import Team, this_team

SHARERS = 8
"""Processes that have work with whatever is asked, if it is about as many samples."""

MOST_SAMPLES = 10_000_000
"""Of one run; the list of batches alone would fill the memory with a hundred times as many."""

Shard = tuple[dict[str, Tensor], dict[str, Any]]
"""What was made of some rows of a long list: tensors, and what there is to know of them."""

Maker = Callable[[Sequence[range]], Iterator[Shard]]
"""Makes the shards of these batches, one after another, each when it is asked for."""


def shard_key(rows: range) -> str:
    """The key of the shard of these rows in a store."""
    return f"shard-{rows.start:06d}-{rows.stop - 1:06d}"


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


def shards_in_order(
    batches: Sequence[range], make: Maker, store: Store | None = None, ahead: int = 1
) -> Iterator[Shard]:
    """The shard of every batch, in order, at every process; each makes `ahead` of them between two exchanges."""
    team = this_team()
    found = team.told({rows for rows in batches if store.read(shard_key(rows))} if store and team.leads else set())
    fresh = _made([rows for rows in batches if rows not in found], make, store, team, ahead)
    for rows in batches:
        if not store or rows not in found:
            yield next(fresh)
        elif shard := team.told(store.read(shard_key(rows)) if team.leads else None):
            yield shard
        else:
            raise FileError(f"a shard in {store.directory} was whole and is no longer; the same command makes it again")


def _made(missing: Sequence[range], make: Maker, store: Store | None, team: Team, ahead: int) -> Iterator[Shard]:
    """Kept by who made it as soon as it is done, and by the first for all, whose disk may be another one."""
    mine = make(missing[team.rank :: team.size])

    def job(rows: range) -> Shard:
        shard = next(mine)
        if store:
            store.keep(shard_key(rows), *shard)
        return shard

    for start in range(0, len(missing), ahead * team.size):
        together = missing[start : start + ahead * team.size]
        for rows, shard in zip(together, team.each([partial(job, rows) for rows in together]), strict=True):
            if store and team.leads and store.read(shard_key(rows)) is None:
                store.keep(shard_key(rows), *shard)
            yield shard
