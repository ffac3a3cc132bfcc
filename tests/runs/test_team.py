from __future__ import annotations

import os
import signal
import time

import pytest
from processes import ended, team_of

from geosprint.errors import TeamError
from geosprint.runs.team import ALONE, Team, joined_team

RANK = "RANK"


def test_a_process_by_itself_leads_and_hears_itself(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with joined_team() as team:
        assert team is ALONE
    assert ALONE.leads
    assert ALONE.gather(b"mine") == [b"mine"]
    assert ALONE.told(b"said") == b"said"
    assert ALONE.total(7) == 7


@pytest.mark.parametrize("size", [2, 3])
def test_every_process_gets_what_all_gave_in_order_of_rank(size):
    def exchange():
        with joined_team() as team:
            assert (team.rank, team.size) == (int(os.environ[RANK]), size)
            large = bytes([team.rank]) * (3_000_000 + team.rank)  # more than one packet, of different lengths
            assert team.gather(large) == [bytes([rank]) * (3_000_000 + rank) for rank in range(size)]
            assert team.gather(b"only the first" if team.leads else b"") == [b"only the first", *[b""] * (size - 1)]
            assert team.told(f"from {team.rank}".encode()) == b"from 0"
            assert team.total(10**team.rank) == sum(10**rank for rank in range(size))

    assert [ended(child) for child in team_of(size, exchange)] == [0] * size


@pytest.mark.parametrize("lost", [0, 1])
def test_who_loses_a_process_says_which_and_does_not_wait(lost, tmp_path):
    def work():
        with joined_team() as team:
            team.total(1)  # all are here
            if team.rank == lost:
                os.kill(os.getpid(), signal.SIGKILL)
            with pytest.raises(TeamError, match=rf"process {lost} of 0\.\.1 ended or does not answer"):
                team.total(1)
            (tmp_path / "noticed").touch()

    begun = time.monotonic()
    codes = [ended(child) for child in team_of(2, work)]
    assert codes[lost] == -signal.SIGKILL
    assert codes[1 - lost] == 0
    assert (tmp_path / "noticed").exists()
    assert time.monotonic() - begun < 30  # far from the day that an answer may take


def test_an_environment_that_makes_no_sense_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(TeamError, match="WORLD_SIZE must be a whole number, got 'two'"), joined_team():
        pass
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(TeamError, match=r"did not find one another.*MASTER_ADDR"), joined_team():
        pass


def test_only_the_first_process_leads():
    assert Team(0, 2).leads
    assert not Team(1, 2).leads
