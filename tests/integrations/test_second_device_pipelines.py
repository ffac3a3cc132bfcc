"""A pipeline that is not on the CPU, from recording to images with what was applied."""

from __future__ import annotations

import diffusers
import numpy as np
import pytest
import tiny_pipelines as tiny
import torch

import geosprint
from geosprint.baselines import baseline_schedule
from geosprint.integrations.adapter import decoder_of
from geosprint.integrations.today import today_of
from second_device import DEVICE, second_device

NOISE = geosprint.DiscreteVP(tiny.sd15().scheduler.alphas_cumprod.double().numpy())


@pytest.fixture(autouse=True)
def elsewhere():
    with second_device() as device:
        yield device


def moved(family):
    pipe = tiny.FAMILIES[family]().to(DEVICE)
    pipe.set_progress_bar_config(disable=True)
    return pipe


@pytest.mark.parametrize("family", ["ddim", "sd15", "sd3"])
def test_a_pipeline_is_recorded_asked_decoded_and_steps_where_it_is(family):
    pipe, inputs = moved(family), None
    if tiny.takes_prompts(family):
        inputs = geosprint.PipelineInputs(tiny.PROMPTS, guidance_scale=4.0, height=16, width=16)
    geosprint.apply(pipe, geosprint.extract(pipe, 2, 6, inputs=inputs))
    assert np.isfinite(tiny.drawn(pipe, family, 4)).all()
    model = geosprint.as_model(pipe, inputs)
    assert decoder_of(model)(geosprint.sample(model, [900, 400], range(2))).isfinite().all()
    schedule = baseline_schedule("uniform-trailing", model.noise, 3)
    coefficients = ((0.5, 0.5), (0.4, 0.6, -0.1), (0.1, 0.9, -0.2, 0.1))
    geosprint.apply(pipe, geosprint.FittedSolver(schedule, coefficients))
    assert np.isfinite(tiny.drawn(pipe, family, 3)).all()


@pytest.mark.parametrize("name", ["DPMSolverMultistepScheduler", "UniPCMultistepScheduler", "HeunDiscreteScheduler"])
def test_an_applied_schedule_steps_on_the_pipelines_device(name):
    pipe = moved("sd15")
    pipe.scheduler = getattr(diffusers, name).from_config(pipe.scheduler.config)
    geosprint.apply(pipe, geosprint.StepSchedule.at([950, 600, 50], NOISE, {}))
    found = tiny.drawn(pipe, "sd15", 3)
    plain = geosprint.apply(tiny.sd15(), geosprint.StepSchedule.at([950, 600, 50], NOISE, {}))
    plain.scheduler = type(pipe.scheduler).from_config(pipe.scheduler.config)
    np.testing.assert_allclose(found, tiny.drawn(plain, "sd15", 3), atol=1e-3)


@pytest.mark.parametrize("family", ["sd15", "sd3"])
def test_what_runs_today_is_measured_on_the_pipelines_device(family):
    inputs = geosprint.PipelineInputs(tiny.PROMPTS, height=16, width=16)
    ends = []
    for pipe in (moved(family), tiny.FAMILIES[family]()):
        model, today = geosprint.as_model(pipe, inputs), today_of(pipe, inputs)
        assert today.is_deterministic
        starts = torch.randn(1, *model.shape, generator=torch.Generator().manual_seed(0)).to(pipe.device)
        ends.append(today.ends(model.for_samples([0]), starts, 3).cpu())
    torch.testing.assert_close(*ends, rtol=1e-3, atol=1e-3)
