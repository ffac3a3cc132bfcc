"""A tuned file in a pipeline: every number of steps, the same pictures after a reload, a word about other weights."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import tiny_pipelines as tiny
import torch
from diffusers import DDIMPipeline, DDIMScheduler, DiffusionPipeline

import geosprint
from geosprint import FittedSolver, StepSchedule
from geosprint.errors import ScheduleError
from geosprint.models.fingerprint import made_for
from geosprint.tuned import FITTED, Tuned, TunedSteps

TIMES = {2: [950.0, 300.0], 4: [990.0, 700.0, 350.0, 60.0]}
INPUTS = geosprint.PipelineInputs(tiny.PROMPTS, guidance_scale=4.0, height=16, width=16)


def tuned_for(model, solver):
    results = []
    for times in TIMES.values():
        schedule = StepSchedule.at(times, model.noise, {})
        coefficients = tuple((0.6 + 0.1 * i, 0.3) for i in range(len(times)))
        made = FittedSolver(schedule, coefficients) if solver == FITTED else schedule
        results.append(TunedSteps(made, solver))
    return Tuned(tuple(results), proved=4, made_for=made_for(model))


def quietly(function, *given):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        return function(*given)


@pytest.mark.parametrize("family", tiny.FAMILIES)
@pytest.mark.parametrize("kept", [False, True], ids=[FITTED, "solver kept"])
def test_a_file_of_several_numbers_of_steps_draws_the_same_after_a_reload(family, kept, tmp_path):
    pipe = tiny.FAMILIES[family]()
    if family == "ddpm":
        pipe.scheduler = DDIMScheduler.from_config(pipe.scheduler.config)
    model = geosprint.as_model(pipe, INPUTS if tiny.takes_prompts(family) else None)
    solver = FITTED if not kept else "euler" if family in tiny.FLOWS else "ddim"
    path = tuned_for(model, solver).save(tmp_path / "tuned.json")
    quietly(geosprint.apply, pipe, path)
    drawn = {steps: tiny.drawn(pipe, family, steps) for steps in (4, 2)}
    assert not np.allclose(drawn[2], drawn[4])
    pipe.save_pretrained(tmp_path / "pipe")
    loaded = geosprint.load_pipeline if isinstance(pipe, DDIMPipeline) else DiffusionPipeline.from_pretrained
    again = loaded(tmp_path / "pipe")  # a DDIMPipeline puts a stock scheduler in
    for steps, expected in drawn.items():
        np.testing.assert_allclose(tiny.drawn(again, family, steps), expected, atol=1e-5)
    with pytest.raises(
        ScheduleError, match="steps for K = 2, 4, but 3 were asked for; ask for one of these"
    ) as refused:
        tiny.drawn(again, family, 3)
    assert "profile" not in str(refused.value)


@pytest.mark.parametrize("family", ["ddim", "sd15", "sd3"])
def test_a_pipelines_file_says_what_it_was_made_for_and_no_prompts(family):
    pipe = tiny.FAMILIES[family]()
    prompts = tuple(f"prompt {i}" for i in range(1000))
    asked = geosprint.PipelineInputs(prompts, height=16, width=16) if tiny.takes_prompts(family) else None
    made = made_for(geosprint.as_model(pipe, asked))
    assert (made["model"], made["dtype"], len(made["weights"]["values"])) == (type(pipe).__name__, "float32", 16)
    text = json.dumps(made)
    assert "prompt 1" not in text
    assert len(text) < 2500  # no table of a thousand noise levels
    if asked:
        assert made["conditions"]["prompts"] == 1000
        assert len(made["conditions"]["prompts_sha256"]) == 64


def test_other_weights_are_a_warning_and_another_precision_or_path_is_none(tmp_path):
    pipe = tiny.sd15()
    tuned = tuned_for(geosprint.as_model(pipe, INPUTS), FITTED)
    pipe.save_pretrained(tmp_path)
    quietly(geosprint.apply, geosprint.load_pipeline(tmp_path, "float16", "cpu"), tuned)
    with torch.no_grad():
        for own in pipe.unet.parameters():
            own.mul_(1.5)
    with pytest.warns(
        UserWarning, match="made for model 'StableDiffusionPipeline' with other weights and are used with"
    ):
        geosprint.apply(pipe, tuned)
    with pytest.warns(UserWarning, match="with other weights"):
        geosprint.sample(pipe, tuned, [0], inputs=INPUTS)


def test_sample_and_an_applied_pipeline_draw_the_same():
    pipe = tiny.ddim()
    model = geosprint.as_model(pipe)
    tuned = tuned_for(model, FITTED)
    ours = quietly(geosprint.sample, model, tuned, [5])
    quietly(geosprint.apply, pipe, tuned)
    pipe.set_progress_bar_config(disable=True)
    theirs = pipe(num_inference_steps=4, generator=torch.Generator().manual_seed(5), output_type="np").images
    expected = (ours / 2 + 0.5).clamp(0, 1).permute(0, 2, 3, 1).numpy()
    np.testing.assert_allclose(theirs, expected, atol=1e-4)
