"""The principal axes of samples, and how the flow of Gaussian data with these axes carries errors to its end.

That flow is linear and known: along an axis of variance v, an error at signal a and noise s is sqrt(v / (a²·v + s²))
times as large at the end. What lies along the data stays, what lies across it shrinks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

SMALLEST = 1e-12  # of the largest variance, from which on there is an axis
NO_VARIANCE = 1e-30  # stands for 0, of which a share without noise would be 0 / 0


@dataclass(frozen=True, eq=False)
class PrincipalAxes:
    """Orthonormal directions, the variance along each, and the variance along any direction outside of them."""

    axes: Tensor  # (axes, dimensions)
    variances: Tensor  # (axes,) falling, float64
    rest: float

    @classmethod
    def of(cls, samples: Tensor) -> PrincipalAxes:
        """Those of samples (samples, dimensions); how far each is from the span of the others shows the rest."""
        count, dimensions = samples.shape
        centred = samples.double() - samples.double().mean(dim=0)
        squares, rows = (part.flip(-1) for part in torch.linalg.eigh(centred @ centred.T))  # n × n, however many pixels
        is_axis = squares > SMALLEST * squares[0].clamp(min=SMALLEST)
        squares, rows = squares[is_axis], rows[:, is_axis]
        axes = (rows / squares.sqrt()).T @ centred
        in_range = rows.square().sum(dim=1)  # of a sample that the others span, a part is lost with the axes left out
        is_outside = in_range > max(1 - 1 / count, 0.5) - 1e-6
        from_others = torch.where(is_outside, 1 / (rows.square() / squares).sum(dim=1), 0.0)
        rest = float(from_others.mean()) / (dimensions - len(squares) + 1)
        return cls(axes.to(samples), squares / max(count - 1, 1), rest)

    def left_at_end(self, a: float | Tensor, s: float | Tensor) -> Tensor:
        """Share of an error at this signal and noise that the end still has: of each axis and, last, of the rest."""
        variances = torch.cat([self.variances, self.variances.new_tensor([self.rest])]).clamp(min=NO_VARIANCE)
        return torch.sqrt(variances / (a**2 * variances + s**2))

    def at_end(self, errors: Tensor, a: float, s: float) -> Tensor:
        """What the end still has of errors (..., dimensions) at this signal and noise."""
        if not len(self.axes):
            return errors  # equal samples show no direction that differs from another
        return self._stretched(errors, self.left_at_end(a, s))

    def answered(self, errors: Tensor, a: float, s: float) -> Tensor:
        """By how much the x0 of Gaussian data moves with errors (..., dimensions) of the state."""
        return self._stretched(errors, a * self.left_at_end(a, s) ** 2)

    def _stretched(self, errors: Tensor, factors: Tensor) -> Tensor:
        """By one factor along each axis and, last, by another outside of them."""
        along, rest = factors.to(errors).tensor_split([-1])
        return rest * errors + (errors @ self.axes.T * (along - rest)) @ self.axes
