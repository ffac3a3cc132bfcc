"""How a model's x0 answers when the state is off the fine walk: what its network would be asked for otherwise.

For Gaussian data the answer is linear and known: a displacement d along a principal axis of variance v moves x0 by
a·v / (a²·v + s²)·d. Trained networks follow that law up to two factors that change with time, one for the axes
and one for what lies outside of them. Walks that were really taken tell the factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from geosprint.noise import NoiseSchedule
from geosprint.search.fine_walks import FineWalks

Array = NDArray[np.float64]

PLACES = 65  # of the clock's square root, at which the factors are known
REACH = 0.05  # how far, in the clock's square root, a lesson is felt
TRUST_IN_LAW = 0.05  # the law counts as much as so many lessons
SMALLEST = 1e-6  # mean square of a displacement from which something can be learnt


@dataclass(frozen=True, eq=False)
class Lesson:
    """What one real step taught of the two factors, the axes and the rest being orthogonal."""

    place: float  # square root of the clock
    sizes: Array  # (2,) share of the law's squared answer
    moments: Array  # (2,) the same times the factor that suits best


@dataclass(frozen=True, eq=False)
class Response:
    """The law, and the factors as far as they are known, for walks told in `Coordinates`."""

    noise: NoiseSchedule
    variances: Tensor  # (axes,) of the first coordinates, falling
    lessons: tuple[Lesson, ...] = ()
    factors: Array = field(default_factory=lambda: np.ones((PLACES, 2)))  # of the axes and of the rest

    def __call__(self, displaced: Tensor, t: float) -> Tensor:
        """By how much x0 moves (walks, coordinates)."""
        place = self._place(t) * (PLACES - 1)
        below = min(int(place), PLACES - 2)
        on_axes, on_rest = self.factors[below] + (place - below) * (self.factors[below + 1] - self.factors[below])
        slopes = self._slopes(t)
        moved = displaced * (float(on_rest) * float(slopes[-1]))
        moved[:, : len(slopes)] = displaced[:, : len(slopes)] * (float(on_axes) * slopes)
        return moved

    def taught(
        self, walks: FineWalks, times: Sequence[float], states: Sequence[Tensor], x0: Sequence[Tensor]
    ) -> Response:
        """With what a walk that was really taken says: its states and what the model answered there."""
        lessons = list(self.lessons)
        for t, state, answer in zip(times, states, x0, strict=True):
            displaced = state - walks.state_at(t)
            if float(displaced.square().mean()) > SMALLEST:
                lessons.append(self._lesson(t, displaced.double(), (answer - walks.prediction_at(t).x0).double()))
        return replace(self, lessons=tuple(lessons), factors=fitted_factors(lessons))

    def _lesson(self, t: float, displaced: Tensor, moved: Tensor) -> Lesson:
        slopes = self._slopes(t).double()
        axes = len(slopes)
        told = (displaced[:, :axes] * slopes, displaced[:, axes:] * slopes[-1])
        sizes = np.array([float(part.square().sum()) for part in told])
        moments = np.array(
            [float((part * real).sum()) for part, real in zip(told, moved.tensor_split([axes], 1), strict=True)]
        )
        return Lesson(self._place(t), sizes / sizes.sum(), moments / sizes.sum())

    def _slopes(self, t: float) -> Tensor:
        """What the law says of each axis; the rest has the variance of the last one."""
        a, s = self.noise.signal_and_sigma(t)
        return a * self.variances / (a**2 * self.variances + s**2)

    def _place(self, t: float) -> float:
        return float(self.noise.clock(max(t, self.noise.last))) ** 0.5


def fitted_factors(lessons: Sequence[Lesson]) -> Array:
    """Least squares at every place over the lessons around it, drawn toward the law."""
    if not lessons:
        return np.ones((PLACES, 2))
    places = np.linspace(0, 1, PLACES)
    felt = np.exp(-(((places[:, None] - np.array([lesson.place for lesson in lessons])) / REACH) ** 2))
    sizes, moments = (
        felt @ np.stack(parts) for parts in zip(*((one.sizes, one.moments) for one in lessons), strict=True)
    )
    return (moments + TRUST_IN_LAW) / (sizes + TRUST_IN_LAW)
