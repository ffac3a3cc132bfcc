"""What a fit would reach on a schedule, without a call: coefficients fitted to what the surrogate predicts.

The surrogate answers each coordinate by itself, so that the effect of a coefficient on the end is what it multiplies,
times one factor for each coordinate: fits of many schedules are refined on their ends together.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from geosprint.fitting.stepwise import SMALLEST
from geosprint.noise import Array
from geosprint.tuning.config import TuneConfig
from geosprint.tuning.surrogate import Surrogate


@dataclass(frozen=True, eq=False)
class _Walks:
    """Fitted walks of several schedules."""

    coefficients: list[Tensor]  # K of (schedules, numbers)
    parts: list[Tensor]  # K of (schedules, numbers, walks, coordinates), what they multiply
    ends: Tensor  # (schedules, walks, coordinates)


@dataclass(frozen=True, eq=False)
class SurrogateFits(Surrogate):
    """The surrogate, with steps that are fitted to the teacher, on each schedule anew, in place of its solver's."""

    refined: bool = False  # on the end, too; else stepwise alone

    @torch.no_grad()
    def ends(self, schedules: Array) -> Tensor:
        """Where fitted walks of several schedules of as many steps end (schedules, walks, *shape)."""
        along = _Along.of(self, schedules)
        found, target = along.walked(None), along.targets[-1]
        best = found.ends
        for _ in range(self.config.surrogate_rounds if self.refined else 0):
            found = along.walked(along.refined(found))
            better = _mean_roots(target - found.ends) < _mean_roots(target - best)
            best = torch.where(better[:, None, None], found.ends, best)
        return best


@dataclass(frozen=True, eq=False)
class _Along:
    """What is predicted along some schedules, and where the teacher is after each of their steps."""

    starts: Tensor  # (schedules, walks, coordinates)
    offsets: list[Tensor]  # K of (schedules, walks, coordinates), the x0 that is predicted where the state is 0
    gains: list[Tensor]  # K of (schedules, 1, coordinates), how it grows with the state
    targets: list[Tensor]  # K of (schedules, walks, coordinates)
    shares: list[Tensor]  # K of (schedules, 1, coordinates), of an error there that is left at the end
    config: TuneConfig

    @classmethod
    def of(cls, surrogate: Surrogate, schedules: Array) -> _Along:
        """Schedules that differ in one time share the others."""
        times, which = np.unique(schedules, return_inverse=True)
        rows = torch.from_numpy(which.reshape(schedules.shape).T)
        teacher, (levels, offset, gains) = surrogate.trajectories, surrogate.known_at(times)
        there, (a, s) = teacher.predictions_at(times), torch.from_numpy(levels.T).float()[..., None, None]
        states, count = a * there.x0 + s * there.eps, len(schedules)
        targets = [*(states[row] for row in rows[1:]), teacher.ends.expand(count, *teacher.ends.shape)]
        starts = teacher.starts.expand(count, *teacher.starts.shape)
        left = surrogate.response.left_at_end(times, gains.shape[-1])[:, None]
        shares = [*(left[row] for row in rows[1:]), torch.ones_like(left[rows[0]])]
        offsets, gains_along = [offset[row] for row in rows], [gains[row] for row in rows]
        return cls(starts, offsets, gains_along, targets, shares, surrogate.config)

    def walked(self, coefficients: list[Tensor] | None) -> _Walks:
        """With these coefficients, or with each step fitted to where the teacher is after it, as far as it matters."""
        x, past, config = self.starts, list[Tensor](), self.config
        used, parts = list[Tensor](), list[Tensor]()
        along = zip(self.offsets, self.gains, self.targets, self.shares, strict=True)
        for i, (offset, gains, target, share) in enumerate(along):
            x0 = torch.addcmul(offset, x, gains)
            parts.append(torch.stack([x, x0, *(before - x0 for before in past)], dim=1))
            used.append(coefficients[i] if coefficients else _stepwise(parts[i], target, share, config))
            x, past = torch.einsum("sn,snwc->swc", used[i], parts[i]), [x0, *past][: config.fit.order - 1]
        return _Walks(used, parts, x)

    def refined(self, walks: _Walks) -> list[Tensor]:
        """Coefficients after a Gauss-Newton step on the end."""
        factors = self._factors_at_end(walks.coefficients)
        effects = torch.cat([part * own[:, None] for part, own in zip(walks.parts, factors, strict=True)], dim=1)
        missing = self.targets[-1] - walks.ends
        roots = _distance_weights(missing).sqrt()
        weighted = (effects * roots[:, None, :, None]).flatten(2)
        gram = (weighted @ weighted.mT).double()
        moment = torch.einsum("snd,sd->sn", weighted, (missing * roots[..., None]).flatten(1)).double()
        moves = _solved(gram, moment, self.config.surrogate_end_ridge)
        each = moves.split([own.shape[1] for own in walks.coefficients], dim=1)
        return [own + by for own, by in zip(walks.coefficients, each, strict=True)]

    def _factors_at_end(self, coefficients: list[Tensor]) -> list[Tensor]:
        """How much of a change of the state after each step is left at the end, K of (schedules, 1, coordinates)."""
        steps, order = len(coefficients), self.config.fit.order
        after = [torch.ones_like(self.gains[0])] * (steps + 1)  # of the state before each step, and of the end
        for i in reversed(range(1, steps)):
            own = coefficients[i][..., None, None]
            of_x0 = after[i + 1] * (own[:, 1] - own[:, 2:].sum(dim=1))
            for back, later in enumerate(coefficients[i + 1 : i + order], start=1):  # steps that look back at it
                of_x0 = of_x0 + after[i + back + 1] * later[:, back + 1, None, None]
            after[i] = after[i + 1] * own[:, 0] + self.gains[i] * of_x0
        return [there for _, there in pairwise(after)]


def _stepwise(parts: Tensor, target: Tensor, share: Tensor, config: TuneConfig) -> Tensor:
    """Coefficients (schedules, numbers) that lead nearest to the target as it counts, in distances, not squares."""
    parts, target = parts * share[:, None], target * share
    grams = torch.einsum("snwc,smwc->swnm", parts, parts).double()
    moments = torch.einsum("snwc,swc->swn", parts, target).double()
    weights = torch.ones(target.shape[:2])
    for _ in range(config.fit.end_reweightings):
        gram, moment = (
            (weights.double()[(...,) + (None,) * more] * one).sum(dim=1) for more, one in ((2, grams), (1, moments))
        )
        found = _solved(gram, moment, config.surrogate_ridge)
        weights = _distance_weights(target - torch.einsum("sn,snwc->swc", found, parts))
    return found


def _solved(gram: Tensor, moment: Tensor, ridge: float) -> Tensor:
    """Of the normal equations of each schedule, with directions scaled to length one."""
    lengths = gram.diagonal(dim1=-2, dim2=-1).sqrt().clamp(min=1e-30)
    scaled = gram / (lengths[:, :, None] * lengths[:, None]) + ridge * torch.eye(gram.shape[-1], dtype=gram.dtype)
    return (torch.linalg.solve(scaled, moment / lengths) / lengths).float()


def _distance_weights(left: Tensor) -> Tensor:
    """Weights (schedules, walks) that turn squares into distances, with mean 1."""
    distances = left.norm(dim=-1)
    weights = 1 / distances.clamp(min=1e-30).maximum(SMALLEST * distances.mean(dim=1, keepdim=True))
    return weights / weights.mean(dim=1, keepdim=True)


def _mean_roots(left: Tensor) -> Tensor:
    return left.norm(dim=-1).sqrt().mean(dim=1)
