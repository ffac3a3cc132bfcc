from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from toys import toy_recipe

from geosprint.errors import ModelError
from geosprint.paper.learning import stratified_times
from recipes.networks.loss import NOISED, denoising_loss, drop_labels, mirror_half
from recipes.networks.recipe import RECIPES


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_times_fall_one_into_each_stratum():
    times = stratified_times(50, generator())
    assert times.min() > 0
    assert times.max() <= 1
    assert sorted((times * 50).ceil().long().tolist()) == list(range(1, 51))


def test_noised_states_match_the_linear_rates_of_ho_et_al():
    add_noise = NOISED["eps"](RECIPES["fashion"])
    images, eps = torch.ones(3, 1, 2, 2), torch.full((3, 1, 2, 2), 2.0)
    x, t, target = add_noise(images, eps, torch.tensor([1e-6, 0.5, 1.0]))
    alphas = np.cumprod(1 - np.linspace(1e-4, 0.02, 1000))[[0, 499, 999]]
    assert t.tolist() == [0, 499, 999]
    assert x[:, 0, 0, 0].tolist() == pytest.approx(np.sqrt(alphas) + 2 * np.sqrt(1 - alphas), rel=1e-5)
    assert target is eps


def test_every_timestep_is_drawn_equally_often():
    add_noise = NOISED["eps"](RECIPES["fashion"])
    flat = torch.zeros(1000, 1, 1, 1)
    _, t, _ = add_noise(flat, flat, stratified_times(1000, generator()))
    assert sorted(t.tolist()) == list(range(1000))


def test_flow_states_lie_on_the_line_and_the_target_is_its_direction():
    add_noise = NOISED["flow"](RECIPES["fashion-flow"])
    images, eps = torch.full((2, 1, 1, 1), 3.0), torch.full((2, 1, 1, 1), -1.0)
    x, t, target = add_noise(images, eps, torch.tensor([0.25, 1.0]))
    assert t.tolist() == [250.0, 1000.0]
    assert x.flatten().tolist() == [0.75 * 3 - 0.25, -1.0]
    assert target.flatten().tolist() == [-4.0, -4.0]


def test_reflow_uses_the_noise_it_is_given():
    recipe = toy_recipe("fashion-reflow")
    images, noise = torch.randn(2, 5, 1, 8, 8, generator=generator(3))
    loss = denoising_loss(recipe)(
        lambda x, t, labels: noise - images, (images, torch.zeros(5).long(), noise), generator()
    )
    assert float(loss) == 0


def test_a_network_that_knows_the_noise_has_no_loss():
    recipe = toy_recipe("fashion")
    alphas = torch.tensor([recipe.noise.signal_and_sigma(t) for t in range(1000)])

    def oracle(x, t, labels):
        a, s = alphas[t].view(-1, 2, 1, 1, 1).unbind(1)
        return (x - a * 0.3) / s

    images = torch.full((16, 1, 8, 8), 0.3)
    assert float(denoising_loss(recipe)(oracle, (images, torch.zeros(16).long()), generator())) < 1e-6


def test_a_tenth_of_the_labels_is_dropped():
    labels = torch.arange(100_000) % 10
    seen = drop_labels(labels, RECIPES["fashion"], generator())
    dropped = seen != labels
    assert (seen[dropped] == 10).all()
    assert float(dropped.double().mean()) == pytest.approx(0.1, abs=0.005)


def test_an_unconditional_network_sees_no_labels():
    assert drop_labels(torch.zeros(4).long(), RECIPES["cifar10"], generator()) is None


def test_half_of_the_pictures_are_mirrored():
    images = torch.arange(4.0).expand(10_000, 1, 1, 4)
    mirrored = mirror_half(images, generator())[:, 0, 0, 0] == 3
    assert float(mirrored.double().mean()) == pytest.approx(0.5, abs=0.02)


def test_a_prediction_that_cannot_be_trained_is_named():
    with pytest.raises(ModelError, match="prediction must be one of eps, flow to be trained, got 'x0'"):
        denoising_loss(replace(toy_recipe(), prediction="x0"))
