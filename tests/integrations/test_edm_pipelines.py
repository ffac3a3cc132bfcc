"""Pipelines whose network is told the noise level: Playground 2.5, CosXL, Stable Video Diffusion, Cosmos 1."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import diffusers
import numpy as np
import pytest
import tiny_families as families
import tiny_pipelines as tiny
import torch

import geosprint
from geosprint.errors import ModelError, ScheduleError
from geosprint.fitted_solver import FittedSolver
from geosprint.integrations.apply import stock_of
from geosprint.integrations.pipelines import record_pipeline
from geosprint.integrations.today import today_of
from geosprint.models.base import predict
from geosprint.teacher import TeacherConfig
from geosprint.tuned import as_tuned
from geosprint.tuning.config import DEFAULT

SEEDS = [3, 4]
ROWS = ((0.3, 0.7), (0.4, 0.5, 0.2), (0.2, 0.6, 0.3, -0.1), (0.1, 0.8, 0.2, 0.1, 0.05))
GUIDED = (
    (0.3, 0.7, 0.2),
    (0.4, 0.5, -0.4, 0.2, 0.1),
    (0.2, 0.6, 0.8, 0.3, -0.5),
    (0.1, 0.8, 0.9, -0.2, -0.6, 0.2, 0.4),
)
K = len(ROWS)


@dataclass(frozen=True)
class Case:
    """A tiny pipeline with the scheduler that the real one comes with, and what EDM calls its network."""

    family: str
    scheduler: Any
    noise: geosprint.EDM
    sign: int  # of the network's output in x0
    solver: str
    spacing: str = "karras"

    def build(self):
        pipe = families.FAMILIES[self.family].build()
        if self.scheduler is not None:
            pipe.scheduler = self.scheduler()
        pipe.set_progress_bar_config(disable=True)
        return pipe

    @property
    def inputs(self):
        family = families.FAMILIES[self.family]
        still = {"noise_aug_strength": 0.0} if "Video" in self.family else {}  # no noise but that of the samples
        return geosprint.PipelineInputs(family.prompts[:1], **family.size, call={**family.call, **still})

    def draw(self, pipe, steps=K, seeds=SEEDS, **more):
        """The latents that it draws from the noise of these seeds."""
        call = {**self.inputs.call, **families.FAMILIES[self.family].size}
        if self.family.startswith("StableVideo"):
            call["image"] = [call["image"]] * len(seeds)
            call["latents"] = noise_of(seeds, (2, 4, 8, 8))
        else:
            call["prompt"] = [tiny.PROMPTS[0]] * len(seeds)
            call["generator"] = [torch.Generator().manual_seed(seed) for seed in seeds]
        return torch.as_tensor(pipe(**call, num_inference_steps=steps, output_type="latent", **more)[0]).double()


def noise_of(seeds, shape):
    return torch.stack([torch.randn(shape, generator=torch.Generator().manual_seed(seed)) for seed in seeds])


def video_scheduler():
    return diffusers.EulerDiscreteScheduler(
        **tiny.SD_NOISE,
        prediction_type="v_prediction",
        timestep_type="continuous",
        timestep_spacing="leading",
        use_karras_sigmas=True,
        sigma_min=0.002,
        sigma_max=700.0,
    )


def cosxl_scheduler():
    settings = {"sigma_max": 120.0, "sigma_data": 1.0, "prediction_type": "v_prediction"}
    return diffusers.EDMEulerScheduler(**settings, sigma_schedule="exponential")


XL = "StableDiffusionXLPipeline"
CASES = {
    "playground": Case(XL, diffusers.EDMDPMSolverMultistepScheduler, geosprint.EDM(), 1, "dpmpp-2m"),
    "edm-euler": Case(XL, diffusers.EDMEulerScheduler, geosprint.EDM(), 1, "euler"),
    "cosxl": Case(XL, cosxl_scheduler, geosprint.EDM(0.002, 120.0, 1.0), -1, "euler", "logsnr"),
    "video": Case("StableVideoDiffusionPipeline", video_scheduler, geosprint.EDM(0.002, 700.0, 1.0), -1, "euler"),
    "cosmos": Case("CosmosTextToWorldPipeline", None, geosprint.EDM(), 1, "euler"),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def near(found, expected, share=2e-5):
    """Errors as a share of the size of what is expected."""
    assert float((found.double() - expected.double()).norm() / expected.double().norm()) < share


def steps_at(noise, sigmas):
    return geosprint.StepSchedule.at(np.clip(noise.time_of_sigma(sigmas), noise.last, noise.first), noise, {})


def late(case):
    """Steps that begin below the highest sigma."""
    return steps_at(case.noise, [21.0, 6.0, 0.8, 0.05])


def test_the_noise_schedule_is_that_of_the_scheduler(case):
    model = geosprint.as_model(case.build(), case.inputs)
    assert model.noise == case.noise
    assert model.prediction == "x0"
    today = today_of(case.build(), case.inputs).today
    assert (today.solver, today.spacing) == (case.solver, case.spacing)


def test_a_prediction_is_that_of_karras_et_al(case):
    """Table 1, with the guidance of the pipeline, from what its network was asked and said."""
    pipe = case.build()
    model = geosprint.as_model(pipe, case.inputs).for_samples([0, 1])
    asked, said = [], []
    network = model.network

    def note(module, given, named, output):
        asked.append((given[0] if given else named["hidden_states"], given[1] if given else named["timestep"]))
        said.append(output[0])

    data = case.noise.sigma_data
    for t in (1.0, 0.7, 0.2, case.noise.last):
        sigma = float(case.noise.sigma(t))
        x = noise_of([7, 8], model.shape)
        asked.clear()
        said.clear()
        handle = network.register_forward_hook(note, with_kwargs=True)
        found = predict(model, x, t)
        handle.remove()
        state = x * math.sqrt(1 + sigma**2)
        seen = torch.cat([one for one, _ in asked])
        seen = seen[:, :, :4] if case.family.startswith("StableVideo") else seen  # beside the image
        near(seen, torch.cat([state, state]) / math.sqrt(sigma**2 + data**2), 1e-5)
        for _, told in asked:
            torch.testing.assert_close(
                torch.as_tensor(told).flatten()[0].item(), math.log(sigma) / 4, rtol=1e-5, atol=1e-6
            )
        c_skip, c_out = data**2 / (sigma**2 + data**2), sigma * data / math.sqrt(sigma**2 + data**2)
        first, second = (c_skip * state + case.sign * c_out * part for part in torch.cat(said).chunk(2))
        if case.family.startswith("Cosmos"):
            expected = first + 7.0 * (first - second)  # asked for the prompt first
        elif case.family.startswith("StableVideo"):
            expected = first + torch.linspace(1.0, 3.0, 2).view(1, 2, 1, 1, 1) * (second - first)
        else:
            expected = first + 5.0 * (second - first)
        near(found.x0, expected, 1e-4)
        near(found.x0 + sigma * found.eps, state, 1e-5)


def test_steps_at_its_own_sigmas_draw_what_it_draws(case):
    expected = case.draw(pipe := case.build())
    own = pipe.scheduler.sigmas[:-1].double().numpy()
    pipe = geosprint.apply(case.build(), steps_at(case.noise, own))
    near(case.draw(pipe), expected, 1e-4 if "Cosmos" in case.family else 2e-5)
    np.testing.assert_allclose(pipe.scheduler.sigmas, [*own, 0.0], rtol=1e-5)


@pytest.mark.parametrize("what", ["schedule", "fitted", "standalone", "fitted standalone"])
def test_a_pipeline_draws_what_sample_draws(case, what):
    made = FittedSolver(late(case), ROWS) if "fitted" in what else late(case)
    model = geosprint.as_model(case.build(), case.inputs)
    expected = geosprint.sample(model, late(case), SEEDS, made if "fitted" in what else case.solver)
    pipe = geosprint.apply(case.build(), made, standalone="standalone" in what)
    near(case.draw(pipe), expected)
    near(case.draw(pipe, seeds=SEEDS[:1]), expected[:1])  # a second run begins anew


@pytest.mark.parametrize("name", ["playground", "cosxl"])
def test_a_guided_fit_hears_the_conditional_prediction(name):
    case = CASES[name]
    model, made = geosprint.as_model(case.build(), case.inputs), FittedSolver(late(case), ROWS, GUIDED)
    expected = geosprint.sample(model, made, SEEDS)
    assert (expected - geosprint.sample(model, FittedSolver(late(case), ROWS), SEEDS)).abs().max() > 1e-2
    near(case.draw(geosprint.apply(case.build(), made)), expected)


@pytest.mark.parametrize("what", ["schedule", "fitted"])
def test_a_saved_pipeline_draws_the_same(case, what, tmp_path):
    made = late(case)
    pipe = geosprint.apply(case.build(), FittedSolver(made, ROWS) if what == "fitted" else made)
    expected = case.draw(pipe)
    pipe.save_pretrained(tmp_path)
    again = geosprint.load_pipeline(tmp_path)
    again.set_progress_bar_config(disable=True)
    assert type(again.scheduler) is type(pipe.scheduler)
    near(case.draw(again), expected, 1e-6)
    stock, before = stock_of(again.scheduler), case.build().scheduler
    assert type(stock) is type(before)
    kept = {name: value for name, value in before.config.items() if not name.startswith("_")}
    assert {name: stock.config[name] for name in kept} == kept


def test_its_own_run_is_walked_exactly(case):
    pipe = case.build()
    expected = case.draw(pipe, 6)
    model = geosprint.as_model(case.build(), case.inputs)
    today = today_of(case.build(), case.inputs)
    found = today.ends(model.for_samples([0, 1]), noise_of(SEEDS, model.shape), 6)
    near(found, expected, 1e-4 if "Cosmos" in case.family else 2e-5)
    assert today.is_deterministic


@pytest.mark.parametrize("solver", ["ddim", "pipeline"])
def test_a_recording_is_a_walk_of_the_model(case, solver):
    pipe = case.build()
    (seen,) = record_pipeline(pipe, SEEDS, 6, solver, predictions=True, inputs=case.inputs)
    np.testing.assert_allclose(
        case.noise.sigma(seen.timesteps[:-1]), case.noise.sigma(np.arange(6, 0, -1) / 6), rtol=1e-5
    )
    model = geosprint.as_model(pipe, case.inputs).for_samples([0, 1])
    for i in (0, 3, 5):
        x = seen.states[:, i].view(2, *model.shape)
        found = predict(model, x, float(seen.timesteps[i]))
        near(seen.x0[:, i], found.x0.flatten(1), 2e-4)
    last = seen.states[:, -1]
    near(last, seen.x0[:, -1], 1e-4)


@pytest.mark.parametrize(
    ("verb", "name"),
    [
        ("fit", "cosmos"),
        *(pytest.param(*both, marks=pytest.mark.slow) for both in (("fit", "playground"), ("fit", "video"))),
        *(pytest.param("tune", name, marks=pytest.mark.slow) for name in ("playground", "video", "cosmos")),
    ],
)
def test_what_a_verb_makes_goes_into_the_pipeline(verb, name, monkeypatch, tmp_path):
    monkeypatch.setattr("geosprint.teacher.STEPS", 20)
    monkeypatch.setattr("geosprint.tuning.run.DEFAULT", replace(DEFAULT, teacher=TeacherConfig(fewest=2)))
    case = CASES[name]
    said = {"inputs": case.inputs, "budget_nfe": 900, "today": "ddim:8:karras", "progress": False}
    said |= {"solver": case.solver} if verb == "tune" else {}
    made = getattr(geosprint, verb)(case.build(), 3, **said)
    made.save(tmp_path / "made.json")
    pipe = geosprint.apply(case.build(), tmp_path / "made.json")
    (one,) = geosprint.Tuned.load(tmp_path / "made.json").results
    assert one.schedule.provenance["origin"]["noise"]["kind"] == "edm"
    model = geosprint.as_model(case.build(), case.inputs)
    solver = one.made if verb == "fit" else case.solver
    near(case.draw(pipe, 3), geosprint.sample(model, one.schedule, SEEDS, solver))
    np.testing.assert_allclose(pipe.scheduler.sigmas, one.schedule.sigmas, rtol=1e-4)


@pytest.mark.parametrize("name", ["playground", "edm-euler", "cosxl", "video"])
def test_exported_lines_need_diffusers_alone(name):
    """They step by Euler, as apply does on a pipeline that has it."""
    case = CASES[name]
    noise = {"origin": {"noise": case.noise.to_dict()}}
    made = replace(late(case), provenance={**late(case).provenance, **noise})
    lines = geosprint.export(made, "diffusers")
    assert "geosprint" not in lines
    setting, calls, call = lines.partition("images = ")
    assert calls + call == "images = pipe(prompt, sigmas=sigmas).images\n"
    namespace = {"pipe": (pipe := case.build())}
    exec(setting, namespace)
    found = case.draw(pipe, sigmas=namespace["sigmas"])
    np.testing.assert_allclose(pipe.scheduler.sigmas, made.sigmas, rtol=1e-5)
    model = geosprint.as_model(case.build(), case.inputs)
    near(found, geosprint.sample(model, late(case), SEEDS, "euler"))


def test_sigmas_are_exported_as_they_are():
    made = late(CASES["video"])
    assert [float(sigma) for sigma in geosprint.export(made, "comfyui").split(",")] == pytest.approx(made.sigmas)


def test_a_cosmos_pipeline_begins_all_its_runs_at_one_sigma():
    case = CASES["cosmos"]
    pipe, before = case.build(), case.build().scheduler.config
    both = geosprint.Tuned((*as_tuned(steps_at(case.noise, [9.0, 1.0])).results, *as_tuned(late(case)).results))
    with pytest.raises(ScheduleError, match=r"begin at 9, 21; apply one of them, such as tuned\["):
        geosprint.apply(pipe, both)
    assert pipe.scheduler.config == before


def test_a_video_is_drawn_from_one_picture():
    case = CASES["video"]
    several = replace(case.inputs, call={**case.inputs.call, "image": [families.picture()] * 2})
    for inputs in (several, geosprint.PipelineInputs(call={"num_frames": 2})):
        with pytest.raises(ModelError, match=r"neither prompts nor a batch size.*give it one PIL image in call"):
            geosprint.as_model(case.build(), inputs)


def test_continuous_timesteps_that_are_none_are_timesteps():
    """Stable Diffusion's Euler tells noise levels to networks that predict v alone."""
    pipe = tiny.sd15()
    settings = {"timestep_type": "continuous", "timestep_spacing": "leading"}
    pipe.scheduler = diffusers.EulerDiscreteScheduler.from_config(pipe.scheduler.config, **settings)
    model = geosprint.as_model(pipe, geosprint.PipelineInputs(tiny.PROMPTS, height=16, width=16))
    assert isinstance(model.noise, geosprint.DiscreteVP)


def test_a_network_in_half_precision_says_nearly_the_same():
    case = CASES["playground"]
    models = [geosprint.as_model(case.build().to(dtype), case.inputs) for dtype in (torch.float32, torch.float16)]
    x = noise_of([7], models[0].shape)
    for t in (1.0, 0.5):
        found, expected = (predict(model.for_samples([0]), x, t).x0 for model in reversed(models))
        assert found.dtype == torch.float32
        near(found, expected, 0.02)  # bfloat16 rounds eight times as much
