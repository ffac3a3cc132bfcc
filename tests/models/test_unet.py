from __future__ import annotations

import pytest
import torch

from geosprint.errors import ModelError
from geosprint.models.unet import build_unet, waves
from recipes.networks.recipe import RECIPES, unet_config


@pytest.mark.parametrize(
    "config",
    [
        RECIPES["fashion"].network,
        unet_config(16, 12, (32, 64, 64), classes=None),
        {**unet_config(8, 3, (32, 64)), "layers_per_block": 2},
    ],
    ids=["fashion", "unconditional, three levels", "two layers"],
)
def test_network_is_the_one_of_diffusers(config):
    from diffusers import UNet2DModel

    torch.manual_seed(0)
    theirs, ours = UNet2DModel(**config).eval(), build_unet(config)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(3, config["in_channels"], config["sample_size"], config["sample_size"])
    t = torch.tensor([0.0, 500.5, 999.0])
    labels = None if config["num_class_embeds"] is None else torch.tensor([0, 5, 10])
    with torch.no_grad():
        torch.testing.assert_close(ours(x, t, labels), theirs(x, t, class_labels=labels).sample, atol=1e-5, rtol=1e-4)


def test_one_time_for_all_is_the_same_time_for_each():
    torch.manual_seed(0)
    network, x = build_unet(unet_config(4, 4, (32, 32), classes=None)), torch.randn(2, 4, 4, 4)
    torch.testing.assert_close(network(x, 7.0), network(x, torch.tensor([7, 7])))


def test_waves_are_cosines_then_sines():
    t = torch.tensor([3.0])
    assert waves(t, 4)[0].tolist() == pytest.approx(
        [torch.cos(t).item(), torch.cos(t / 100).item(), torch.sin(t).item(), torch.sin(t / 100).item()]
    )


def test_a_config_it_does_not_know_is_shown():
    with pytest.raises(ModelError, match="knows only what the shipped configs use"):
        build_unet({**unet_config(4, 4, (32, 32)), "down_block_types": ["SkipDownBlock2D", "DownBlock2D"]})
