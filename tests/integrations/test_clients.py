"""Clients that take sigmas, each with the first noise and the samplers that it has, draw what `sample` draws."""

from __future__ import annotations

import json
import math
import re
import shlex
import sys
import warnings
from itertools import pairwise
from types import SimpleNamespace

import diffusers
import numpy as np
import pytest
import tiny_pipelines as tiny
import torch

import geosprint
from geosprint.models.base import Network
from geosprint.noise import DiscreteVP, Flow
from geosprint.sampling import SeededNoise
from geosprint.schedule import StepSchedule

SEEDS = [1, 2]
VP = DiscreteVP.named("scaled_linear")
EARLY, LATE = [999.0, 700.0, 500.0, 280.0, 30.0], [620.0, 500.0, 300.0, 180.0, 30.0]


def network(noise):
    return Network(lambda x, t: 0.8 * torch.tanh(x) * (1 - t / 2000), (3, 4, 4), noise, "x0", name="tiny")


# The samplers of k-diffusion, ComfyUI and stable-diffusion.cpp, written anew: states hold all of x0, D is the denoiser.


def euler(D, x, sigmas):
    for now, then in pairwise(sigmas):
        x = x + (then - now) * (x - D(x, now)) / now
    return x


def heun(D, x, sigmas):
    for now, then in pairwise(sigmas):
        slope = (x - D(x, now)) / now
        landing = x + (then - now) * slope
        x = landing if then == 0 else x + (then - now) * (slope + (landing - D(landing, then)) / then) / 2
    return x


def two_m(D, x, sigmas):
    logs, seen = [-math.log(sigma) for sigma in sigmas[:-1]], []
    for i, (now, then) in enumerate(pairwise(sigmas)):
        seen.append(D(x, now))
        ahead = seen[-1]
        if i > 0 and then > 0:
            ahead = ahead + (logs[i + 1] - logs[i]) / (logs[i] - logs[i - 1]) / 2 * (ahead - seen[-2])
        x = then / now * x + (1 - then / now) * ahead
    return x


SAMPLERS = {"euler": euler, "heun": heun, "dpmpp-2m-kdiffusion": two_m}


def drawn_by_client(model, sigmas, sampler, first_noise):
    """A client's loop over sigmas from its first noise; a network of a VP model is asked at the scaled state."""

    def denoiser(x, sigma):
        time = float(model.noise.time_of_sigma(sigma))
        if isinstance(model.noise, Flow):
            return model(x, time)
        return model(x / math.hypot(1, sigma), round(time))

    noise = SeededNoise(SEEDS, model.shape, model.device).draw().double()
    return sampler(denoiser, first_noise * noise, [float(sigma) for sigma in sigmas]).float()


def sigmas_in(text, target, monkeypatch):
    """Read as the client reads them."""
    if target == "comfyui":
        return [float(word) for word in text.split(",")]
    if target == "sdcpp":
        words = shlex.split(text)
        return [float(word) for word in words[words.index("--sigmas") + 1].split(",")]
    if target == "json":
        return json.loads(text)["sigmas"]
    namespace = {}
    if target == "a1111":
        registered = SimpleNamespace(
            Scheduler=lambda *given: SimpleNamespace(name=given[0], label=given[1], of=given[2])
        )
        registered.schedulers, registered.schedulers_map = [], {}
        monkeypatch.setitem(sys.modules, "modules", SimpleNamespace(sd_schedulers=registered))
        exec(text, namespace)
        (own,) = registered.schedulers
        return own.of(5, 0.03, 14.6, "cpu").tolist()
    exec(text, namespace)
    return namespace["sigmas"].tolist()


def first_noise_of(target, noise, sigmas, text):
    """What each client multiplies unit noise by, as its source says; k-diffusion and JSON are told."""
    first, is_highest = sigmas[0], math.isclose(sigmas[0], float(VP.sigma(VP.first)), rel_tol=1e-5)
    if target == "json":
        return json.loads(text)["first_noise"]
    if target == "kdiffusion":
        return float(re.search(r"first_noise = ([\d.]+)", text)[1])
    if target == "comfyui" and not isinstance(noise, Flow) and is_highest:  # EPS.noise_scaling with max_denoise
        return math.hypot(1, first)
    return first


@pytest.mark.parametrize("times", [EARLY, LATE], ids=["early", "late"])
@pytest.mark.parametrize("solver", SAMPLERS)
@pytest.mark.parametrize("noise", [VP, Flow(3.0)], ids=["vp", "flow"])
@pytest.mark.parametrize("target", ["comfyui", "a1111", "sdcpp", "kdiffusion", "json"])
def test_a_client_draws_what_sample_draws_or_the_warning_tells_what_its_first_noise_lacks(
    target, noise, solver, times, monkeypatch
):
    times = [1000.0, *times[1:]] if times is EARLY and isinstance(noise, Flow) else times
    model, name = network(noise), "dpmpp-2m" if noise is VP and solver.startswith("dpmpp") else solver
    schedule = StepSchedule.at(times, noise, {"solver": name})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        text = geosprint.export(schedule, target)
    lacks = [float(re.search(r"first noise ([\d.]+) times smaller", str(one.message))[1]) for one in caught]
    sigmas = sigmas_in(text, target, monkeypatch)
    np.testing.assert_allclose(sigmas, schedule.sigmas, rtol=1e-6)
    expected = geosprint.sample(model, schedule, SEEDS)
    first = first_noise_of(target, noise, sigmas, text)
    plain = drawn_by_client(model, sigmas, SAMPLERS[solver], first)
    if target in ("kdiffusion", "json") or (target == "comfyui" and times is not LATE):
        assert not lacks
        torch.testing.assert_close(plain, expected, rtol=1e-5, atol=1e-5)
    elif times is LATE:
        (missing,) = lacks
        told = drawn_by_client(model, sigmas, SAMPLERS[solver], first * missing)
        torch.testing.assert_close(told, expected, rtol=0, atol=2e-3)  # three digits of it
        assert (plain - expected).abs().max() > 5e-3
    else:  # a first noise 1.002 times too small is what they always have
        assert not lacks
        torch.testing.assert_close(plain, expected, rtol=0, atol=5e-3)


# Engines that run a pipeline of diffusers: it starts from all of the noise, wherever the list begins.


def lists_in(text, target):
    """What the pipeline is called with."""
    if target == "sglang":
        words = shlex.split(text)
        return json.loads(words[words.index("--diffusers-kwargs") + 1])
    name = "timesteps" if target == "diffusers" and "timesteps" in text else "sigmas"
    return {name: json.loads(re.search(rf"{name} ?= ?(\[.*?\])", text)[1])}


@pytest.mark.parametrize("times", [EARLY, LATE], ids=["early", "late"])
@pytest.mark.parametrize(
    ("target", "family"), [("diffusers", "sd15"), ("diffusers", "sd3"), ("vllm", "sd3"), ("sglang", "sd3")]
)
def test_an_engine_that_runs_a_pipeline_draws_what_apply_draws(target, family, times):
    pipe, applied = tiny.FAMILIES[family](), tiny.FAMILIES[family]()
    if family == "sd15":
        single = diffusers.DPMSolverMultistepScheduler.from_config(pipe.scheduler.config, solver_order=1)
        pipe.scheduler, applied.scheduler = single, single
    noise = VP if family == "sd15" else Flow(3.0)
    schedule = StepSchedule.at(times, noise, {"solver": "ddim", "origin": {"noise": noise.to_dict()}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given = lists_in(geosprint.export(schedule, target), target)
    found = tiny.drawn(pipe, family, len(times), **given)
    np.testing.assert_allclose(found, tiny.drawn(geosprint.apply(applied, schedule), family, len(times)), atol=1e-5)
