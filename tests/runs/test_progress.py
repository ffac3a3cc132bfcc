from __future__ import annotations

import io
import re
import sys

from processes import ended, forked
from tqdm import tqdm

from geosprint.runs.progress import Progress, peak_memory


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_away_from_a_terminal_every_shard_is_a_line_with_time_left_speed_and_memory(monkeypatch):
    told = io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with Progress("record", 200, "step", samples=40, shown=True) as bar:
        bar.update(20, nfe=100)
        bar.update(30, nfe=100)
        now[0] = 140.0
        bar.finish(10)  # a quarter of the samples, after 40 seconds
    (line,) = told.getvalue().splitlines()
    assert re.fullmatch(r"record: 10 of 40, 0:02:00 left, 5 NFE/s, \d+\.\d\d GB", line), line


def test_on_a_terminal_there_is_a_bar_and_no_line(monkeypatch):
    told = Terminal()
    monkeypatch.setattr(sys, "stderr", told)
    with Progress("record", 200, "step", samples=40, shown=True) as bar:
        bar.update(50, nfe=100)
        bar.finish(10)
    assert "of 40" not in told.getvalue()


def test_away_from_a_terminal_a_bar_is_a_line_a_minute_with_the_time_left(monkeypatch):
    told = io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with Progress("tune", 4000, "call", shown=True) as bar:
        for now[0] in range(110, 400, 10):  # 10 calls a second: a line after 60, 120, 180 and 240 seconds
            bar.say("5 steps" if now[0] < 200 else "8 steps")
            bar.update(100)
    assert told.getvalue().splitlines() == [
        "tune: 600 of 4,000 calls, 0:05:40 left, 5 steps",
        "tune: 1,200 of 4,000 calls, 0:04:40 left, 8 steps",
        "tune: 1,800 of 4,000 calls, 0:03:40 left, 8 steps",
        "tune: 2,400 of 4,000 calls, 0:02:40 left, 8 steps",
    ]
    assert bar.done == 2900


def test_on_a_terminal_it_is_a_bar(monkeypatch):
    told = Terminal()
    monkeypatch.setattr(sys, "stderr", told)
    monkeypatch.setattr("geosprint.runs.progress.tqdm", lambda **asked: tqdm(**{**asked, "delay": 0}))
    monkeypatch.setattr("geosprint.runs.progress.EVERY", 0)
    with Progress("tune", 4000, "call", shown=True) as bar:
        bar.say("5 steps")
        bar.update(2000)
    assert " of 4,000" not in told.getvalue()
    assert re.search(r"tune:  50%\|.*2000/4000 .*, 5 steps", told.getvalue())


def test_more_than_all_leaves_no_time(monkeypatch):
    told = io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with Progress("fit, at most", 10, "call", shown=True) as bar:
        now[0] = 200.0
        bar.update(20)
    assert told.getvalue() == "fit, at most: 20 of 10 calls, 0:00:00 left\n"


def test_nothing_is_said_unasked(monkeypatch):
    told = io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with (
        Progress("record", 200, "step", samples=40, shown=False) as bar,
        Progress("tune", 40, "call", shown=False) as calls,
    ):
        now[0] = 200.0
        calls.update(10)
        bar.update(50, nfe=100)
        bar.finish(10)
    assert told.getvalue() == ""


def test_the_peak_of_memory_grows_with_what_is_held():
    def hold():
        before = peak_memory()
        block = bytearray(300_000_000)
        block[::4096] = b"x" * len(block[::4096])
        assert 200_000_000 < peak_memory() - before < 400_000_000

    assert ended(forked(hold)) == 0
