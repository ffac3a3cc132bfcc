"""What a diffusers scheduler says about itself and its model: solver, noise schedule, prediction, clipping."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch
from diffusers import DDIMScheduler, EulerDiscreteScheduler
from numpy.typing import NDArray

from geosprint.errors import ModelError
from geosprint.integrations.geosprint_scheduler import is_edm, shift_of
from geosprint.noise import EDM, DiscreteVP, Flow, NoiseSchedule

_PREDICTIONS = {"epsilon": "eps", "v_prediction": "v", "sample": "x0", "flow_prediction": "flow"}


def is_flow(scheduler: Any) -> bool:
    """Whether the scheduler belongs to a flow-matching model."""
    return "FlowMatch" in type(scheduler).__name__ or bool(scheduler.config.get("use_flow_sigmas", False))


def noise_of(scheduler: Any, mu: float | None = None) -> NoiseSchedule:
    """The noise schedule behind a scheduler; mu is the dynamic shift of this run, where there is one."""
    name = type(scheduler).__name__
    if reason := why_refused(scheduler):
        raise ModelError(f"this {name} is not supported here: {reason}; wrap its network as a model instead")
    if is_flow(scheduler):
        return Flow(shift_of(scheduler, mu), int(scheduler.config.num_train_timesteps))
    if is_edm(scheduler):
        return EDM(**edm_settings(scheduler))
    if not hasattr(scheduler, "alphas_cumprod"):
        raise ModelError(
            f"the noise schedule of a {name} is not known here: it has no alphas_cumprod and is no "
            "flow-matching scheduler; give the pipeline one that has (DDIM, DPM++, Euler, FlowMatchEuler, ...)"
        )
    table = scheduler.alphas_cumprod.double().cpu().numpy()
    formula = _formula_of(scheduler.config, table)
    final = float(getattr(scheduler, "final_alpha_cumprod", 1.0))
    return DiscreteVP(table, max(final, float(table[0])), formula.recipe if formula else None)


def why_refused(scheduler: Any) -> str | None:
    """Why the sigmas of a flow are not from 1 to 0, or a network is told timesteps that wants noise levels."""
    config = scheduler.config
    if (config.get("timestep_type"), config.get("prediction_type")) == ("continuous", "v_prediction"):
        takes = "EulerDiscreteScheduler and EDMDPMSolverMultistepScheduler (with sigma_data=1) tell"
        return None if is_edm(scheduler) else f"its network wants the noise level, which {takes} it"
    if not is_flow(scheduler):
        return None
    if config.get("invert_sigmas", False):
        return "it counts its sigmas upwards (invert_sigmas)"
    highest = None if config.get("use_flow_sigmas", False) else config.get("sigma_max")  # UniPC takes s / (1 + s) of it
    if highest is not None and highest > 1:
        return f"its sigmas begin at {highest:g}, as in Cosmos 2, and those of a flow at 1"
    return None


def settings_of(scheduler: Any) -> dict[str, Any]:
    """What EDM's Euler, or else DDIM, must be told to be of the same model as this scheduler."""
    return edm_settings(scheduler) if is_edm(scheduler) else ddim_settings(scheduler)


def edm_settings(scheduler: Any) -> dict[str, float]:
    """What sigmas the network of an EDM scheduler was trained on, and the deviation of its data."""
    config = scheduler.config
    if isinstance(scheduler, EulerDiscreteScheduler):
        ends = ((1 - scheduler.alphas_cumprod.double()) / scheduler.alphas_cumprod.double()).sqrt()[[0, -1]].tolist()
        low, high = (own or end for own, end in zip((config.sigma_min, config.sigma_max), ends, strict=True))
        return {"sigma_min": low, "sigma_max": high, "sigma_data": 1.0}
    replaced = (config.get("geosprint") or {}).get("replaced") or {}  # its own, where `apply` wrote another for Cosmos
    high = replaced.get("sigma_max") or config.sigma_max
    return {"sigma_min": config.sigma_min, "sigma_max": high, "sigma_data": config.sigma_data}


def _formula_of(config: Any, table: NDArray[np.float64]) -> DiscreteVP | None:
    """The formula behind a table, if we know it: files then need not hold a thousand numbers."""
    if config.get("beta_schedule") not in ("linear", "scaled_linear"):
        return None
    rates = (config["beta_schedule"], len(table), config["beta_start"], config["beta_end"])
    made = DiscreteVP.named(*rates, bool(config.get("rescale_betas_zero_snr", False)))
    return made if np.allclose(made.alphas_cumprod, table, rtol=1e-4, atol=1e-9) else None


def prediction_of(scheduler: Any) -> str:
    """What the network predicts, in our words; x0 where its output is preconditioned."""
    if is_flow(scheduler):
        return "flow"
    if is_edm(scheduler):
        return "x0"
    kind = scheduler.config.get("prediction_type", "epsilon")
    if kind not in _PREDICTIONS:
        raise ModelError(f"prediction_type must be one of {', '.join(_PREDICTIONS)}, got {kind!r}")
    return _PREDICTIONS[kind]


def clip_of(scheduler: Any) -> float | None:
    """The range that the scheduler clips the predicted x0 to."""
    if scheduler.config.get("clip_sample", False):
        return float(scheduler.config.get("clip_sample_range", 1.0))
    return None


def ddim_settings(scheduler: Any) -> dict[str, Any]:
    """What DDIM must be told to clip and to end as this scheduler does, whose config may not speak of it."""
    last = float(getattr(scheduler, "final_alpha_cumprod", 1.0))
    told = {"clip_sample": clip_of(scheduler) is not None, "set_alpha_to_one": last == 1}
    table = scheduler.alphas_cumprod.double()
    by_config = DDIMScheduler.from_config(scheduler.config).alphas_cumprod.double()
    if torch.allclose(by_config, table, rtol=1e-3, atol=0):  # also where almost no signal is left
        return told
    betas = 1 - table / torch.cat([table.new_ones(1), table[:-1]])  # CogVideoX shifts its SNR
    return {**told, "trained_betas": betas.tolist(), "rescale_betas_zero_snr": False}


def solver_of(scheduler: Any) -> str:
    """The solver in our words, for those that are one of ours step by step; the name of the class for others."""
    name, config = type(scheduler).__name__.removeprefix("GeoSprint").removeprefix("EDM"), own_config(scheduler)
    order, algorithm = config.get("solver_order"), config.get("algorithm_type", "dpmsolver++")
    if "DPMSolver" in name and algorithm == "dpmsolver++" and order == 1:
        return "ddim"
    if name == "DPMSolverMultistepScheduler" and (algorithm, order) == ("dpmsolver++", 2):
        return "dpmpp-2m" if config["solver_type"] == "midpoint" else name
    if name == "UniPCMultistepScheduler" and order == 2:
        return "unipc"
    if name.startswith("FlowMatchEuler") and not config.get("stochastic_sampling", False):
        return "euler"
    return _SOLVERS.get(name, name)


_SOLVERS = {
    "DDIMScheduler": "ddim",
    "CogVideoXDDIMScheduler": "ddim",
    "DDPMScheduler": "ddpm",
    "EulerDiscreteScheduler": "euler",
    "EulerScheduler": "euler",
    "HeunDiscreteScheduler": "heun",
}


def own_config(scheduler: Any, kind: type | None = None) -> dict[str, Any]:
    """The settings that this scheduler, or another kind, uses; its config also keeps those that it was made from."""
    own = inspect.signature((kind or type(scheduler)).__init__).parameters  # type: ignore[misc]
    return {name: value for name, value in scheduler.config.items() if name in own}
