"""A profile or a schedule put into a pipeline, by the route that is exact for the scheduler it has."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

from geosprint.errors import ScheduleError
from geosprint.integrations import schedulers
from geosprint.integrations.fitted_schedulers import (
    GeoSprintFittedFlowMatchScheduler,
    GeoSprintFittedScheduler,
    fitted_scheduler,
)
from geosprint.integrations.noise_of import prediction_of, shift_of
from geosprint.integrations.payload import Made, carry, origin_of
from geosprint.noise import Flow
from geosprint.schedule import BLEND


def apply(
    pipe: Any,
    made: Made | None = None,
    blend: float = BLEND,
    literal: bool = False,
    guidance_scale: float | None = None,
    height: int | None = None,
    width: int | None = None,
) -> Any:
    """Let the pipeline step where the profile or schedule says; `num_inference_steps` goes on to mean K.

    The solver stays what it is: the scheduler is replaced by one of the same kind that carries the times and is
    saved with the pipeline. A fitted solver brings its own way to step and replaces the solver too. Say how you will
    draw to be warned where the profile was recorded otherwise. Without a profile or schedule it is what the
    scheduler's config still carries, after a swap or a reload.
    """
    if made is None:
        carried = pipe.scheduler.config.get("geosprint")
        if carried is None:
            raise ScheduleError("the pipeline's scheduler carries nothing yet; give a profile or a schedule")
    else:
        _check_belongs(made, pipe.scheduler)
        _warn_of_other_conditions(made, {"guidance_scale": guidance_scale, "height": height, "width": width})
        carried = carry(made, blend, literal)
    pipe.scheduler = scheduler_carrying(pipe.scheduler, carried)
    return pipe


def scheduler_carrying(scheduler: Any, carried: dict[str, Any]) -> Any:
    """A scheduler of the same kind, exact at the times that it carries; for fitted steps, the one that takes them."""
    if "coefficients" in carried:
        return fitted_scheduler(scheduler, carried)
    if type(scheduler) in _PLAIN:
        scheduler = _PLAIN[type(scheduler)].from_config(scheduler.config, geosprint=None)
    name = type(scheduler).__name__
    if reason := _why_not(scheduler):
        raise ScheduleError(
            f"a {name} cannot be made exact for a list of steps: {reason}; use one of {', '.join(CARRYING)}, "
            "for example pipe.scheduler = DDIMScheduler.from_config(pipe.scheduler.config)"
        )
    kind = next(kind for stock, kind in CARRYING.items() if name in (stock, kind.__name__))
    own = {} if kind in _DROP_INS else _own_config(scheduler)
    changed = {key: value for key, value in _OWN_SPACING_OFF.items() if key in own}
    return kind.from_config(scheduler.config, geosprint=carried, **changed)  # type: ignore[attr-defined]


_DROP_INS = (schedulers.GeoSprintDDIMScheduler, schedulers.GeoSprintFlowMatchEulerScheduler)
"""These take their times as they are; what they would do without them stays as it was."""

CARRYING: dict[str, type] = {
    "DDIMScheduler": schedulers.GeoSprintDDIMScheduler,
    "DDPMScheduler": schedulers.GeoSprintDDPMScheduler,
    "LCMScheduler": schedulers.GeoSprintLCMScheduler,
    "EulerDiscreteScheduler": schedulers.GeoSprintEulerDiscreteScheduler,
    "EulerAncestralDiscreteScheduler": schedulers.GeoSprintEulerAncestralDiscreteScheduler,
    "HeunDiscreteScheduler": schedulers.GeoSprintHeunDiscreteScheduler,
    "DPMSolverMultistepScheduler": schedulers.GeoSprintDPMSolverMultistepScheduler,
    "DPMSolverSinglestepScheduler": schedulers.GeoSprintDPMSolverSinglestepScheduler,
    "UniPCMultistepScheduler": schedulers.GeoSprintUniPCMultistepScheduler,
    "FlowMatchEulerDiscreteScheduler": schedulers.GeoSprintFlowMatchEulerScheduler,
}

_PLAIN: dict[type, Any] = {
    GeoSprintFittedScheduler: schedulers.GeoSprintDDIMScheduler,
    GeoSprintFittedFlowMatchScheduler: schedulers.GeoSprintFlowMatchEulerScheduler,
}
"""What a fitted solver's scheduler is without its numbers."""

_OWN_SPACING_OFF = {
    "timestep_spacing": "leading",  # Euler and Heun then scale the first noise by sqrt(1 + sigma²), which is exact
    "final_sigmas_type": "zero",
    "lower_order_final": True,
    "use_karras_sigmas": False,
    "use_exponential_sigmas": False,
    "use_beta_sigmas": False,
    "use_lu_lambdas": False,
}

_REASONS = {
    "DEISMultistepScheduler": "its last step, to sigma 0, gives nan",
    "PNDMScheduler": "its multistep formula holds for equal spacing only",
    "IPNDMScheduler": "its multistep formula holds for equal spacing only",
    "KDPM2DiscreteScheduler": "it puts times of its own between the given ones",
    "KDPM2AncestralDiscreteScheduler": "it puts times of its own between the given ones",
    "FlowMatchHeunDiscreteScheduler": "it takes neither timesteps nor sigmas",
}


def _why_not(scheduler: Any) -> str | None:
    """The reason why a scheduler cannot follow a list exactly."""
    name, config = type(scheduler).__name__, _own_config(scheduler)
    if name not in CARRYING and name not in {kind.__name__ for kind in CARRYING.values()}:
        return _REASONS.get(name, "it is not one of those that are tested")
    algorithm = config.get("algorithm_type", "dpmsolver++")
    if algorithm.endswith("dpmsolver"):
        return f"its algorithm_type {algorithm!r} has no step to sigma 0 (dpmsolver++ has)"
    if algorithm.startswith("sde") and "Singlestep" in name:
        return f"its algorithm_type {algorithm!r} is not one of those that are tested"
    if config.get("invert_sigmas", False):
        return "it counts its sigmas upwards (invert_sigmas)"
    if config.get("predict_x0", True) is False:
        return "it solves for the noise (predict_x0 is false), which has no step to sigma 0"
    return None


def _own_config(scheduler: Any) -> dict[str, Any]:
    """The settings that this scheduler uses; its config also keeps those of schedulers that it was made from."""
    own = inspect.signature(type(scheduler).__init__).parameters
    return {name: value for name, value in scheduler.config.items() if name in own}


def _check_belongs(made: Made, scheduler: Any) -> None:
    """A profile is tied to its model: another prediction or shift is an error that names both."""
    origin = origin_of(made)
    if not origin:
        return
    here = prediction_of(scheduler)
    if origin["prediction"] != here:
        raise ScheduleError(
            f"this was made for a model that predicts {origin['prediction']}, the pipeline's predicts {here}; "
            "make a profile of this pipeline"
        )
    if origin["noise"]["kind"] == Flow.kind and not scheduler.config.get("use_dynamic_shifting", False):
        shift, recorded = shift_of(scheduler), origin["noise"]["shift"]
        if abs(recorded - shift) > 1e-3 * shift:
            raise ScheduleError(
                f"this was made with shift {recorded:g}, the pipeline has {shift:g}; make a profile of this pipeline"
            )


def _warn_of_other_conditions(made: Made, here: dict[str, float | None]) -> None:
    """Another guidance scale or resolution bends the trajectories elsewhere."""
    recorded = origin_of(made).get("conditions", {})
    for name, value in here.items():
        if None not in (value, recorded.get(name)) and recorded[name] != value:
            said = name.replace("_", " ")
            warnings.warn(
                f"the profile was recorded with {said} {recorded[name]:g}, you said {value:g}; "
                "steps that suit one may suit the other less",
                stacklevel=3,
            )
