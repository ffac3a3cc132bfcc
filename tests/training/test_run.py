from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from toys import write_cifar10, write_fashion

from geosprint.errors import ModelError
from geosprint.models.pretrained import load_pretrained
from geosprint.training import run as training_run
from geosprint.training.data import DATA_SETS
from geosprint.training.export import export_network
from geosprint.training.recipe import RECIPES, Plan, unet_config
from geosprint.training.run import TRAINABLE, train


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Small networks and fake data under the real names."""
    data = tmp_path / "data"
    data.mkdir()
    sources = {"fashion-mnist": write_fashion(data), "cifar-10": write_cifar10(data)}
    for name, source in DATA_SETS.items():
        monkeypatch.setitem(DATA_SETS, name, replace(source, train=sources[name]))
    for name, recipe in list(RECIPES.items()):
        channels = recipe.shape[0] * recipe.patch**2
        network = unet_config(recipe.shape[-1] // recipe.patch, channels, (32, 32), recipe.classes)
        few = {"reflow_pairs": 12, "reflow_steps": 2} if recipe.reflow_pairs else {}
        monkeypatch.setitem(RECIPES, name, replace(recipe, network=network, plan=Plan(steps=4, batch=8), **few))
    monkeypatch.setattr(training_run, "CLASSIFIER_PLAN", Plan(steps=3, batch=8))
    monkeypatch.setattr(training_run, "ASSETS", tmp_path / "no-assets")
    return data, tmp_path / "runs"


@pytest.mark.parametrize("name", ["cifar10", "fashion-classifier"])
def test_training_by_name_runs_from_files_to_checkpoint(small, name):
    run = train(name, *small)
    assert (run.losses > 0).all()
    again = train(name, *small)
    assert again.step == run.step
    assert torch.equal(again.losses, run.losses)


def test_the_family_starts_each_from_the_one_before(small):
    data, runs = small
    with pytest.raises(ModelError, match="train fashion first"):
        train("fashion-flow", data, runs)
    for name in ("fashion", "fashion-flow", "fashion-reflow"):
        assert train(name, data, runs, steps=2).step == 2
        export_network(RECIPES[name], runs / name, runs / "assets" / name)
    model = load_pretrained("fashion-reflow", labels=[1, 2], assets=runs / "assets")
    assert model(torch.zeros(2, 1, 28, 28), 500.0).shape == (2, 1, 28, 28)


def test_a_time_budget_decides_the_steps_once(small, monkeypatch):
    monkeypatch.setattr(training_run, "steps_within", lambda minutes, *rest: int(minutes * 10))
    assert train("cifar10", *small, minutes=0.2).step == 2
    assert train("cifar10", *small, minutes=99).step == 2


def test_an_unknown_name_is_told_the_known_ones(tmp_path):
    with pytest.raises(ModelError, match=f"must be one of {', '.join(TRAINABLE)}, got 'mnist'"):
        train("mnist", tmp_path, tmp_path)
