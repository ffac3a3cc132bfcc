from __future__ import annotations

from pathlib import Path

import pytest
import torch
from processes import ended, noting_what_is_sent, team_of

from geosprint.models.base import Network
from geosprint.models.fingerprint import ROUNDING
from geosprint.noise import DiscreteVP
from geosprint.runs.store import Store, shard_key, shards_in_order
from geosprint.runs.team import joined_team
from geosprint.sampling import record, record_in_files

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
    store = Store.begun(tmp_path, {}, [], ROUNDING)
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
    store = Store.begun(tmp_path, {}, [], ROUNDING)
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
            store = Store.begun(tmp_path / str(team.rank), {}, [], ROUNDING)
            assert squares(shards_in_order(BATCHES, Maker(), store)) == EXPECTED

    assert [ended(child) for child in team_of(2, work)] == [0, 0]
    assert len(list((tmp_path / "0").glob("shard-*"))) == len(BATCHES)
    assert len(list((tmp_path / "1").glob("shard-*"))) == 2
    again = Maker()
    assert squares(shards_in_order(BATCHES, again, Store.found(tmp_path / "0"))) == EXPECTED
    assert again.asked == []


@pytest.mark.parametrize("size", [1, 2, 3])
def test_states_that_are_recorded_in_files_are_not_sent(tmp_path, size):
    model = Network(lambda x, t: torch.tanh(x), (50,), DiscreteVP.named())
    expected = record(model, range(7), 20, batch=2, predictions=True)

    def work():
        with joined_team() as team:
            sent = noting_what_is_sent(team)
            found = record_in_files(model, range(7), 20, 2, tmp_path)
            assert sum(sent) < 3000  # all states and predictions have 85,400 bytes
            for part in ("states", "x0", "eps"):
                assert torch.equal(getattr(found, part), getattr(expected, part))
            assert (found.nfe, found.seeds) == (expected.nfe, expected.seeds)
            assert found.origin.to_dict() == expected.origin.to_dict()
            assert found.timesteps.tolist() == expected.timesteps.tolist()
            team.gather(None)
            assert not list(tmp_path.iterdir())

    assert [ended(child) for child in team_of(size, work)] == [0] * size


def test_states_are_sent_where_processes_do_not_see_one_directory(tmp_path, monkeypatch):
    model = Network(lambda x, t: torch.tanh(x), (50,), DiscreteVP.named())
    expected = record(model, range(5), 20, batch=2, predictions=True)

    def work():
        with joined_team() as team:
            if not team.leads:
                monkeypatch.setattr(Path, "exists", lambda path: False)
            assert torch.equal(record_in_files(model, range(5), 20, 2, tmp_path).states, expected.states)

    assert [ended(child) for child in team_of(2, work)] == [0, 0]
    assert not list(tmp_path.iterdir())
