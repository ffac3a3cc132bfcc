"""ComfyUI custom nodes: tuned steps as SIGMAS, and with their coefficients as SAMPLER. Copy this into custom_nodes.

It needs nothing but what ComfyUI has; geosprint itself need not be installed there.
"""

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

STEPS = ("INT", {"default": 0, "min": 0, "tooltip": "Which number of steps of the file; 0: the proved or only one."})


class GeoSprintSigmas:
    """Reads the sigmas of a file made by `geosprint tune`, `fit` or `schedule`."""

    CATEGORY = "sampling/custom_sampling/schedulers"
    FUNCTION = "sigmas"
    RETURN_TYPES = ("SIGMAS",)

    @classmethod
    def INPUT_TYPES(cls) -> dict:
        """The path of the file, and which of its numbers of steps."""
        return {"required": {"schedule": ("STRING", {"default": "tuned.json"}), "steps": STEPS}}

    @classmethod
    def IS_CHANGED(cls, schedule: str, steps: int = 0) -> float:
        """A file that was written anew is read anew."""
        return os.path.getmtime(schedule)

    def sigmas(self, schedule: str, steps: int = 0) -> tuple[torch.Tensor]:
        """K + 1 sigmas, the last one 0."""
        return (torch.tensor(_steps_in(schedule, steps)["sigmas"], dtype=torch.float32),)


class GeoSprintSampler:
    """Steps with the coefficients of a file made by `geosprint tune` or `fit`; give it the sigmas of the same file."""

    CATEGORY = "sampling/custom_sampling/samplers"
    FUNCTION = "sampler"
    RETURN_TYPES = ("SAMPLER",)

    @classmethod
    def INPUT_TYPES(cls) -> dict:
        """The path of the file, and which of its numbers of steps."""
        return {"required": {"solver": ("STRING", {"default": "tuned.json"}), "steps": STEPS}}

    @classmethod
    def IS_CHANGED(cls, solver: str, steps: int = 0) -> float:
        """A file that was written anew is read anew."""
        return os.path.getmtime(solver)

    def sampler(self, solver: str, steps: int = 0) -> tuple:
        """What SamplerCustom wants."""
        from comfy.samplers import KSAMPLER  # type: ignore[import-not-found]

        found = _steps_in(solver, steps)
        if not found.get("coefficients"):
            raise ValueError(f"{solver} says where to step and not how: use a sampler of ComfyUI with its sigmas")
        noise = found["made_for"].get("noise", {})
        options = {
            "own_sigmas": found["sigmas"],
            "numbers": found["coefficients"],
            "is_flow": noise.get("kind") == "flow",
            "starts_below_the_top": found["timesteps"][0]
            < noise.get("timesteps", len(noise.get("alphas_cumprod", ()))) - 1,
        }
        return (KSAMPLER(fitted_steps, extra_options=options),)


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
    starts_below_the_top: bool = False,
) -> torch.Tensor:
    """x_next = c[0]·x + c[1]·x0 + sum of c[1+k]·(x0 of k steps ago - x0), where x holds the signal a times x0."""
    given = [float(sigma) for sigma in sigmas]
    if len(given) != len(own_sigmas) or any(abs(a - b) > 0.01 * b for a, b in zip(given, own_sigmas, strict=True)):
        raise ValueError(
            f"this solver was fitted to the sigmas {own_sigmas}, got {given}: give it those of its own file, "
            "by the node GeoSPRINT sigmas, and denoise from the start"
        )
    if starts_below_the_top:  # there, ComfyUI scales the first noise by sigma; a fit starts from all of it
        x = x / given[0] if is_flow else x * (1 + given[0] ** 2) ** 0.5 / given[0]
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


def _steps_in(path: str, steps: int) -> dict:
    """Where and how to step for one number of steps of a file of geosprint, and the model that it was made for."""
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    whole = content if isinstance(content, dict) else {}
    results = whole.get("results", [whole])  # earlier versions have one number of steps to a file
    if not all(isinstance(one.get("sigmas"), list) and one["sigmas"][-1:] == [0] for one in results):
        raise ValueError(f"{path} must hold lists of sigmas that end with 0; was it made by geosprint?")
    known = {len(one["sigmas"]) - 1: one for one in results}
    wanted = steps or whole.get("proved") or (next(iter(known)) if len(known) == 1 else 0)
    if wanted not in known:
        raise ValueError(f"{path} has steps for K = {', '.join(map(str, known))}: say which one, got {steps}")
    made_for = whole.get("made_for") or whole.get("provenance", {}).get("origin") or {}
    return {**known[wanted], "made_for": made_for}


NODE_CLASS_MAPPINGS = {"GeoSprintSigmas": GeoSprintSigmas, "GeoSprintSampler": GeoSprintSampler}
NODE_DISPLAY_NAME_MAPPINGS = {"GeoSprintSigmas": "GeoSPRINT sigmas", "GeoSprintSampler": "GeoSPRINT fitted sampler"}
