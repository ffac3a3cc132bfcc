"""Several runs on one directory: every cell is measured by one of them, and all end with the same results."""

from __future__ import annotations

import time

import pytest

from geosprint.comparison import run
from geosprint.comparison.cells import Memory
from geosprint.comparison.plan import Plan
from geosprint.comparison.run import compare
from geosprint.models.exact import ring
from runs.processes import ended, forked

PLAN = Plan(
    steps=(3, 4), solvers=("ddim", "dpmpp-2m"), methods=("uniform-leading", "quadratic"), samples=10, fine_steps=10
)


def test_every_cell_is_measured_once_and_all_runs_have_all_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "LOOK_AGAIN", 0.01)
    measured, judged = run._Workshop._measured, tmp_path / "log"

    def slowly(self, task, method, built):
        with open(judged, "a") as log:
            log.write(f"{task.solver} {method.name} {len(built.schedule.timesteps)}\n")
        time.sleep(0.1)
        return measured(self, task, method, built)

    monkeypatch.setattr(run._Workshop, "_measured", slowly)

    def work():
        found = compare(ring(), tmp_path / "out", PLAN)
        assert len(found.cells) == 8

    children = [forked(work) for _ in range(3)]
    assert [ended(child) for child in children] == [0, 0, 0]
    lines = judged.read_text().splitlines()
    assert len(lines) == len(set(lines)) == 8
    alone = compare(ring(), tmp_path / "alone", PLAN)
    together = compare(ring(), tmp_path / "out", PLAN)
    assert [cell.errors.tolist() for cell in together.cells] == [cell.errors.tolist() for cell in alone.cells]
    assert not list((tmp_path / "out").rglob("*.claim"))


def test_what_a_dead_run_was_at_is_free_again(tmp_path):
    key = {"method": "quadratic"}
    (tmp_path / "cells").mkdir()

    def die():
        with Memory(tmp_path / "cells").claimed(key) as ours:
            assert ours
            raise SystemExit(7)

    with Memory(tmp_path / "cells").claimed(key) as ours, Memory(tmp_path / "cells").claimed(key) as again:
        assert (ours, again) == (True, False)
    assert ended(forked(die)) == 7
    with Memory(tmp_path / "cells").claimed(key) as ours:
        assert ours


def test_an_error_lets_go(tmp_path):
    key = {"method": "quadratic"}
    with pytest.raises(ZeroDivisionError), Memory(tmp_path).claimed(key):
        raise ZeroDivisionError
    with Memory(tmp_path).claimed(key) as ours:
        assert ours
