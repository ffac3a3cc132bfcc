"""Tuning and fitting that are stopped or killed go on where they were and end with the same file."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from dataclasses import replace
from functools import partial

import pytest
from asked import Asked, gaussian
from processes import ended, forked
from typer.testing import CliRunner

import geosprint
from geosprint.baselines import baseline_schedule
from geosprint.cli import app, main
from geosprint.errors import FileError
from geosprint.extraction import merge
from geosprint.runs.store import PROBE_STEPS as PROBE
from geosprint.runs.store import Store
from geosprint.tuning.today import todays_run
from geosprint.tuning.wish import Wish

LEAST = 2 * Wish((2,), todays_run(gaussian(), None), "ddim").least_budget(gaussian())  # twice: with a search
RUN = {"steps": 2, "solver": "ddim", "budget_nfe": LEAST}
ENOUGH = {"steps": 2, "solver": "ddim", "budget_nfe": 9000}  # for the other settings, too
TUNE = ["tune", "asked:gaussian", "--steps", "2", "--solver", "ddim", "--budget-nfe", str(LEAST)]
# Without its two timed calls, so that all calls of the model are counted.
tune, fit = (partial(verb, progress=False) for verb in (geosprint.tune, geosprint.fit))


def bytes_of(made, path):
    return made.save(path).read_bytes()


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """The file of a run that nobody stopped and that kept nothing; and how many samples the model was asked about."""
    model = Asked()
    found = tune(model, **RUN)
    file = bytes_of(found, tmp_path_factory.mktemp("tuned") / "whole.json")
    return file, model.samples, found.to_dict()


@pytest.fixture(scope="module")
def left(tmp_path_factory, tuned):
    """A work directory with all that the run asked for."""
    work = tmp_path_factory.mktemp("left") / "work"
    model = Asked()
    found = tune(model, **RUN, work=work)
    assert bytes_of(found, work.with_name("schedule.json")) == tuned[0]
    assert found.to_dict() == tuned[2]  # what it cost among it
    assert model.samples <= PROBE + tuned[1]
    return work


@pytest.fixture(scope="module")
def left_with_enough(tmp_path_factory):
    """The directory of a run that was stopped at its first question."""
    work = tmp_path_factory.mktemp("stopped")
    with pytest.raises(KeyboardInterrupt):
        tune(Asked(most=PROBE), **ENOUGH, work=work)
    return work


@pytest.fixture
def work(left, tmp_path):
    return shutil.copytree(left, tmp_path / "work")


def test_a_finished_run_is_made_again_without_asking_the_model(work, tuned, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in work.iterdir()}
    model = Asked()
    found = tune(model, **RUN, work=work)
    assert model.samples == PROBE  # the short walk that shows whether it is the same model
    assert bytes_of(found, tmp_path / "schedule.json") == tuned[0]
    assert found.to_dict() == tuned[2]
    assert {path: path.stat().st_mtime_ns for path in work.iterdir()} == before


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"steps": [2, 3]}, r"with tune\.steps \[2\], and now it is tune\.steps \[2, 3\];"),
        ({"solver": "heun"}, r"with tune\.solver ddim, and now it is tune\.solver heun;"),
        ({"budget_nfe": 9001}, r"with tune\.budget_nfe 9000, and now it is tune\.budget_nfe 9001;"),
        ({"measure": "raw"}, r"with tune\.measure rmse, and now it is tune\.measure raw;"),
        ({"seed": 1}, r"with tune\.seed 0, and now it is tune\.seed 1;"),
        ({"batch": 8}, r"with tune\.batch 32, and now it is tune\.batch 8;"),
        (
            {"against": baseline_schedule("karras", gaussian().noise, 2)},
            r"with tune\.against None, and now it is tune\.against \[999\.0, ",
        ),
    ],
    ids=lambda other: next(iter(other)) if isinstance(other, dict) else "",
)
def test_a_changed_setting_is_refused_and_the_way_out_named(left_with_enough, other, said):
    model = Asked()
    with pytest.raises(FileError, match=said) as refused:
        tune(model, **{**ENOUGH, **other}, work=left_with_enough)
    assert "ask for the same, name another directory, or delete this one" in str(refused.value)
    assert model.samples == PROBE


def test_another_model_is_refused(left):
    heavier = replace(gaussian(), variances=gaussian().variances * 1.5)
    with pytest.raises(FileError, match="another model: this one has the same name but other outputs"):
        tune(heavier, **RUN, work=left)
    with pytest.raises(FileError, match=r"with model\.clip None, and now it is model\.clip 9\.0;"):
        tune(replace(gaussian(), clip=9.0), **RUN, work=left)


def test_the_directory_of_a_tuning_is_not_merged_into_a_profile(left):
    with pytest.raises(FileError, match="was not begun by `geosprint extract`: the command that began it goes on"):
        merge(left)


@pytest.mark.parametrize(
    "make",
    [
        lambda model, work: fit(model, 3, budget_nfe=1800, work=work),
        lambda model, work: tune(model, budget_nfe=3 * LEAST, work=work),
    ],
    ids=["fit", "tune and fit"],
)
def test_a_fit_goes_on_as_well(make, tmp_path):
    whole = Asked()
    expected = bytes_of(make(whole, None), tmp_path / "whole.json")
    stopping = Asked(most=whole.samples * 2 // 3)
    with pytest.raises(KeyboardInterrupt):
        make(stopping, tmp_path / "work")
    again = Asked()
    assert bytes_of(make(again, tmp_path / "work"), tmp_path / "again.json") == expected
    assert again.samples <= whole.samples - stopping.samples + 2 * PROBE


# Killed


def command(*arguments, said=os.devnull):
    def run():
        sys.argv = ["geosprint", *map(str, arguments)]
        sys.stdout = sys.stderr = open(said, "w")  # noqa: SIM115
        signal.signal(signal.SIGINT, signal.default_int_handler)
        main()

    return run


@pytest.fixture(scope="module")
def imported():
    """What the verb imports, here already, so that forked children need not."""

    assert CliRunner().invoke(app, ["tune", "--help"]).exit_code == 0


def finished(work):
    """The pages that stand whole, and when and as which file each was written."""
    store = Store.found(work) if (work / "manifest.json").exists() else None
    found = {}
    for path in work.glob("shard-*"):
        assert store.read(path.stem) is not None, "a page stands whole or not at all"
        found[path.name] = (path.stat().st_mtime_ns, path.stat().st_ino)
    return found


def wait_for(condition, limit=60):
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + limit
        time.sleep(0.001)


def test_tune_killed_at_random_moments_goes_on_and_ends_with_the_same_bytes(
    tmp_path, monkeypatch, left, tuned, imported
):
    monkeypatch.chdir(tmp_path)
    moments, work, kept = random.Random(time.time_ns()), tmp_path / "work", []
    pages = len(list(left.glob("shard-*")))
    for more in [0, *sorted(moments.sample(range(1, pages - 2), 4))]:
        child = forked(command(*TUNE, "--work", "work", "-o", "killed.json"))
        wait_for(lambda more=more: len(list(work.glob("shard-*"))) >= more)
        time.sleep(moments.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        assert ended(child) == -signal.SIGKILL
        assert not (tmp_path / "killed.json").exists()
        kept.append(finished(work))
    damaged = work / "shard-000000-000000.safetensors"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 16
    damaged.write_bytes(bytes(content))
    assert ended(forked(command(*TUNE, "--work", "work", "-o", "killed.json"))) == 0
    assert (tmp_path / "killed.json").read_bytes() == tuned[0]
    at_the_end = finished(work)
    assert at_the_end.keys() == finished(left).keys()
    assert 0 < len(kept[-1]) < pages  # some were made before the kills and some after
    for before in kept:
        made = before.pop(damaged.name, None)
        assert made != at_the_end[damaged.name]
        assert before.items() <= at_the_end.items()  # nothing that was finished and is whole is made again


@pytest.mark.parametrize("with_work", [True, False])
def test_ctrl_c_says_how_to_go_on(tmp_path, monkeypatch, imported, with_work):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("geosprint.runs.progress.EVERY", 0)  # seconds between what it says
    child = forked(command(*TUNE, *(["--work", "w"] if with_work else []), said="said"))
    wait_for(lambda: (tmp_path / "said").exists() and ", 2 steps" in (tmp_path / "said").read_text())
    os.kill(child, signal.SIGINT)
    assert ended(child) == 130
    said = (tmp_path / "said").read_text()
    assert "Traceback" not in said
    how = "the model's answers are in w, and the same command goes on"
    assert said.splitlines()[-1] == "geosprint: stopped; " + (
        how if with_work else "nothing was kept; with --work DIR, a stopped run can go on"
    )
