"""What a denoising network is asked to learn from one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geosprint.errors import ModelError
from geosprint.paper.learning import stratified_times
from recipes.networks.recipe import Recipe

Objective = Callable[[nn.Module, Sequence[Tensor], torch.Generator], Tensor]
"""The loss of a network on one batch; every random number comes from the generator."""


def denoising_loss(recipe: Recipe) -> Objective:
    """The objective of a recipe: a batch is (images, labels), or (images, labels, noise) for reflow."""
    if recipe.prediction not in NOISED:
        raise ModelError(f"prediction must be one of {', '.join(NOISED)} to be trained, got {recipe.prediction!r}")
    add_noise = NOISED[recipe.prediction](recipe)

    def loss(network: nn.Module, batch: Sequence[Tensor], generator: torch.Generator) -> Tensor:
        images, labels, *given = batch
        clock = stratified_times(len(images), generator)
        if recipe.flips:
            images = mirror_half(images, generator)
        seen = drop_labels(labels, recipe, generator)
        eps = given[0] if given else torch.randn(images.shape, generator=generator)
        x, t, target = add_noise(images, eps, clock)
        return F.mse_loss(network(x, t, seen), target)

    return loss


def drop_labels(labels: Tensor, recipe: Recipe, generator: torch.Generator) -> Tensor | None:
    """Labels with a share of them replaced by the null class; None for an unconditional network."""
    if recipe.classes is None:
        return None
    dropped = torch.rand(len(labels), generator=generator) < recipe.label_dropout
    return torch.where(dropped, recipe.classes, labels)


def mirror_half(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each picture left to right with probability one half."""
    mirrored = torch.rand(len(images), 1, 1, 1, generator=generator) < 0.5
    return torch.where(mirrored, images.flip(-1), images)


Noised = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""(images, eps, clock in (0, 1]) to (state, time the network is told, target)."""


def _noise_to_predict(recipe: Recipe) -> Noised:
    factors = torch.tensor([recipe.noise.signal_and_sigma(t) for t in range(int(recipe.noise.first) + 1)])

    def noised(images: Tensor, eps: Tensor, clock: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        t = (clock * len(factors)).ceil().long().sub(1).clamp(0, len(factors) - 1)
        a, s = factors[t].view(-1, 2, 1, 1, 1).unbind(1)
        return a * images + s * eps, t, eps

    return noised


def _velocity_to_predict(recipe: Recipe) -> Noised:
    def noised(images: Tensor, eps: Tensor, clock: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        s = clock.view(-1, 1, 1, 1)
        return (1 - s) * images + s * eps, clock * recipe.noise.first, eps - images

    return noised


NOISED: dict[str, Callable[[Recipe], Noised]] = {"eps": _noise_to_predict, "flow": _velocity_to_predict}
