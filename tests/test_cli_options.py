"""Options about the model are described once, and reach the model from every verb that takes them."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from dataclasses import fields

import pytest
import torch
from typer.testing import CliRunner

import geosprint
from geosprint import cli
from geosprint.cli import running
from geosprint.cli.options import ModelOptions, takes_groups
from geosprint.errors import ModelError
from geosprint.integrations.devices import device_named

VERBS = {"extract": [], "sample": ["--steps", "3"], "tune": ["--steps", "3"], "fit": ["--steps", "3"], "compare": []}
SAID = ["--dtype", "float16", "--device", "meta", "--trust-remote-code", "--guidance-scale", "7.5", "--height", "16"]
SAID += ["--width", "24", "--negative-prompt", "blurry", "--prompts", "prompts.txt", "--call", "num_frames=17"]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_that_loads_a_model_takes_all_options_about_it(verb):
    known = inspect.signature(getattr(cli, verb)).parameters
    assert "options" not in known
    assert {field.name: known[field.name].default for field in fields(ModelOptions)} == {
        field.name: field.default for field in fields(ModelOptions)
    }


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_said_about_a_pipeline_is_what_it_is_loaded_with(verb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts.txt").write_text("a cat\n\n   \n  a dog \n")
    seen = {}

    def load_pipeline(*given, **named):
        seen["given"] = (*given, *named.values())
        raise ModelError("far enough")

    def inputs(self, *given):
        seen["inputs"] = given

    monkeypatch.setattr("geosprint.load_pipeline", load_pipeline)
    monkeypatch.setattr("geosprint.integrations.pipelines.load_pipeline", load_pipeline)
    monkeypatch.setattr("geosprint.PipelineInputs.__init__", inputs)
    told = CliRunner().invoke(cli.app, [verb, "somebody/something", *VERBS[verb], *SAID])
    assert str(told.exception) == "far enough"
    assert seen["inputs"] == (("a cat", "a dog"), "blurry", 7.5, 16, 24, {"num_frames": 17})
    assert seen["given"][0] == "somebody/something"
    assert [word for word in seen["given"][1:] if word is not None] == ["float16", "meta", True]


def test_a_verb_gets_its_own_words_beside_the_options():
    @takes_groups
    def verb(model: str, options: ModelOptions, steps: int = 3) -> None:
        heard.append((model, steps, options))

    heard = []
    verb(model="digits", steps=5, **{field.name: field.default for field in fields(ModelOptions)} | {"label": 4})
    assert heard == [("digits", 5, ModelOptions(label=4))]


def test_nothing_said_about_a_pipeline_is_nothing_asked_of_it():
    assert ModelOptions().inputs() is None


def test_prompts_that_cannot_be_read_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["geosprint", "sample", "a/b", "--steps", "3", "--prompts", str(tmp_path / "none")])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    assert f"cannot read {tmp_path / 'none'}" in capsys.readouterr().err


# Where a model computes.


def test_auto_is_the_fastest_device_there_is(monkeypatch):
    found = {"cuda": False, "mps": False}
    monkeypatch.setattr("torch.cuda.is_available", lambda: found["cuda"])
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: found["mps"])
    assert device_named("auto") == "cpu"
    found["mps"] = True
    assert device_named("auto") == "mps"
    found["cuda"] = True
    assert device_named("auto") == "cuda"


def test_a_network_of_the_box_goes_to_the_device_and_an_exact_model_stays():
    assert ModelOptions(device="meta").load("fashion").device.type == "meta"
    assert ModelOptions().load("mixture").device.type == "cpu"
    with pytest.raises(ModelError, match="'mixture' computes on cpu alone, and meta was asked for"):
        ModelOptions(device="meta").load("mixture")
    with pytest.raises(ModelError, match="no device 'tpu' here; leave it out for '"):
        ModelOptions(device="tpu").load("fashion")


def test_half_precision_that_nobody_asked_for_is_said(tmp_path, monkeypatch, capsys):
    from integrations import tiny_pipelines

    tiny_pipelines.ddpm().save_pretrained(tmp_path / "mine")
    assert geosprint.load_pipeline(tmp_path / "mine", device="cpu").dtype == torch.float32
    assert "float" not in capsys.readouterr().err
    pipe = geosprint.load_pipeline(tmp_path / "mine", device="meta")
    assert (pipe.dtype, pipe.device.type) == (torch.float16, "meta")
    assert f"geosprint: {tmp_path / 'mine'} runs on meta in float16" in capsys.readouterr().err
    assert geosprint.load_pipeline(tmp_path / "mine", dtype="float32", device="meta").dtype == torch.float32
    assert "runs on" not in capsys.readouterr().err


def test_a_package_that_a_pipeline_needs_is_named_with_the_command_that_installs_it(monkeypatch):
    def from_pretrained(*_, **__):
        raise ImportError(
            "\nT5Tokenizer requires SentencePiece. You can install it with pip:\n`pip install sentencepiece`\n"
        )

    monkeypatch.setattr("diffusers.DiffusionPipeline.from_pretrained", from_pretrained)
    with pytest.raises(
        ModelError, match=r"'some/pipeline' needs a package .*: T5Tok.* pip: `pip install sentencepiece`$"
    ):
        geosprint.load_pipeline("some/pipeline")


# How many threads compute.

BUSY, IDLE = 100, 5000  # ticks of 10 ms in /proc/stat


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine of 16 logical processors on 8 cores, of which some idle while a verb looks."""
    for number in range(16):
        topology = tmp_path / f"cpu{number}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{number % 8},{number % 8 + 8}\n")
    stat, now = tmp_path / "stat", [0.0]
    stat.write_text(f"cpu  {BUSY} 0 0 {IDLE} 7 0 0 0 0 0\ncpu0 1 1 1 1 1\n")
    monkeypatch.setattr(running, "STAT", stat)
    monkeypatch.setattr(running, "CORES", tmp_path)
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(16)))
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("os.environ", {})

    def with_idle(processors):
        def sleep(seconds):
            now[0] += seconds
            stat.write_text(f"cpu  {BUSY} 0 0 {IDLE + round(processors * seconds * 100)} 7 0 0 0 0 0\n")

        monkeypatch.setattr("time.sleep", sleep)

    return with_idle


@pytest.mark.parametrize(("idle", "threads"), [(16, "8"), (12, "8"), (3, "3"), (0.4, "1"), (0, "1")])
def test_a_verb_takes_the_cores_that_stand_idle_and_waits_without_spinning(machine, idle, threads):
    machine(idle)
    running.take_idle_cores()
    expected = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0", "OMP_NUM_THREADS": threads}
    assert expected.items() <= os.environ.items()


def test_no_more_cores_are_taken_than_the_process_may_use(machine, monkeypatch):
    machine(16)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    running.take_idle_cores()
    assert os.environ["OMP_NUM_THREADS"] == "2"


def test_threads_that_the_user_has_set_stay(machine):
    machine(16)
    os.environ.update(OMP_NUM_THREADS="5", OMP_WAIT_POLICY="ACTIVE")
    running.take_idle_cores()
    assert (os.environ["OMP_NUM_THREADS"], os.environ["OMP_WAIT_POLICY"]) == ("5", "ACTIVE")


def test_where_the_system_does_not_say_torch_decides(monkeypatch, tmp_path):
    monkeypatch.setattr(running, "STAT", tmp_path / "none")
    monkeypatch.setattr("os.environ", {})
    running.take_idle_cores()
    assert "OMP_NUM_THREADS" not in os.environ


def test_threads_are_chosen_before_torch_is_imported(tmp_path):
    """Afterwards OpenMP would not hear of it."""
    program = (
        "import sys, geosprint.cli.running as running\n"
        "from geosprint.cli import app\n"
        "def chosen(): print('torch' in sys.modules or 'numpy' in sys.modules)\n"
        "import geosprint.cli as cli; cli.take_idle_cores = chosen\n"
        "app(['sample', 'mixture', '--steps', '3', '-n', '1'], standalone_mode=False)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.splitlines()[0] == "False", done.stderr
