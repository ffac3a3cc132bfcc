"""What an error is: the root mean square of numbers, or of features that a user cares for."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from geosprint.errors import ScheduleError
from geosprint.metrics.features import Features
from geosprint.teacher import TeacherTrajectories
from geosprint.tuning.descent import Measure
from geosprint.tuning.surrogate import FEW, Coordinates, Response

MOST_FOR_FEATURES = 4096  # numbers of a sample whose features can be foretold: all its coordinates are needed


@dataclass(frozen=True, eq=False)
class Yardstick:
    """Root mean square difference of samples, or of their features."""

    shape: tuple[int, ...]
    features: Features | None = None  # None: the numbers themselves

    def __call__(self, samples: Tensor) -> Tensor:
        """Numbers (samples, numbers) whose Euclidean distance is the error."""
        numbers = samples.flatten(1) if self.features is None else self.features(samples)
        return numbers / numbers.shape[1] ** 0.5

    def told(self, walks: TeacherTrajectories) -> Telling:
        """Walks in as few coordinates as the measure needs."""
        if self.features is None:
            coordinates = Coordinates.of(walks, FEW)
            return Telling(coordinates, coordinates.of_walks(walks), lambda told: told / coordinates.dimensions**0.5)
        if walks.ends[0].numel() > MOST_FOR_FEATURES:
            raise ScheduleError(
                f"features can be tuned for samples of up to {MOST_FOR_FEATURES} numbers, this model's have "
                f"{walks.ends[0].numel()}; tune for rmse"
            )
        whole = Coordinates.of(walks, None)
        back = lambda told: self(whole.samples_at(told).unflatten(1, self.shape))  # noqa: E731
        return Telling(whole, whole.of_walks(walks), back)


@dataclass(frozen=True, eq=False)
class Telling:
    """Fine walks in coordinates, and the measure of what is told in them."""

    coordinates: Coordinates
    walks: TeacherTrajectories
    measure: Measure

    @property
    def response(self) -> Response:
        """The law, as nothing has been learnt yet."""
        return Response(self.walks.noise, self.coordinates.variances)
