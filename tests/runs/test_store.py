from __future__ import annotations

import json
import os
import resource
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from processes import ended, forked
from safetensors import safe_open

from geosprint import files
from geosprint.errors import FileError
from geosprint.models.exact import Gaussian, ring
from geosprint.models.fingerprint import PROBE_STEPS, ROUNDING, begun_store
from geosprint.noise import Flow
from geosprint.runs.store import MANIFEST, Store, packed, unpacked
from geosprint.sampling import record

JOB = {"steps": 20, "model": {"name": "toy", "clip": None}}
ANSWERS = [0.5, -1.0, 2.0]
TENSORS = {"gram": torch.arange(12.0).reshape(3, 4), "half": torch.tensor([1.5]).half(), "empty": torch.zeros(0, 2)}


KEY, OTHER = "shard-000004-000006", "shard-000007-000009"
ABOUT = {"nfe": 60}


@pytest.fixture
def store(tmp_path):
    return Store.begun(tmp_path / "work", JOB, ANSWERS, ROUNDING)


def test_a_shard_comes_back_as_it_was_kept(store):
    store.keep(KEY, TENSORS, ABOUT)
    tensors, about = store.read(KEY)
    assert about == ABOUT
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)
    assert store.read(OTHER) is None


def test_a_shard_is_a_safetensors_file_that_anyone_can_open(store):
    store.keep(KEY, TENSORS, ABOUT)
    with safe_open(store.directory / f"{KEY}.safetensors", "pt") as file:
        assert torch.equal(file.get_tensor("gram"), TENSORS["gram"])
        assert json.loads(file.metadata()["geosprint"])["key"] == KEY


def test_no_byte_of_a_shard_can_change_unnoticed(tmp_path):
    whole, path = packed(TENSORS, ABOUT), tmp_path / "changed"
    same = 0
    for at in range(len(whole)):
        for bit in (1, 32):
            changed = bytearray(whole)
            changed[at] ^= bit
            path.write_bytes(changed)
            with suppress(FileError):
                tensors, about = unpacked(path)
                same += 1
                assert about == ABOUT
                assert all(torch.equal(tensors[name], tensor) for name, tensor in TENSORS.items())
    assert same < len(whole) / 50  # spaces that fill up the header


@pytest.mark.parametrize("damage", ["cut", "empty", "directory", "another job", "other rows"])
def test_a_shard_that_cannot_be_trusted_must_be_made_again(store, tmp_path, damage):
    store.keep(KEY, TENSORS, ABOUT)
    (path,) = store.directory.glob("shard-*")
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-3])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "directory":
        path.unlink()
        path.mkdir()
    elif damage == "another job":
        other = Store.begun(tmp_path / "other", {**JOB, "steps": 21}, ANSWERS, ROUNDING)
        other.keep(KEY, TENSORS, ABOUT)
        path.write_bytes((other.directory / path.name).read_bytes())
    else:
        store.keep(OTHER, TENSORS, ABOUT)
        (store.directory / f"{OTHER}.safetensors").rename(path)
    assert store.read(KEY) is None


def test_a_directory_goes_on_with_the_same_job_and_refuses_another_by_name(store):
    same = Store.begun(store.directory, dict(reversed(JOB.items())), [0.5, -1.00001, 2.0], ROUNDING)  # other rounding
    assert same.job == store.job
    with pytest.raises(FileError, match="was begun with steps 20, and now it is steps 40; ask for the same"):
        Store.begun(store.directory, {**JOB, "steps": 40}, ANSWERS, ROUNDING)
    with pytest.raises(FileError, match=r"begun with eta None.*now it is eta 0.5"):
        Store.begun(store.directory, {**JOB, "eta": 0.5}, ANSWERS, ROUNDING)
    with pytest.raises(FileError, match=r"another model.*other outputs"):
        Store.begun(store.directory, JOB, [0.5, -1.0, 1.8], ROUNDING)
    with pytest.raises(FileError, match="another model"):
        Store.begun(store.directory, JOB, [0.5, -1.0], ROUNDING)
    with pytest.raises(FileError, match="another model"):
        Store.begun(store.directory, JOB, [0.5, -1.0, float("nan")], ROUNDING)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ring(), ring(deviation=0.2)),
        (Gaussian.of_images((1, 4, 4)), Gaussian.of_images((1, 4, 4), deviation=0.6)),
        (Gaussian.of_images((1, 4, 4), noise=Flow()), Gaussian.of_images((1, 4, 4), deviation=0.6, noise=Flow())),
    ],
)
def test_a_short_walk_tells_weights_apart(tmp_path, one, other):
    begun_store(tmp_path, JOB, record(one, [0], PROBE_STEPS), None)
    assert begun_store(tmp_path, JOB, record(one, [0], PROBE_STEPS), None).job["steps"] == 20
    with pytest.raises(FileError, match="another model"):
        begun_store(tmp_path, JOB, record(other, [0], PROBE_STEPS), None)


def test_shards_of_earlier_runs_which_do_not_say_their_key_are_still_read(store):
    store.keep(KEY, TENSORS, ABOUT)
    path = store.directory / f"{KEY}.safetensors"
    tensors, about = unpacked(path)
    del about["key"]
    path.write_bytes(packed(tensors, about))
    assert store.read(KEY)[1] == ABOUT


def test_what_a_directory_was_begun_for_can_be_read_without_the_model(store):
    assert Store.found(store.directory).job == JOB
    store.keep(KEY, TENSORS, ABOUT)
    assert Store.found(store.directory).read(KEY) is not None


@pytest.mark.parametrize(
    "content", ["", "{}", '{"format": "geosprint-work", "version": 1}', '{"format": "geosprint-pro']
)
def test_a_damaged_manifest_is_named(store, content):
    (store.directory / MANIFEST).write_text(content)
    with pytest.raises(FileError, match=r"manifest\.json"):
        Store.begun(store.directory, JOB, ANSWERS, ROUNDING)
    with pytest.raises(FileError, match=r"manifest\.json"):
        Store.found(store.directory)


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FileError, match=r"cannot write .*manifest\.json"):
        Store.begun(tmp_path / "file", JOB, ANSWERS, ROUNDING)
    with pytest.raises(FileError, match="cannot read"):
        Store.found(tmp_path / "nowhere")


def test_a_disk_that_fills_up_leaves_the_finished_shards_and_says_how_to_go_on(store):
    store.keep(KEY, TENSORS, ABOUT)

    def on_a_small_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        with pytest.raises(FileError, match=r"cannot write .*what is finished stays: make room, and the same command"):
            store.keep(OTHER, {"gram": torch.zeros(1000)}, {})

    assert ended(forked(on_a_small_disk)) == 0
    assert sorted(os.listdir(store.directory)) == [MANIFEST, f"{KEY}.safetensors"]
    assert store.read(KEY) is not None


HOUR = 3600


def left_by_a_kill(directory):
    """The file that a process leaves which is killed while it writes a shard there."""

    def killed_while_writing():
        real = Path.write_bytes

        def deadly(path, content):
            real(path, content[: len(content) // 2])
            os.kill(os.getpid(), signal.SIGKILL)

        Path.write_bytes = deadly
        Store.found(directory).keep(KEY, TENSORS, ABOUT)

    before = set(directory.iterdir())
    assert ended(forked(killed_while_writing)) == -signal.SIGKILL
    (left,) = set(directory.iterdir()) - before
    return left


def test_what_a_kill_left_half_written_is_removed_when_nobody_can_be_writing_it_any_more(store):
    old, young = left_by_a_kill(store.directory), left_by_a_kill(store.directory)
    long_ago = time.time() - HOUR - 60
    os.utime(old, (long_ago, long_ago))
    files._remove_what_kills_left.cache_clear()  # as in the next run
    store.keep(KEY, TENSORS, ABOUT)
    assert not old.exists()
    assert young.exists()  # a process beside this one may be at it


def test_beside_an_output_only_our_own_old_files_are_removed(tmp_path):
    ours = ".0123456789abcdef.unfinished"
    others = [
        "0123456789abcdef.unfinished",
        ".0123456789abcdef.unfinished.txt",
        ".0123456789abcde.unfinished",
        ".0123456789ABCDEF.unfinished",
        ".unfinished",
        "notes.unfinished",
    ]
    folder = tmp_path / ".fedcba9876543210.unfinished"
    folder.mkdir()
    for name in [ours, *others]:
        (tmp_path / name).write_text("mine")
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))
    files.write_text(tmp_path / "out.txt", "done")
    assert {path.name for path in tmp_path.iterdir()} == {*others, folder.name, "out.txt"}
