"""Models whose answers are known in closed form: a Gaussian at image size, and mixtures of Gaussians."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files

import numpy as np
import torch
from torch import Tensor

from geosprint.models.base import CPU, Model
from geosprint.noise import CLEAN, DiscreteVP, NoiseSchedule


@dataclass(frozen=True, eq=False, kw_only=True)
class ExactModel(Model):
    """A model that answers E[x0 | x]."""

    prediction: str = "x0"
    clip: float | None = None
    calls: int = 1
    device: torch.device = CPU


@dataclass(frozen=True, eq=False)
class Gaussian(ExactModel):
    """Data ~ N(0, B diag(variances) B'), where B is the two-dimensional cosine basis, or none."""

    variances: Tensor  # (*shape) float64
    noise: NoiseSchedule = field(default_factory=DiscreteVP.named)
    in_cosine_basis: bool = True
    name: str = "gaussian"

    @classmethod
    def of_images(
        cls, shape: tuple[int, int, int] = (3, 32, 32), decay: float = 2.0, deviation: float = 0.5, **rest: object
    ) -> Gaussian:
        """Variance falls as frequency^-decay, as in photographs, with this pixel deviation in the mean."""
        _, height, width = shape
        rows, columns = torch.arange(height).double(), torch.arange(width).double()
        frequency = 1 + torch.sqrt(rows[:, None] ** 2 + columns[None] ** 2)
        variances = (frequency**-decay).expand(shape).clone()
        return cls(variances * deviation**2 / variances.mean(), **rest)  # type: ignore[arg-type]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.variances.shape)

    def __call__(self, x: Tensor, t: float) -> Tensor:
        """E[x0 | x], a linear shrinkage of every coordinate."""
        a, s = self.noise.signal_and_sigma(t)
        return self._scaled(x, a * self.variances / (a**2 * self.variances + s**2))

    def solution(self, x: Tensor, t: float, t_next: float = CLEAN) -> Tensor:
        """Where the probability-flow ODE carries x: each coordinate keeps its number of deviations (Eq. 2)."""
        return self._scaled(x, self.deviations(t_next) / self.deviations(t))

    def deviations(self, t: float) -> Tensor:
        """Standard deviation of every coordinate at time t."""
        a, s = self.noise.signal_and_sigma(t)
        return torch.sqrt(a**2 * self.variances + s**2)

    def _scaled(self, x: Tensor, gains: Tensor) -> Tensor:
        gains = gains.to(x)
        if not self.in_cosine_basis:
            return x * gains
        rows, columns = (basis.to(x) for basis in self._bases)
        return rows.T @ ((rows @ x @ columns.T) * gains) @ columns

    @cached_property
    def _bases(self) -> tuple[Tensor, Tensor]:
        return _cosine_basis(self.shape[-2]), _cosine_basis(self.shape[-1])


def _cosine_basis(size: int) -> Tensor:
    """Orthonormal DCT-II, one row per frequency."""
    frequency, place = torch.arange(size).double()[:, None], torch.arange(size).double()[None]
    basis = torch.cos(math.pi * frequency * (place + 0.5) / size) * math.sqrt(2 / size)
    basis[0] /= math.sqrt(2)
    return basis


@dataclass(frozen=True, eq=False)
class Mixture(ExactModel):
    """Data ~ the mean of N(means[i], deviation²); with images as means, a kernel density of the data set."""

    means: Tensor  # (modes, *shape)
    deviation: float
    noise: NoiseSchedule = field(default_factory=DiscreteVP.named)
    name: str = "mixture"

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


MAKERS: dict[str, Callable[[], Model]] = {"gaussian": Gaussian.of_images, "mixture": ring, "digits": digits}
