"""A schedule in the words of other tools: plain decimals, K + 1 values where they want them."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files

from geosprint.errors import ScheduleError
from geosprint.schedule import StepSchedule


def export(schedule: StepSchedule, target: str) -> str:
    """The text that this tool reads."""
    if target not in EXPORTS:
        raise ScheduleError(f"the target must be one of {', '.join(EXPORTS)}, got {target!r}")
    return EXPORTS[target](schedule)


def comfyui_node() -> str:
    """The source of the ComfyUI custom node that reads our JSON."""
    return (files("geosprint.integrations") / "comfyui_geosprint.py").read_text(encoding="utf-8")


def plain(numbers: list[float]) -> list[str]:
    """Decimals without exponents: some tools read 1e-05 as 1."""
    return [f"{number:.8f}".rstrip("0").rstrip(".") if number else "0.0" for number in numbers]


def _for_comfyui(schedule: StepSchedule) -> str:
    """The text of the ManualSigmas node: K + 1 sigmas, flows after their shift."""
    return ", ".join(plain(schedule.sigmas.tolist())) + "\n"


def _for_sdcpp(schedule: StepSchedule) -> str:
    """stable-diffusion.cpp's option."""
    return '--sigmas "' + ",".join(plain(schedule.sigmas.tolist())) + '"\n'


def _for_kdiffusion(schedule: StepSchedule) -> str:
    """k-diffusion's samplers take the sigmas as a tensor, the last one 0."""
    return f"import torch\n\nsigmas = torch.tensor([{', '.join(plain(schedule.sigmas.tolist()))}])\n"


def _for_a1111(schedule: StepSchedule) -> str:
    """A scheduler function for A1111 and Forge: n + 1 sigmas for any n, log-linear between ours."""
    numbers = ", ".join(plain(schedule.sigmas[:-1].tolist()))
    return f'''import numpy as np
import torch

SIGMAS = [{numbers}]  # {len(schedule)} steps


def geosprint(n, sigma_min, sigma_max, device):
    """These sigmas for n = {len(schedule)}; other n interpolate between them."""
    places = np.linspace(0, len(SIGMAS) - 1, n)
    sigmas = np.exp(np.interp(places, np.arange(len(SIGMAS)), np.log(SIGMAS)))
    return torch.tensor([*sigmas, 0.0], dtype=torch.float32, device=device)
'''


def _for_diffusers(schedule: StepSchedule) -> str:
    """The call that is exact: timesteps for variance-preserving pipelines, unshifted sigmas for flows."""
    origin = schedule.provenance.get("origin", {})
    noise = origin.get("noise", {})
    if noise.get("kind") != "flow":
        times = ", ".join(f"{t:g}" for t in schedule.timesteps)
        return f"timesteps = [{times}]\nimages = pipe(prompt, timesteps=timesteps).images\n"
    shift = float(noise["shift"])
    unshifted = [s / (shift - (shift - 1) * s) for s in schedule.sigmas[:-1].tolist()]
    return (
        f"sigmas = [{', '.join(plain(unshifted))}]  # the pipeline's scheduler applies its shift {shift:g} to them\n"
        "images = pipe(prompt, sigmas=sigmas).images\n"
    )


def _for_json(schedule: StepSchedule) -> str:
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
