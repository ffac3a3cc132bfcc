"""The trained pipeline in the box: its real call after `apply` draws what `geosprint.sample` draws, by every solver."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from diffusers import (
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    EulerDiscreteScheduler,
    StableDiffusionPipeline,
    UniPCMultistepScheduler,
)
from typer.testing import CliRunner

import geosprint
from geosprint import FittedSolver
from geosprint.baselines import baseline_schedule
from geosprint.cli import app
from geosprint.errors import ModelError
from geosprint.fitted_solver import known_coefficients
from geosprint.integrations.adapter import decoder_of, with_bundled_prompts
from geosprint.models.fingerprint import made_for
from geosprint.models.registry import bundled_prompts
from geosprint.tuned import Tuned, TunedSteps

STEPS, SEEDS, GUIDANCE = 5, (4, 11), 7.5
PROMPTS = bundled_prompts("scenes")[:2]
INPUTS = geosprint.PipelineInputs(PROMPTS, guidance_scale=GUIDANCE)


@pytest.fixture(scope="module")
def pipe():
    return geosprint.load_pipeline("scenes")


@pytest.fixture(autouse=True)
def stock(pipe):
    """Every test finds the pipeline with the scheduler that it was saved with."""
    before = pipe.scheduler
    yield
    pipe.scheduler = before


def drawn(pipe, output_type="latent", **more):
    generators = [torch.Generator().manual_seed(seed) for seed in SEEDS]
    asked = {"num_inference_steps": STEPS, "guidance_scale": GUIDANCE, "generator": generators, **more}
    return pipe(list(PROMPTS), output_type=output_type, **asked).images


def fitted(schedule, noise):
    """DPM++ 2M's coefficients, each moved a little, so that no known solver would draw the same."""
    known = known_coefficients("dpmpp-2m", noise, schedule.timesteps, 3)
    moved = np.random.default_rng(0).normal(0, 0.01, (len(known), 4))
    return FittedSolver(schedule, tuple(tuple(np.array(own) + moved[i, : len(own)]) for i, own in enumerate(known)))


@pytest.mark.parametrize(
    ("scheduler", "solver"),
    [
        (DDIMScheduler, "ddim"),
        (DPMSolverMultistepScheduler, "dpmpp-2m"),
        (UniPCMultistepScheduler, "unipc"),
        (EulerDiscreteScheduler, "ddim"),  # Euler's step in sigma is DDIM's
        (DDIMScheduler, "fitted"),
    ],
)
def test_the_pipelines_own_call_draws_what_sample_draws(pipe, scheduler, solver):
    pipe.scheduler = scheduler.from_config(pipe.scheduler.config)
    model = geosprint.as_model(pipe, INPUTS)
    schedule = baseline_schedule("logsnr", model.noise, STEPS)
    made = fitted(schedule, model.noise) if solver == "fitted" else schedule
    expected = geosprint.sample(model, made, SEEDS, None if solver == "fitted" else solver)
    geosprint.apply(pipe, made)
    torch.testing.assert_close(drawn(pipe), expected, atol=2e-4, rtol=0)
    pictures = drawn(pipe, "pt") * 2 - 1
    torch.testing.assert_close(pictures, decoder_of(model)(expected), atol=2e-4, rtol=0)


def test_solvers_and_prompts_and_guidance_make_different_pictures(pipe):
    """Or the comparison above would show nothing."""
    model = geosprint.as_model(pipe, INPUTS)
    schedule = baseline_schedule("logsnr", model.noise, STEPS)
    ddim, dpmpp = (geosprint.sample(model, schedule, SEEDS, solver) for solver in ("ddim", "dpmpp-2m"))
    other = geosprint.as_model(pipe, geosprint.PipelineInputs(PROMPTS, guidance_scale=3.0))
    assert (ddim - dpmpp).abs().max() > 0.05
    assert (ddim - geosprint.sample(other, schedule, SEEDS)).abs().max() > 0.05
    assert (ddim - geosprint.sample(model, schedule, SEEDS[::-1]).flip(0)).abs().max() > 0.05


def tuned_for(model):
    made = fitted(baseline_schedule("logsnr", model.noise, STEPS), model.noise)
    return Tuned((TunedSteps(made, "fitted"),), made_for=made_for(model))


def test_a_tuned_file_is_saved_with_the_pipeline_and_draws_the_same_after_a_reload(pipe, tmp_path):
    path = tuned_for(geosprint.as_model(pipe, INPUTS)).save(tmp_path / "tuned.json")
    before = drawn(geosprint.apply(pipe, path))
    pipe.save_pretrained(tmp_path / "pipe")
    again = StableDiffusionPipeline.from_pretrained(tmp_path / "pipe")
    torch.testing.assert_close(drawn(again), before, atol=1e-5, rtol=0)


def test_steps_of_64_pixels_draw_96_pixels_with_a_word_about_it(pipe):
    geosprint.apply(pipe, tuned_for(geosprint.as_model(pipe, INPUTS)))
    with pytest.warns(UserWarning, match="recorded at size 4×16×16, this run has 4×24×24"):
        assert drawn(pipe, "pt", height=96, width=96).shape == (2, 3, 96, 96)


def test_guidance_costs_two_calls_and_is_part_of_what_it_draws(pipe):
    model = geosprint.as_model(pipe, INPUTS)
    assert (model.name, model.shape, model.calls) == ("scenes", (4, 16, 16), 2)
    assert model.conditions["guidance_scale"] == GUIDANCE
    assert geosprint.as_model(pipe, geosprint.PipelineInputs(PROMPTS, guidance_scale=1.0)).calls == 1


def test_the_model_in_the_box_draws_its_own_prompts_unless_it_is_given_some():
    assert geosprint.load_model("scenes").inputs.prompts == bundled_prompts("scenes")
    assert with_bundled_prompts("scenes", INPUTS) == INPUTS
    wide = geosprint.PipelineInputs(width=96)
    assert with_bundled_prompts("scenes", wide) == geosprint.PipelineInputs(bundled_prompts("scenes"), width=96)
    assert with_bundled_prompts("another", wide) is wide


def test_diffusers_alone_opens_it():
    code = (
        "import sys; sys.modules['geosprint'] = None\n"
        "from diffusers import StableDiffusionPipeline\n"
        "pipe = StableDiffusionPipeline.from_pretrained(sys.argv[1])\n"
        "print(pipe('a red star on a green background', num_inference_steps=1).images[0].size)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(geosprint.path_of("scenes"))], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "(64, 64)"


def test_only_what_has_a_directory_has_a_path():
    assert (geosprint.path_of("fashion") / "card.json").is_file()
    with pytest.raises(ModelError, match=r"these have a directory in the box: fashion, .*scenes; got 'gaussian'"):
        geosprint.path_of("gaussian")


def test_the_pipeline_keeps_no_path_of_the_machine_that_made_it():
    configs = [*geosprint.path_of("scenes").rglob("*.json")]
    assert len(configs) > 5
    for path in configs:
        assert "_name_or_path" not in json.loads(path.read_text(encoding="utf-8")), path


@pytest.mark.slow
def test_the_whole_job_from_the_command_line(tmp_path):
    out = tmp_path / "tuned.json"
    done = CliRunner().invoke(app, ["tune", "scenes", "--steps", "6", "--budget-nfe", "2000", "-o", str(out)])
    assert done.exit_code == 0, done.output
    assert f'geosprint.apply(pipe, "{out}")' in done.stdout
    tuned = Tuned.load(out)
    assert (tuned.made_for["model"], tuned.steps, str(tuned.today)) == ("scenes", (6,), "50 DDIM steps")
    assert tuned.nfe <= 2000
    assert out.with_suffix(".html").is_file()
