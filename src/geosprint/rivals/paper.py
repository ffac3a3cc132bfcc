"""The paper's own schedule: steps at quantiles of the blended curvature density."""

from __future__ import annotations

from geosprint.noise import Array
from geosprint.rivals.base import Evidence
from geosprint.schedule import BLEND, build_schedule


def geosprint(evidence: Evidence, steps: int, blend: float = BLEND, literal: bool = False) -> Array:
    """Algorithm 1; to the letter, the forced first points of a trajectory count as retained, else they tell nothing."""
    return build_schedule(evidence.profile, steps, blend, literal).timesteps
