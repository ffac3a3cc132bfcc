"""What cells and fine solves depend on: the names under which they are remembered."""

from __future__ import annotations

from typing import Any

from geosprint.comparison.plan import Plan
from geosprint.methods.base import Method


def cell_key(plan: Plan, solver: str, method: Method, steps: int) -> dict[str, Any]:
    """Of one method at one number of steps with one solver."""
    key = {"solver": solver, "method": method.name, "steps": steps, **plan.judged_by}
    return key | plan.made_from if method.from_recording or method.from_fine_walks else key


def fine_key(plan: Plan) -> dict[str, Any]:
    """Of the samples that all others are measured against."""
    return {"model": "fine", **plan.judged_by}
