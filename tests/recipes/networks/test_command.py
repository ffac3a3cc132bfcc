from __future__ import annotations

import json
import re
import signal
import sys
import warnings

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from geosprint.cli import app, main
from geosprint.integrations.adapter import load_model
from geosprint.models.networks import CARD, CONFIG, WEIGHTS
from geosprint.models.registry import is_in_the_box
from geosprint.sampling import sample
from recipes.networks import run as training_run
from recipes.networks.__main__ import app as recipe
from recipes.networks.loop import CHECKPOINT, steps_done
from recipes.networks.run import TRAINABLE


@pytest.fixture
def training(small, tmp_path, monkeypatch):
    """Trains by the command, from an empty directory beside the data."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(recipe, [*arguments, "--data", str(small[0])])


def interrupt(monkeypatch, at):
    """Press Ctrl-C while the n-th loss is computed."""
    plain = training_run.denoising_loss

    def interrupted(recipe):
        asked, loss = [], plain(recipe)

        def pressed(*batch):
            asked.append(batch)
            if len(asked) == at:
                signal.raise_signal(signal.SIGINT)
            return loss(*batch)

        return pressed

    monkeypatch.setattr(training_run, "denoising_loss", interrupted)


def test_help_names_every_network_that_can_be_trained():
    shown = CliRunner().invoke(recipe, ["--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
    assert [name for name in TRAINABLE if re.search(rf"(?<![\w-]){name}(?![\w-])", shown)] == list(TRAINABLE)


def test_a_network_goes_from_data_to_samples(training, tmp_path):
    done = training("fashion")
    assert done.exit_code == 0, done.output
    assert "fashion: 4 steps" in done.stdout
    assert "geosprint sample runs/fashion/network --steps 50" in done.stdout
    network = tmp_path / "runs/fashion/network"
    assert sorted(path.name for path in network.iterdir()) == sorted([CARD, CONFIG, WEIGHTS])
    assert json.loads((network / CONFIG).read_text())["_class_name"] == "UNet2DModel"
    averaged = load_file(tmp_path / "runs/fashion" / CHECKPOINT)
    exported = load_file(network / WEIGHTS)
    assert len(exported) == sum(key.startswith("average/") for key in averaged)
    assert all(torch.equal(averaged[f"average/unet.{key}"].half(), value) for key, value in exported.items())

    asked = ("--label", "2", "--guidance", "3", "-n", "2", "-o", "x.safetensors", "--json")
    drawn = CliRunner().invoke(app, ["sample", "runs/fashion/network", "--steps", "3", *asked])
    assert drawn.exit_code == 0, drawn.output
    assert json.loads(drawn.stdout)["nfe"] == 2 * 3 * 2
    samples = load_file(tmp_path / "x.safetensors")["samples"]
    expected = sample(load_model(str(network), 2, 3.0), [999, 666, 332], [0, 1])
    torch.testing.assert_close(samples, expected)
    assert samples.shape == (2, 1, 28, 28)


def test_steps_of_another_guidance_are_told_in_one_line_and_those_of_the_same_in_none(
    training, tmp_path, monkeypatch, capsys
):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["geosprint", *arguments])
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            with pytest.raises(SystemExit) as ended:
                main()
        assert not ended.value.code
        told = capsys.readouterr().err.splitlines(keepends=True)
        return "".join(line for line in told if not line.startswith("sample: "))  # how far it is, on a slow machine

    training("fashion", "--steps", "1", "-o", "mine")
    recorded = ("--trajectories", "2", "--reference-steps", "5", "--label", "3", "--guidance", "2")
    run("extract", "mine", *recorded, "-o", "p.json")
    run("schedule", "p.json", "--steps", "2", "-o", "s.json")
    asked = ("sample", "mine", "--schedule", "s.json", "-n", "1", "-o", "x.safetensors", "--label", "3", "--guidance")
    told = run(*asked, "5")
    assert told.startswith("geosprint: warning: these steps were made from draws with label 3 and guidance 2.0")
    assert "this model draws with label 3 and guidance 5.0" in told
    assert told.count("\n") == 1
    assert run(*asked, "2") == ""


def test_a_trained_network_is_profiled_as_a_model_and_not_as_a_pipeline(training):
    assert training("cifar10", "--steps", "2", "-o", "mine").exit_code == 0
    assert is_in_the_box("mine")
    assert not is_in_the_box("runs")
    done = CliRunner().invoke(
        app, ["extract", "mine", "--trajectories", "2", "--reference-steps", "6", "-o", "p.json", "--json"]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["model"] == "cifar10"
    assert load_model("mine").shape == (3, 32, 32)


def test_a_finished_run_is_only_exported_again(training, tmp_path):
    training("cifar10", "--steps", "2")
    first = (tmp_path / "runs/cifar10/network" / WEIGHTS).read_bytes()
    before = (tmp_path / "runs/cifar10" / CHECKPOINT).stat().st_mtime_ns
    assert training("cifar10", "-o", "again").exit_code == 0
    assert (tmp_path / "again" / WEIGHTS).read_bytes() == first
    assert (tmp_path / "runs/cifar10" / CHECKPOINT).stat().st_mtime_ns == before


def test_ctrl_c_is_one_sentence_and_the_same_command_goes_on(training, tmp_path, monkeypatch):
    torch.set_num_threads(1)
    assert training("cifar10", "-o", "whole", "--runs", "elsewhere").exit_code == 0
    with monkeypatch.context() as pressed:
        interrupt(pressed, at=3)
        stopped = training("cifar10", "-o", "stopped")
    assert stopped.exit_code == 130
    assert stopped.stderr.endswith("stopped at step 3 of 4; the same command goes on from there\n")
    assert "Traceback" not in stopped.output
    assert not (tmp_path / "stopped").exists()
    assert steps_done(tmp_path / "runs/cifar10") == (3, 4)
    assert training("cifar10", "-o", "stopped").exit_code == 0
    assert (tmp_path / "stopped" / WEIGHTS).read_bytes() == (tmp_path / "whole" / WEIGHTS).read_bytes()


def test_ctrl_c_before_training_says_that_there_is_nothing_to_go_on_from(training, monkeypatch):
    def pressed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(training_run, "first_network", pressed)
    stopped = training("cifar10")
    assert stopped.exit_code == 130
    assert stopped.stderr.endswith("stopped before the first checkpoint; the same command starts again\n")


def test_ctrl_c_while_exporting_loses_nothing(training, monkeypatch):
    def pressed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as stopping:
        stopping.setattr(training_run, "export_network", pressed)
        stopped = training("cifar10", "--steps", "1")
    assert stopped.exit_code == 130
    assert stopped.stderr.endswith("stopped at step 1 of 1; the same command goes on from there\n")
    assert training("cifar10", "--steps", "1").exit_code == 0


def test_the_classifier_is_exported_with_its_statistics(training, tmp_path):
    done = training("fashion-classifier")
    assert done.exit_code == 0, done.output
    assert "load_classifier" in done.stdout
    exported = sorted(path.name for path in (tmp_path / "runs/fashion-classifier/network").iterdir())
    assert exported == sorted([CONFIG, WEIGHTS, "train-statistics.npz"])


def remove(path):
    path.unlink()


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-9])


def exchange(path):
    path.write_bytes(b"something else")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [(remove, "found no such file"), (cut_short, "truncated"), (exchange, "not gzip")],
    ids=["missing", "truncated", "another file"],
)
@pytest.mark.parametrize("name", ["fashion", "fashion-classifier"])
def test_a_wrong_data_file_is_named_in_one_sentence(training, small, tmp_path, name, spoil, said):
    spoil(small[0] / "train-labels-idx1-ubyte.gz")
    done = training(name)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert "train-labels-idx1-ubyte.gz" in done.stderr
    assert said in done.stderr
    assert not (tmp_path / "runs").exists()
