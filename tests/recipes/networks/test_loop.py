from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from toys import toy_pictures, toy_recipe

from geosprint.errors import FileError, ModelError
from geosprint.models.networks import PatchedUNet
from geosprint.models.unet import build_unet
from geosprint.paper.learning import TrainingPlan
from recipes.networks.loop import (
    CHECKPOINT,
    PROGRESS,
    fit,
    resume,
    save_checkpoint,
    steps_done,
    steps_within,
)
from recipes.networks.loss import denoising_loss

HERE = Path(__file__).parent
TO_BE_KILLED = """
import torch, sys
from pathlib import Path
from toys import toy_pictures
from test_loop import train_toy
train_toy(Path(sys.argv[1]), checkpoint_seconds=0)
"""


def train_toy(directory, name="fashion", steps=25, checkpoint_seconds=1e9):
    """Train the toy network of a recipe, on one thread so that sums are added in one order."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    recipe = toy_recipe(name, steps)
    network = PatchedUNet(build_unet(recipe.network), recipe.patch)
    pictures = toy_pictures()
    examples = (pictures.images, pictures.labels)
    return fit(network, denoising_loss(recipe), examples, recipe.plan, directory, 7, checkpoint_seconds)


@pytest.mark.parametrize("name", ["fashion", "fashion-flow"])
def test_loss_falls(tmp_path, name):
    run = train_toy(tmp_path, name, steps=60)
    assert run.losses[-10:].mean() < 0.6 * run.losses[:5].mean()
    assert json.loads((tmp_path / PROGRESS).read_text())["step"] == 60


def test_a_killed_run_resumes_bit_for_bit(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    train_toy(whole)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    child = subprocess.Popen(
        [sys.executable, "-c", TO_BE_KILLED, str(killed)], env=environment, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while not (killed / PROGRESS).exists() and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    child.send_signal(signal.SIGKILL)
    child.wait()
    left_at = resume(*_toy_run(), killed, 7).step
    assert 0 < left_at < 25
    train_toy(killed)
    expected, resumed = load_file(whole / CHECKPOINT), load_file(killed / CHECKPOINT)
    assert expected.keys() == resumed.keys()
    assert all(torch.equal(expected[name], resumed[name]) for name in expected)


def _toy_run():
    recipe = toy_recipe("fashion", 25)
    return PatchedUNet(build_unet(recipe.network), recipe.patch), recipe.plan


def saved_after_a_step(directory):
    """The checkpoint of a line after one of three steps, seed 0."""
    network, plan = nn.Linear(2, 1), TrainingPlan(steps=3)
    run = resume(network, plan, directory, 0)
    run.learn(network(torch.ones(1, 2)).sum())
    save_checkpoint(run, directory, 0)
    return network, plan


def test_a_checkpoint_of_another_plan_is_refused(tmp_path):
    assert steps_done(tmp_path) == (0, 0)
    network, plan = saved_after_a_step(tmp_path)
    assert steps_done(tmp_path) == (1, 3)
    with pytest.raises(
        FileError, match=r"begun with learning_rate 0\.001, asked for learning_rate 0\.5; .* name another"
    ):
        resume(network, replace(plan, learning_rate=0.5), tmp_path, 0)
    with pytest.raises(FileError, match=r"begun with seed 0, asked for seed 1; .* name another directory"):
        resume(network, plan, tmp_path, seed=1)


@pytest.mark.parametrize("left", [0, 60, -1])
def test_a_damaged_checkpoint_is_named(tmp_path, left):
    network, plan = saved_after_a_step(tmp_path)
    path = tmp_path / CHECKPOINT
    path.write_bytes(path.read_bytes()[:left])
    for reading in (lambda: resume(network, plan, tmp_path, 0), lambda: steps_done(tmp_path)):
        with pytest.raises(FileError, match=f"{CHECKPOINT} is damaged"):
            reading()


def test_a_checkpoint_of_another_network_is_refused(tmp_path):
    _, plan = saved_after_a_step(tmp_path)
    for other in (nn.Linear(3, 1), nn.Bilinear(2, 2, 1), nn.PReLU()):
        with pytest.raises(FileError, match="of another network"):
            resume(other, plan, tmp_path, 0)


def test_a_place_where_no_run_can_be_kept_is_refused_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot keep a run in"):
        fit(nn.Linear(2, 1), None, (torch.ones(4),), TrainingPlan(steps=1), tmp_path / "file" / "run")


def squares(interrupts_at, presses=1):
    """A loss during whose n-th call Ctrl-C is pressed."""
    asked = []

    def loss(network, batch, generator):
        asked.append(batch)
        if len(asked) == interrupts_at:
            for _ in range(presses):
                signal.raise_signal(signal.SIGINT)
        return (network(batch[0]) - torch.rand(1, generator=generator)).square().mean()

    return loss


def fit_line(directory, interrupts_at=None, presses=1):
    torch.manual_seed(0)
    examples = (torch.linspace(-1, 1, 12).view(6, 2),)
    plan = TrainingPlan(steps=6, batch=4, warmup=1)
    return fit(nn.Linear(2, 1), squares(interrupts_at, presses), examples, plan, directory)


@pytest.fixture
def ctrl_c():
    """Python's own handler: a shell that starts the tests in the background has them ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_the_step_in_hand_and_the_run_goes_on_bit_for_bit(tmp_path):
    whole = fit_line(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fit_line(tmp_path / "stopped", interrupts_at=3)
    assert steps_done(tmp_path / "stopped") == (3, 6)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    resumed = fit_line(tmp_path / "stopped")
    assert torch.equal(resumed.losses, whole.losses)
    assert torch.equal(resumed.weights["weight"], whole.weights["weight"])
    assert torch.equal(resumed.average["weight"], whole.average["weight"])


@pytest.mark.usefixtures("ctrl_c")
def test_a_second_ctrl_c_does_not_wait(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fit_line(tmp_path, interrupts_at=3, presses=2)
    assert steps_done(tmp_path) == (0, 0)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_training_works_outside_the_main_thread(tmp_path):
    worker = threading.Thread(target=fit_line, args=(tmp_path,))
    worker.start()
    worker.join()
    assert steps_done(tmp_path) == (6, 6)


def test_a_loss_that_explodes_stops_the_run(tmp_path):
    def explodes(network, *_):
        return network.weight.sum() * torch.nan

    with pytest.raises(ModelError, match="became nan at step 0; lower the learning rate"):
        fit(nn.Linear(2, 1), explodes, (torch.ones(4),), TrainingPlan(1), tmp_path)


def test_twice_the_time_fits_about_twice_the_steps_and_leaves_the_network_alone():
    network = nn.Linear(2, 1)
    before = network.weight.clone()

    def slow(network, batch, generator):
        time.sleep(0.01)
        return network(batch[0]).square().mean()

    steps = steps_within(1.0, network, slow, (torch.ones(4, 2),), TrainingPlan(steps=1, batch=2))
    assert 60 / 0.02 < steps < 60 / 0.01
    assert torch.equal(network.weight, before)
