"""What a pipeline runs today is measured as the pipeline runs it."""

from __future__ import annotations

import diffusers
import pytest
import tiny_families as families
import tiny_pipelines as tiny
import torch

import geosprint
from geosprint import StepSchedule
from geosprint.integrations.today import today_of
from geosprint.sampling import Counted, SeededNoise
from geosprint.tuned import Today

SIZE = {"height": 16, "width": 16}
INPUTS = geosprint.PipelineInputs(tiny.PROMPTS[:1], guidance_scale=3.0, **SIZE)
SEEDS = [4]


def pipe_with(kind, family="sd15", **config):
    pipe = tiny.FAMILIES[family]()
    pipe.scheduler = getattr(diffusers, kind).from_config(pipe.scheduler.config, **config)
    return pipe


def noise_for(model):
    return SeededNoise(SEEDS, model.shape, model.device).draw()


KNOWN = {
    "ddim": ("DDIMScheduler", {}),
    "dpmpp-2m": ("DPMSolverMultistepScheduler", {}),
    "unipc": ("UniPCMultistepScheduler", {}),
    "euler": ("EulerDiscreteScheduler", {"timestep_spacing": "leading"}),
}


@pytest.mark.parametrize("solver", KNOWN)
@pytest.mark.parametrize("steps", [4, 7])
def test_a_known_solver_ends_where_our_own_walk_on_the_same_times_ends(solver, steps):
    kind, config = KNOWN[solver]
    pipe = pipe_with(kind, **config)
    model, found = geosprint.as_model(pipe, INPUTS), today_of(pipe, INPUTS)
    assert found.today.solver == solver
    assert found.is_deterministic
    stock = getattr(diffusers, kind).from_config(pipe.scheduler.config)
    stock.set_timesteps(steps)
    expected = geosprint.sample(model, stock.timesteps.tolist(), SEEDS, solver)
    torch.testing.assert_close(found.ends(model, noise_for(model), steps), expected, rtol=1e-4, atol=1e-4)


ANY = {
    "PNDM": ("PNDMScheduler", {"skip_prk_steps": True}, 6),
    "PNDM with Runge-Kutta": ("PNDMScheduler", {"skip_prk_steps": False}, 14),
    "DEIS": ("DEISMultistepScheduler", {}, 5),
    "UniPC 3": ("UniPCMultistepScheduler", {"solver_order": 3}, 5),
    "Euler Karras": ("EulerDiscreteScheduler", {"use_karras_sigmas": True}, 5),
    "Euler trailing": ("EulerDiscreteScheduler", {"timestep_spacing": "trailing"}, 5),
    "DPM++ 2M Karras": ("DPMSolverMultistepScheduler", {"use_karras_sigmas": True}, 5),
    "DPM++ 2S": ("DPMSolverSinglestepScheduler", {}, 5),
    "Heun": ("HeunDiscreteScheduler", {}, 9),
    "KDPM2": ("KDPM2DiscreteScheduler", {}, 9),
    "SD3": ("FlowMatchEulerDiscreteScheduler", {}, 5),
    "FLUX": ("FlowMatchEulerDiscreteScheduler", {}, 5),
}


@pytest.mark.parametrize("name", ANY)
def test_any_scheduler_ends_where_the_pipeline_itself_ends(name):
    kind, config, calls = ANY[name]
    family = name.lower() if name in ("SD3", "FLUX") else "sd15"
    pipe = pipe_with(kind, family, **config)
    model = geosprint.as_model(pipe, INPUTS)
    found, starts = today_of(pipe, INPUTS), noise_for(model)
    pipe.set_progress_bar_config(disable=True)
    asked = {"prompt": INPUTS.prompts[0], "guidance_scale": 3.0, **SIZE, "output_type": "latent"}
    expected = pipe(latents=starts.clone(), num_inference_steps=5, **asked).images
    counted = Counted(model)
    torch.testing.assert_close(found.ends(counted, starts, 5), expected, rtol=1e-4, atol=1e-4)
    assert counted.nfe == calls * model.calls
    assert found.calls(5) == calls
    assert found.is_deterministic


def preparing(prepare, starts):
    """A pipeline's `prepare_latents` with this noise; what comes with it stays."""

    def prepared(*given, **named):
        made = prepare(*given, **named)
        return (starts.clone(), *made[1:]) if isinstance(made, tuple) else starts.clone()

    return prepared


OWN_LISTS = ["CogView4Pipeline", "MochiPipeline", "ZImagePipeline", "WanPipeline", "Cosmos2_5_PredictBasePipeline"]


@pytest.mark.parametrize("name", OWN_LISTS)
def test_a_pipeline_with_its_own_lists_ends_where_it_ends_itself(name, monkeypatch):
    """CogView4 tells its network another time than that of the state."""
    family = families.FAMILIES[name]
    pipe, inputs = family.build(), geosprint.PipelineInputs(tiny.PROMPTS[:1], **family.size, call=family.call)
    model = geosprint.as_model(pipe, inputs)
    found, starts = today_of(pipe, inputs), noise_for(model)
    pipe.set_progress_bar_config(disable=True)
    monkeypatch.setattr(pipe, "prepare_latents", preparing(pipe.prepare_latents, starts))
    expected = pipe(**families.inputs_of(family, num_inference_steps=5, output_type="latent"))[0]
    torch.testing.assert_close(found.ends(model, starts, 5), expected, rtol=1e-3, atol=1e-4)  # UniPC rounds times


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("DDPMScheduler", {}),
        ("EulerAncestralDiscreteScheduler", {}),
        ("DPMSolverMultistepScheduler", {"algorithm_type": "sde-dpmsolver++"}),
        ("LCMScheduler", {}),
    ],
)
def test_schedulers_that_draw_noise_are_told_apart_and_leave_the_random_state_alone(kind, config):
    pipe = pipe_with(kind, **config)
    before = torch.random.get_rng_state()
    assert not today_of(pipe, INPUTS).is_deterministic
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    ("family", "kind", "config", "expected"),
    [
        ("sd15", "DDIMScheduler", {}, Today("ddim", 50, "uniform-leading")),
        ("sd15", "PNDMScheduler", {}, Today("PNDMScheduler", 50, "uniform-leading")),
        ("sd15", "DPMSolverMultistepScheduler", {"use_karras_sigmas": True}, Today("dpmpp-2m", 50, "karras")),
        ("sd15", "EulerDiscreteScheduler", {"timestep_spacing": "trailing"}, Today("euler", 50, "uniform-trailing")),
        ("ddpm", "DDPMScheduler", {}, Today("ddpm", 1000, "uniform-leading")),
        ("flux", "FlowMatchEulerDiscreteScheduler", {}, Today("euler", 28, "uniform-trailing")),
    ],
)
def test_today_is_what_the_pipeline_says_of_itself(family, kind, config, expected):
    pipe = pipe_with(kind, family, **config)
    scheduler = pipe.scheduler
    assert today_of(pipe).today == expected
    assert pipe.scheduler is scheduler


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("DDIMScheduler", {}),
        ("EulerDiscreteScheduler", {"use_karras_sigmas": True}),
        ("DPMSolverMultistepScheduler", {"timestep_spacing": "trailing", "solver_order": 3}),
    ],
)
@pytest.mark.parametrize("how", ["schedule", "fitted"])
def test_under_a_scheduler_of_ours_today_is_what_it_has_replaced(kind, config, how, tmp_path):
    pipe = pipe_with(kind, **config)
    model, before = geosprint.as_model(pipe, INPUTS), today_of(pipe, INPUTS)
    made = StepSchedule.at([900, 400, 20], model.noise, {})
    made = made if how == "schedule" else geosprint.FittedSolver(made, ((0.9, 0.1),) * 3)
    geosprint.apply(geosprint.apply(pipe, made), made)
    pipe.save_pretrained(tmp_path)
    for applied in (pipe, geosprint.load_pipeline(tmp_path)):
        found = today_of(applied, INPUTS)
        assert found.today == before.today
        ends = (one.ends(model, noise_for(model), 6) for one in (found, before))
        assert torch.equal(*ends)
