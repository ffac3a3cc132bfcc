from __future__ import annotations

import pytest
import torch
from processes import ended, team_of

from geosprint.runs.sharing import shard_key, shards_in_order
from geosprint.runs.store import Store
from geosprint.runs.team import joined_team

BATCHES = [range(0, 3), range(3, 6), range(6, 9), range(9, 12), range(12, 13)]


class Maker:
    """Squares the rows, and notes which batches it was asked for."""

    def __init__(self):
        self.asked = []

    def __call__(self, batches):
        for rows in batches:
            self.asked.append(rows)
            yield {"squares": torch.tensor([row**2 for row in rows])}, {"first": rows.start}


def squares(shards):
    return [square for tensors, _ in shards for square in tensors["squares"].tolist()]


EXPECTED = [row**2 for row in range(13)]


def test_shards_come_in_order_and_only_when_asked_for():
    make = Maker()
    shards = shards_in_order(BATCHES, make)
    assert next(shards)[1] == {"first": 0}
    assert make.asked == BATCHES[:1]
    assert squares(shards) == EXPECTED[3:]
    assert make.asked == BATCHES


def test_what_was_kept_is_not_made_again_and_what_was_lost_is(tmp_path):
    store = Store.begun(tmp_path, {}, [])
    shards = shards_in_order(BATCHES, Maker(), store)
    next(shards), next(shards), next(shards)
    (tmp_path / "shard-000003-000005.safetensors").write_bytes(b"damaged")
    again = Maker()
    assert squares(shards_in_order(BATCHES, again, store)) == EXPECTED
    assert again.asked == [BATCHES[1], BATCHES[3], BATCHES[4]]
    done = Maker()
    assert squares(shards_in_order(BATCHES, done, store)) == EXPECTED
    assert done.asked == []


@pytest.mark.parametrize("ahead", [1, 5])
@pytest.mark.parametrize("size", [2, 3, 6])
def test_a_team_makes_every_shard_once_and_each_process_gets_all(tmp_path, size, ahead):
    store = Store.begun(tmp_path, {}, [])
    store.keep(shard_key(BATCHES[1]), *next(Maker()([BATCHES[1]])))

    def work():
        make = Maker()
        with joined_team() as team:
            assert squares(shards_in_order(BATCHES, make, store, ahead)) == EXPECTED
            missing = [BATCHES[0], *BATCHES[2:]]
            assert make.asked == missing[team.rank :: size]

    assert [ended(child) for child in team_of(size, work)] == [0] * size
    assert len(list(tmp_path.glob("shard-*"))) == len(BATCHES)


def test_processes_on_machines_that_share_no_disk_leave_all_shards_at_the_first(tmp_path):
    def work():
        with joined_team() as team:
            store = Store.begun(tmp_path / str(team.rank), {}, [])
            assert squares(shards_in_order(BATCHES, Maker(), store)) == EXPECTED

    assert [ended(child) for child in team_of(2, work)] == [0, 0]
    assert len(list((tmp_path / "0").glob("shard-*"))) == len(BATCHES)
    assert len(list((tmp_path / "1").glob("shard-*"))) == 2
    again = Maker()
    assert squares(shards_in_order(BATCHES, again, Store.found(tmp_path / "0"))) == EXPECTED
    assert again.asked == []
