"""The paper's own schedule: steps at quantiles of the blended curvature density."""

from __future__ import annotations

from geosprint.rivals.base import Array, Evidence, Method
from geosprint.schedule import BLEND, build_schedule


def geosprint(evidence: Evidence, steps: int, blend: float = BLEND) -> Array:
    """Algorithm 1, in which the forced first points of a trajectory tell nothing."""
    return build_schedule(evidence.profile, steps, blend).timesteps


def geosprint_literal(evidence: Evidence, steps: int) -> Array:
    """Algorithm 1 to the letter: the forced first points count as retained."""
    return build_schedule(evidence.profile, steps, literal=True).timesteps


GEOSPRINT = Method("geosprint", geosprint, source="the paper", from_recording=True)
GEOSPRINT_LITERAL = Method("geosprint-literal", geosprint_literal, source="the paper", from_recording=True)
