"""Reflow (Liu et al. 2023): straighten a flow by learning from its own pairs of noise and sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from tqdm import tqdm

from geosprint.errors import FileError
from geosprint.files import write_whole
from geosprint.training.loop import generator_of


@dataclass(frozen=True)
class Pairs:
    """Where a flow takes each noise: the couplings the next round learns."""

    samples: Tensor  # (n, *shape)
    labels: Tensor  # (n,) int64
    noise: Tensor  # (n, *shape)


Velocity = Callable[[Tensor, float, Tensor], Tensor]
"""(x, t, labels) to eps - x0."""


@torch.no_grad()
def transport(velocity: Velocity, noise: Tensor, labels: Tensor, steps: int, first: float = 1000.0) -> Tensor:
    """Follow the flow from noise (t = first) to sample (t = 0) with Heun steps, the last one Euler."""
    x = noise
    width = 1 / steps
    for step in range(steps):
        t = first * (1 - step * width)
        slope = velocity(x, t, labels)
        ahead = x - width * slope
        if step < steps - 1:
            slope = (slope + velocity(ahead, t - first * width, labels)) / 2
        x = x - width * slope
    return x


def draw_pairs(
    velocity: Velocity,
    shape: tuple[int, ...],
    labels: Tensor,
    steps: int,
    seed: int = 0,
    batch: int = 250,
) -> Pairs:
    """One pair per label; the noise of a batch depends on the seed and the batch's number only."""
    drawn = []
    for number, part in enumerate(tqdm(labels.split(batch), desc="pairs")):
        noise = torch.randn(len(part), *shape, generator=generator_of(seed, "pairs", number))
        drawn.append((transport(velocity, noise, part, steps), noise))
    samples, noises = (torch.cat(parts) for parts in zip(*drawn, strict=True))
    return Pairs(samples, labels, noises)


def velocity_of(network: nn.Module) -> Velocity:
    """A trained flow network, guidance off, in the words of `transport`."""
    return lambda x, t, labels: network(x, t, labels)


def save_pairs(pairs: Pairs, path: Path) -> None:
    """Written under a temporary name and renamed, like a checkpoint."""
    tensors = {"samples": pairs.samples, "labels": pairs.labels, "noise": pairs.noise}
    write_whole(path, lambda unfinished: save_file(tensors, unfinished))


def load_pairs(path: Path) -> Pairs:
    """The pairs that `save_pairs` wrote."""
    try:
        pairs = Pairs(**load_file(path))
    except (OSError, SafetensorError, TypeError) as wrong:
        raise FileError(
            f"{path} holds no pairs of noise and sample ({wrong}); remove it, and they are drawn again"
        ) from wrong
    one_shape = pairs.samples.shape == pairs.noise.shape
    if not one_shape or pairs.labels.shape != pairs.samples.shape[:1] or pairs.labels.dtype != torch.int64:
        raise FileError(
            f"{path} must hold a sample, a noise and a label of each pair; remove it, and they are drawn again"
        )
    return pairs
