"""ComfyUI custom nodes: a GeoSPRINT schedule as SIGMAS, a fitted solver as SAMPLER. Copy this into custom_nodes.

It needs nothing but what ComfyUI has; geosprint itself need not be installed there.
"""

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch


class GeoSprintSigmas:
    """Reads the sigmas of a schedule.json or of a solver.json made by geosprint."""

    CATEGORY = "sampling/custom_sampling/schedulers"
    FUNCTION = "sigmas"
    RETURN_TYPES = ("SIGMAS",)

    @classmethod
    def INPUT_TYPES(cls) -> dict:
        """The one field of the node: the path of the file."""
        return {"required": {"schedule": ("STRING", {"default": "schedule.json"})}}

    @classmethod
    def IS_CHANGED(cls, schedule: str) -> float:
        """A file that was written anew is read anew."""
        return os.path.getmtime(schedule)

    def sigmas(self, schedule: str) -> tuple[torch.Tensor]:
        """K + 1 sigmas, the last one 0."""
        with open(schedule, encoding="utf-8") as file:
            content = json.load(file)
        sigmas = content.get("sigmas") if isinstance(content, dict) else None
        if not isinstance(sigmas, list) or len(sigmas) < 2 or sigmas[-1] != 0:
            raise ValueError(f"{schedule} must hold a list of sigmas that ends with 0; is it a geosprint schedule?")
        return (torch.tensor(sigmas, dtype=torch.float32),)


class GeoSprintSampler:
    """Steps with the numbers of a solver.json made by `geosprint fit`; give it the sigmas of the same file."""

    CATEGORY = "sampling/custom_sampling/samplers"
    FUNCTION = "sampler"
    RETURN_TYPES = ("SAMPLER",)

    @classmethod
    def INPUT_TYPES(cls) -> dict:
        """The one field of the node: the path of the file."""
        return {"required": {"solver": ("STRING", {"default": "solver.json"})}}

    @classmethod
    def IS_CHANGED(cls, solver: str) -> float:
        """A file that was written anew is read anew."""
        return os.path.getmtime(solver)

    def sampler(self, solver: str) -> tuple:
        """What SamplerCustom wants."""
        from comfy.samplers import KSAMPLER  # type: ignore[import-not-found]

        with open(solver, encoding="utf-8") as file:
            content = json.load(file)
        if not isinstance(content, dict) or content.get("format") != "geosprint-solver":
            raise ValueError(f"{solver} must be a file made by `geosprint fit`")
        fitted = {"own_sigmas": content["sigmas"], "numbers": content["coefficients"], "is_flow": _is_flow(content)}
        return (KSAMPLER(fitted_steps, extra_options=fitted),)


def fitted_steps(
    model: Callable[..., torch.Tensor],
    x: torch.Tensor,
    sigmas: torch.Tensor,
    extra_args: dict | None = None,
    callback: Callable[[dict], Any] | None = None,
    disable: bool | None = None,
    own_sigmas: Sequence[float] = (),
    numbers: Sequence[Sequence[float]] = (),
    is_flow: bool = False,
) -> torch.Tensor:
    """x_next = c[0]·x + c[1]·x0 + sum of c[1+k]·(x0 of k steps ago - x0), where x holds the signal a times x0."""
    given = [float(sigma) for sigma in sigmas]
    if len(given) != len(own_sigmas) or any(abs(a - b) > 0.01 * b for a, b in zip(given, own_sigmas, strict=True)):
        raise ValueError(
            f"this solver was fitted to the sigmas {own_sigmas}, got {given}: give it those of its own file, "
            "by the node GeoSPRINT sigmas, and denoise from the start"
        )
    past: list[torch.Tensor] = []
    for i, step in enumerate(numbers):
        x0 = model(x, sigmas[i] * x.new_ones([x.shape[0]]), **(extra_args or {}))
        if callback is not None:
            callback({"x": x, "i": i, "sigma": sigmas[i], "sigma_hat": sigmas[i], "denoised": x0})
        # A state here is x / a where a model preserves variance, so that it holds all of x0; a flow's is its own.
        a, a_next = (1.0, 1.0) if is_flow else [(1 + sigma**2) ** -0.5 for sigma in given[i : i + 2]]
        bending = sum(c * (before - x0) for c, before in zip(step[2:], past[: len(step) - 2], strict=True))
        x = (step[0] * a * x + step[1] * x0 + bending) / a_next
        past = [x0, *past]
    return x


def _is_flow(content: dict) -> bool:
    return content["provenance"]["origin"]["noise"]["kind"] == "flow"


NODE_CLASS_MAPPINGS = {"GeoSprintSigmas": GeoSprintSigmas, "GeoSprintSampler": GeoSprintSampler}
NODE_DISPLAY_NAME_MAPPINGS = {"GeoSprintSigmas": "GeoSPRINT sigmas", "GeoSprintSampler": "GeoSPRINT fitted sampler"}
