from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from toys import toy_pictures, toy_recipe

from geosprint.errors import FileError, ModelError
from geosprint.models.pretrained import PatchedUNet
from geosprint.models.unet import build_unet
from geosprint.training.loop import (
    CHECKPOINT,
    PROGRESS,
    DataOrder,
    fit,
    generator_of,
    learn,
    learning_rate_at,
    planned_steps,
    resume,
    save_checkpoint,
    steps_within,
)
from geosprint.training.loss import denoising_loss
from geosprint.training.recipe import Plan

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


def test_a_checkpoint_of_another_plan_is_refused(tmp_path):
    network = nn.Linear(2, 1)
    plan = Plan(steps=3)
    save_checkpoint(resume(network, plan, tmp_path, 0), plan, tmp_path, 0)
    assert planned_steps(tmp_path) == 3
    with pytest.raises(FileError, match="name another directory"):
        resume(network, replace(plan, learning_rate=0.5), tmp_path, 0)
    with pytest.raises(FileError, match="name another directory"):
        resume(network, plan, tmp_path, seed=1)


def test_steps_are_those_of_torch_adamw(tmp_path):
    plan = Plan(steps=20, learning_rate=0.05, warmup=1, weight_decay=0.1, clip_gradient=0.7)
    torch.manual_seed(2)
    ours, theirs = nn.Linear(3, 2), nn.Linear(3, 2)
    theirs.load_state_dict(ours.state_dict())
    run = resume(ours, plan, tmp_path, 0)
    adamw = torch.optim.AdamW(theirs.parameters(), betas=(0.9, 0.99), weight_decay=0.1)
    for step in range(20):
        x = torch.randn(5, 3, generator=generator_of(0, "x", step))
        adamw.param_groups[0]["lr"] = learning_rate_at(step, plan)
        learn(run, ours(x).square().mean(), plan)
        adamw.zero_grad()
        theirs(x).square().mean().backward()
        nn.utils.clip_grad_norm_(theirs.parameters(), 0.7)
        adamw.step()
    torch.testing.assert_close(ours.weight, theirs.weight, rtol=1e-5, atol=1e-6)


def test_a_loss_that_explodes_stops_the_run(tmp_path):
    with pytest.raises(ModelError, match="became nan at step 0; lower the learning rate"):
        fit(nn.Linear(2, 1), lambda network, *_: network.weight.sum() * torch.nan, (torch.ones(4),), Plan(1), tmp_path)


def test_learning_rate_warms_up_and_falls_to_nothing():
    plan = Plan(steps=1000, learning_rate=2.0, warmup=100)
    rates = [learning_rate_at(step, plan) for step in range(1000)]
    assert rates[0] == pytest.approx(0.02)
    assert rates[99] == pytest.approx(2.0)
    assert rates[550] == pytest.approx(1.0)
    assert rates[-1] < 1e-5
    assert rates[99:] == sorted(rates[99:], reverse=True)


def test_every_epoch_sees_every_row_once_in_another_order():
    order = DataOrder(count=10, batch=4, seed=3)
    rows = torch.cat([order.rows(step) for step in range(5)])
    assert sorted(rows[:10].tolist()) == sorted(rows[10:].tolist()) == list(range(10))
    assert rows[:10].tolist() != rows[10:].tolist()
    assert torch.equal(order.rows(3), DataOrder(10, 4, 3).rows(3))


def test_a_batch_may_be_larger_than_the_data():
    rows = DataOrder(count=3, batch=8, seed=0).rows(0)
    assert sorted(rows[:3].tolist()) == [0, 1, 2]
    assert len(rows) == 8


def test_generators_differ_by_seed_purpose_and_index():
    keys = [(0, "noise", 0), (1, "noise", 0), (0, "order", 0), (0, "noise", 1)]
    draws = {float(torch.rand(1, generator=generator_of(*key))) for key in keys}
    assert len(draws) == 4
    assert torch.equal(torch.rand(3, generator=generator_of(*keys[0])), torch.rand(3, generator=generator_of(*keys[0])))


def test_twice_the_time_fits_about_twice_the_steps_and_leaves_the_network_alone():
    network = nn.Linear(2, 1)
    before = network.weight.clone()

    def slow(network, batch, generator):
        time.sleep(0.01)
        return network(batch[0]).square().mean()

    steps = steps_within(1.0, network, slow, (torch.ones(4, 2),), Plan(steps=1, batch=2))
    assert 60 / 0.02 < steps < 60 / 0.01
    assert torch.equal(network.weight, before)
