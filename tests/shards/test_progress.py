from __future__ import annotations

import io
import re
import sys

from processes import ended, forked

from geosprint.shards.progress import Progress, peak_memory


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_away_from_a_terminal_every_shard_is_a_line_with_time_left_speed_and_memory(monkeypatch):
    told = io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with Progress("record", 40, 5, shown=True) as bar:
        bar.advance(50, nfe=100)
        bar.advance(50, nfe=100)
        now[0] = 140.0
        bar.finish(10)  # a quarter of the samples, after 40 seconds
    (line,) = told.getvalue().splitlines()
    assert re.fullmatch(r"record: 10 of 40, 0:02:00 left, 5 NFE/s, \d+\.\d\d GB", line), line


def test_on_a_terminal_there_is_a_bar_and_no_line(monkeypatch):
    told = Terminal()
    monkeypatch.setattr(sys, "stderr", told)
    with Progress("record", 40, 5, shown=True) as bar:
        bar.advance(50, nfe=100)
        bar.finish(10)
    assert "of 40" not in told.getvalue()


def test_nothing_is_said_unasked(monkeypatch):
    told = io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    with Progress("record", 40, 5, shown=False) as bar:
        bar.advance(50, nfe=100)
        bar.finish(10)
    assert told.getvalue() == ""


def test_the_peak_of_memory_grows_with_what_is_held():
    def hold():
        before = peak_memory()
        block = bytearray(300_000_000)
        block[::4096] = b"x" * len(block[::4096])
        assert 200_000_000 < peak_memory() - before < 400_000_000

    assert ended(forked(hold)) == 0
