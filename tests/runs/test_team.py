from __future__ import annotations

import os
import signal
import time
from functools import partial

import pytest
import torch
from processes import ended, slurm_team_of, team_of

from geosprint.errors import TeamError
from geosprint.runs.team import ALONE, joined_team, this_team

RANK = "RANK"


def test_a_process_by_itself_leads_and_hears_itself(monkeypatch):
    for name in ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    with joined_team() as team:
        assert team is ALONE is this_team()
    assert ALONE.leads
    assert ALONE.gather("mine") == ["mine"]
    assert ALONE.told(lambda: "said") == "said"
    assert ALONE.each([partial(pow, 2, n) for n in range(5)]) == [1, 2, 4, 8, 16]


@pytest.mark.parametrize("size", [2, 3])
def test_every_process_gets_what_all_gave_in_order_of_rank(size):
    def exchange():
        with joined_team() as team:
            assert this_team() is team
            assert (team.rank, team.size) == (int(os.environ[RANK]), size)
            assert team.leads == (team.rank == 0)
            large = bytes([team.rank]) * (3_000_000 + team.rank)  # more than one packet, of different lengths
            for _ in range(2):  # between short ones
                assert team.gather(large) == [bytes([rank]) * (3_000_000 + rank) for rank in range(size)]
                assert team.gather("x" * team.rank) == ["x" * rank for rank in range(size)]
            assert team.told(lambda: f"from {team.rank}") == "from 0"
            mine = torch.arange(4.0) + 10 * team.rank
            assert team.gathered(mine).tolist() == [[10 * rank + i for i in range(4)] for rank in range(size)]
        assert this_team() is ALONE

    assert [ended(child) for child in team_of(size, exchange)] == [0] * size


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_tensors_of_any_device_are_exchanged(device):
    def work():
        with joined_team() as team:
            found = team.gather(torch.full((2, 3), float(team.rank), device=device))
            assert [(tuple(one.shape), one.device.type) for one in found] == [((2, 3), device)] * 2
            assert device != "cpu" or [float(one.sum()) for one in found] == [0.0, 6.0]

    assert [ended(child) for child in team_of(2, work)] == [0, 0]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7])
def test_every_job_is_done_once_by_a_process_that_is_alone_meanwhile(count):
    def work():
        done = []

        def job(number):
            assert this_team().size == 1
            assert this_team().each([lambda: number, lambda: -number]) == [number, -number]
            assert this_team().leads == (os.environ[RANK] == "0")
            done.append(number)
            return number**2

        with joined_team() as team:
            assert team.each([partial(job, number) for number in range(count)]) == [n**2 for n in range(count)]
            assert done == list(range(count))[team.rank :: team.size]

    assert [ended(child) for child in team_of(3, work)] == [0, 0, 0]


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_who_loses_a_process_says_which_and_does_not_wait(lost, how, tmp_path, monkeypatch):
    monkeypatch.setenv("GEOSPRINT_TIMEOUT", "3")

    def lose_one():
        with joined_team() as team:
            team.gather(1)  # all are here
            if team.rank == lost:
                os.kill(os.getpid(), how)
            team.gather(1)

    def work():
        with pytest.raises(TeamError, match=rf"process {lost} of 0\.\.2 ended or does not answer"):
            lose_one()
        (tmp_path / f"noticed by {os.environ[RANK]}").touch()

    begun = time.monotonic()
    children = team_of(3, work)
    others = [child for rank, child in enumerate(children) if rank != lost]
    assert [ended(child) for child in others] == [0, 0]
    assert time.monotonic() - begun < 40  # far from the month that an answer may take
    assert len(list(tmp_path.glob("noticed*"))) == 2
    if how == signal.SIGSTOP:
        os.kill(children[lost], signal.SIGKILL)
    assert ended(children[lost]) == -signal.SIGKILL


@pytest.mark.parametrize(
    "handler",
    [signal.default_int_handler, signal.SIG_IGN, lambda *_: None],  # shells ignore for the background
)
def test_a_process_that_only_computes_hears_that_another_is_frozen(handler, tmp_path, monkeypatch):
    monkeypatch.setenv("GEOSPRINT_TIMEOUT", "2")

    def compute():
        with joined_team() as team:
            if team.rank == 1:
                os.kill(os.getpid(), signal.SIGSTOP)
            while True:  # a network call that asks nobody
                time.sleep(0.01)

    def work():
        signal.signal(signal.SIGINT, handler)
        with pytest.raises(TeamError, match=r"process 1 of 0\.\.1 ended"):
            compute()
        assert signal.getsignal(signal.SIGINT) == handler

    first, second = team_of(2, work)
    assert ended(first) == 0
    os.kill(second, signal.SIGKILL)
    ended(second)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("lost", [0, 1])
def test_who_is_lost_while_processes_connect_is_missed_too(lost, how, monkeypatch):
    monkeypatch.setenv("GEOSPRINT_TIMEOUT", "3")
    connect = torch.distributed.init_process_group

    def work():
        def connect_or_not(*given, **named):
            if os.environ[RANK] == str(lost):
                os.kill(os.getpid(), how)
            connect(*given, **named)

        monkeypatch.setattr("torch.distributed.init_process_group", connect_or_not)
        with pytest.raises(TeamError, match=rf"process {lost} of 0\.\.2 ended or does not answer"), joined_team():
            pass

    begun = time.monotonic()
    children = team_of(3, work)
    is_keeper_frozen = (lost, how) == (0, signal.SIGSTOP)  # of the store, which no exception leaves then
    assert [ended(child) for rank, child in enumerate(children) if rank != lost] == [int(is_keeper_frozen)] * 2
    assert time.monotonic() - begun < 40
    if how == signal.SIGSTOP:
        os.kill(children[lost], signal.SIGKILL)
    assert ended(children[lost]) == -signal.SIGKILL


def test_an_answer_may_take_longer_than_connecting(monkeypatch):
    monkeypatch.setenv("GEOSPRINT_TIMEOUT", "2")

    def work():
        with joined_team() as team:
            time.sleep(5 * team.rank)
            assert team.gather(team.rank) == [0, 1]

    assert [ended(child) for child in team_of(2, work)] == [0, 0]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_heard_while_others_are_waited_for(how, tmp_path):
    def work():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with joined_team() as team:
            team.gather(None)
            (tmp_path / str(team.rank)).touch()
            if team.rank == 0:
                with pytest.raises(KeyboardInterrupt):
                    team.gather(None)
                raise KeyboardInterrupt
            time.sleep(60)

    children = team_of(2, work)
    while len(list(tmp_path.iterdir())) < 2:
        time.sleep(0.01)
    time.sleep(0.2)
    begun = time.monotonic()
    for child in children:
        os.kill(child, how)
    assert [ended(child) for child in children] == [1, 1]
    assert time.monotonic() - begun < 20


def test_the_tasks_of_srun_are_a_team():
    def work():
        with joined_team() as team:
            assert team.gather(team.rank) == [0, 1]
            assert team.rank == int(os.environ["SLURM_PROCID"])

    assert [ended(child) for child in slurm_team_of(2, work)] == [0, 0]


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("gpu[03-05,9]", "gpu03"), ("gpu7", "gpu7"), ("a1,b[2-3]", "a1"), ("n[1,4],m2", "n1")],
)
def test_the_first_node_of_slurm_is_where_the_tasks_meet(nodes, first, monkeypatch):
    met = {}

    def rendezvous(url, rank, size, timeout):
        met.update(os.environ)
        raise ValueError("nobody is there")

    monkeypatch.setattr("torch.distributed.rendezvous", rendezvous)
    for name in ("MASTER_ADDR", "MASTER_PORT", "RANK"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    said = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "1", "SLURM_STEP_NODELIST": nodes, "SLURM_JOB_ID": "77"}
    with (
        pytest.raises(TeamError, match="the 4 processes did not find one another"),
        joined_team({**os.environ, **said}),
    ):
        pass
    assert met["MASTER_ADDR"] == first
    assert 20_000 <= int(met["MASTER_PORT"]) < 30_000


def test_an_environment_that_makes_no_sense_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(TeamError, match="WORLD_SIZE must be a whole number, got 'two'"), joined_team():
        pass
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(TeamError, match=r"did not find one another.*MASTER_ADDR"), joined_team():
        pass
    odd = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "r[1-2]n[3-4]"}
    with pytest.raises(TeamError, match="does not say which node of"), joined_team(odd):
        pass
