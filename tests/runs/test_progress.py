from __future__ import annotations

import io
import re
import sys
import time

import pytest
from processes import ended, forked
from tqdm import tqdm

from geosprint.runs.progress import Progress, peak_memory


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def told(monkeypatch, capsys):
    """What has been written so far, where there is no terminal."""
    monkeypatch.setattr("geosprint.runs.progress.peak_memory", lambda: 250_000_000)
    written = []

    def so_far():
        written.append(capsys.readouterr().err)
        return "".join(written)

    return so_far


@pytest.fixture
def now(monkeypatch):
    """The clock, as a list of one number to set."""
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    return clock


@pytest.fixture
def short_minutes(monkeypatch):
    monkeypatch.setattr("geosprint.runs.progress.EVERY", 0.01)


def comes(line, told):
    """Whether this line is written within a few seconds."""
    for _ in range(500):
        if line in told().splitlines():
            return True
        time.sleep(0.01)
    return False


def test_away_from_a_terminal_every_shard_is_a_line_with_time_left_speed_and_memory(told, now):
    with Progress("record", 200, "step", samples=40, shown=True) as bar:
        bar.update(20, nfe=100)
        bar.update(30, nfe=100)
        now[0] = 140.0
        bar.finish(10)  # a quarter of the samples, after 40 seconds
    assert told() == "record: 10 of 40 samples, 0:02:00 left, 5 calls/s, 0.25 GB\n"


def test_on_a_terminal_there_is_a_bar_and_no_line(monkeypatch):
    told = Terminal()
    monkeypatch.setattr(sys, "stderr", told)
    with Progress("record", 200, "step", samples=40, shown=True) as bar:
        bar.update(50, nfe=100)
        bar.finish(10)
    assert "of 40" not in told.getvalue()


def test_a_line_comes_while_the_first_network_call_still_lasts(told, now, short_minutes):
    with Progress("tune", 4000, "call", shown=True) as bar:
        assert comes("tune: 0 of 4,000 calls", told)
        bar.say("teacher")
        assert comes("tune: 0 of 4,000 calls, teacher", told)


def test_a_line_tells_the_time_left_the_speed_and_what_is_done(told, now, short_minutes):
    with Progress("tune", 4000, "call", shown=True) as bar:
        now[0] = 160.0
        bar.update(600)  # ten a second
        bar.say("5 steps")
        assert comes("tune: 600 of 4,000 calls, 0:05:40 left, 10 calls/s, 0.25 GB, 5 steps", told)
        now[0] = 220.0
        bar.update(600)
        assert comes("tune: 1,200 of 4,000 calls, 0:04:40 left, 10 calls/s, 0.25 GB, 5 steps", told)
    written = told()
    time.sleep(0.1)
    assert told() == written  # at the end it is silent
    assert bar.done == 1200


@pytest.mark.parametrize(("seconds", "speed"), [(0.5, "2,370"), (100, "12"), (3600, "0.33")])
def test_a_speed_is_a_plain_number(told, now, seconds, speed):
    with Progress("record", 10, "step", samples=1, shown=True) as bar:
        now[0] += seconds
        bar.update(10, nfe=1185)
        bar.finish(1)
    assert f", {speed} calls/s, " in told()


def test_on_a_terminal_it_is_a_bar_with_the_time_left(monkeypatch, short_minutes):
    told = Terminal()
    monkeypatch.setattr(sys, "stderr", told)
    monkeypatch.setattr("geosprint.runs.progress.tqdm", lambda **asked: tqdm(**{**asked, "delay": 0}))
    with Progress("tune", 4000, "call", shown=True) as bar:
        bar.say("5 steps")
        bar.update(2000)
        time.sleep(0.05)
    assert " of 4,000" not in told.getvalue()
    assert re.search(r"tune:  50%\|.*2,000/4,000 \[\d\d:\d\d<\d\d:\d\d, [\d,]+ calls/s, .*5 steps\]", told.getvalue())


def test_more_than_all_leaves_no_time(told, now, short_minutes):
    with Progress("fit, at most", 10, "call", shown=True) as bar:
        now[0] = 200.0
        bar.update(20)
        assert comes("fit, at most: 20 of 10 calls, 0:00:00 left, 0.2 calls/s, 0.25 GB", told)


def test_nothing_is_said_unasked(told, short_minutes):
    with (
        Progress("record", 200, "step", samples=40, shown=False) as bar,
        Progress("tune", 40, "call", shown=False) as calls,
    ):
        calls.update(10)
        bar.update(50, nfe=100)
        bar.finish(10)
        time.sleep(0.05)
    assert told() == ""


def test_the_peak_of_memory_grows_with_what_is_held():
    def hold():
        before = peak_memory()
        block = bytearray(300_000_000)
        block[::4096] = b"x" * len(block[::4096])
        assert 200_000_000 < peak_memory() - before < 400_000_000

    assert ended(forked(hold)) == 0
