"""Work on a long list, batch by batch: parts that were kept are read, the others made, each by one process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from geosprint.errors import FileError, ScheduleError
from geosprint.runs.store import Store, packed, unpacked
from geosprint.runs.team import ALONE, Team

BATCH = 32
"""Samples that go through the model together."""


@dataclass(frozen=True, eq=False)
class Shard:
    """What was made of some rows of a long list: tensors, and what there is to know of them."""

    rows: range
    tensors: dict[str, Tensor]
    about: dict[str, Any]

    @property
    def described(self) -> dict[str, Any]:
        """What a file says beside the tensors."""
        return {**self.about, "rows": [self.rows.start, self.rows.stop]}

    @classmethod
    def of(cls, tensors: dict[str, Tensor], described: dict[str, Any]) -> Shard:
        """The inverse of `described`."""
        about = dict(described)
        return cls(range(*about.pop("rows")), tensors, about)


def shard_key(rows: range) -> str:
    """The key of the shard of these rows in a store."""
    return f"shard-{rows.start:06d}-{rows.stop - 1:06d}"


def keep_shard(store: Store, shard: Shard) -> None:
    """Write a finished shard."""
    store.keep(shard_key(shard.rows), shard.tensors, shard.described)


def read_shard(store: Store, rows: range) -> Shard | None:
    """The shard of these rows, if an earlier run has left it."""
    found = store.read(shard_key(rows))
    return Shard.of(*found) if found and found[1].get("rows") == [rows.start, rows.stop] else None


Maker = Callable[[Sequence[range]], Iterator[Shard]]
"""Makes the shards of these batches, one after another, each when it is asked for."""


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
    absent = [at for at, rows in enumerate(batches) if read_shard(store, rows) is None] if team.leads else []
    return [batches[at] for at in json.loads(team.told(json.dumps(absent).encode()))]


def _left(store: Store, rows: range, team: Team) -> Shard:
    shard = read_shard(store, rows) if team.leads else None
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
            keep_shard(store, made)
        for shard in _exchanged(made, team):
            if store and team.leads and read_shard(store, shard.rows) is None:
                keep_shard(store, shard)
            yield shard


def _exchanged(mine: Shard | None, team: Team) -> list[Shard]:
    """What every process has made, at every process."""
    if team.size == 1:
        return [mine] if mine else []
    given = team.gather(packed(mine.tensors, mine.described) if mine else b"")
    sources = (f"the shard of process {rank}" for rank in range(team.size))
    return [Shard.of(*unpacked(content, source)) for content, source in zip(given, sources, strict=True) if content]
