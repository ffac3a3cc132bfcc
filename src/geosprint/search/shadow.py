"""The shadow of a model: walks with few steps, foretold from fine walks without asking the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geosprint.models.base import Prediction
from geosprint.noise import CLEAN
from geosprint.search.fine_walks import FineWalks
from geosprint.search.response import Response
from geosprint.solvers import Solver, Step, refuse_to_draw

Array = NDArray[np.float64]

NUDGE = 1e-3  # share of all time by which a step is moved to see what follows


@dataclass(frozen=True, eq=False)
class Shadow:
    """A solver on what the model would say near the fine walks."""

    walks: FineWalks
    response: Response
    solver: Solver

    def predict(self, x: Tensor, t: float) -> Prediction:
        """The fine walk's own x0, moved as the response says."""
        a, s = self.walks.noise.signal_and_sigma(t)
        there = self.walks.prediction_at(t)
        x0 = there.x0 + self.response(x - (a * there.x0 + s * there.eps), t)
        return Prediction(x0, (x - a * x0) / s if s else torch.zeros_like(x))

    def end(self, times: Sequence[float]) -> Tensor:
        """Where the walk of these times ends (walks, *shape)."""
        return self._walked(times, 0, (self.walks.starts, None))[-1][0]

    def slopes(self, times: Sequence[float]) -> tuple[Tensor, Tensor]:
        """The end, and how it moves with each time (steps, walks, *shape); what lies before a step is walked once."""
        states = self._walked(times, 0, (self.walks.starts, None))
        end, moved = states[-1][0], []
        for i, nudge in enumerate(self._nudges(times)):
            nudged = [*times[:i], times[i] + nudge, *times[i + 1 :]]
            before = max(i - 1, 0)
            moved.append((self._walked(nudged, before, states[before])[-1][0] - end) / nudge)
        return end, torch.stack(moved)

    def _nudges(self, times: Sequence[float]) -> Array:
        """A little down, or up where there is more room."""
        noise = self.walks.noise
        gaps = -np.diff([noise.first, *times, noise.last]) / 2
        most = NUDGE * (noise.first - noise.last)
        above, below = np.minimum(gaps[:-1], most), np.minimum(gaps[1:], most)
        return np.where(below >= above, -below, above)

    def _walked(self, times: Sequence[float], first: int, state: tuple[Tensor, Any]) -> list[tuple[Tensor, Any]]:
        """States and the solver's memories from step `first` on."""
        found = [state]
        for i in range(first, len(times)):
            t, t_next = times[i], times[i + 1] if i + 1 < len(times) else CLEAN
            x, memory = found[-1]
            step = Step.between(self.walks.noise, t, t_next, self.predict, refuse_to_draw)
            found.append(self.solver(x, self.predict(x, t), step, memory))
        return found
