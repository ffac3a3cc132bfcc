"""A profile, schedules or fitted solvers put into a pipeline, by the route that is exact for its scheduler."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from geosprint import fitted_solver, profile, schedule
from geosprint.errors import FileError, ScheduleError
from geosprint.files import kind_of
from geosprint.integrations import schedulers
from geosprint.integrations.fitted_schedulers import GeoSprintFittedFlowMatchScheduler, GeoSprintFittedScheduler
from geosprint.integrations.noise_of import clip_of, is_flow, own_config, prediction_of, shift_of, solver_of
from geosprint.integrations.payload import Applicable, Payload, origin_of
from geosprint.noise import Flow
from geosprint.schedule import BLEND


def apply(
    pipe: Any,
    made: Applicable | str | os.PathLike[str] | None = None,
    blend: float = BLEND,
    literal: bool = False,
    guidance_scale: float | None = None,
    height: int | None = None,
    width: int | None = None,
) -> Any:
    """Let the pipeline step as a profile, a schedule, a fitted solver, what `tune` returned, or a file of these says.

    `num_inference_steps` goes on to mean K: any number of a profile, otherwise one that the schedules were made for.
    The solver stays what it is: the scheduler is replaced by one of the same kind, which is saved with the pipeline. A
    fitted solver brings its own way to step and replaces the solver too. Say how you will draw to be warned where
    the profile was recorded otherwise. With nothing given it is what the scheduler's config still holds, after a swap
    or a reload.
    """
    if made is None:
        described = pipe.scheduler.config.get("geosprint")
        if described is None:
            raise ScheduleError("the pipeline's scheduler has no payload yet; give a profile or a schedule")
        payload = Payload.from_dict(described)
    else:
        made = _read(Path(made)) if isinstance(made, str | os.PathLike) else made
        _check_belongs(made, pipe.scheduler)
        _warn_of_other_conditions(made, {"guidance_scale": guidance_scale, "height": height, "width": width})
        payload = Payload.of(made, blend, literal)
    scheduler = scheduler_with(pipe.scheduler, payload)
    _warn_of_another_solver(payload, pipe.scheduler)
    pipe.scheduler = scheduler
    return pipe


def scheduler_with(scheduler: Any, payload: Payload) -> Any:
    """A scheduler of the same kind, exact at the payload's times; for fitted steps, the one that takes them."""
    if payload.is_fitted:
        return _fitted_scheduler(scheduler, payload)
    if type(scheduler) in _UNFITTED:
        scheduler = _UNFITTED[type(scheduler)].from_config(scheduler.config, geosprint=None)
    name = type(scheduler).__name__
    if reason := _why_not(scheduler):
        raise ScheduleError(
            f"a {name} cannot be made exact for a list of steps: {reason}; use one of {', '.join(EXACT)}, "
            "for example pipe.scheduler = DDIMScheduler.from_config(pipe.scheduler.config)"
        )
    kind = next(kind for stock, kind in EXACT.items() if name in (stock, kind.__name__))
    own = {} if kind in _WITHOUT_SPACING else own_config(scheduler)
    changed = {key: value for key, value in _OWN_SPACING_OFF.items() if key in own}
    return kind.from_config(scheduler.config, geosprint=payload.to_dict(), **changed)


def _fitted_scheduler(scheduler: Any, payload: Payload) -> Any:
    """A scheduler for the same model, whatever its solver was, that takes the fitted steps of its payload."""
    if is_flow(scheduler):
        return GeoSprintFittedFlowMatchScheduler.from_config(scheduler.config, geosprint=payload.to_dict())
    return GeoSprintFittedScheduler.from_config(
        scheduler.config,
        geosprint=payload.to_dict(),
        clip_sample=clip_of(scheduler) is not None,  # DDIM clips where the config does not say; the model did not
        set_alpha_to_one=float(getattr(scheduler, "final_alpha_cumprod", 1.0)) == 1,
    )


EXACT: dict[str, Any] = {
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
"""Stock schedulers that can step exactly where a list says, and what each becomes."""

_WITHOUT_SPACING = (schedulers.GeoSprintDDIMScheduler, schedulers.GeoSprintFlowMatchEulerScheduler)
"""These take their times as they are; what they would do without them stays as it was."""

_UNFITTED: dict[type, Any] = {
    GeoSprintFittedScheduler: schedulers.GeoSprintDDIMScheduler,
    GeoSprintFittedFlowMatchScheduler: schedulers.GeoSprintFlowMatchEulerScheduler,
}
"""What a fitted solver's scheduler is without its coefficients."""

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

_SAME_STEP = {"euler": "ddim"}
"""Euler along the straight line to x0 is DDIM, step by step."""

_LOADERS: dict[str, Callable[[Path], Applicable]] = {
    profile.FORMAT: profile.CurvatureProfile.load,
    schedule.FORMAT: schedule.StepSchedule.load,
    fitted_solver.FORMAT: fitted_solver.FittedSolver.load,
}


def _read(path: Path) -> Applicable:
    """What a file of ours holds."""
    kind = kind_of(path)
    if kind not in _LOADERS:
        raise FileError(f"{path} must be one of {', '.join(_LOADERS)}, but its format is {kind!r}")
    return _LOADERS[kind](path)


def _why_not(scheduler: Any) -> str | None:
    """The reason why a scheduler cannot follow a list exactly."""
    name, config = type(scheduler).__name__, own_config(scheduler)
    if name not in EXACT and name not in {kind.__name__ for kind in EXACT.values()}:
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


def _check_belongs(made: Applicable, scheduler: Any) -> None:
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


def _warn_of_another_solver(payload: Payload, scheduler: Any) -> None:
    """The best steps for one solver are not the best for another."""
    if payload.solver is None or type(scheduler) in _UNFITTED:
        return
    here = solver_of(scheduler)
    if _SAME_STEP.get(payload.solver, payload.solver) != _SAME_STEP.get(here, here):
        warnings.warn(
            f"these steps were tuned for the solver {payload.solver}, and the pipeline's {type(scheduler).__name__} "
            f"steps by {here}; tune for that solver, or give the pipeline a scheduler of {payload.solver}",
            stacklevel=3,
        )


def _warn_of_other_conditions(made: Applicable, here: dict[str, float | None]) -> None:
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
