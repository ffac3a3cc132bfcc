"""A mixture of equal Gaussians: few modes in the plane, or one for every image of a data set."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from importlib.resources import files

import numpy as np
import torch
from torch import Tensor

from geosprint.models.base import CPU
from geosprint.noise import DiscreteVP, NoiseSchedule


@dataclass(frozen=True, eq=False)
class Mixture:
    """Data ~ the mean of N(means[i], deviation²); with images as means, a kernel density of the data set."""

    means: Tensor  # (modes, *shape)
    deviation: float
    noise: NoiseSchedule = field(default_factory=DiscreteVP.named)
    name: str = "mixture"
    prediction: str = "x0"
    clip: float | None = None
    calls: int = 1
    device: torch.device = CPU

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.means.shape[1:])

    def __call__(self, x: Tensor, t: float) -> Tensor:
        """E[x0 | x]: every mode's own answer, weighted by how likely it made x."""
        a, s = self.noise.signal_and_sigma(t)
        variance = (a * self.deviation) ** 2 + s**2
        means, flat = self.means.to(x).flatten(1), x.flatten(1)
        # |x - a·m|² without |x|², which is the same for all modes.
        nearness = (a * flat @ means.T - a**2 * (means**2).sum(dim=1) / 2) / variance
        mode = torch.softmax(nearness, dim=1) @ means
        trust = a * self.deviation**2 / variance
        return (mode + trust * (flat - a * mode)).view_as(x)


def ring(modes: int = 8, deviation: float = 0.1, noise: NoiseSchedule | None = None) -> Mixture:
    """Modes on the unit circle."""
    angle = 2 * math.pi * torch.arange(modes).double() / modes
    means = torch.stack([torch.cos(angle), torch.sin(angle)], dim=1)
    return Mixture(means, deviation, noise or DiscreteVP.named())


def digits(deviation: float = 0.1, noise: NoiseSchedule | None = None) -> Mixture:
    """The ideal denoiser of 1,797 handwritten digits of 8×8 pixels (UCI, CC BY 4.0), smoothed by a kernel."""
    images, _ = digit_images()
    return Mixture(images, deviation, noise or DiscreteVP.named(), name="digits")


def digit_images() -> tuple[Tensor, Tensor]:
    """The digits in -1..1 (1797, 1, 8, 8) and their labels."""
    with np.load(str(files("geosprint.models") / "assets" / "digits.npz"), allow_pickle=False) as data:
        images = torch.from_numpy(data["images"]).double() / 8 - 1
        return images[:, None], torch.from_numpy(data["labels"]).long()
