"""Recipes: everything that decides what a shipped network becomes, one frozen object each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from geosprint.noise import DiscreteVP, Flow, NoiseSchedule
from geosprint.paper.learning import TrainingPlan


@dataclass(frozen=True)
class Recipe:
    """One denoising network: what it looks like, what it learns and from what."""

    name: str
    data: str  # a key of data.DATA_SETS
    network: dict[str, Any]  # the config.json of a diffusers UNet2DModel
    shape: tuple[int, int, int]  # of one sample
    patch: int  # space to depth: the network sees patch² times the channels
    noise: NoiseSchedule
    prediction: str  # "eps" or "flow"
    plan: TrainingPlan
    clip: float | None = 1.0  # range of the predicted x0
    classes: int | None = 10  # None: unconditional
    label_dropout: float = 0.1
    flips: bool = False  # mirror half of the pictures
    starts_from: str | None = None  # the recipe whose averaged weights are the first weights
    reflow_pairs: int = 0  # learn this many couplings of `starts_from` instead of fresh noise
    reflow_steps: int = 20  # Heun steps from noise to sample, two calls each


def unet_config(size: int, channels: int, blocks: tuple[int, ...], classes: int | None = 10) -> dict[str, Any]:
    """One residual layer a level, attention at the lowest level only."""
    plain = len(blocks) - 1
    return {
        "sample_size": size,
        "in_channels": channels,
        "out_channels": channels,
        "block_out_channels": list(blocks),
        "layers_per_block": 1,
        "down_block_types": ["DownBlock2D"] * plain + ["AttnDownBlock2D"],
        "up_block_types": ["AttnUpBlock2D"] + ["UpBlock2D"] * plain,
        "norm_num_groups": 16,
        "attention_head_dim": 32,
        "num_class_embeds": None if classes is None else classes + 1,
    }


# 28×28 pictures as 14×14×4: three times faster a step than the same width at full size.
_FASHION_NETWORK = unet_config(14, 4, (64, 64))
_LINEAR_RATES = DiscreteVP.named("linear", 1000)

RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="fashion",
            data="fashion-mnist",
            network=_FASHION_NETWORK,
            shape=(1, 28, 28),
            patch=2,
            noise=_LINEAR_RATES,
            prediction="eps",
            plan=TrainingPlan(steps=4600),
        ),
        Recipe(
            name="fashion-flow",
            data="fashion-mnist",
            network=_FASHION_NETWORK,
            shape=(1, 28, 28),
            patch=2,
            noise=Flow(),
            prediction="flow",
            clip=None,
            plan=TrainingPlan(steps=1100),
            starts_from="fashion",
        ),
        Recipe(
            name="fashion-reflow",
            data="fashion-mnist",
            network=_FASHION_NETWORK,
            shape=(1, 28, 28),
            patch=2,
            noise=Flow(),
            prediction="flow",
            clip=None,
            plan=TrainingPlan(steps=700, learning_rate=5e-4, warmup=50),
            starts_from="fashion-flow",
            reflow_pairs=5_000,
            reflow_steps=8,
        ),
        Recipe(
            name="cifar10",
            data="cifar-10",
            network=unet_config(16, 12, (64, 128, 128), classes=None),
            shape=(3, 32, 32),
            patch=2,
            noise=_LINEAR_RATES,
            prediction="eps",
            plan=TrainingPlan(steps=7_500, batch=32, learning_rate=8e-4),
            classes=None,
            label_dropout=0.0,
            flips=True,
        ),
    )
}
