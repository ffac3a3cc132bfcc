"""Pipelines that bring a spacing of their own: applied steps win over it, and the user's own lists win over both."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pytest
import tiny_families as families
import tiny_pipelines as tiny
import torch
from diffusers import DiffusionPipeline

import geosprint
from geosprint.errors import ModelError, ScheduleError
from geosprint.fitted_solver import FittedSolver
from geosprint.integrations.pipelines import record_pipeline
from geosprint.noise import Flow

TIMES = [1000.0, 700.0, 350.0, 90.0]


def drawn(name, pipe, **more):
    """Latents of one run, and the times that the network was told."""
    family, told = families.FAMILIES[name], []
    pipe.set_progress_bar_config(disable=True)

    def hear(_, __, named):
        told.append(float(torch.as_tensor(named["timestep"]).flatten()[0]))

    handle = pipe.transformer.register_forward_pre_hook(hear, with_kwargs=True)
    generator = torch.Generator().manual_seed(3)
    given = families.inputs_of(family, num_inference_steps=4, generator=generator, output_type="latent")
    result = pipe(**{**given, **more})[0]
    handle.remove()
    return result, np.array(told)


def inputs_of(name):
    family = families.FAMILIES[name]
    return geosprint.PipelineInputs(tiny.PROMPTS[:1], **family.size, call=family.call)


def with_steps(name):
    """A tiny pipeline that carries `TIMES`, and its shift."""
    pipe = families.FAMILIES[name].build()
    shift = next(record_pipeline(pipe, [0], 2, inputs=inputs_of(name))).origin.noise.shift
    return geosprint.apply(pipe, geosprint.StepSchedule.at(TIMES, Flow(shift), {})), shift


OWN_SPACING = ["CogView4Pipeline", "LTXConditionPipeline", "MochiPipeline", "BriaPipeline", "ErnieImagePipeline"]


@pytest.mark.parametrize("name", [*OWN_SPACING, "FluxPipeline"])
def test_applied_steps_win_over_the_spacing_of_the_pipeline(name, tmp_path):
    pipe, _ = with_steps(name)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "the steps that geosprint")
        first, _ = drawn(name, pipe)
    np.testing.assert_allclose(pipe.scheduler.sigmas, [*(t / 1000 for t in TIMES), 0], rtol=1e-6)
    pipe.save_pretrained(tmp_path)
    again = DiffusionPipeline.from_pretrained(tmp_path)
    torch.testing.assert_close(drawn(name, again)[0], first, atol=1e-5, rtol=1e-4)


def test_a_network_that_is_told_the_time_before_the_shift_is_told_it():
    """CogView4: sigma = k s / (1 + (k - 1) s) of the time 1000 s that its network was trained on."""
    pipe, shift = with_steps("CogView4Pipeline")
    assert shift != 1
    _, told = drawn("CogView4Pipeline", pipe)
    share = np.array(TIMES) / 1000
    expected = 1000 * share / (shift - (shift - 1) * share)
    np.testing.assert_allclose(told[::2], expected, rtol=1e-5)  # with and without the prompt


@pytest.mark.parametrize("name", ["CogView4Pipeline", "MochiPipeline"])
def test_a_recording_is_what_the_model_of_the_pipeline_walks_by_euler(name):
    pipe, inputs = families.FAMILIES[name].build(), inputs_of(name)
    model, seen = geosprint.as_model(pipe, inputs), next(record_pipeline(pipe, [5], 4, inputs=inputs))
    x = seen.states[:, 0].reshape(1, *seen.origin.shape)
    times = [*seen.timesteps[:-1], 0.0]
    for i, (here, there) in enumerate(pairwise(times)):
        x = x + (there - here) / 1000 * model(x, float(here))
        np.testing.assert_allclose(x.flatten(1), seen.states[:, i + 1], atol=1e-4)


def test_steps_of_every_token_are_no_answers_of_a_model_and_no_fitted_steps():
    """LTX with conditions hands its scheduler the negated velocity, and a time for every token."""
    name = "LTXConditionPipeline"
    pipe, inputs = families.FAMILIES[name].build(), inputs_of(name)
    with pytest.raises(ModelError, match="a LTXConditionPipeline steps every token at a time of its own"):
        geosprint.as_model(pipe, inputs)
    solver = FittedSolver(geosprint.StepSchedule.at(TIMES, Flow(), {}), ((0.5, 0.5),) * len(TIMES))
    geosprint.apply(pipe, solver)
    with pytest.raises(ValueError, match="fitted steps are the same for all tokens"):
        drawn(name, pipe)


@pytest.mark.parametrize("own", [np.linspace(1.0, 0.25, 4).tolist(), [1.0, 0.8, 0.5, 0.1]], ids=["uniform", "other"])
def test_sigmas_of_the_user_win_and_that_is_said(own):
    stock, _ = drawn("FluxPipeline", tiny.flux(), sigmas=own)
    pipe, _ = with_steps("FluxPipeline")
    with pytest.warns(UserWarning, match="this FluxPipeline are not used, because it was given sigmas; leave that"):
        found, _ = drawn("FluxPipeline", pipe, sigmas=own)
    torch.testing.assert_close(found, stock, atol=1e-6, rtol=1e-5)


def test_steps_that_are_not_used_are_told_once():
    pipe, _ = with_steps("FluxPipeline")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for _ in range(3):
            drawn("FluxPipeline", pipe, sigmas=[1.0, 0.8, 0.5, 0.1])
    assert sum("are not used" in str(one.message) for one in told) == 1


def test_timesteps_of_the_user_win_where_the_pipeline_has_its_own():
    own = [900, 400, 200]
    stock, _ = drawn("CogView4Pipeline", families.cogview4(), timesteps=own, num_inference_steps=3)
    pipe, _ = with_steps("CogView4Pipeline")
    with pytest.warns(UserWarning, match="this CogView4Pipeline are not used, because it was given timesteps"):
        found, _ = drawn("CogView4Pipeline", pipe, timesteps=own, num_inference_steps=3)
    torch.testing.assert_close(found, stock, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("how", ["schedule", "fitted"])
def test_sigmas_above_those_of_a_flow_are_refused(how):
    """Cosmos 2 walks from sigma 80, with the scheduler of a flow."""
    name, schedule = "Cosmos2TextToImagePipeline", geosprint.StepSchedule.at(TIMES, Flow(), {})
    pipe, inputs = families.FAMILIES[name].build(), inputs_of(name)
    before = pipe.scheduler
    for use in (geosprint.extract, geosprint.as_model):
        with pytest.raises(ModelError, match="its sigmas begin at 80, as in Cosmos 2, and those of a flow at 1; wrap"):
            use(pipe, inputs=inputs)
    made = schedule if how == "schedule" else FittedSolver(schedule, ((0.5, 0.5),) * len(TIMES))
    with pytest.raises(ScheduleError, match="cannot step where a list says: its sigmas begin at 80"):
        geosprint.apply(pipe, made)
    assert pipe.scheduler is before


def test_karras_sigmas_of_a_flow_are_recorded_on_a_uniform_clock():
    """Cosmos 2.5 says the highest sigma as s / (1 - s), which Euler would take for one of a flow."""
    name = "Cosmos2_5_PredictBasePipeline"
    pipe, _ = with_steps(name)
    assert pipe.scheduler.config.sigma_max == 200
    seen = next(record_pipeline(pipe, [0], 4, inputs=inputs_of(name)))
    np.testing.assert_allclose(seen.timesteps, [1000, 667, 334, 1, -1], rtol=1e-6)
    drawn(name, pipe)
    np.testing.assert_allclose(pipe.scheduler.sigmas, [*(t / 1000 for t in TIMES), 0], rtol=1e-5)
