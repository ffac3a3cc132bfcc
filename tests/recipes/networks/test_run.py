from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from geosprint.errors import ModelError
from geosprint.models.networks import load_classifier, load_pretrained, load_statistics
from recipes.networks import run as training_run
from recipes.networks.export import export_network
from recipes.networks.recipe import RECIPES
from recipes.networks.run import TRAINABLE, export_trained, train, training_set


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


def test_a_network_does_not_start_from_an_unfinished_one(small, monkeypatch):
    data, runs = small
    learn_all = training_run.fit

    def stop_early(network, objective, examples, plan, directory, *rest):
        asked = []

        def until_the_third(*batch):
            asked.append(batch)
            if len(asked) == 3:
                raise KeyboardInterrupt
            return objective(*batch)

        return learn_all(network, until_the_third, examples, plan, directory, rest[0], 0)

    with monkeypatch.context() as stopped:
        stopped.setattr(training_run, "fit", stop_early)
        with pytest.raises(KeyboardInterrupt):
            train("fashion", data, runs)
    with pytest.raises(ModelError, match="is at step 2 of 4; finish that one first"):
        train("fashion-flow", data, runs)
    train("fashion", data, runs)
    assert train("fashion-flow", data, runs).step == 4


def test_an_exported_classifier_brings_the_statistics_of_its_rounded_weights_over_the_training_set(small):
    data, runs = small
    train("fashion-classifier", data, runs)
    export_trained("fashion-classifier", data, runs, runs / "shelf" / "fashion-classifier")
    features = load_classifier(runs / "shelf").features(training_set("fashion-classifier", data).images).double()
    read = load_statistics(runs / "shelf")
    assert read.count == len(features) == 40
    np.testing.assert_allclose(read.mean, features.numpy().mean(0), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(read.covariance, np.cov(features.numpy().T), rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"minutes": 0.0}, "minutes must be a number above 0, got 0"),
        ({"minutes": math.nan}, "minutes must be a number above 0, got nan"),
        ({"minutes": math.inf}, "minutes must be a number above 0, got inf"),
        ({"steps": 2, "minutes": 1.0}, "one of the two, got 2 steps and 1 minutes"),
    ],
)
def test_a_budget_that_is_none_is_refused(small, budget, said):
    with pytest.raises(ModelError, match=said):
        train("cifar10", *small, **budget)
