"""A few hundred numbers that stand for a sample: its principal axes, and random directions for all the rest."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from geosprint.search.fine_walks import FineWalks

FEW = 256  # as many coordinates tell a root mean square over 48 samples to about a hundredth


@dataclass(frozen=True, eq=False)
class Coordinates:
    """An orthonormal basis, or the part of it that was drawn, its random rows stretched to stand for all."""

    basis: Tensor  # (coordinates, dimensions); the principal axes come first
    variances: Tensor  # (axes,) of the data along its principal axes, falling

    @classmethod
    def of(cls, walks: FineWalks, most: int | None = FEW) -> Coordinates:
        """Made for the ends of these walks, with so many coordinates at most; None: all of them."""
        ends = walks.ends.flatten(1).double()
        dimensions = ends.shape[1]
        _, lengths, axes = torch.linalg.svd(ends - ends.mean(dim=0), full_matrices=False)
        known = lengths > 1e-6 * lengths[0].clamp(min=1e-12)  # of n walks there are at most n - 1
        axes, variances = axes[known], (lengths[known] ** 2 / (len(ends) - 1))
        count = min(dimensions, most or dimensions) - len(axes)
        if count <= 0:
            return cls(axes.float(), variances.float())
        drawn = torch.randn(count, dimensions, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        rest, _ = torch.linalg.qr((drawn - drawn @ axes.T @ axes).T)
        stretch = math.sqrt((dimensions - len(axes)) / count)
        return cls(torch.cat([axes, stretch * rest.T]).float(), variances.float())

    @property
    def dimensions(self) -> int:
        """Of the samples."""
        return self.basis.shape[1]

    def of_samples(self, samples: Tensor) -> Tensor:
        """(samples, *shape) as (samples, coordinates)."""
        return samples.flatten(1) @ self.basis.T

    def of_walks(self, walks: FineWalks) -> FineWalks:
        """The same walks, told in coordinates: solvers and responses are linear, so that nothing else changes."""
        x0, eps = (torch.stack([self.of_samples(part) for part in parts]) for parts in (walks.x0, walks.eps))
        ends = (self.of_samples(walks.starts), self.of_samples(walks.ends))
        return FineWalks(walks.noise, walks.rows, walks.times, x0, eps, *ends)

    def samples_at(self, coordinates: Tensor) -> Tensor:
        """Back to (samples, dimensions); exact if all coordinates were kept."""
        return coordinates @ self.basis
