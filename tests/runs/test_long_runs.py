"""What a run leaves behind when it is stopped, killed, shared out or long enough, and how it goes on."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from asked import Asked, gaussian
from processes import ended, forked, team_of
from safetensors.torch import load_file
from typer.testing import CliRunner

from geosprint.cli import app, main
from geosprint.comparison.plan import Plan
from geosprint.comparison.run import compare
from geosprint.errors import FileError, GeometryError, ScheduleError
from geosprint.extraction import ReferencePass, extract, extract_share, merge
from geosprint.models.base import Network
from geosprint.models.exact import Gaussian, ring
from geosprint.noise import DiscreteVP
from geosprint.profile import Settings
from geosprint.runs.store import Store
from geosprint.runs.team import joined_team
from geosprint.sampling import record, sample
from geosprint.trajectory import Trajectories

COUNT, STEPS, BATCH = 11, 9, 3
MODEL = gaussian()
RUN = {"trajectories": COUNT, "reference_steps": STEPS, "batch": BATCH, "seed": 5}
SPACES = [Settings(), Settings(space="x0"), Settings(space="ve"), Settings(normalisation="pooled"), Settings(window=3)]


PROBE = 4  # calls of the short walk that shows what a model is like


def bytes_of(profile, path):
    return profile.save(path).read_bytes()


@pytest.fixture
def whole(tmp_path):
    """The bytes of the profile that nobody interrupted."""
    return bytes_of(extract(MODEL, **RUN), tmp_path / "whole.json")


# Stopped and gone on with


@pytest.mark.parametrize("settings", SPACES, ids=["default", "x0", "ve", "pooled", "window 3"])
def test_an_interrupted_run_goes_on_and_ends_with_the_same_bytes(tmp_path, settings):
    expected = bytes_of(extract(MODEL, **RUN, settings=settings), tmp_path / "expected.json")
    stopped = Asked(most=PROBE + 2 * BATCH * STEPS + 5)  # in the third shard
    with pytest.raises(KeyboardInterrupt):
        extract(stopped, **RUN, settings=settings, work=tmp_path / "work")
    assert len(list((tmp_path / "work").glob("shard-*"))) == 2
    again = Asked()
    found = extract(again, **RUN, settings=settings, work=tmp_path / "work")
    assert again.samples == PROBE + (COUNT - 2 * BATCH) * STEPS
    assert bytes_of(found, tmp_path / "found.json") == expected
    done = Asked()
    assert bytes_of(extract(done, **RUN, settings=settings, work=tmp_path / "work"), tmp_path / "d.json") == expected
    assert done.samples == PROBE


def test_a_damaged_shard_is_made_again(tmp_path, whole):
    extract(MODEL, **RUN, work=tmp_path / "work")
    path = tmp_path / "work" / "shard-000003-000005.safetensors"
    content = bytearray(path.read_bytes())
    content[-4] ^= 1
    path.write_bytes(bytes(content))
    again = Asked()
    assert bytes_of(extract(again, **RUN, work=tmp_path / "work"), tmp_path / "p.json") == whole
    assert again.samples == PROBE + BATCH * STEPS


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"trajectories": 12}, "with pass.trajectories 11, and now it is pass.trajectories 12;"),
        ({"reference_steps": 10}, "with pass.steps 9, and now it is pass.steps 10;"),
        ({"batch": 4}, "with pass.batch 3, and now it is pass.batch 4;"),
        ({"seed": 6}, "with pass.seed 5, and now it is pass.seed 6;"),
        ({"eta": 0.5}, "with model.eta 0.0, pass.eta 0.0, and now it is model.eta 0.5, pass.eta 0.5;"),
        ({"settings": Settings(target_score=0.01)}, "pass.settings.target_score 0.001, .*target_score 0.01;"),
        ({"until_stable": 0.5}, "with pass.until_stable None, and now it is pass.until_stable 0.5;"),
    ],
)
def test_a_changed_setting_is_refused_and_the_way_out_named(tmp_path, other, said):
    extract(MODEL, **RUN, work=tmp_path)
    with pytest.raises(FileError, match=said) as refused:
        extract(MODEL, **{**RUN, **other}, work=tmp_path)
    assert "ask for the same, name another directory, or delete this one" in str(refused.value)


def test_other_weights_under_the_same_name_are_refused(tmp_path):
    extract(MODEL, **RUN, work=tmp_path)
    heavier = replace(MODEL, variances=MODEL.variances * 1.3)
    with pytest.raises(FileError, match="another model: this one has the same name but other outputs"):
        extract(heavier, **RUN, work=tmp_path)
    renamed = Asked(model=replace(MODEL, clip=9.0))
    with pytest.raises(FileError, match=r"with model\.clip None, and now it is model\.clip 9\.0;"):
        extract(renamed, **RUN, work=tmp_path)


# Killed


def command(*arguments):
    def run():
        sys.argv = ["geosprint", *map(str, arguments)]
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
        main()

    return run


SLOW_MODEL = """
import time, torch
from geosprint import DiscreteVP, Network

def make():
    def answer(x, t):
        time.sleep(0.002)
        return torch.tanh((1 + t / 300) * x)
    return Network(answer, (3,), DiscreteVP.named(), "x0", name="slow")
"""

SHARDS = 30
SLOW = ["extract", "slow_model:make", "--trajectories", 2 * SHARDS, "--reference-steps", 25, "--batch", 2]


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """The command has run once, so that forked children find all it imports."""
    out = tmp_path_factory.mktemp("imported") / "profile.json"
    CliRunner().invoke(app, ["extract", "mixture", "--trajectories", "2", "--reference-steps", "4", "-o", str(out)])
    assert out.exists()


@pytest.fixture
def slow(tmp_path, monkeypatch, imported):
    """A directory with a model that takes two milliseconds a call."""
    (tmp_path / "slow_model.py").write_text(SLOW_MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "slow_model", raising=False)
    return tmp_path


def finished(work):
    """The shards that stand whole, and when and as which file each was written."""
    found = {}
    for path in sorted(work.glob("shard-*")):
        assert Store.found(work).read(path.stem) is not None, "a shard stands whole or not at all"
        found[path.name] = (path.stat().st_mtime_ns, path.stat().st_ino)
    return found


def test_extract_killed_at_ten_random_moments_goes_on_and_ends_with_the_same_bytes(slow):
    assert ended(forked(command(*SLOW, "-o", "whole.json"))) == 0
    moments, work, kept = random.Random(time.time_ns()), slow / "work", []
    for _ in range(10):
        more = len(kept[-1] if kept else ()) + moments.choice([0, 1, 2])
        child = forked(command(*SLOW, "--work", work, "-o", "killed.json"))
        while len(list(work.glob("shard-*"))) < more:
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.05))  # as long as a shard takes
        os.kill(child, signal.SIGKILL)
        assert ended(child) == -signal.SIGKILL
        kept.append(finished(work))
        assert not (slow / "killed.json").exists()
    assert ended(forked(command(*SLOW, "--work", work, "-o", "killed.json"))) == 0
    assert (slow / "killed.json").read_bytes() == (slow / "whole.json").read_bytes()
    at_the_end = finished(work)
    assert len(at_the_end) == SHARDS
    assert 0 < len(kept[-1]) < SHARDS  # some were made before the kills and some after
    for before in kept:
        assert before.items() <= at_the_end.items()  # nothing that was finished is made again


@pytest.mark.parametrize("call", ["write_bytes", "fsync", "replace"])
def test_a_kill_while_a_shard_is_written_leaves_it_out_or_whole(tmp_path, monkeypatch, call):
    whole = bytes_of(extract(MODEL, **RUN), tmp_path / "whole.json")

    def killed_at_the_third_file():
        from pathlib import Path

        place = Path if call == "write_bytes" else os
        real, calls = getattr(place, call), []

        def deadly(*given):
            calls.append(given)
            if len(calls) == 3:
                if call == "write_bytes":
                    real(given[0], given[1][: len(given[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*given)

        setattr(place, call, deadly)
        extract(MODEL, **RUN, work=tmp_path / "work")

    assert ended(forked(killed_at_the_third_file)) == -signal.SIGKILL
    made = 2 if call == "write_bytes" else 1  # the manifest is written as text
    assert len(finished(tmp_path / "work")) == made
    assert bytes_of(extract(MODEL, **RUN, work=tmp_path / "work"), tmp_path / "p.json") == whole


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("work", [True, False])
def test_ctrl_c_and_the_sigterm_of_a_cluster_end_cleanly_and_say_how_to_go_on(slow, how, work):
    def run():
        sys.argv = ["geosprint", *map(str, SLOW), *(["--work", "w"] if work else [])]
        sys.stdout = sys.stderr = open("said", "w")  # noqa: SIM115
        signal.signal(signal.SIGINT, signal.default_int_handler)
        main()

    child = forked(run)
    while not (slow / "said").exists() or "record: 4 of" not in (slow / "said").read_text():
        time.sleep(0.01)
    os.kill(child, how)
    assert ended(child) == 130
    said = (slow / "said").read_text()
    assert "Traceback" not in said
    expected = (
        "finished shards are in w, and the same command goes on" if work else "with --work DIR, a stopped run can"
    )
    assert said.splitlines()[-1].startswith("geosprint: stopped; ")
    assert expected in said.splitlines()[-1]


# Shared out


def test_two_processes_make_the_profile_of_one(tmp_path, whole):
    def work():
        with joined_team() as team:
            profile = extract(MODEL, **RUN, work=tmp_path / "work")
            again = extract(MODEL, **RUN)  # without a directory
            for name, made in (("kept", profile), ("free", again)):
                made.save(tmp_path / f"{name}-{team.rank}.json")

    assert [ended(child) for child in team_of(2, work)] == [0, 0]
    for name in ("kept-0", "kept-1", "free-0", "free-1"):
        assert (tmp_path / f"{name}.json").read_bytes() == whole


def test_two_processes_draw_and_record_what_one_does(tmp_path):
    drawn = sample(ring(), [999, 500, 100], range(10), batch=3)
    walks = record(ring(), range(7), 6, batch=2, predictions=True)

    def work():
        with joined_team():
            assert torch.equal(sample(ring(), [999, 500, 100], range(10), batch=3), drawn)
            found = record(ring(), range(7), 6, batch=2, predictions=True)
            for name in ("states", "x0", "eps"):
                assert torch.equal(getattr(found, name), getattr(walks, name))
            assert (found.nfe, found.seeds) == (walks.nfe, walks.seeds)
            assert found.origin.to_dict() == walks.origin.to_dict()

    assert [ended(child) for child in team_of(2, work)] == [0, 0]


def test_the_commands_of_two_processes_write_what_one_writes(slow):
    for arguments in (
        ["extract", "mixture", "--trajectories", 5, "--reference-steps", 12, "--batch", 2, "-o", "profile.json"],
        ["sample", "mixture", "--steps", 4, "-n", 7, "--batch", 2, "-o", "drawn.safetensors"],
    ):
        assert ended(forked(command(*arguments))) == 0
        out = slow / arguments[-1]
        alone = out.read_bytes()
        out.unlink()
        assert [ended(child) for child in team_of(2, command(*arguments))] == [0, 0]
        assert out.read_bytes() == alone
    assert load_file(slow / "drawn.safetensors")["samples"].shape == (7, 2)


def test_a_comparison_by_two_processes_is_that_of_one(tmp_path):
    methods = ("uniform-trailing", "quadratic", "geosprint", "gits")
    plan = Plan(
        (4, 5), ("ddim", "heun"), methods, samples=12, trajectories=4, reference_steps=12, fine_steps=10, batch=5
    )

    def cells(comparison):
        numbers = [[cell.solver, cell.method, cell.steps, cell.nfe, cell.build_nfe] for cell in comparison.cells]
        return json.dumps([numbers, [[*cell.timesteps, *cell.errors] for cell in comparison.cells]])

    alone = cells(compare(ring(), tmp_path / "alone", plan))

    def work():
        with joined_team() as team:
            model = Asked(model=ring())
            (tmp_path / f"cells-{team.rank}").write_text(cells(compare(model, tmp_path / "team", plan)))
            (tmp_path / f"asked-{team.rank}").write_text(str(model.samples))

    assert [ended(child) for child in team_of(2, work)] == [0, 0]
    assert (tmp_path / "cells-0").read_text() == (tmp_path / "cells-1").read_text() == alone
    one = Asked(model=ring())
    compare(one, tmp_path / "counted", plan)
    asked = [int((tmp_path / f"asked-{rank}").read_text()) for rank in range(2)]
    assert max(asked) < 0.65 * one.samples  # both did their share
    assert sum(asked) == one.samples  # nothing was asked twice


def test_losing_one_of_two_processes_ends_the_run_with_a_word_and_keeps_what_was_done(slow):
    def run():
        sys.argv = ["geosprint", *map(str, SLOW), "--work", "work", "-o", "lost.json"]
        sys.stdout = sys.stderr = open(f"said-{os.environ['RANK']}", "w")  # noqa: SIM115
        main()

    first, second = team_of(2, run)
    work = slow / "work"
    while len(list(work.glob("shard-*"))) < 5:
        time.sleep(0.01)
    os.kill(second, signal.SIGKILL)
    assert ended(second) == -signal.SIGKILL
    assert ended(first) == 2
    said = (slow / "said-0").read_text()
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith("geosprint: process 1 of 0..1 ended or does not answer")
    assert said.splitlines()[-1].endswith("finished shards are in work, and the same command goes on")
    kept = finished(work)
    assert 5 <= len(kept) < SHARDS
    assert not (slow / "lost.json").exists()
    assert ended(forked(command(*SLOW, "-o", "whole.json"))) == 0
    assert ended(forked(command(*SLOW, "--work", "work", "-o", "lost.json"))) == 0  # alone, where two began
    assert (slow / "lost.json").read_bytes() == (slow / "whole.json").read_bytes()
    assert kept.items() <= finished(work).items()


def test_independent_jobs_leave_shards_that_merge_to_the_same_bytes(tmp_path, whole):
    asked = ReferencePass(COUNT, STEPS, seed=5, batch=BATCH)
    assert extract_share(MODEL, asked, tmp_path / "work", (2, 3)) == 1  # the second of four shards
    with pytest.raises(FileError, match=r"lacks the shards 1 \(seeds 5..7\), 3 \(.*\), 4 \(seeds 14..15\) of 4"):
        merge(tmp_path / "work")
    assert extract_share(MODEL, asked, tmp_path / "work", (1, 3)) == 2
    assert extract_share(MODEL, asked, tmp_path / "work", (3, 3)) == 1
    assert bytes_of(merge(tmp_path / "work"), tmp_path / "merged.json") == whole


def test_shards_that_hold_something_else_are_not_merged_although_their_checksum_agrees(tmp_path):
    extract(MODEL, **RUN, work=tmp_path)
    store = Store.found(tmp_path)
    key = "shard-000000-000002"
    _, about = store.read(key)
    for tensors in ({}, {"gram": torch.zeros(3, 2, 2)}, {"gram": torch.zeros(3, STEPS + 1, STEPS + 1)}):
        store.keep(key, tensors, about)
        with pytest.raises(FileError, match=r"lacks the shards 1 \(seeds 5\.\.7\) of 4|never moves"):
            merge(tmp_path)
    store.keep(key, {"gram": torch.zeros(3, 2, 2)}, {})
    with pytest.raises(FileError, match=r"lacks the shards 1 \(seeds 5\.\.7\) of 4|never moves"):
        merge(tmp_path)


@pytest.mark.parametrize("share", [(0, 3), (4, 3), (1, 0)])
def test_a_share_that_does_not_exist_is_refused(tmp_path, share):
    with pytest.raises(ScheduleError, match=r"i in 1\.\.n, got"):
        extract_share(MODEL, ReferencePass(COUNT, STEPS), tmp_path, share)


# Enough trajectories


def test_recording_stops_at_the_first_shards_whose_halves_agree(tmp_path):
    everything = extract(MODEL, 24, 40, batch=4)
    some = {name: getattr(everything, name) for name in ("kept", "thresholds", "scores", "seeds")}
    agreement = {}
    for count in range(4, 25, 4):
        first = replace(everything, **{name: values[:count] for name, values in some.items()})
        agreement[count] = first.stability().fuzzy_jaccard
    threshold = sorted(agreement.values())[2]
    expected = next(count for count, value in agreement.items() if value >= threshold)
    asked = Asked()
    stopped = extract(asked, 24, 40, batch=4, until_stable=threshold, work=tmp_path / "work")
    assert len(stopped.kept) == expected < 24
    assert asked.samples == PROBE + expected * 40
    assert stopped.nfe == expected * 40
    assert stopped.kept.tolist() == everything.kept[:expected].tolist()
    assert bytes_of(stopped, tmp_path / "a.json") == bytes_of(
        extract(MODEL, expected, 40, batch=4), tmp_path / "b.json"
    )
    assert bytes_of(merge(tmp_path / "work"), tmp_path / "c.json") == (tmp_path / "a.json").read_bytes()


def test_trajectories_that_never_agree_are_all_recorded():
    assert len(extract(MODEL, 6, STEPS, batch=1, until_stable=1.0).kept) <= 6
    noisy = Network(lambda x, t: torch.tanh((3 + t % 7) * x), (3,), DiscreteVP.named(), "x0")
    found = extract(noisy, 6, 40, solver="ddpm", batch=2, until_stable=1.0)
    assert len(found.kept) == 6
    assert found.stability().fuzzy_jaccard < 1


def test_a_single_trajectory_has_no_halves_and_is_never_enough():
    still = Network(lambda x, t: torch.tanh(2 * x), (3,), DiscreteVP.named(), "x0")
    assert len(extract(still, 3, STEPS, batch=1, until_stable=0.01).kept) == 2


def test_a_team_stops_where_one_process_does(tmp_path):
    alone = bytes_of(extract(MODEL, 24, 40, batch=2, until_stable=0.5), tmp_path / "alone.json")

    def work():
        with joined_team() as team:
            extract(MODEL, 24, 40, batch=2, until_stable=0.5).save(tmp_path / f"{team.rank}.json")

    assert [ended(child) for child in team_of(2, work)] == [0, 0]
    assert (tmp_path / "0.json").read_bytes() == (tmp_path / "1.json").read_bytes() == alone


def test_what_cannot_be_waited_for_is_refused(tmp_path):
    for wrong in (0.0, 1.5, float("nan")):
        with pytest.raises(GeometryError, match="above 0 and up to 1"):
            extract(MODEL, **RUN, until_stable=wrong)
    with pytest.raises(GeometryError, match="pooled normalisation needs them all"):
        extract(MODEL, **RUN, until_stable=0.9, settings=Settings(normalisation="pooled"))
    with pytest.raises(ScheduleError, match="independent jobs cannot know"):
        extract_share(MODEL, ReferencePass(COUNT, STEPS, until_stable=0.9), tmp_path, (1, 2))


# Large models


@pytest.mark.parametrize(
    ("shape", "steps", "space", "batch"),
    [
        ((3, 32, 32), 200, "vp", 8),
        ((3, 256, 256), 200, "vp", 3),  # 158 MB each
        ((3, 256, 256), 200, "x0", 1),
        ((3, 1024, 1024), 1000, "vp", 1),  # one is always recorded
        ((4, 128, 128), 400, "vp", 5),  # 105 MB each
    ],
)
def test_a_batch_holds_as_many_trajectories_as_fit_into_half_a_gigabyte(shape, steps, space, batch):
    asked = ReferencePass(100, steps, settings=Settings(space=space))
    assert asked.with_batch(shape).batch == batch


def test_raw_states_can_be_kept_in_half_precision(tmp_path):
    profile = extract(MODEL, **RUN, work=tmp_path, keep_states=True)
    files = sorted(tmp_path.glob("states-*"))
    assert [file.name for file in files][:2] == ["states-000005-000007.safetensors", "states-000008-000010.safetensors"]
    kept = Trajectories.joined([Trajectories.load(file) for file in files])
    raw = record(MODEL, range(5, 5 + COUNT), STEPS)
    assert kept.seeds == raw.seeds == profile.seeds
    assert load_file(files[0])["states"].dtype == torch.float16
    assert kept.states.dtype == torch.float32
    torch.testing.assert_close(kept.states, raw.states, rtol=2**-10, atol=1e-6)
    np.testing.assert_array_equal(kept.timesteps, raw.timesteps)
    with pytest.raises(ScheduleError, match="kept in the work directory, and got none"):
        extract(MODEL, **RUN, keep_states=True)


def test_states_beyond_half_precision_are_not_kept_as_infinity(tmp_path):
    huge = replace(record(MODEL, range(2), STEPS), states=torch.full((2, STEPS + 1, 5), 1e5))
    with pytest.raises(GeometryError, match="half precision ends at 65504"):
        huge.save_states(tmp_path / "s.safetensors")


@pytest.mark.parametrize("settings", SPACES, ids=["default", "x0", "ve", "pooled", "window 3"])
def test_products_summed_over_parts_of_the_dimensions_are_those_of_all_at_once(monkeypatch, settings):
    wide = Gaussian.of_images((1, 8, 8))
    recorded, how = record(wide, range(3), STEPS, predictions=True), (settings.normalisation, settings.space)
    gram = recorded.gram(*how, precise=settings.window > 2)
    monkeypatch.setattr("geosprint.trajectory.TOGETHER", 10)
    in_parts = recorded.gram(*how, precise=settings.window > 2)
    np.testing.assert_allclose(in_parts, gram, rtol=1e-4, atol=1e-5 * np.abs(gram).max())
