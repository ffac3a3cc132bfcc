"""Work on a long list, batch by batch: parts that were kept are read, the others made, each by one process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor

from geosprint.errors import FileError, ScheduleError
from geosprint.runs.store import Store, packed, unpacked
from geosprint.runs.team import ALONE, Team

BATCH = 32
"""Samples that go through the model together."""


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
    if size < 1:
        raise ScheduleError(f"the batch size must be at least 1, got {size}")
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def shards_in_order(
    batches: Sequence[range], make: Maker, store: Store | None = None, team: Team = ALONE
) -> Iterator[Shard]:
    """The shard of every batch, in order, at every process of the team.

    A batch goes through the model as a whole in one process, so that no bit of it depends on who makes it.
    """
    missing = _missing(batches, store, team)
    fresh, to_make = _made(missing, make, store, team), set(missing)
    for rows in batches:
        yield next(fresh) if store is None or rows in to_make else _left(store, rows, team)


def _missing(batches: Sequence[range], store: Store | None, team: Team) -> list[range]:
    """What no earlier run has left, as the first process sees it."""
    if store is None:
        return list(batches)
    absent = [at for at, rows in enumerate(batches) if store.read(shard_key(rows)) is None] if team.leads else []
    return [batches[at] for at in json.loads(team.told(json.dumps(absent).encode()))]


def _left(store: Store, rows: range, team: Team) -> Shard:
    shard = store.read(shard_key(rows)) if team.leads else None
    if team.leads and shard is None:
        raise FileError(f"a shard in {store.directory} was whole and is no longer; the same command makes it again")
    return _exchanged(shard, team)[0]


def _made(missing: Sequence[range], make: Maker, store: Store | None, team: Team) -> Iterator[Shard]:
    """In rounds, a shard for each process: kept by who made it as soon as it is done, and by the first for all."""
    rounds = [missing[at : at + team.size] for at in range(0, len(missing), team.size)]
    mine = make([together[team.rank] for together in rounds if team.rank < len(together)])
    for together in rounds:
        made = next(mine) if team.rank < len(together) else None
        if store and made:
            store.keep(shard_key(together[team.rank]), *made)
        for rows, shard in zip(together, _exchanged(made, team), strict=True):
            if store and team.leads and store.read(shard_key(rows)) is None:
                store.keep(shard_key(rows), *shard)
            yield shard


def _exchanged(mine: Shard | None, team: Team) -> list[Shard]:
    """What every process has made, at every process."""
    if team.size == 1:
        return [mine] if mine else []
    given = team.gather(packed(*mine) if mine else b"")
    return [unpacked(content, f"the shard of process {rank}") for rank, content in enumerate(given) if content]
