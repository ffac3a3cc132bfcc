from __future__ import annotations

from dataclasses import replace

import pytest
from toys import write_cifar10, write_fashion

from geosprint.paper.learning import TrainingPlan
from recipes.networks import run as training_run
from recipes.networks.data import DATA_SETS
from recipes.networks.recipe import RECIPES, unet_config


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
        monkeypatch.setitem(RECIPES, name, replace(recipe, network=network, plan=TrainingPlan(steps=4, batch=8), **few))
    monkeypatch.setattr(training_run, "CLASSIFIER_PLAN", TrainingPlan(steps=3, batch=8))
    monkeypatch.setattr(training_run, "ASSETS", tmp_path / "no-assets")
    return data, tmp_path / "runs"
