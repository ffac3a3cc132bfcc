"""Recording any pipeline: what the states are, what the profile says, and that nothing is left behind."""

from __future__ import annotations

import hashlib
import inspect
import json

import diffusers
import numpy as np
import pytest
import tiny_pipelines as tiny
import torch
from diffusers import DiffusionPipeline
from typer.testing import CliRunner

import geosprint
from geosprint import PipelineInputs
from geosprint.cli import app
from geosprint.errors import GeometryError, ModelError, ModelFailed
from geosprint.extraction import profile_trajectories
from geosprint.integrations.noise_of import noise_of
from geosprint.integrations.pipelines import DTYPE, record_pipeline
from geosprint.noise import CLEAN, noise_from_dict
from geosprint.profile import Settings

ASKED = PipelineInputs(tiny.PROMPTS, "dull", 4.0, 16, 16)


def recorded(pipe, seeds=(0, 1, 2), steps=8, **more):
    inputs = more.pop("inputs", ASKED if hasattr(pipe, "text_encoder") else None)
    return geosprint.Trajectories.joined(list(record_pipeline(pipe, seeds, steps, inputs=inputs, **more)))


def swapped(pipe, name, **more):
    pipe.scheduler = getattr(diffusers, name).from_config(pipe.scheduler.config, **more)
    return pipe


# What is recorded.


@pytest.mark.parametrize("family", ["ddpm", "ddim"])
def test_a_pixel_pipeline_is_recorded_as_its_network_alone_would_be(family):
    pipe = tiny.FAMILIES[family]()

    def network(x, t):
        with torch.no_grad():
            return pipe.unet(x, t).sample

    noise = geosprint.DiscreteVP(pipe.scheduler.alphas_cumprod.double().numpy())
    alone = geosprint.record(geosprint.Network(network, (3, 8, 8), noise, "eps", clip=1.0), (0, 1, 2), 8)
    found = recorded(pipe)
    np.testing.assert_array_equal(found.timesteps, alone.timesteps)
    torch.testing.assert_close(found.states, alone.states, rtol=0, atol=1e-4)
    assert (found.origin.prediction, found.origin.clip, found.origin.calls) == ("eps", 1.0, 1)


def test_a_flow_pipeline_is_recorded_where_its_own_scheduler_steps():
    found = recorded(tiny.sd3())
    stock = diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0)
    stock.set_timesteps(8)
    np.testing.assert_allclose(found.timesteps, [*stock.timesteps.tolist(), CLEAN], rtol=1e-6)
    assert found.origin.noise == geosprint.Flow(3.0)
    assert found.origin.solver == "euler"


def test_the_dynamic_shift_of_flux_is_kept_with_the_profile():
    found = recorded(tiny.flux(), inputs=PipelineInputs(tiny.PROMPTS, height=16, width=16))
    # mu rises from 0.5 at 256 tokens to 1.15 at 4096; here are 8 / 2 · 8 / 2 = 16 tokens
    mu = 0.5 + (1.15 - 0.5) * (16 - 256) / (4096 - 256)
    assert found.origin.noise.shift == pytest.approx(np.exp(mu), rel=1e-6)
    clock = np.arange(8, 0, -1) / 8
    np.testing.assert_allclose(found.timesteps[:-1], found.origin.noise.time_at(clock), rtol=1e-5)


@pytest.mark.parametrize("spacing", ["leading", "linspace", "trailing"])
def test_euler_latents_are_converted_and_agree_with_ddim_from_the_same_seeds(spacing):
    with_ddim = recorded(swapped(tiny.sd15(), "DDIMScheduler", set_alpha_to_one=True))
    with_euler = recorded(swapped(tiny.sd15(), "EulerDiscreteScheduler", timestep_spacing=spacing), solver="pipeline")
    np.testing.assert_array_equal(with_euler.timesteps, with_ddim.timesteps)
    largest = float(with_ddim.states.abs().max())
    assert float((with_euler.states - with_ddim.states).abs().max()) < 1e-3 * largest
    assert float(with_euler.states[:, 0].std()) == pytest.approx(1.0, abs=0.1)  # not 14.6, as VE noise has


@pytest.mark.parametrize(
    "name", ["DPMSolverMultistepScheduler", "UniPCMultistepScheduler", "DDPMScheduler", "LCMScheduler"]
)
def test_other_first_class_schedulers_can_record_themselves(name):
    found = recorded(swapped(tiny.sd15(), name), solver="pipeline")
    assert found.states.shape == (3, 9, 4 * 8 * 8)
    assert found.origin.conditions["scheduler"] == f"GeoSprint{name}"


@pytest.mark.parametrize("name", ["HeunDiscreteScheduler", "KDPM2DiscreteScheduler", "DPMSolverSinglestepScheduler"])
def test_a_second_order_scheduler_is_refused_with_the_reason_and_ddim_still_records(name):
    pipe = swapped(tiny.sd15(), name)
    with pytest.raises(ModelError, match=f"{name} is of order 2: some of its states are trials.*solver ddim"):
        recorded(pipe, solver="pipeline")
    assert recorded(pipe, steps=4).origin.solver == "ddim"


@pytest.mark.parametrize("name", ["PNDMScheduler", "DEISMultistepScheduler"])
def test_a_scheduler_that_cannot_walk_the_reference_grid_is_refused_and_ddim_still_records(name):
    pipe = swapped(tiny.sd15(), name)
    with pytest.raises(geosprint.GeoSprintError, match="cannot be made exact"):
        recorded(pipe, solver="pipeline")
    assert recorded(pipe, steps=4).origin.solver == "ddim"


def test_a_pipeline_with_a_profile_applied_is_recorded_on_the_uniform_grid_all_the_same():
    for family in ("sd15", "sd3"):
        pipe = tiny.FAMILIES[family]()
        before = recorded(pipe)
        geosprint.apply(pipe, profile_trajectories(before))
        after = recorded(pipe)
        np.testing.assert_array_equal(after.timesteps, before.timesteps)
        torch.testing.assert_close(after.states, before.states, rtol=0, atol=1e-5)


def test_zero_terminal_snr_and_v_prediction_are_recorded():
    pipe = swapped(
        tiny.sd15(), "DDIMScheduler", rescale_betas_zero_snr=True, prediction_type="v_prediction", set_alpha_to_one=True
    )
    profile = geosprint.extract(pipe, 2, 8, inputs=ASKED)
    assert profile.origin.prediction == "v"
    geosprint.apply(pipe, profile)
    assert np.isfinite(tiny.drawn(pipe, "sd15", 5)).all()


def test_a_seed_gives_its_trajectory_at_any_batch_size():
    one, three = (recorded(tiny.sd15(), batch=batch) for batch in (1, 3))
    torch.testing.assert_close(one.states, three.states, rtol=0, atol=1e-3)
    assert one.seeds == three.seeds == (0, 1, 2)


def test_predictions_recombine_to_the_states():
    found = recorded(tiny.sd15(), predictions=True)
    for i, t in enumerate(found.timesteps[:-1]):
        a, s = found.origin.noise.signal_and_sigma(t)
        torch.testing.assert_close(a * found.x0[:, i] + s * found.eps[:, i], found.states[:, i], rtol=0, atol=1e-3)


def test_the_x0_space_works_on_a_pipeline():
    assert geosprint.extract(tiny.ddpm(), 2, 8, settings=Settings(space="x0")).nfe == 16


def test_eta_draws_other_states_than_none():
    still, noisy = (recorded(tiny.sd15(), eta=eta) for eta in (0.0, 1.0))
    assert torch.equal(still.states[:, 0], noisy.states[:, 0])
    assert not torch.allclose(still.states[:, -1], noisy.states[:, -1])
    assert noisy.origin.eta == 1.0


# What the profile says.


@pytest.mark.parametrize(
    ("family", "scale", "calls"), [("sd15", 4.0, 2), ("sd15", 1.0, 1), ("sd3", 4.0, 2), ("flux", 4.0, 1)]
)
def test_guidance_counts_two_calls_a_step_where_it_makes_two(family, scale, calls):
    pipe = tiny.FAMILIES[family]()
    profile = geosprint.extract(
        pipe, 3, 6, batch=2, inputs=PipelineInputs(tiny.PROMPTS, guidance_scale=scale, height=16, width=16)
    )
    assert profile.origin.calls == calls
    assert profile.nfe == 3 * 6 * calls
    assert profile.origin.conditions["guidance_scale"] == scale


def test_a_profile_says_what_it_was_asked_to_draw():
    conditions = geosprint.extract(tiny.sd15(), 2, 6, inputs=ASKED).origin.conditions
    digest = hashlib.sha256("\n".join(tiny.PROMPTS).encode()).hexdigest()
    expected = {
        "pipeline": "StableDiffusionPipeline",
        "dtype": "float32",
        "prompts": 3,
        "prompts_sha256": digest,
        "negative_prompt": "dull",
        "guidance_scale": 4.0,
        "height": 16,
        "width": 16,
    }
    assert {name: conditions[name] for name in expected} == expected


@pytest.mark.parametrize(("family", "scale"), [("sd15", 7.5), ("sdxl", 5.0), ("ddpm", None)])
def test_defaults_that_were_not_asked_for_are_written_down_as_the_pipelines_own(family, scale):
    pipe = tiny.FAMILIES[family]()
    inputs = PipelineInputs(tiny.PROMPTS) if tiny.takes_prompts(family) else None
    conditions = geosprint.extract(pipe, 2, 4, inputs=inputs).origin.conditions
    side = 8 * (2 if tiny.takes_prompts(family) else 1)  # latents of 8×8, a VAE that halves once
    assert (conditions["guidance_scale"], conditions["height"], conditions["width"]) == (scale, side, side)


@pytest.mark.parametrize(("family", "dtype"), [("sd15", torch.bfloat16), ("ddpm", torch.float16)])
def test_half_precision_is_recorded_in_float32_and_said(family, dtype):
    found = recorded(tiny.FAMILIES[family]().to(dtype), steps=4)
    assert found.states.dtype == torch.float32
    assert found.origin.conditions["dtype"] == str(dtype).removeprefix("torch.")


def test_pixel_pipelines_in_bfloat16_are_refused_since_diffusers_cannot_return_their_images():
    with pytest.raises(ModelError, match="cannot return bfloat16 images; use float32 or float16"):
        recorded(tiny.ddpm().to(torch.bfloat16))


# The pipeline is left exactly as it was found.


def fingerprint(pipe):
    modules = {
        f"{part}.{name}": (module.training, len(module._forward_pre_hooks), len(module._forward_hooks))
        for part, component in pipe.components.items()
        if isinstance(component, torch.nn.Module)
        for name, module in component.named_modules()
    }
    scheduler = pipe.scheduler
    own = {name for name in ("step", "set_timesteps") if name in vars(scheduler)}
    return modules, id(scheduler), dict(scheduler.config), own, getattr(pipe, "_progress_bar_config", "none")


def half_in_training(pipe):
    denoiser = pipe.unet if hasattr(pipe, "unet") else pipe.transformer
    denoiser.train()
    next(iter(denoiser.children())).eval()
    return pipe


def encode_once(pipe):
    """Text encoders of transformers put hooks of their own on themselves when they are first used."""
    if hasattr(pipe, "encode_prompt"):
        names = [f"prompt{end}" for end in ("", "_2", "_3")]
        taken = inspect.signature(pipe.encode_prompt).parameters
        asked = {"device": "cpu", "num_images_per_prompt": 1, "do_classifier_free_guidance": False}
        pipe.encode_prompt(
            **{name: "a" for name in names if name in taken}, **{k: v for k, v in asked.items() if k in taken}
        )


@pytest.mark.parametrize("bar", [None, {"leave": False, "desc": "mine"}])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_the_pipeline_is_left_as_it_was_found(family, bar):
    pipe = half_in_training(tiny.FAMILIES[family]())
    inputs = PipelineInputs(tiny.PROMPTS, height=16, width=16) if tiny.takes_prompts(family) else None
    encode_once(pipe)
    if bar:
        pipe.set_progress_bar_config(**bar)
    before = fingerprint(pipe)
    geosprint.extract(pipe, 2, 4, inputs=inputs)
    assert fingerprint(pipe) == before


@pytest.mark.parametrize("wrong", [RuntimeError("out of memory"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("family", ["ddpm", "sd15", "flux"])
def test_the_pipeline_is_left_as_it_was_found_after_an_exception_inside_it(family, wrong):
    pipe = half_in_training(tiny.FAMILIES[family]())
    denoiser = pipe.unet if hasattr(pipe, "unet") else pipe.transformer
    called = []

    def break_at_third(module, given):
        called.append(1)
        if len(called) == 3:
            raise wrong

    handle = denoiser.register_forward_pre_hook(break_at_third)
    before = fingerprint(pipe)
    inputs = PipelineInputs(tiny.PROMPTS, height=16, width=16) if tiny.takes_prompts(family) else None
    with pytest.raises(ModelFailed if isinstance(wrong, Exception) else type(wrong)):
        geosprint.extract(pipe, 2, 6, inputs=inputs)
    assert fingerprint(pipe) == before
    handle.remove()


def test_the_pipeline_is_whole_while_an_exception_outside_it_is_still_held():
    pipe = tiny.sd3()
    encode_once(pipe)
    before = fingerprint(pipe)
    with pytest.raises(GeometryError, match="ve space") as held:
        geosprint.extract(pipe, 2, 4, settings=Settings(space="ve"), inputs=ASKED)
    assert held.tb is not None
    assert fingerprint(pipe) == before


def test_recording_does_not_disturb_what_the_pipeline_draws():
    pipe = tiny.sd15()
    images = tiny.drawn(pipe, "sd15", 4)
    recorded(pipe)
    assert np.array_equal(tiny.drawn(pipe, "sd15", 4), images)


# What cannot be recorded is said plainly.


@pytest.mark.parametrize(
    ("family", "more", "complaint"),
    [
        ("sd15", {"inputs": PipelineInputs()}, "StableDiffusionPipeline needs prompts"),
        ("ddpm", {"inputs": ASKED}, "DDPMPipeline takes no prompts"),
        ("ddpm", {"inputs": PipelineInputs(height=16)}, "DDPMPipeline does not take height"),
        ("ddpm", {"eta": 0.5}, "DDPMPipeline does not take eta"),
        ("sd3", {"eta": 0.5}, "eta belongs to ddim"),
        ("sd15", {"solver": "heun"}, "solver ddim or pipeline .*, got 'heun'"),
        ("sd15", {"batch": 0}, "batch size must be at least 1, got 0"),
    ],
)
def test_what_a_pipeline_cannot_do_is_refused(family, more, complaint):
    with pytest.raises(ModelError, match=complaint):
        recorded(tiny.FAMILIES[family](), **more)


def test_one_text_is_not_taken_for_a_list_of_letters():
    with pytest.raises(ModelError, match="must be a list of texts, got one text"):
        PipelineInputs("a cat")
    assert PipelineInputs(["a cat"]) == PipelineInputs(("a cat",))


class Impatient(DiffusionPipeline):
    """Leaves the last step out."""

    def __init__(self, unet, scheduler):
        super().__init__()
        self.register_modules(unet=unet, scheduler=scheduler)

    def __call__(self, batch_size=1, generator=None, num_inference_steps=50, output_type="np"):
        x = torch.zeros(batch_size, 3, 8, 8)
        self.scheduler.set_timesteps(num_inference_steps)
        for t in self.scheduler.timesteps[:-1]:
            x = self.scheduler.step(self.unet(x, t).sample, t, x).prev_sample


def test_a_pipeline_that_makes_other_steps_than_asked_for_is_refused():
    ordinary = tiny.ddpm()
    with pytest.raises(ModelError, match="Impatient asked for 8 steps made 7"):
        recorded(Impatient(ordinary.unet, ordinary.scheduler))


def test_nonsense_from_the_network_names_the_seed_and_the_time():
    pipe = tiny.ddpm()
    pipe.scheduler = diffusers.DDIMScheduler(clip_sample=False)

    def spoil(module, given, output):
        output.sample[1] = float("nan")

    pipe.unet.register_forward_hook(spoil)
    with pytest.raises(ModelError, match="nan or infinity for seed 5 at t = 999"):
        recorded(pipe, seeds=(4, 5, 6))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("CMStochasticIterativeScheduler", "no alphas_cumprod"),
        ("EDMEulerScheduler", "a DDPMPipeline does not scale what its network sees"),
    ],
)
def test_a_scheduler_without_a_known_noise_schedule_is_refused(kind, said):
    pipe = tiny.ddpm()
    pipe.scheduler = getattr(diffusers, kind)()
    with pytest.raises(ModelError, match=said):
        recorded(pipe)


# Directories and hub ids.


def test_a_directory_that_is_no_pipeline_is_refused_by_name(tmp_path):
    told = CliRunner().invoke(app, ["extract", str(tmp_path)])
    assert isinstance(told.exception, ModelError)
    assert "model_index.json" in str(told.exception)
    assert str(tmp_path) in str(told.exception)


@pytest.mark.parametrize(
    "hub_id", ["google/ddpm-cifar10-32", "google/ddpm-ema-church-256", "stable-diffusion-v1-5/stable-diffusion-v1-5"]
)
def test_a_hub_id_goes_through_the_ordinary_from_pretrained(hub_id, tmp_path, monkeypatch):
    family = "sd15" if "stable" in hub_id else "ddpm"
    tiny.FAMILIES[family]().save_pretrained(tmp_path / "pipe")
    ordinary, asked = DiffusionPipeline.from_pretrained, {}

    def from_pretrained(name, **options):
        asked.update(options, name=name)
        return ordinary(tmp_path / "pipe", **{DTYPE: options[DTYPE]})

    monkeypatch.setattr(DiffusionPipeline, "from_pretrained", from_pretrained)
    (tmp_path / "prompts.txt").write_text("a cat\n")
    words = ["extract", hub_id, "--revision", "main", "--token", "secret", "--cache-dir", str(tmp_path / "cache")]
    words += ["--trajectories", "2", "--reference-steps", "4", "-o", str(tmp_path / "profile.json")]
    words += ["--dtype", "float16"] + (["--prompts", str(tmp_path / "prompts.txt")] if family == "sd15" else [])
    told = CliRunner().invoke(app, words, catch_exceptions=False)
    assert told.exit_code == 0
    assert (asked["name"], asked["revision"], asked["token"]) == (hub_id, "main", "secret")
    assert asked["cache_dir"] == tmp_path / "cache"
    assert asked[DTYPE] is torch.float16
    profile = geosprint.CurvatureProfile.load(tmp_path / "profile.json")
    assert profile.origin.conditions["dtype"] == "float16"
    assert "secret" not in (tmp_path / "profile.json").read_text()


@pytest.mark.parametrize("name", ["DDIMScheduler", "PNDMScheduler", "EulerDiscreteScheduler"])
@pytest.mark.parametrize("schedule", ["linear", "scaled_linear", "squaredcos_cap_v2"])
@pytest.mark.parametrize("set_alpha_to_one", [False, True])
def test_a_noise_schedule_comes_back_from_a_file_and_known_formulas_need_no_table(name, schedule, set_alpha_to_one):
    config = {"set_alpha_to_one": set_alpha_to_one} if name != "EulerDiscreteScheduler" else {}
    scheduler = getattr(diffusers, name)(beta_schedule=schedule, beta_start=0.001, beta_end=0.013, **config)
    noise = noise_of(scheduler)
    text = json.dumps(noise.to_dict())
    assert ('alphas_cumprod": [' in text) == (schedule == "squaredcos_cap_v2")
    again = noise_from_dict(json.loads(text))
    np.testing.assert_allclose(again.alphas_cumprod, scheduler.alphas_cumprod.double(), rtol=1e-5)
    final = float(getattr(scheduler, "final_alpha_cumprod", 1.0))
    assert noise.final_alpha_cumprod == pytest.approx(final, abs=1e-9)
    assert again.to_dict() == noise.to_dict()


def test_an_unknown_dtype_is_refused(tmp_path):
    with pytest.raises(ModelError, match="dtype must be one of auto, float32, float16, bfloat16, got 'int8'"):
        geosprint.load_pipeline(tmp_path, dtype="int8")
