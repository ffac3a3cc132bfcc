"""What a scheduler carries in its config: a schedule, a fitted solver, or a profile that gives any number of steps."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geosprint.errors import ScheduleError
from geosprint.fitted_solver import FittedSolver
from geosprint.noise import Flow, NoiseSchedule
from geosprint.profile import CurvatureProfile
from geosprint.schedule import BLEND, StepSchedule, blended_density, check_times_mean, place

Array = NDArray[np.float64]


Made = CurvatureProfile | StepSchedule | FittedSolver


def carry(made: Made, blend: float = BLEND, literal: bool = False) -> dict[str, Any]:
    """A profile, a schedule or a fitted solver as plain JSON, small enough for a scheduler's config."""
    if isinstance(made, FittedSolver):
        return {**carry(made.schedule), "coefficients": [list(own) for own in made.coefficients]}
    if not 0 <= blend <= 1:
        raise ScheduleError(f"blend must be in 0..1, got {blend}")
    origin = origin_of(made)
    about = {"shape": origin.get("shape"), "shift": origin.get("noise", {}).get("shift")}
    known = {name: value for name, value in about.items() if value is not None}
    if isinstance(made, StepSchedule):
        return {"timesteps": made.timesteps.tolist(), "sigmas": made.sigmas.tolist(), **known}
    times, retention = made.timesteps[:-1], made.retention if literal else made.free_retention
    sigmas = made.noise.sigma(times).tolist()
    return {"timesteps": times.tolist(), "sigmas": sigmas, "retention": retention.tolist(), "blend": blend, **known}


def origin_of(made: Made) -> dict[str, Any]:
    """What was recorded to make this; nothing for a schedule in closed form."""
    if isinstance(made, FittedSolver):
        return origin_of(made.schedule)
    return made.origin.to_dict() if isinstance(made, CurvatureProfile) else made.provenance.get("origin") or {}


def check_carried(carried: dict[str, Any], noise: NoiseSchedule) -> None:
    """Refuse what was made for another noise schedule, naming both values."""
    times = np.array(carried["timesteps"])
    check_times_mean(times, np.array(carried["sigmas"])[: len(times)], noise, "the pipeline's scheduler")


def steps_carried(carried: dict[str, Any], steps: int | None, noise: NoiseSchedule) -> Array:
    """The times of so many steps: placed by the profile, or the schedule itself."""
    times = np.array(carried["timesteps"])
    if "retention" not in carried:
        if steps not in (None, len(times)):
            raise ScheduleError(
                f"this scheduler carries a schedule of {len(times)} steps, but {steps} were asked for; "
                f"ask for {len(times)}, or let it carry the profile, which gives any number"
            )
        return times
    if steps is None:
        raise ScheduleError("this scheduler carries a profile: say how many steps it should make of it")
    if steps == 1:
        return np.array([noise.first])
    density = blended_density(np.array(carried["retention"]), times, noise, carried["blend"])
    return place(density, steps, noise)


def flow_of(carried: dict[str, Any], timesteps: int) -> Flow:
    """The noise schedule of carried flow times: they are final, so only placing new ones needs the shift."""
    return Flow(float(carried.get("shift", 1.0)), timesteps)


def warn_of_another_shift(carried: dict[str, Any], now: float) -> None:
    """A flow's profile belongs to its shift, which follows from the resolution where it is dynamic."""
    recorded = carried.get("shift")
    if recorded is not None and not math.isclose(recorded, now, rel_tol=1e-3):
        warnings.warn(
            f"what the scheduler carries was recorded with shift {recorded:.4g}, this run has {now:.4g} "
            "(another resolution?); its steps are used as they are",
            stacklevel=4,
        )


def warn_of_another_size(carried: dict[str, Any], shape: Sequence[int]) -> None:
    """A profile belongs to its resolution."""
    recorded = carried.get("shape")
    if recorded is not None and list(shape) != recorded:
        warnings.warn(
            f"what the scheduler carries was recorded at size {_times(recorded)}, this run has {_times(shape)}; "
            "steps that suit one may suit the other less",
            stacklevel=4,
        )


def is_default(sigmas: Sequence[float] | None) -> bool:
    """Whether a pipeline passed the uniform list that it always passes (FLUX does), and not the user's own."""
    if sigmas is None:
        return True
    given = np.asarray(sigmas, dtype=np.float64)
    return np.allclose(given, np.linspace(1.0, 1 / len(given), len(given)), atol=1e-6)


def _times(shape: Sequence[int]) -> str:
    return "×".join(str(side) for side in shape)
