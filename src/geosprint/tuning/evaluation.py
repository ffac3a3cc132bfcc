"""Schedules tried for real: walks of the model from the noise of fine walks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geosprint.errors import ModelError
from geosprint.metrics.estimates import tempered_mean
from geosprint.sampling import Counted, batches_of, walk
from geosprint.solvers import Solver, refuse_to_draw
from geosprint.teacher import TeacherTrajectories
from geosprint.tuning.descent import Measure

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trial:
    """What became of a schedule."""

    times: Array  # (K,)
    states: list[Tensor]  # K of (walks, *shape)
    x0: list[Tensor]  # what the model answered there
    end: Tensor  # (walks, *shape)
    errors: Array  # (walks,) distance to the fine end

    @property
    def error(self) -> float:
        """The mean over walks: what schedules are judged by."""
        return float(self.errors.mean())

    @property
    def tempered(self) -> float:
        """What a search follows: it carries over better to other walks than the mean."""
        return tempered_mean(self.errors)

    def joined_with(self, other: Trial) -> Trial:
        """The same times on more walks."""
        states, x0 = (
            [torch.cat(both) for both in zip(mine, theirs, strict=True)]
            for mine, theirs in ((self.states, other.states), (self.x0, other.x0))
        )
        end, errors = torch.cat([self.end, other.end]), np.concatenate([self.errors, other.errors])
        return Trial(self.times, states, x0, end, errors)


@dataclass(frozen=True, eq=False)
class Course:
    """Fine walks, and a model and a solver to follow them with fewer steps."""

    model: Counted
    solver: Solver
    walks: TeacherTrajectories
    measure: Measure
    batch: int
    tell: Callable[[int], object] = lambda calls: None  # is told the calls that were made

    @torch.no_grad()
    def tried(self, times: Array, rows: slice | None = None) -> Trial:
        """Real walks of these times from the noise of some fine walks, or of all."""
        walks = self.walks.at(rows or slice(None))
        parts = [
            self._walked(times, walks.at(slice(some.start, some.stop))) for some in batches_of(len(walks), self.batch)
        ]
        whole = parts[0]
        for part in parts[1:]:
            whole = whole.joined_with(part)
        return whole

    def _walked(self, times: Array, walks: TeacherTrajectories) -> Trial:
        model, before = self.model.for_samples(walks.rows), self.model.nfe
        found = list(walk(model, walks.starts.to(model.device), times, self.solver, refuse_to_draw))
        asked = [(state.x.cpu(), state.prediction.x0.cpu()) for state in found if state.prediction]
        end = found[-1].x.cpu()
        self.tell(self.model.nfe - before)
        if not torch.isfinite(end).all():
            raise ModelError(f"model {self.model.name!r} returned nan or infinity on the way along {_shortened(times)}")
        off = self.measure(end) - self.measure(walks.ends)
        errors = torch.linalg.vector_norm(off.double(), dim=1).numpy()
        return Trial(times, [x for x, _ in asked], [x0 for _, x0 in asked], end, errors)


def _shortened(times: Sequence[float] | Array) -> str:
    return ", ".join(f"{t:g}" for t in times[:5]) + (", ..." if len(times) > 5 else "")
