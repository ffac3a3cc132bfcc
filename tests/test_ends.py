"""How verbs end when something is in their way: an output that cannot be written, a model that fails, a signal."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import geosprint
from geosprint import extract, record
from geosprint.cli import main
from geosprint.models.exact import ring
from geosprint.paper import registry
from geosprint.runs.signals import STOPPED

FAILING = """
import itertools
import torch
from geosprint import Network
from geosprint.models.exact import ring
from geosprint.paper import registry

def fails():
    def answer(x, t):
        if len(x) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return ring()(x, t)
    return Network(answer, ring().shape, ring().noise, "x0", name="big")

def takes_two():
    def answer(x, t):
        if len(x) > 2:
            raise ValueError("two at most")
        return ring()(x, t)
    return Network(answer, ring().shape, ring().noise, "x0", name="small")

def changes():
    asked = itertools.count(1)
    return Network(lambda x, t: ring()(x, t) * next(asked), ring().shape, ring().noise, "x0", name="changing")
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """The exit code of a command, and what it said on stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])

    def run(*words):
        monkeypatch.setattr("sys.argv", ["geosprint", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capsys.readouterr().err.strip()

    return run


WRITING = {
    "tune": ("tune", "mixture", "-o", "OUT.json"),
    "fit": ("fit", "mixture", "--steps", "4", "-o", "OUT.json"),
    "extract": ("extract", "mixture", "-o", "OUT.json"),
    "extract and save": ("extract", "mixture", "--save-trajectories", "OUT.safetensors"),
    "sample": ("sample", "mixture", "--steps", "4", "-o", "OUT.png"),
    "merge": ("merge", "work", "-o", "OUT.json"),
    "schedule": ("schedule", "profile.json", "--steps", "4", "-o", "OUT.json"),
    "budget": ("budget", "profile.json", "--target-score", "1", "-o", "OUT.json"),
    "budget and plot": ("budget", "profile.json", "--target-score", "1", "--plot", "OUT.png"),
    "inspect": ("inspect", "profile.json", "-o", "OUT.png"),
    "report": ("report", ".", "-o", "OUT.html"),
    "export": ("export", "schedule.json", "--to", "json", "-o", "OUT.json"),
    "claims": ("claims", "results", "-o", "OUT.md"),
}
INTO = {
    "compare": ("compare", "mixture", "-o", "OUT"),
    "demo": ("demo", "mixture", "-o", "OUT"),
    "reproduce": ("reproduce", "budget", "--quick", "-o", "OUT"),
    "work of tune": ("tune", "mixture", "--work", "OUT"),
    "work of extract": ("extract", "mixture", "--work", "OUT"),
    "pictures": ("sample", "fashion", "--steps", "4", "-o", "OUT"),
}


@pytest.fixture
def never_asked(monkeypatch):
    def asked(*_):
        raise AssertionError("a model was asked before the output was tried")

    monkeypatch.setattr("geosprint.models.exact.Mixture.__call__", asked)
    monkeypatch.setattr("geosprint.models.networks.PretrainedModel.__call__", asked)


@pytest.mark.parametrize("verb", [*WRITING, *INTO])
def test_an_output_below_a_file_is_refused_before_anything_runs(verb, run, never_asked):
    Path("file").write_text("")
    words = [word.replace("OUT", "file/out") for word in (WRITING | INTO)[verb]]
    code, said = run(*words)
    assert code == 2
    assert said.splitlines()[-1].startswith("geosprint: cannot write file/out")
    assert "Traceback" not in said


@pytest.mark.parametrize("verb", WRITING)
def test_a_directory_is_no_output_file(verb, run, never_asked):
    words = [word.replace("OUT", "there") for word in WRITING[verb]]
    Path(next(word for word in words if word.startswith("there"))).mkdir()
    code, said = run(*words)
    assert code == 2
    assert "is a directory; choose another path with -o" in said


@pytest.mark.parametrize("verb", INTO)
def test_a_file_is_no_output_directory(verb, run, never_asked):
    Path("there").write_text("")
    code, said = run(*(word.replace("OUT", "there") for word in INTO[verb]))
    assert (code, said) == (2, "geosprint: there is a file; choose another path with -o")


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_directory_is_refused(run, never_asked, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    assert run("tune", "mixture", "-o", "locked/out.json")[0] == 2


@pytest.mark.parametrize("words", [("extract", "mixture"), ("merge", "work"), ("claims", "results")])
def test_a_dot_and_a_name_without_end_are_refused(words, run, never_asked):
    assert run(*words, "-o", ".")[1].endswith("geosprint: . is a directory; choose another path with -o")
    code, said = run(*words, "-o", "x" * 300 + ".json")
    assert code == 2
    assert "name too long" in said


def test_a_dot_is_refused_in_python_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(geosprint.GeoSprintError, match=r"cannot write \."):
        record(ring(), [0], 4).save(Path("."))


def test_trying_an_output_leaves_nothing_behind(run, tmp_path):
    assert run("schedule", "missing.json", "--steps", "4", "-o", "new/deep/out.json")[0] == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:cpu has no memory")  # its batch is halved before it fails
@pytest.mark.parametrize("verb", ["tune", "fit", "extract", "sample", "compare"])
def test_a_model_that_fails_is_one_sentence_with_its_words_and_what_was_kept(verb, run, tmp_path):
    (tmp_path / "failing.py").write_text(FAILING)
    more = {"fit": ["--steps", "4"], "sample": ["--steps", "4"]}.get(verb, [])
    code, said = run(verb, "failing:fails", *more)
    assert code == 2
    assert "Traceback" not in said
    last = said.splitlines()[-1]
    assert "model 'big' failed on a batch of " in last
    assert "--batch" in last
    assert "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.; " in last
    kept = {"compare": "what was measured is in out/compare, and the same command goes on"}
    assert last.endswith(kept.get(verb, "nothing was kept; the same command starts again")) or (
        last.endswith("nothing was kept; with --work DIR, a stopped run can go on")
    )


SMALL = {
    "tune": "--steps 3 --solver ddim --budget-nfe 5000",
    "fit": "--steps 3 --budget-nfe 1000",
    "extract": "--trajectories 3 --reference-steps 10",
    "sample": "--steps 3 -n 3",
    "compare": "--methods fitted --steps 3 -n 10 --trajectories 4 --reference-steps 12 --fine-steps 4 --ruler 3",
}


@pytest.mark.parametrize("verb", SMALL)
def test_a_model_that_takes_two_is_asked_for_two_with_batch_2(verb, run, tmp_path):
    (tmp_path / "failing.py").write_text(FAILING)
    code, said = run(verb, "failing:takes_two", *SMALL[verb].split(), "--batch", "3")
    assert code == 2
    assert "ValueError: two at most" in said
    assert run(verb, "failing:takes_two", *SMALL[verb].split(), "--batch", "2")[0] == 0


@pytest.mark.parametrize("verb", SMALL)
def test_every_verb_names_a_model_that_answers_in_two_ways(verb, run, tmp_path):
    (tmp_path / "failing.py").write_text(FAILING)
    code, said = run(verb, "failing:changes", *SMALL[verb].split())
    assert code == 2
    assert "model 'changing' answers the same sample" in said


def test_with_work_it_says_that_the_same_command_goes_on(run, tmp_path):
    (tmp_path / "failing.py").write_text(FAILING)
    assert run("tune", "failing:fails", "--work", "kept")[1].endswith(
        "the network's outputs are in kept, and the same command goes on"
    )


def test_the_traceback_comes_with_debug_wherever_it_stands(run, tmp_path):
    (tmp_path / "failing.py").write_text(FAILING)
    for words in (["--debug", "sample"], ["sample", "--debug"]):
        code, said = run(*words, "failing:fails", "--steps", "4")
        assert code == 2
        assert said.startswith("Traceback")
        assert "in answer" in said  # the line of the user's own code
        assert said.splitlines()[-1].startswith("geosprint: model 'big' failed")


def test_what_nobody_foresaw_is_one_sentence_too(run, monkeypatch):
    monkeypatch.setattr("geosprint.doctor.examine", lambda: 1 / 0)
    assert run("doctor") == (1, "geosprint: unexpected ZeroDivisionError: division by zero; --debug shows where")
    assert "Traceback" in run("doctor", "--debug")[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_starts_is_one_line(number, tmp_path):
    command = [sys.executable, "-m", "geosprint", "tune", "mixture", "-o", str(tmp_path / "out.json")]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    mask, begun = 1 << (signal.SIGTERM - 1), time.monotonic()
    while not _caught(child.pid) & mask:  # Python itself takes a moment until it reads a line of ours
        assert time.monotonic() < begun + 30
    child.send_signal(number)
    said = child.communicate(timeout=60)[1]
    assert (child.returncode, said) == (STOPPED, "geosprint: stopped; the same command starts again\n")


def _caught(pid):
    """Which signals a process handles, as the kernel tells."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("SigCgt")).split()[1], 16)


def test_a_stopped_reproduce_keeps_what_is_finished_and_starts_again_from_the_first(run, monkeypatch):
    known, measured = registry.recall(Path(__file__).parents[1] / "docs/results/reproduce/digits/blend"), []

    def measure(setting):
        measured.append(setting)
        return known.rows, known.numbers

    def stopped(setting):
        raise KeyboardInterrupt

    finishes, ends = replace(registry.BLEND, measure=measure), replace(registry.BUDGET, measure=stopped)
    monkeypatch.setattr(registry, "EXPERIMENTS", {"blend": finishes, "budget": ends})
    for times in (1, 2):
        code, said = run("reproduce", "--quick", "--model", "digits", "-o", "out")
        assert code == STOPPED
        assert said.splitlines()[-1] == (
            "geosprint: stopped; finished experiments are in out; "
            "the same command starts again from the first, reproduce NAME runs one"
        )
        assert [path.name for path in Path("out").iterdir()] == ["blend"]
        assert registry.recall(Path("out/blend")).rows == known.rows
        assert len(measured) == times


# What is kept


def test_lost_states_are_noticed_and_made_again(tmp_path):
    def run():
        return extract(ring(), 4, 10, batch=2, work=tmp_path, keep_states=True)

    first = run()
    states = sorted(tmp_path.glob("states-*"))
    expected = [path.read_bytes() for path in states]
    states[1].unlink()
    again = run()
    assert [path.read_bytes() for path in sorted(tmp_path.glob("states-*"))] == expected
    assert (again.kept == first.kept).all()


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_files_are_readable_as_the_umask_says(umask, tmp_path):
    before = os.umask(umask)
    try:
        walks = record(ring(), [0], 4)
        extract(ring(), 2, 10, work=tmp_path / "work", keep_states=True).save(tmp_path / "profile.json")
        walks.save(tmp_path / "walks.safetensors")
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 5
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o666 & ~umask}
