"""Steps in the words of other tools: plain decimals, K + 1 values where they want them."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from geosprint.errors import ScheduleError
from geosprint.fitted_solver import FittedSolver
from geosprint.noise import EDM, Flow
from geosprint.schedule import StepSchedule
from geosprint.tuned import Tuned, TunedSteps, as_tuned


def export(made: StepSchedule | FittedSolver | Tuned, target: str, steps: int | None = None) -> str:
    """The text that this tool reads, for one number of steps: the only or the proved one, if none is named."""
    if target not in EXPORTS:
        hint = f": {WITHOUT_EXPORT[target]}" if target in WITHOUT_EXPORT else ""
        raise ScheduleError(f"the target must be one of {', '.join(EXPORTS)}, got {target!r}{hint}")
    one = as_tuned(made).result(steps)
    if target in SAMPLERS:
        _warn_of_what_stays_behind(one, target)
    return EXPORTS[target](one)


def plain(numbers: Sequence[float] | np.ndarray) -> list[str]:
    """Nine digits without exponents: float32 whole, where some tools read 1e-05 as 1."""
    return [np.format_float_positional(x, precision=9, unique=False, fractional=False, trim="0") for x in numbers]


def _for_comfyui(one: TunedSteps) -> str:
    """The text of the ManualSigmas node: K + 1 sigmas, flows after their shift."""
    return ", ".join(plain(one.schedule.sigmas)) + "\n"


def _for_sdcpp(one: TunedSteps) -> str:
    """stable-diffusion.cpp's options."""
    method = _sampler(one, "sdcpp")
    chosen = f"--sampling-method {method} " if method else ""
    return f'{chosen}--sigmas "{",".join(plain(one.schedule.sigmas))}"\n'


def _for_kdiffusion(one: TunedSteps) -> str:
    """k-diffusion's samplers take the sigmas as a tensor, the last one 0, and a first state that the caller scales."""
    sampler = _sampler(one, "kdiffusion") or "sample_euler"
    return f"""import torch

sigmas = torch.tensor([{", ".join(plain(one.schedule.sigmas))}])
first_noise = {plain([_first_noise(one.schedule)])[0]}  # {sampler}(model, first_noise * torch.randn(shape), sigmas)
"""


def _for_a1111(one: TunedSteps) -> str:
    """A script that registers a scheduler in A1111 and Forge: n + 1 sigmas for any n, log-linear between ours."""
    sampler = _sampler(one, "a1111")
    return f'''"""Schedule type "GeoSPRINT {one.steps}"{f" for the sampler {sampler}" if sampler else ""}.

Save this file as extensions/geosprint/scripts/geosprint_{one.steps}.py of A1111 or Forge, and restart it.
"""

import numpy as np
import torch
from modules import sd_schedulers

SIGMAS = [{", ".join(plain(one.schedule.sigmas[:-1]))}]  # {one.steps} steps


def geosprint(n, sigma_min, sigma_max, device):
    """These sigmas for n = {one.steps}; other n interpolate between them."""
    places = np.linspace(0, len(SIGMAS) - 1, n)
    sigmas = np.exp(np.interp(places, np.arange(len(SIGMAS)), np.log(SIGMAS)))
    return torch.tensor([*sigmas, 0.0], dtype=torch.float32, device=device)


own = sd_schedulers.Scheduler("geosprint_{one.steps}", "GeoSPRINT {one.steps}", geosprint)
others = [one for one in sd_schedulers.schedulers if one.name != own.name]  # a reload runs this file again
sd_schedulers.schedulers[:] = [*others, own]
sd_schedulers.schedulers_map.update({{own.name: own, own.label: own}})
'''


def _for_diffusers(one: TunedSteps) -> str:
    """Lines that need diffusers alone: timesteps for variance-preserving pipelines, unshifted sigmas for flows."""
    noise = one.schedule.provenance.get("origin", {}).get("noise", {})
    if noise.get("kind") == EDM.kind:
        _order(one, "lines that need diffusers alone step", {})
        return _edm_lines(one.schedule.sigmas[:-1], noise["sigma_data"])
    if not _is_flow(one.schedule):
        order = _order(one, "lines that need diffusers alone step", {"dpmpp-2m": 2})
        return _vp_lines(one.schedule, order)
    sigmas, shift = _before_shift(one, "lines that need diffusers alone step")
    return f"""sigmas = [{sigmas}]  # the pipeline applies its shift {shift:g} to them
pipe.scheduler = pipe.scheduler.from_config(
    pipe.scheduler.config, use_karras_sigmas=False, use_exponential_sigmas=False, use_beta_sigmas=False
)
images = pipe(prompt, sigmas=sigmas).images
"""


def _for_vllm(one: TunedSteps) -> str:
    """vLLM-Omni's sampling parameters, for the flows whose pipelines take sigmas."""
    sigmas, shift = _before_shift(one, "vLLM-Omni steps")
    return f"""from vllm_omni.inputs.data import OmniDiffusionSamplingParams

sampling_params = OmniDiffusionSamplingParams(
    num_inference_steps={one.steps},
    sigmas=[{sigmas}],  # the pipeline applies its shift {shift:g} to them
)
"""


def _for_sglang(one: TunedSteps) -> str:
    """Options of `sglang generate`, whose diffusers backend hands the sigmas to the pipeline."""
    sigmas, _ = _before_shift(one, "SGLang steps")
    return f"--backend diffusers --num-inference-steps {one.steps} --diffusers-kwargs '{{\"sigmas\": [{sigmas}]}}'\n"


def _order(one: TunedSteps, who: str, more: dict[str | None, int]) -> int:
    """Of the solver, if it is one that works without geosprint there."""
    orders: dict[str | None, int] = {None: 1, "ddim": 1, "euler": 1, **more}
    if one.solver not in orders:
        raise ScheduleError(
            f"{who} by {', '.join(filter(None, orders))}, and these steps were made for "
            f"{one.solver}; use geosprint.apply(pipe, ...), which steps as they were made for"
        )
    return orders[one.solver]


def _before_shift(one: TunedSteps, who: str) -> tuple[str, float]:
    """Sigmas that a pipeline's Euler scheduler will shift and end with 0 itself, and the shift."""
    if not _is_flow(one.schedule):
        raise ScheduleError(f"{who} along sigmas for flows alone, and these steps are for another model; use diffusers")
    _order(one, who, {})
    origin = one.schedule.provenance.get("origin", {})
    if terminal := origin.get("conditions", {}).get("shift_terminal"):
        raise ScheduleError(
            f"a scheduler with shift_terminal {terminal:g} stretches every list that it is given, so no sigmas come "
            "out as they are; use geosprint.apply(pipe, schedule), which sets them past it"
        )
    shift = float(origin.get("noise", {}).get("shift", 1.0))
    return ", ".join(plain(Flow(shift, 1).clock(one.schedule.sigmas[:-1]))), shift


def _vp_lines(schedule: StepSchedule, order: int) -> str:
    return f"""from diffusers import DPMSolverMultistepScheduler

timesteps = [{", ".join(time.removesuffix(".0") for time in plain(schedule.timesteps))}]
pipe.scheduler = DPMSolverMultistepScheduler.from_config(
    pipe.scheduler.config,
    solver_order={order},  # {"is DDIM; 2 is DPM++ 2M" if order == 1 else "is DPM++ 2M; 1 is DDIM"}
    algorithm_type="dpmsolver++",
    final_sigmas_type="zero",
    use_karras_sigmas=False,
    use_exponential_sigmas=False,
    use_beta_sigmas=False,
    use_lu_lambdas=False,
)
images = pipe(prompt, timesteps=timesteps).images
"""


def _edm_lines(sigmas: np.ndarray, sigma_data: float) -> str:
    """EDMEuler takes its sigmas as shares of the way from the highest to the lowest, in the root that it spaces by."""
    roots = sigmas ** (1 / EDM.rho)
    shares = (roots[0] - roots) / max(roots[0] - roots[-1], 1e-9)
    highest, lowest, data = plain([sigmas[0], sigmas[-1], sigma_data])
    return f"""import torch
from diffusers import EDMEulerScheduler

sigmas = torch.tensor([{", ".join(plain(shares))}])  # from sigma_max, 0, to sigma_min, 1
spacing = {{"sigma_schedule": "karras", "rho": {EDM.rho}, "final_sigmas_type": "zero"}}
pipe.scheduler = EDMEulerScheduler.from_config(
    pipe.scheduler.config, sigma_max={highest}, sigma_min={lowest}, sigma_data={data}, **spacing
)
images = pipe(prompt, sigmas=sigmas).images
"""


def _is_flow(schedule: StepSchedule) -> bool:
    """By its origin, or, for a schedule in closed form, by its times, which are sigmas times a whole number."""
    if noise := schedule.provenance.get("origin", {}).get("noise"):
        return bool(noise["kind"] == Flow.kind)
    return bool(np.ptp(schedule.timesteps / schedule.sigmas[:-1]) < 1e-6 * schedule.timesteps[0])


def _for_json(one: TunedSteps) -> str:
    """All lists, for whatever reads JSON; our node for ComfyUI does."""
    lists = {"timesteps": one.schedule.timesteps.tolist(), "sigmas": one.schedule.sigmas.tolist()}
    about: dict[str, Any] = {
        "solver": one.solver,
        "is_flow": _is_flow(one.schedule),
        "first_noise": _first_noise(one.schedule),
    }
    if isinstance(one.made, FittedSolver):
        about |= {"coefficients": one.made.coefficients, "guided": one.made.guided}
    return json.dumps({**lists, **about}) + "\n"


def _first_noise(schedule: StepSchedule) -> float:
    """What multiplies the first noise where states hold all of x0: ours begin as unit noise, whatever the time."""
    return 1.0 if _is_flow(schedule) else math.hypot(1, schedule.sigmas[0])


def _sampler(one: TunedSteps, target: str) -> str | None:
    """What this tool calls the solver that the steps were made for, if it has it."""
    has_one_form = one.solver == "dpmpp-2m" and not _is_flow(one.schedule)
    return SAMPLERS[target].get("dpmpp-2m-kdiffusion" if has_one_form else one.solver or "")


def _warn_of_what_stays_behind(one: TunedSteps, target: str) -> None:
    """Coefficients, a solver, and the scale of the first noise: these tools multiply it by sigma."""
    first, is_flow = float(one.schedule.sigmas[0]), _is_flow(one.schedule)
    too_small = _first_noise(one.schedule) / first
    its_two_m = "dpmpp-2m-kdiffusion" if is_flow else "dpmpp-2m"
    tune = f"tune for a solver that it has, as in `geosprint tune MODEL --solver {its_two_m}`"
    node = NODE if target == "comfyui" else ""
    if isinstance(one.made, FittedSolver):
        said = (
            f"were fitted with coefficients of their own, and {target} takes sigmas alone: they will not "
            f"reach the error that was measured; {tune}{node}"
        )
    elif one.solver and not _sampler(one, target):
        said = f"were tuned for {one.solver}, and {target} has no such sampler for this model; {tune}"
    elif too_small > NOTICED and target != "kdiffusion":
        whole = SGM_NOISE if target == "a1111" and not is_flow else "geosprint.apply(pipe, ...) starts from all of it"
        said = (
            f"start at sigma {first:.3g}, where {target} makes the first noise {too_small:.3f} times "
            f"smaller than they were tuned for; {whole}{node}"
        )
    else:
        return
    warnings.warn(f"these steps {said}", stacklevel=3)


NOTICED = 1.005
"""A model's highest sigma has 1.002. To begin there instead is worse than what is missing: benchmarks.first_noise."""
NODE = "; or take the ComfyUI node GeoSPRINT steps, which starts and steps as they were made for"
SGM_NOISE = "the setting `SGM noise multiplier` makes it start from all of it"
SAMPLERS = {
    target: {"ddim": euler, "euler": euler, "heun": heun, "dpmpp-2m-kdiffusion": two_m}
    for target, euler, heun, two_m in (
        ("comfyui", "euler", "heun", "dpmpp_2m"),
        ("a1111", "Euler", "Heun", "DPM++ 2M"),
        ("sdcpp", "euler", "heun", "dpm++2m"),
        ("kdiffusion", "sample_euler", "sample_heun", "sample_dpmpp_2m"),
    )
}
"""What tools that take sigmas alone call our solvers."""
WITHOUT_EXPORT = {
    "comfyui-node": "copy the directory comfyui of the repository to custom_nodes/geosprint, its node reads the file",
    "xdit": "it takes the scheduler of its pipeline, use geosprint.apply(pipe, ...)",
}
"""What to do for a target that is none."""
EXPORTS: dict[str, Callable[[TunedSteps], str]] = {
    "diffusers": _for_diffusers,
    "comfyui": _for_comfyui,
    "a1111": _for_a1111,
    "sdcpp": _for_sdcpp,
    "kdiffusion": _for_kdiffusion,
    "vllm": _for_vllm,
    "sglang": _for_sglang,
    "json": _for_json,
}
