"""Tuned steps the way ComfyUI samples: its own samplers or fitted coefficients, from all of the first noise."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import comfy.samplers
import torch
from comfy.model_sampling import CONST

SAMPLERS = {"ddim": "euler", "euler": "euler", "heun": "heun", "dpmpp-2m-kdiffusion": "dpmpp_2m"}
"""What ComfyUI calls the solvers that steps may be tuned for."""


def sampler_and_sigmas(path: str, steps: int) -> tuple["Start", torch.Tensor]:
    """What SamplerCustom wants, of one number of steps of a file."""
    found = _steps_in(path, steps)
    kind = found["made_for"].get("noise", {}).get("kind")
    is_flow = found.get("is_flow") if kind is None else kind == "flow"
    if found.get("coefficients"):
        numbers = {name: found.get(name) or [] for name in ("coefficients", "guided")}
        sampler = Start(fitted_steps, {"own_sigmas": found["sigmas"], **numbers})
    else:
        sampler = Start(comfy.samplers.ksampler(_sampler(found.get("solver"), is_flow, path)).sampler_function)
    sampler.path, sampler.is_flow = path, is_flow
    return sampler, torch.tensor(found["sigmas"], dtype=torch.float32)


class Start(comfy.samplers.KSAMPLER):
    """A sampler that starts from unit noise at any sigma, as steps are tuned to; ComfyUI multiplies it by sigma."""

    path: str
    is_flow: bool | None  # what the file was made for; None: it does not say

    def sample(
        self,
        model_wrap: Any,
        sigmas: torch.Tensor,
        extra_args: dict,
        callback: Callable | None,
        noise: torch.Tensor,
        latent_image: torch.Tensor | None = None,
        denoise_mask: torch.Tensor | None = None,
        disable_pbar: bool = False,
    ) -> torch.Tensor:
        """As KSAMPLER does it, with the noise that is missing; a picture to start from is noised by ComfyUI alone."""
        sampling = model_wrap.inner_model.model_sampling
        is_flow = isinstance(sampling, CONST)
        if self.is_flow not in (None, is_flow):
            made, here = ("a flow model", "another") if self.is_flow else ("another", "a flow model")
            raise ValueError(f"{self.path} was made for {made}, and this is {here}: tune for this one")
        if latent_image is None or not latent_image.any():
            unit, most = torch.ones_like(noise[:1]), self.max_denoise(model_wrap, sigmas)
            here = sampling.noise_scaling(sigmas[0], unit, torch.zeros_like(unit), most)
            noise = noise * ((1.0 if is_flow else (1 + sigmas[0] ** 2) ** 0.5) / here)
        return super().sample(model_wrap, sigmas, extra_args, callback, noise, latent_image, denoise_mask, disable_pbar)


def fitted_steps(
    model: Callable[..., torch.Tensor],
    x: torch.Tensor,
    sigmas: torch.Tensor,
    extra_args: dict | None = None,
    callback: Callable[[dict], Any] | None = None,
    disable: bool | None = None,
    own_sigmas: Sequence[float] = (),
    coefficients: Sequence[Sequence[float]] = (),
    guided: Sequence[Sequence[float]] = (),
) -> torch.Tensor:
    """x_next = c[0]·x + c[1]·x0 + sum of c[1+k]·(x0 of k steps ago - x0), where x holds the signal a times x0.

    Guided steps have coefficients of their own for what guidance adds to the conditional x0, each after that of its x0.
    """
    given = [float(sigma) for sigma in sigmas]
    if len(given) != len(own_sigmas) or any(abs(a - b) > 0.01 * b for a, b in zip(given, own_sigmas, strict=True)):
        raise ValueError(
            f"this sampler was fitted to the sigmas {own_sigmas}, got {given}: connect both outputs of the same node "
            "GeoSPRINT steps, and leave the sigmas whole"
        )
    is_flow = isinstance(model.inner_model.inner_model.model_sampling, CONST)  # type: ignore[attr-defined]
    extra_args, conditional = dict(extra_args or {}), list[torch.Tensor]()

    def hear(told: dict) -> torch.Tensor:
        conditional[:] = [told["cond_denoised"]]
        return told["denoised"]

    options = dict(extra_args.get("model_options", {}))
    listening = [*options.get("sampler_post_cfg_function", []), hear]
    extra_args["model_options"] = {**options, "sampler_post_cfg_function": listening}
    past: list[list[torch.Tensor]] = []
    for i, step in enumerate(guided or coefficients):
        x0 = model(x, sigmas[i] * x.new_ones([x.shape[0]]), **extra_args)
        if callback is not None:
            callback({"x": x, "i": i, "sigma": sigmas[i], "sigma_hat": sigmas[i], "denoised": x0})
        # A state here is x / a where a model preserves variance, so that it holds all of x0; a flow's is its own.
        a, a_next = (1.0, 1.0) if is_flow else [(1 + sigma**2) ** -0.5 for sigma in given[i : i + 2]]
        now = [x0, x0 - conditional[0]] if guided else [x0]
        earlier = [then - part for before in past for then, part in zip(before, now, strict=True)]
        parts = [a * x, *now, *earlier][: len(step)]
        x = sum(c * part for c, part in zip(step, parts, strict=True)) / a_next
        past = [now, *past]
    return x


def _sampler(solver: str | None, is_flow: bool | None, path: str) -> str:
    """ComfyUI's name of a solver; its dpmpp_2m steps in log sigma, which is DPM++ 2M for all models but flows."""
    known = {**SAMPLERS, "dpmpp-2m": "dpmpp_2m"} if is_flow is False else SAMPLERS
    if solver is None:
        return "euler"  # steps for no solver in particular
    if solver not in known:
        raise ValueError(
            f"{path} was tuned for {solver}, which ComfyUI does not have for this model; tune for one of these: "
            f"fitted, {', '.join(known)}"
        )
    return known[solver]


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
    about = whole.get("provenance", {})
    made_for = whole.get("made_for") or about.get("origin") or {}
    return {"solver": about.get("solver"), **known[wanted], "made_for": made_for}
