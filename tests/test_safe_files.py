"""Files that claim more than they hold, or something else than they are: refused before they cost anything."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from geosprint import CurvatureProfile, StepSchedule, Trajectories, Tuned, extract, files, load_model, record
from geosprint.baselines import baseline_schedule
from geosprint.cli import app, main
from geosprint.cli.running import prompts_in
from geosprint.comparison.cells import Cell, Memory, ReferenceSolve
from geosprint.comparison.results import read_csv
from geosprint.errors import FileError, NoiseError
from geosprint.extraction import merge
from geosprint.files import CONTROL, as_csv
from geosprint.metrics.features import read_statistics
from geosprint.models.exact import ring
from geosprint.models.networks import ASSETS, CARD, CONFIG, WEIGHTS, Card, load_pretrained, write_card
from geosprint.models.registry import names_pipeline
from geosprint.models.unet import build_unet
from geosprint.noise import DiscreteVP, Flow
from geosprint.report.findings import found_in
from geosprint.report.page import write_report
from geosprint.runs.store import packed, unpacked
from recipes.networks.export import write_halves
from recipes.networks.recipe import unet_config
from recipes.networks.reflow import load_couplings

KEY = {"solver": "ddim", "method": "tried", "steps": 2}


@pytest.fixture
def little_memory():
    """Fails a test in which Python or NumPy took more than 50 MB."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000


@pytest.fixture
def profile(tmp_path):
    return extract(ring(), 3, 12).save(tmp_path / "profile.json")


def rewritten(path, **changes):
    """The JSON file with other values; a key with dots is a path."""
    content = json.loads(path.read_text())
    for key, value in changes.items():
        *way, last = key.split("__")
        place = content
        for name in way:
            place = place[name]
        place[last] = value
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {"origin__noise__timesteps": 10**11},
        {"chord_scores": [[]] * 200_000},
        {"origin__shape": [2.5]},
        {"origin__shape": "two"},
        {"origin__calls": 0},
        {"origin__eta": "none"},
        {"origin__conditions": []},
        {"origin__model": None},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_profile_that_claims_what_cannot_be_is_refused_at_no_cost(profile, changes, little_memory):
    with pytest.raises(FileError, match=r"profile\.json is damaged"):
        CurvatureProfile.load(rewritten(profile, **changes))


def test_a_json_file_too_large_to_be_ours_is_not_even_read(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MOST_BYTES", 100)
    (tmp_path / "s.json").write_text("[" * 101)
    with pytest.raises(FileError, match=r"s\.json must have up to 100 bytes, it has 101"):
        StepSchedule.load(tmp_path / "s.json")


def test_a_noise_schedule_of_a_formula_has_a_million_timesteps_at_most(little_memory):
    with pytest.raises(NoiseError, match="at most 1000000, got 1000000000000"):
        DiscreteVP.named(timesteps=10**12)


@pytest.mark.parametrize("kind", [torch.int32, torch.bfloat16, torch.complex64])
def test_trajectories_must_be_real_numbers_of_a_known_precision(tmp_path, kind):
    path = record(ring(), range(2), 4).save(tmp_path / "walks.safetensors")
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    save_file({"states": torch.zeros(2, 5, 2, dtype=kind)}, path, header["__metadata__"])
    with pytest.raises(FileError, match="must be float16, float32 or float64"):
        Trajectories.load(path)


# Statistics


def npz(path, **arrays):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in arrays.items():
            archive.writestr(f"{name}.npy", content)
    return path


def npy(array, claims=None):
    """The bytes of an array, whose header may claim another shape."""
    made = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        made,
        {"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False, "shape": claims or array.shape},
    )
    return made.getvalue() + array.tobytes()


def test_statistics_are_read_as_numpy_reads_them(tmp_path):
    sigma = np.arange(9.0).reshape(3, 3)
    for name, kind in (("rows", np.ascontiguousarray), ("columns", np.asfortranarray)):
        np.savez_compressed(
            tmp_path / f"{name}.npz", mu=np.array([1, 2, 3], dtype=np.float32), sigma=kind(sigma), more="x"
        )
        found = read_statistics(tmp_path / f"{name}.npz")
        np.testing.assert_array_equal(found.mean, [1.0, 2.0, 3.0])
        np.testing.assert_array_equal(found.covariance, sigma)
        assert (found.mean.dtype, found.covariance.dtype, found.count) == (np.float64, np.float64, 0)
    np.savez(tmp_path / "ours.npz", mean=np.zeros(2), covariance=np.eye(2), count=np.array(500))
    assert read_statistics(tmp_path / "ours.npz").count == 500


@pytest.mark.parametrize(
    "mu",
    [
        npy(np.zeros(3), claims=(10**12,)),
        npy(np.zeros(3), claims=(2,)),
        npy(np.array(["a", "b", "c"])),
        npy(np.array([1.0, np.nan, 2.0])),
        npy(np.zeros(3))[:-4],
        b"",
        b"\x93NUMPY\x01\x00\x10\x00{'descr': '|O', ",
    ],
    ids=["huge", "short", "words", "nan", "cut", "empty", "objects"],
)
def test_statistics_that_are_not_what_they_say_are_refused_at_no_cost(tmp_path, mu, little_memory):
    with pytest.raises(FileError, match=r"wrong\.npz must h|wrong\.npz must be an npz file"):
        read_statistics(npz(tmp_path / "wrong.npz", mu=mu, sigma=npy(np.eye(3))))


def test_statistics_that_would_unfold_to_gigabytes_are_refused(tmp_path, monkeypatch, little_memory):
    monkeypatch.setattr("geosprint.metrics.features.MOST_STATISTICS_BYTES", 10_000)
    with pytest.raises(FileError, match=r"mu\.npy must have up to 10000 bytes, it has 80128"):
        read_statistics(npz(tmp_path / "bomb.npz", mu=npy(np.zeros(10_000)), sigma=npy(np.eye(3))))


# Networks


@pytest.fixture
def network(tmp_path):
    torch.manual_seed(0)
    config = unet_config(4, 4, (8, 8), classes=3) | {"norm_num_groups": 4, "attention_head_dim": 4}
    (tmp_path / "toy").mkdir()
    digest = write_halves(build_unet(config).state_dict(), tmp_path / "toy" / WEIGHTS)
    write_card(Card("toy", Flow(), "flow", None, (1, 8, 8), 2, 3, digest), tmp_path / "toy")
    (tmp_path / "toy" / CONFIG).write_text(json.dumps(config))
    return tmp_path


def test_a_network_is_loaded_with_the_numbers_of_its_weights(network):
    loaded = load_pretrained("toy", assets=network).network.unet
    torch.manual_seed(0)
    made = build_unet(json.loads((network / "toy" / CONFIG).read_text())).state_dict()
    assert loaded.state_dict().keys() == made.keys()
    for name, weight in loaded.state_dict().items():
        assert torch.equal(weight, made[name].half().float()), name
        assert weight.device.type == "cpu"


@pytest.mark.parametrize(
    "changes",
    [
        {"block_out_channels": [8, 16]},
        {"block_out_channels": [2**30, 2**30]},
        {"layers_per_block": 10**9},
        {"num_class_embeds": -4},
        {"norm_num_groups": "four"},
    ],
    ids=str,
)
def test_a_config_that_does_not_fit_its_weights_is_refused_at_no_cost(network, changes, little_memory):
    rewritten(network / "toy" / CONFIG, **changes)
    with pytest.raises(FileError, match=r"config\.json is damaged"):
        load_pretrained("toy", assets=network)


@pytest.mark.parametrize(
    "changes",
    [{"patch": 0}, {"shape": [1, -8, 8]}, {"shape": 3}, {"classes": "ten"}, {"clip": -1}, {"name": 5}, {"noise": {}}],
    ids=str,
)
def test_a_card_that_makes_no_sense_is_refused(network, changes):
    rewritten(network / "toy" / CARD, **changes)
    with pytest.raises(FileError, match=r"card\.json is damaged"):
        load_pretrained("toy", assets=network)


# Cells of a comparison


def cell(**changes):
    whole = {
        "solver": "ddim", "method": "tried", "steps": 2, "timesteps": np.array([9.0, 3.0]), "nfe": 2.0, "build_nfe": 0,
        "build_seconds": 0.0, "errors": np.ones(3), "features": torch.ones(3, 2), "pictures": torch.ones(1, 2),
    }  # fmt: skip
    return Cell(**{**whole, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 3},
        {"steps": "2"},
        {"method": None},
        {"timesteps": np.array([np.nan, 3.0])},
        {"errors": np.ones((3, 1))},
        {"errors": np.array([1.0, np.nan, 1.0])},
        {"features": torch.ones(2, 2)},
        {"features": torch.ones(3, 2, dtype=torch.int64)},
        {"linear": ((1.0,), (0.5, 0.5))},
        {"build_backprops": "many"},
    ],
    ids=str,
)
def test_a_cell_that_does_not_add_up_is_measured_again(tmp_path, changes):
    memory = Memory(tmp_path)
    memory.keep(KEY, cell())
    assert memory.recall_cell(KEY).errors.tolist() == [1.0, 1.0, 1.0]
    memory.keep(KEY, cell(**changes))
    assert memory.recall_cell(KEY) is None


def test_a_fine_solve_that_does_not_add_up_is_made_again(tmp_path):
    memory = Memory(tmp_path)
    memory.keep(KEY, ReferenceSolve(torch.ones(3, 2), torch.ones(3, 4)))
    assert memory.recall_reference(KEY).features.shape == (3, 4)
    memory.keep(KEY, ReferenceSolve(torch.ones(3, 2), torch.ones(2, 4)))
    assert memory.recall_reference(KEY) is None


def test_pairs_that_do_not_add_up_are_refused(tmp_path):
    save_file({"samples": torch.ones(3, 2), "noise": torch.ones(3, 2), "labels": torch.ones(2).long()}, tmp_path / "p")
    with pytest.raises(FileError, match="a label of each pair"):
        load_couplings(tmp_path / "p")
    (tmp_path / "p").write_bytes(b"nothing")
    with pytest.raises(FileError, match="holds no pairs"):
        load_couplings(tmp_path / "p")


# What is no file, or says too much


@pytest.fixture
def pipe_file(tmp_path):
    """A named pipe that nobody writes to: opening it waits for ever."""
    os.mkfifo(tmp_path / "pipe.json")
    return tmp_path / "pipe.json"


READING = {
    "profile": CurvatureProfile.load,
    "schedule": StepSchedule.load,
    "tuned": Tuned.load,
    "trajectories": Trajectories.load,
    "statistics": read_statistics,
    "results": read_csv,
    "prompts": prompts_in,
}


@pytest.mark.parametrize("read", READING)
def test_pipes_and_devices_are_refused_at_once(pipe_file, read, little_memory):
    for path in (pipe_file, Path("/dev/zero"), pipe_file.parent):
        with pytest.raises(FileError, match="must be a file, and is a directory, a pipe or a device"):
            READING[read](path)


def test_a_report_leaves_a_pipe_out(pipe_file):
    baseline_schedule("quadratic", ring().noise, 4).save(pipe_file.with_name("schedule.json"))
    page = write_report(pipe_file.parent, pipe_file.with_name("report.html")).read_text()
    assert "pipe.json must be a file, and is a directory, a pipe or a device" in page


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 20_000_000, "more than 4194304 brackets and commas"),
        ("[[],[],[],[],[],[]," * 1_000_000, "more than 4194304 brackets and commas"),
        ("[0.1" + ",0.1" * 5_000_000 + "]", "more than 4194304 brackets and commas"),
        ("[" * 100_000 + "]" * 100_000, "stand too deep"),
        ("[" * 33 + "]" * 33, "more than 32 deep"),
        ('{"format": "\\u001b[31m"}', "control characters"),
        ('{"\\u202eformat": 1}', "control characters"),
    ],
    ids=["brackets", "lists", "numbers", "deep", "deeper than ours", "escapes", "turned around"],
)
def test_json_of_no_use_is_refused_before_it_costs_memory(text, said, tmp_path):
    path = tmp_path / "bomb.json"
    path.write_text(text)
    del text
    tracemalloc.start()
    with pytest.raises(FileError, match=said):
        StepSchedule.load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000 + 2 * path.stat().st_size


def test_a_text_of_more_than_the_bound_is_not_read_whole(tmp_path, little_memory, monkeypatch):
    monkeypatch.setattr(files, "MOST_BYTES", 1000)
    with open(tmp_path / "large.json", "wb") as large:
        large.truncate(2**33)
    with pytest.raises(FileError, match="must have up to 1000 bytes, it has 8589934592"):
        StepSchedule.load(tmp_path / "large.json")


@pytest.mark.parametrize(
    "origin",
    [
        7,
        ["noise"],
        {"noise": 3},
        {"noise": {"kind": "flow", "shift": "x", "scale": 1}},
        {"conditions": [1]},
        {"conditions": {"shift_terminal": "x"}},
        {"shape": "x"},
        {"model": 3},
    ],
    ids=str,
)
def test_an_origin_of_another_kind_is_refused_wherever_a_schedule_goes(origin, tmp_path):
    path = baseline_schedule("quadratic", ring().noise, 4).save(tmp_path / "schedule.json")
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "provenance": {"origin": origin}}))
    for words in (["export", str(path), "--to", "diffusers"], ["inspect", str(path)]):
        assert isinstance(CliRunner().invoke(app, words).exception, FileError)


FORGERIES = {
    "another shape": lambda tensors, about: tensors.update(gram=torch.ones(1, 2, 2)),
    "nan": lambda tensors, about: tensors.update(gram=tensors["gram"] * torch.nan),
    "nothing": lambda tensors, about: tensors.clear(),
    "times": lambda tensors, about: about.update(timesteps="x"),
    "seeds": lambda tensors, about: about.update(seeds=[7, 9]),
    "origin": lambda tensors, about: about.update(origin={}),
    "calls": lambda tensors, about: about.update(nfe="x"),
}


@pytest.mark.parametrize("forge", FORGERIES)
def test_a_forged_shard_is_made_again(forge, tmp_path):
    whole = extract(ring(), 4, 10, batch=2, work=tmp_path)
    path = tmp_path / "shard-000000-000001.safetensors"
    expected = path.read_bytes()
    tensors, about = unpacked(path)
    FORGERIES[forge](tensors, about)
    path.write_bytes(packed(tensors, about))
    with pytest.raises(FileError, match="lacks the shards 1"):
        merge(tmp_path)
    assert (extract(ring(), 4, 10, batch=2, work=tmp_path).kept == whole.kept).all()
    assert path.read_bytes() == expected


# What others may do with what we write


def test_a_spreadsheet_finds_no_formula(tmp_path):
    hostile = ["=HYPERLINK(1)", "+1", "-1+2", "@x", "\tx", "plain"]
    lines = as_csv([{"name": name, "value": -1.5} for name in hostile]).splitlines()[1:]
    assert [line.rpartition(",")[0].strip('"') for line in lines] == [*(f"'{one}" for one in hostile[:-1]), "plain"]
    assert all(line.endswith(",-1.5") for line in lines)


@pytest.mark.parametrize("named", [True, False], ids=["a command that a file names", "one that is made of a profile"])
def test_commands_to_copy_run_nothing_but_geosprint(named, tmp_path):
    model = replace(ring(), name="x; touch y #")
    path = extract(model, 2, 10).save(tmp_path / "profile.json")
    if named:
        content = {**json.loads(path.read_text()), "command": "geosprint tune x; touch y #", "machine": "m"}
        path.write_text(json.dumps(content))
    ((command, _),) = found_in(tmp_path).runs
    words = shlex.split(command, comments=True)
    assert words[:2] == ["geosprint", "tune" if named else "extract"]
    assert {"x;", "touch", "y", "#"} <= set(words) if named else words[2] == "x; touch y #"
    assert shlex.join(words) == command  # nothing in it that a shell would take for more than a word


@pytest.mark.parametrize("command", ["rm -rf /", "geosprint 'tune", 7, None, ""])
def test_commands_of_others_are_not_shown(command, tmp_path):
    path = extract(ring(), 2, 10).save(tmp_path / "profile.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "command": command}))
    assert [command.split()[:2] for command, _ in found_in(tmp_path).runs] == [["geosprint", "extract"]]


def test_inspect_prints_no_escapes(tmp_path, capsys, monkeypatch):
    path = baseline_schedule("quadratic", ring().noise, 4).save(tmp_path / "schedule.json")
    text = path.read_text().replace('"method": "quadratic"', '"method": "\\u001b]0;owned\\u0007"')
    path.write_text(text)
    monkeypatch.setattr("sys.argv", ["geosprint", "inspect", str(path)])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr()
    assert "control characters" in said.err
    assert not CONTROL.search(said.out + said.err)


# Names


def test_a_directory_may_have_a_colon_in_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ASSETS / "fashion", "a:b")
    assert load_model("a:b").shape == (1, 28, 28)
    os.mkdir("c:d")
    assert names_pipeline("c:d")
    assert not names_pipeline("module:factory")
