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
from processes import ended, forked, team_of
from typer.testing import CliRunner

import geosprint
from geosprint.baselines import baseline_schedule
from geosprint.cli import app, main
from geosprint.errors import FileError
from geosprint.extraction import merge
from geosprint.models.fingerprint import PROBE_STEPS as PROBE
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
        ({"batch": 6}, r"with tune\.batch 8, and now it is tune\.batch 6;"),
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
    for path in work.glob("calls-*"):
        assert store.read(path.stem) is not None, "a page stands whole or not at all"
        found[path.name] = (path.stat().st_mtime_ns, path.stat().st_ino)
    return found


def wait_for(condition, limit=60):
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + limit
        time.sleep(0.001)


@pytest.mark.slow
def test_tune_killed_at_ten_random_moments_goes_on_with_another_number_of_processes(
    tmp_path, monkeypatch, tuned, imported
):
    monkeypatch.chdir(tmp_path)
    moments, interrupted = random.Random(time.time_ns()), 0
    begun = time.monotonic()
    assert [ended(child) for child in team_of(2, command(*TUNE, "-o", "whole.json"))] == [0, 0]
    lasts = time.monotonic() - begun
    assert (tmp_path / "whole.json").read_bytes() == tuned[0]
    for trial in range(10):
        before, after = moments.sample([1, 2, 3], 2)
        run = command(*TUNE, "--work", f"work-{trial}", "-o", f"{trial}.json")
        children = team_of(before, run)
        time.sleep(moments.uniform(0, lasts))
        wait_for((tmp_path / f"work-{trial}").exists)  # until all have found one another, others wait for minutes
        killed = moments.choice(children)
        os.kill(killed, signal.SIGKILL)
        codes = [ended(child) for child in children]
        interrupted += any(codes)
        finished(tmp_path / f"work-{trial}")
        assert [ended(child) for child in team_of(after, run)] == [0] * after
        assert (tmp_path / f"{trial}.json").read_bytes() == tuned[0], f"{before} processes, then {after}"
    assert interrupted > 0


@pytest.mark.parametrize("place", [12, -1])  # in its header, and in what it holds
def test_a_damaged_page_is_asked_again_and_the_others_are_left_alone(work, tuned, tmp_path, place):
    before = finished(work)
    damaged = work / next(iter(before))
    content = bytearray(damaged.read_bytes())
    content[place] ^= 16
    damaged.write_bytes(bytes(content))
    for asks in (True, False):  # only once
        model = Asked()
        assert bytes_of(tune(model, **RUN, work=work), tmp_path / "again.json") == tuned[0]
        assert (model.samples > PROBE) == asks
    del before[damaged.name]
    damaged.unlink(missing_ok=True)
    assert before.items() <= finished(work).items()


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
    how = "the network's outputs are in w, and the same command goes on"
    assert said.splitlines()[-1] == "geosprint: stopped; " + (
        how if with_work else "nothing was kept; with --work DIR, a stopped run can go on"
    )
