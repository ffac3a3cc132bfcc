"""Fitted steps of guided pipelines: what `apply` hears of the network, and what is left where nobody listens."""

from __future__ import annotations

import gc
import inspect
import warnings

import diffusers
import numpy as np
import pytest
import tiny_pipelines as tiny
import torch
from diffusers import DDIMScheduler

import geosprint
from geosprint import FittedSolver, StepSchedule
from geosprint.integrations.hooks import conditional_part
from geosprint.models.base import predict

STEPS, GUIDANCE = 3, 4.0
COEFFICIENTS = ((0.98, 0.05), (0.9, 0.2, -0.1), (0.05, 0.9, -0.3, 0.1))
GUIDED = ((0.97, 0.06, 0.3), (0.8, 0.3, -0.5, -0.2, 0.4), (0.1, 0.8, 0.9, -0.2, -0.6, 0.2, 0.4))
FAMILIES = ("sd15", "sdxl", "sd3")


def pipeline(family):
    torch.manual_seed(0)
    pipe = getattr(tiny, family)()
    if family != "sd3":
        pipe.scheduler = DDIMScheduler.from_config(pipe.scheduler.config)
    return pipe


def inputs(scale=GUIDANCE):
    return geosprint.PipelineInputs(tiny.PROMPTS, guidance_scale=scale)


def made_for(model, guided=GUIDED):
    times = np.array([0.95, 0.5, 0.1]) * model.noise.first
    times = times if model.noise.continuous else times.round()
    return FittedSolver(StepSchedule.at(times, model.noise, {"method": "by hand"}), COEFFICIENTS, guided)


def latents_of(pipe, scale):
    generators = [torch.Generator().manual_seed(seed) for seed in (7, 8)]
    asked = {"num_inference_steps": STEPS, "guidance_scale": scale, "generator": generators, "output_type": "latent"}
    return pipe(list(tiny.PROMPTS[:2]), **asked).images


def drawn(pipe, scale=GUIDANCE):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "these steps have coefficients")
        return latents_of(pipe, scale)


def drawn_unheard(pipe):
    said = r"the conditional prediction is not known here.*call geosprint.apply\(pipe\)"
    with pytest.warns(UserWarning, match=said):
        return latents_of(pipe, GUIDANCE)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("scale", [GUIDANCE, 1.0])
def test_the_pipelines_own_call_draws_what_sample_draws(family, scale):
    pipe = pipeline(family)
    model = geosprint.as_model(pipe, inputs(scale))
    expected = geosprint.sample(model, made_for(model), [7, 8])
    alone = geosprint.sample(model, made_for(model, guided=()), [7, 8])
    assert (expected - alone).abs().max() > 1e-2
    geosprint.apply(pipe, made_for(model))
    torch.testing.assert_close(drawn(pipe, scale), expected, atol=2e-4, rtol=0)
    torch.testing.assert_close(drawn(pipe, scale), expected, atol=2e-4, rtol=0)  # a second run begins anew


def test_the_conditional_prediction_of_a_pipeline_is_what_it_says_without_guidance():
    pipe = pipeline("sd15")
    guided, alone = (geosprint.as_model(pipe, inputs(scale)).for_samples([0, 1]) for scale in (GUIDANCE, 1.0))
    x = torch.randn(2, *guided.shape, generator=torch.Generator().manual_seed(1))
    found = predict(guided.with_conditional(), x, 400.0)
    torch.testing.assert_close(found.x0, predict(guided, x, 400.0).x0)
    torch.testing.assert_close(found.x0 - found.added, predict(alone, x, 400.0).x0, atol=1e-4, rtol=0)


def test_rescaled_guidance_tells_nothing_and_is_fitted_as_one_prediction():
    pipe = pipeline("sd15")
    whole = type(pipe).__call__

    class Rescaled(type(pipe)):
        def __call__(self, *given, **named):
            return whole(self, *given, **named, guidance_rescale=0.7)

        __call__.__signature__ = inspect.signature(whole)

    pipe.__class__ = Rescaled
    model = geosprint.as_model(pipe, inputs())
    assert model.calls == 2
    assert model.with_conditional() is model


def test_after_a_plain_reload_the_other_coefficients_are_used_until_apply_is_called(tmp_path):
    pipe = pipeline("sd15")
    model = geosprint.as_model(pipe, inputs())
    heard = drawn(geosprint.apply(pipe, made_for(model)))
    pipe.save_pretrained(tmp_path)
    again = diffusers.StableDiffusionPipeline.from_pretrained(tmp_path)
    alone = geosprint.sample(model, made_for(model, guided=()), [7, 8])
    torch.testing.assert_close(drawn_unheard(again), alone, atol=2e-4, rtol=0)
    torch.testing.assert_close(drawn(geosprint.apply(again)), heard, atol=1e-5, rtol=0)


@pytest.mark.parametrize("when", ["before", "after", "in place"])
def test_a_compiled_network_is_heard(when):
    pipe = pipeline("sd15")
    model = geosprint.as_model(pipe, inputs())
    expected = geosprint.sample(model, made_for(model), [7, 8])
    if when == "before":
        pipe.unet = torch.compile(pipe.unet, backend="eager")
    geosprint.apply(pipe, made_for(model))
    if when == "after":
        pipe.unet = torch.compile(pipe.unet, backend="eager")
    if when == "in place":
        pipe.unet.compile(backend="eager")
    torch.testing.assert_close(drawn(pipe), expected, atol=2e-4, rtol=0)


def test_an_offloaded_network_is_heard():
    from accelerate.hooks import CpuOffload, add_hook_to_module

    pipe = pipeline("sd15")
    model = geosprint.as_model(pipe, inputs())
    expected = geosprint.sample(model, made_for(model), [7, 8])
    geosprint.apply(pipe, made_for(model))
    add_hook_to_module(pipe.unet, CpuOffload(execution_device="cpu"))
    torch.testing.assert_close(drawn(pipe), expected, atol=2e-4, rtol=0)


def test_listening_ends_with_its_scheduler():
    pipe = pipeline("sd15")
    made = made_for(geosprint.as_model(pipe, inputs()))
    for _ in range(3):
        geosprint.apply(pipe, made)
    gc.collect()
    assert len(pipe.unet._forward_hooks) == 1
    pipe.scheduler = DDIMScheduler()
    gc.collect()
    assert not pipe.unet._forward_hooks


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("conditional_first", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_two_predictions_are_told_apart_in_either_order(apart, conditional_first, dtype):
    free, conditional = torch.randn(2, 3, 4, 8, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    guided = free + 7.5 * (conditional - free)
    order = [conditional, free] if conditional_first else [free, conditional]
    found = conditional_part(guided, order if apart else [torch.cat(order)])
    assert torch.equal(found, conditional)


def test_what_is_no_plain_guidance_tells_nothing():
    free, conditional, other = torch.randn(3, 2, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    guided = free + 7.5 * (conditional - free)
    assert conditional_part(0.8 * guided, [free, conditional]) is None
    assert conditional_part(guided, [free, conditional, other]) is None
    assert conditional_part(guided, []) is None
    assert conditional_part(conditional, [conditional]) is conditional  # no guidance at all
