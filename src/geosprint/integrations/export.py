"""A schedule in the words of other tools: plain decimals, K + 1 values where they want them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from geosprint.errors import ScheduleError
from geosprint.noise import Flow
from geosprint.schedule import StepSchedule


def export(schedule: StepSchedule, target: str) -> str:
    """The text that this tool reads."""
    if target not in EXPORTS:
        raise ScheduleError(f"the target must be one of {', '.join(EXPORTS)}, got {target!r}")
    return EXPORTS[target](schedule)


def comfyui_node() -> str:
    """The source of the ComfyUI custom node that reads our JSON."""
    return (files("geosprint.integrations") / "comfyui_geosprint.py").read_text(encoding="utf-8")


def plain(numbers: Sequence[float] | np.ndarray) -> list[str]:
    """Nine digits without exponents: float32 whole, where some tools read 1e-05 as 1."""
    return [np.format_float_positional(x, precision=9, unique=False, fractional=False, trim="0") for x in numbers]


def _for_comfyui(schedule: StepSchedule) -> str:
    """The text of the ManualSigmas node: K + 1 sigmas, flows after their shift."""
    return ", ".join(plain(schedule.sigmas)) + "\n"


def _for_sdcpp(schedule: StepSchedule) -> str:
    """stable-diffusion.cpp's option."""
    return '--sigmas "' + ",".join(plain(schedule.sigmas)) + '"\n'


def _for_kdiffusion(schedule: StepSchedule) -> str:
    """k-diffusion's samplers take the sigmas as a tensor, the last one 0."""
    return f"import torch\n\nsigmas = torch.tensor([{', '.join(plain(schedule.sigmas))}])\n"


def _for_a1111(schedule: StepSchedule) -> str:
    """A scheduler function for A1111 and Forge: n + 1 sigmas for any n, log-linear between ours."""
    return f'''import numpy as np
import torch

SIGMAS = [{", ".join(plain(schedule.sigmas[:-1]))}]  # {len(schedule)} steps


def geosprint(n, sigma_min, sigma_max, device):
    """These sigmas for n = {len(schedule)}; other n interpolate between them."""
    places = np.linspace(0, len(SIGMAS) - 1, n)
    sigmas = np.exp(np.interp(places, np.arange(len(SIGMAS)), np.log(SIGMAS)))
    return torch.tensor([*sigmas, 0.0], dtype=torch.float32, device=device)
'''


def _for_diffusers(schedule: StepSchedule) -> str:
    """Lines that need diffusers alone: timesteps for variance-preserving pipelines, unshifted sigmas for flows."""
    origin = schedule.provenance.get("origin", {})
    return _flow_lines(schedule, origin) if _is_flow(schedule, origin) else _vp_lines(schedule)


def _vp_lines(schedule: StepSchedule) -> str:
    return f"""from diffusers import DPMSolverMultistepScheduler

timesteps = [{", ".join(plain_times(schedule))}]
pipe.scheduler = DPMSolverMultistepScheduler.from_config(
    pipe.scheduler.config,
    solver_order=1,  # is DDIM; 2 is DPM++ 2M
    algorithm_type="dpmsolver++",
    final_sigmas_type="zero",
    use_karras_sigmas=False,
    use_lu_lambdas=False,
)
images = pipe(prompt, timesteps=timesteps).images
"""


def _flow_lines(schedule: StepSchedule, origin: dict[str, Any]) -> str:
    terminal = origin.get("conditions", {}).get("shift_terminal")
    if terminal:
        raise ScheduleError(
            f"a scheduler with shift_terminal {terminal:g} stretches every list that it is given, so no sigmas come "
            "out as they are; use geosprint.apply(pipe, schedule), which sets them past it"
        )
    shift = float(origin.get("noise", {}).get("shift", 1.0))
    before_shift = Flow(shift, 1).clock(schedule.sigmas[:-1])
    return (
        f"sigmas = [{', '.join(plain(before_shift))}]  # the pipeline applies its shift {shift:g} to them\n"
        "images = pipe(prompt, sigmas=sigmas).images\n"
    )


def _is_flow(schedule: StepSchedule, origin: dict[str, Any]) -> bool:
    """By its origin, or, for a schedule in closed form, by its times, which are sigmas times a whole number."""
    if origin:
        return bool(origin["noise"]["kind"] == Flow.kind)
    return bool(np.ptp(schedule.timesteps / schedule.sigmas[:-1]) < 1e-6 * schedule.timesteps[0])


def plain_times(schedule: StepSchedule) -> list[str]:
    """Whole timesteps without a point."""
    return [
        str(int(t)) if float(t).is_integer() else text
        for t, text in zip(schedule.timesteps, plain(schedule.timesteps), strict=True)
    ]


def _for_json(schedule: StepSchedule) -> str:
    """Both lists, for whatever reads JSON; our ComfyUI node does."""
    content = {"timesteps": schedule.timesteps.tolist(), "sigmas": schedule.sigmas.tolist()}
    return json.dumps(content) + "\n"


EXPORTS: dict[str, Callable[[StepSchedule], str]] = {
    "diffusers": _for_diffusers,
    "comfyui": _for_comfyui,
    "a1111": _for_a1111,
    "sdcpp": _for_sdcpp,
    "kdiffusion": _for_kdiffusion,
    "json": _for_json,
    "comfyui-node": lambda schedule: comfyui_node(),
}
