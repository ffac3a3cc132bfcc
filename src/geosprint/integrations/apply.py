"""A profile, schedules or fitted solvers put into a pipeline, by the route that is exact for its scheduler."""

from __future__ import annotations

import math
import os
import warnings
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import diffusers

from geosprint.errors import ScheduleError
from geosprint.fitted_solver import UNHEARD, FittedSolver
from geosprint.integrations import fitted_schedulers, geosprint_scheduler, schedulers
from geosprint.integrations.geosprint_scheduler import is_edm, shift_of
from geosprint.integrations.hooks import find_denoiser, hear, name_of, steps_twice
from geosprint.integrations.noise_of import is_flow, own_config, prediction_of, settings_of, solver_of, why_refused
from geosprint.integrations.payload import Payload, origin_of
from geosprint.models.fingerprint import warn_of_another_model
from geosprint.noise import Flow
from geosprint.profile import CurvatureProfile
from geosprint.schedule import BLEND, StepSchedule
from geosprint.tuned import Tuned, as_tuned, load_made, warn_of_another_solver

Applicable = CurvatureProfile | StepSchedule | FittedSolver | Tuned


def apply(
    pipe: Any,
    made: Applicable | str | os.PathLike[str] | None = None,
    blend: float = BLEND,
    literal: bool = False,
    guidance_scale: float | None = None,
    height: int | None = None,
    width: int | None = None,
    standalone: bool = False,
) -> Any:
    """Let the pipeline step as a profile, a schedule, a fitted solver, what `tune` returned, or a file of these says.

    `num_inference_steps` goes on to mean K: any number of a profile, otherwise one that the schedules were made for.
    The solver stays what it is: the scheduler is replaced by one of the same kind, which is saved with the pipeline. A
    fitted solver brings its own way to step and replaces the solver too. Say how you will draw to be warned where
    the profile was recorded otherwise. With nothing given it is what the scheduler's config still holds, after a swap
    or a reload. A `standalone` scheduler is saved with its code, so that the pipeline loads without geosprint.
    """
    if made is None:
        described = pipe.scheduler.config.get("geosprint")
        if described is None:
            raise ScheduleError("the pipeline's scheduler has no payload yet; give a profile or a schedule")
        payload = Payload.from_dict(described)
    else:
        made = load_made(Path(made)) if isinstance(made, str | os.PathLike) else made
        made = made if isinstance(made, CurvatureProfile) else as_tuned(made)
        _check_belongs(origin_of(made), pipe.scheduler)
        payload = Payload.of(made, blend, literal)
        said = {"guidance_scale": guidance_scale, "height": height, "width": width}
        _warn_of_other_conditions(origin_of(made).get("conditions", {}), said)
        if isinstance(made, Tuned) and (network := find_denoiser(pipe)) is not None:
            warn_of_another_model(made.made_for, name_of(pipe), network)
    stock, first_noise = stock_of(pipe.scheduler), _first_noise_of_cosmos(payload) if steps_twice(pipe) else None
    pipe.scheduler = scheduler_with(stock, payload)
    if standalone:
        pipe.scheduler = _standalone(pipe)
    elif payload.is_guided and (network := find_denoiser(pipe)) is not None:
        pipe.scheduler.heard, stop = hear(network)
        weakref.finalize(pipe.scheduler, stop)
    if first_noise is not None:
        pipe.scheduler.register_to_config(sigma_max=first_noise)
    here, way_out = solver_of(stock), f"give the pipeline a scheduler of {payload.solver}"
    warn_of_another_solver(payload.solver, here, f"the pipeline's {type(stock).__name__} steps by {here}", way_out)
    return pipe


def scheduler_with(scheduler: Any, payload: Payload) -> Any:
    """A scheduler of the same kind, exact at the payload's times; for fitted steps, the one that takes them."""
    scheduler = stock_of(scheduler)
    name, own = type(scheduler).__name__, own_config(scheduler)
    described = replace(payload, replaced={"scheduler": name, **own}).to_dict()
    if reason := why_refused(scheduler):
        raise ScheduleError(f"a {name} cannot step where a list says: {reason}; wrap its network as a model instead")
    if payload.is_fitted and is_flow(scheduler):
        return fitted_schedulers.GeoSprintFittedFlowMatchScheduler.from_config(scheduler.config, geosprint=described)
    if payload.is_fitted:
        fitted = fitted_schedulers
        kind = fitted.GeoSprintFittedEDMScheduler if is_edm(scheduler) else fitted.GeoSprintFittedScheduler
        return kind.from_config(scheduler.config, geosprint=described, **settings_of(scheduler))
    if reason := _why_not(scheduler):
        raise ScheduleError(
            f"a {name} cannot be made exact for a list of steps: {reason}; use one of {', '.join(EXACT)}, "
            "for example pipe.scheduler = DDIMScheduler.from_config(pipe.scheduler.config)"
        )
    kind = EXACT[name]
    changed = {key: value for key, value in _OWN_SPACING_OFF.items() if key in own and kind not in _WITHOUT_SPACING}
    changed |= settings_of(scheduler) if kind is schedulers.GeoSprintDDIMScheduler else {}
    return kind.from_config(scheduler.config, geosprint=described, **changed)


def _first_noise_of_cosmos(payload: Payload) -> float:
    """What Cosmos 1 must multiply its first noise by: it asks the config for `sigma_max`, wherever the steps begin."""
    first = sorted(grid.sigmas[0] for grid in payload.grids)
    if first[-1] > 1.001 * first[0]:
        raise ScheduleError(
            "a Cosmos pipeline begins all its runs at one sigma, and these numbers of steps begin at "
            f"{', '.join(f'{sigma:.4g}' for sigma in first)}; apply one of them, such as "
            f"tuned[{len(payload.grids[0].timesteps)}]"
        )
    return math.hypot(1, first[0])


def _standalone(pipe: Any) -> Any:
    """The same scheduler in the class that needs diffusers alone; a profile becomes its lists of 1 to 50 steps."""
    if isinstance(pipe, diffusers.DDIMPipeline):
        raise ScheduleError(
            "a DDIMPipeline puts a stock scheduler in when it is loaded, which only geosprint.load_pipeline takes "
            "back; save it without standalone"
        )
    scheduler, payload = pipe.scheduler, Payload.from_dict(pipe.scheduler.config["geosprint"])
    if payload.is_guided:
        warnings.warn(UNHEARD, stacklevel=3)
    if payload.retention:
        noise = schedulers.noise_for(scheduler, payload)
        payload = replace(payload, grids=tuple(payload.steps_for(k, noise) for k in range(1, 51)), retention=())
    kind = getattr(geosprint_scheduler, type(scheduler).__name__)
    return kind.from_config(scheduler.config, geosprint=payload.to_dict())


def stock_of(scheduler: Any) -> Any:
    """The scheduler itself, or the one that a scheduler of ours has replaced."""
    if not type(scheduler).__module__.startswith("geosprint"):
        return scheduler
    config = dict(scheduler.config)
    replaced = dict((config.pop("geosprint") or {}).get("replaced") or {})  # nothing, if an earlier version applied it
    stock = _stock_kind(type(scheduler))
    kind = getattr(diffusers, replaced.pop("scheduler", stock.__name__), stock)
    return kind.from_config(config, **replaced)


def _stock_kind(kind: type) -> Any:
    """The class of diffusers that a scheduler of ours derives from."""
    return next(base for base in kind.__mro__ if base.__module__.startswith("diffusers."))


EXACT: dict[str, Any] = dict.fromkeys(("DDIMScheduler", "CogVideoXDDIMScheduler"), schedulers.GeoSprintDDIMScheduler)
EXACT |= {_stock_kind(kind).__name__: kind for name, kind in vars(schedulers).items() if name.startswith("GeoSprint")}
"""Stock schedulers that can step exactly where a list says, and what each becomes."""

_WITHOUT_SPACING = (schedulers.GeoSprintDDIMScheduler, schedulers.GeoSprintFlowMatchEulerScheduler)
"""These take their times as they are; what they would do without them stays as it was."""

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
    name, config = type(scheduler).__name__, own_config(scheduler)
    if name not in EXACT:
        return _REASONS.get(name, "it is not one of those that are tested")
    algorithm = config.get("algorithm_type", "dpmsolver++")
    if algorithm.endswith("dpmsolver"):
        return f"its algorithm_type {algorithm!r} has no step to sigma 0 (dpmsolver++ has)"
    if algorithm.startswith("sde") and "Singlestep" in name:
        return f"its algorithm_type {algorithm!r} is not one of those that are tested"
    if config.get("predict_x0", True) is False:
        return "it solves for the noise (predict_x0 is false), which has no step to sigma 0"
    return None


def _check_belongs(origin: dict[str, Any], scheduler: Any) -> None:
    """Steps are tied to their model: another prediction or shift is an error that names both."""
    if "prediction" not in origin or "noise" not in origin:
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


def _warn_of_other_conditions(recorded: dict[str, Any], here: dict[str, float | None]) -> None:
    """Another guidance scale or resolution bends the trajectories elsewhere."""
    for name, value in here.items():
        if None not in (value, recorded.get(name)) and recorded[name] != value:
            said = name.replace("_", " ")
            warnings.warn(
                f"these steps were recorded with {said} {recorded[name]:g}, you said {value:g}; "
                "steps that suit one may suit the other less",
                stacklevel=3,
            )
