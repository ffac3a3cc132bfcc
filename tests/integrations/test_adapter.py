"""A pipeline as a model: its answers are the pipeline's own, and the pipeline does not notice."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import diffusers
import numpy as np
import pytest
import tiny_pipelines as tiny
import torch
from diffusers import AutoencoderKL, DiffusionPipeline
from safetensors.torch import load_file
from typer.testing import CliRunner

import geosprint
from geosprint import PipelineInputs
from geosprint.cli import app
from geosprint.errors import ModelError, ModelFailed
from geosprint.integrations.adapter import as_model, decoder_of, load_model
from geosprint.integrations.pipelines import load_pipeline, record_pipeline
from geosprint.sampling import Counted, walk
from geosprint.solvers import solver_named

SEEDS = (0, 1, 2, 3)
STEPS = 5
PROMPTED = [family for family in tiny.FAMILIES if tiny.takes_prompts(family)]


def asked(family, **more):
    """What is drawn in these tests; FLUX knows no negative prompt without a second scale."""
    if not tiny.takes_prompts(family):
        return None
    negative = None if family == "flux" else "dull"
    return PipelineInputs(**{"negative_prompt": negative, "guidance_scale": 4.0, **more}, **_size_and_prompts(more))


def _size_and_prompts(given):
    usual = {"prompts": tiny.PROMPTS, "height": 16, "width": 16}
    return {name: value for name, value in usual.items() if name not in given}


def built(family):
    pipe = tiny.FAMILIES[family]()
    pipe.set_progress_bar_config(disable=True)
    return pipe


def denoiser_of(pipe):
    return pipe.unet if hasattr(pipe, "unet") else pipe.transformer


def noise_of_seeds(shape, seeds=SEEDS):
    return torch.stack([torch.randn(shape, generator=torch.Generator().manual_seed(seed)) for seed in seeds])


def drawn_by_itself(pipe, family, latents, inputs, output_type="latent"):
    """Samples of the pipeline alone, with a stock scheduler, and the times at which it stepped."""
    stock = diffusers.FlowMatchEulerDiscreteScheduler if family in tiny.FLOWS else diffusers.DDIMScheduler
    spacing = (
        {} if family in tiny.FLOWS else {"timestep_spacing": "trailing"}
    )  # DDIM is exact for it: 1000 / 5 is whole
    pipe.scheduler = stock.from_config(pipe.scheduler.config, **spacing)
    if inputs is None:
        pipe = diffusers.DDIMPipeline(pipe.unet, pipe.scheduler)
        pipe.set_progress_bar_config(disable=True)
        generators = [torch.Generator().manual_seed(seed) for seed in SEEDS]
        images = pipe(
            len(latents), generators, num_inference_steps=STEPS, use_clipped_model_output=True, output_type="np"
        ).images
        return torch.from_numpy(images).permute(0, 3, 1, 2) * 2 - 1, pipe.scheduler.timesteps
    named = {"negative_prompt": [inputs.negative_prompt] * len(latents)} if inputs.negative_prompt else {}
    images = pipe(
        prompt=[inputs.prompts[i % len(inputs.prompts)] for i in range(len(latents))],
        guidance_scale=inputs.guidance_scale,
        height=16,
        width=16,
        latents=latents,
        num_inference_steps=STEPS,
        output_type=output_type,
        **named,
    ).images
    return images, pipe.scheduler.timesteps


def assert_close(found, expected, share=1e-4):
    """Close as a share of the largest number: tiny random networks answer in tens."""
    torch.testing.assert_close(found, expected, rtol=0, atol=share * float(expected.abs().max()))


# The answers are the pipeline's own.


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_samples_are_the_latents_that_the_pipeline_draws_by_itself(family):
    inputs = asked(family)
    model = as_model(built(family), inputs)
    expected, times = drawn_by_itself(built(family), family, noise_of_seeds(model.shape), inputs)
    times = np.minimum(times.double().numpy(), 1000)
    solver = "euler" if family in tiny.FLOWS else "ddim"
    # Batches of three: the fourth sample starts over with the first prompt, in a batch of its own.
    assert_close(geosprint.sample(model, times, SEEDS, solver, batch=3), expected)


@pytest.mark.parametrize("family", tiny.FLOWS)
def test_a_transformer_is_told_the_time_that_the_pipeline_would_tell_it(family):
    pipe, inputs = built(family), asked(family)
    told = []

    def note(module, given, named):
        told.append(named["timestep"].unique())

    model = as_model(pipe, inputs)
    x = noise_of_seeds(model.shape)
    denoiser_of(pipe).register_forward_pre_hook(note, with_kwargs=True)
    _, times = drawn_by_itself(pipe, family, x, inputs)
    by_itself = torch.cat(told)
    told.clear()
    for t in times.tolist():
        model(x, t)
    assert len(by_itself) == STEPS
    torch.testing.assert_close(torch.cat(told), by_itself, rtol=1e-7, atol=0)


@pytest.mark.parametrize("family", ["ddpm", "ddim", "sd15", "sdxl"])
def test_recording_the_model_is_recording_the_pipeline(family):
    pipe, inputs = built(family), asked(family)
    expected = next(record_pipeline(pipe, SEEDS, 8, inputs=inputs, predictions=True))
    found = geosprint.record(as_model(pipe, inputs), SEEDS, 8, batch=3, predictions=True)
    np.testing.assert_array_equal(found.timesteps, expected.timesteps)
    for part in ("states", "x0", "eps"):
        assert_close(getattr(found, part), getattr(expected, part))
    assert found.origin.to_dict() == expected.origin.to_dict()
    assert found.nfe == expected.nfe


@pytest.mark.parametrize("family", tiny.FLOWS)
def test_walking_a_flow_where_the_pipeline_was_recorded_passes_the_same_states(family):
    pipe, inputs = built(family), asked(family)
    expected = next(record_pipeline(pipe, SEEDS, 8, inputs=inputs))
    model = as_model(pipe, inputs)
    assert model.noise == expected.origin.noise
    start = expected.states[:, 0].reshape(-1, *model.shape)
    states = walk(model, start, expected.timesteps[:-1], solver_named("euler"), lambda: None)
    assert_close(torch.stack([state.x.flatten(1) for state in states], dim=1), expected.states)


def test_sample_and_record_take_a_pipeline_as_they_take_a_model():
    pipe, inputs = built("sd15"), asked("sd15")
    model = as_model(pipe, inputs)
    drawn = geosprint.sample(pipe, [900, 600, 200], SEEDS[:2], inputs=inputs)
    assert torch.equal(drawn, geosprint.sample(model, [900, 600, 200], SEEDS[:2]))
    found, expected = (geosprint.record(*one, SEEDS[:2], 4) for one in ((built("ddpm"),), (as_model(built("ddpm")),)))
    assert torch.equal(found.states, expected.states)
    with pytest.raises(ModelError, match="needs prompts"):
        geosprint.sample(pipe, [900], SEEDS)


def test_compare_takes_a_pipeline_as_it_takes_a_model():
    pipe, inputs = built("sd15"), asked("sd15")
    asked_for = {"steps": 3, "methods": "uniform-trailing", "samples": 10, "fine_steps": 4}
    found = geosprint.compare(pipe, inputs=inputs, **asked_for)
    expected = geosprint.compare(as_model(pipe, inputs), **asked_for)
    assert [row.value for row in found.rows] == [row.value for row in expected.rows]
    with pytest.raises(ModelError, match="inputs are for diffusers pipelines"):
        geosprint.compare(as_model(pipe, inputs), inputs=inputs, **asked_for)


def test_guidance_leads_from_the_negative_prompt_to_the_prompt_by_its_scale():
    pipe = built("sd15")
    model = as_model(pipe, asked("sd15", guidance_scale=4.0))
    x = noise_of_seeds(model.shape, SEEDS[:3])
    with torch.no_grad():
        wanted, unwanted = pipe.encode_prompt(list(tiny.PROMPTS), "cpu", 1, True, ["dull"] * 3)
        towards, away = (pipe.unet(x, 500, encoder_hidden_states=text).sample for text in (wanted, unwanted))
    assert_close(model(x, 500.0), away + 4.0 * (towards - away))
    assert_close(as_model(pipe, asked("sd15", guidance_scale=1.0))(x, 500.0), towards)


@pytest.mark.parametrize("family", ["sd15", "sd3"])
def test_every_sample_gets_its_own_prompt(family):
    pipe, inputs = built(family), asked(family)
    model = as_model(pipe, inputs)
    x = noise_of_seeds(model.shape, (5,)).expand(3, *model.shape)
    answers = model.for_samples([4, 2, 0])(x, 700.0)
    for answer, prompt in zip(answers, (tiny.PROMPTS[1], tiny.PROMPTS[2], tiny.PROMPTS[0]), strict=True):
        assert_close(answer, as_model(pipe, asked(family, prompts=(prompt,)))(x[:1], 700.0)[0])
    apart = (answers - answers.roll(1, dims=0)).flatten(1).abs().amax(dim=1)
    assert float(apart.min()) > 1e-3 * float(answers.abs().max())


@pytest.mark.parametrize("name", ["EulerDiscreteScheduler", "DPMSolverMultistepScheduler", "PNDMScheduler"])
def test_the_answer_does_not_depend_on_the_scheduler_that_the_pipeline_has(name):
    pipe = built("sd15")
    expected, x = as_model(pipe, asked("sd15")), noise_of_seeds((4, 8, 8))
    before = expected(x, 321.0)
    pipe.scheduler = getattr(diffusers, name).from_config(pipe.scheduler.config)
    assert torch.equal(as_model(pipe, asked("sd15"))(x, 321.0), before)


def test_a_flow_may_come_with_another_solver():
    pipe = built("sd3")
    expected, x = as_model(pipe, asked("sd3")), noise_of_seeds((4, 8, 8))
    before = expected(x, 321.25)
    pipe.scheduler = diffusers.UniPCMultistepScheduler(
        use_flow_sigmas=True, flow_shift=3.0, prediction_type="flow_prediction"
    )
    model = as_model(pipe, asked("sd3"))
    assert model.noise == expected.noise == geosprint.Flow(3.0)
    assert torch.equal(model(x, 321.25), before)


@pytest.mark.parametrize("family", ["sd15", "sd3"])
def test_a_pipeline_with_a_profile_applied_is_asked_at_any_time_all_the_same(family):
    pipe = built(family)
    model, x = as_model(pipe, asked(family)), noise_of_seeds((4, 8, 8))
    before = model(x, 321.0)
    geosprint.apply(pipe, geosprint.extract(pipe, 2, 8, inputs=asked(family)))
    assert torch.equal(model(x, 321.0), before)


def test_velocity_prediction_and_zero_terminal_snr_are_taken_from_the_scheduler():
    pipe, inputs = built("sd15"), asked("sd15")
    pipe.scheduler = diffusers.DDIMScheduler.from_config(
        pipe.scheduler.config, prediction_type="v_prediction", rescale_betas_zero_snr=True, set_alpha_to_one=True
    )
    model = as_model(pipe, inputs)
    assert model.prediction == "v"
    expected, times = drawn_by_itself(pipe, "sd15", noise_of_seeds(model.shape), inputs)
    assert_close(geosprint.sample(model, times.double().numpy(), SEEDS), expected)


# What it costs.


@pytest.mark.parametrize(
    ("family", "scale", "calls"),
    [("ddpm", None, 1), ("sd15", 4.0, 2), ("sd15", 1.0, 1), ("sdxl", 4.0, 2), ("sd3", 4.0, 2), ("flux", 4.0, 1)],
)
def test_calls_are_counted_as_the_network_makes_them(family, scale, calls):
    pipe = built(family)
    counted = Counted(as_model(pipe, asked(family, guidance_scale=scale) if scale else None))
    made = []

    def note(module, given, named):
        made.append(len(given[0] if given else named.get("sample", named.get("hidden_states"))))

    denoiser_of(pipe).register_forward_pre_hook(note, with_kwargs=True)
    geosprint.sample(counted, [900, 600, 300], SEEDS, "ddim" if family not in tiny.FLOWS else "euler", batch=3)
    assert counted.nfe == sum(made) == len(SEEDS) * 3 * calls


def test_the_network_is_listened_to_only_where_its_conditional_prediction_is_wanted():
    pipe = built("sd15")
    model, hooks = as_model(pipe, asked("sd15")), []
    pipe.unet.register_forward_pre_hook(lambda module, given: hooks.append(len(module._forward_hooks)))
    for asked_model in (model, model.with_conditional()):
        asked_model.for_samples([0])(noise_of_seeds(model.shape, SEEDS[:1]), 500.0)
    assert hooks == [0, 1]


@pytest.mark.parametrize("family", ["sd15", "flux"])
def test_the_texts_of_a_batch_are_encoded_once(family):
    pipe = built(family)
    model = as_model(pipe, asked(family))
    encoded = []
    pipe.text_encoder.register_forward_pre_hook(lambda *_: encoded.append(1))
    x = noise_of_seeds(model.shape, SEEDS[:2])
    one = model.for_samples([0, 1])
    one(x, 900.0)
    once = len(encoded)
    assert once > 0
    one(x, 500.0)
    one(x, 100.0)
    assert len(encoded) == once
    model.for_samples([1, 2])(x, 100.0)
    assert len(encoded) > once


def test_texts_are_encoded_anew_for_another_number_of_samples():
    model = as_model(built("sd15"), asked("sd15"))
    x = noise_of_seeds(model.shape)
    two, four = model(x[:2], 500.0), model(x, 500.0)
    assert_close(four[:2], two)
    assert_close(four[3:], model.for_samples([3])(x[3:], 500.0))


def test_a_gradient_is_kept_for_whoever_asks_and_for_nobody_else():
    for family in ("sd15", "ddpm"):
        model = as_model(built(family), asked(family))
        x, direction = noise_of_seeds(model.shape, (3,)), noise_of_seeds(model.shape, (4,))
        assert not model(x, 500.0).requires_grad
        wanting = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad((model(wanting, 500.0) * direction).sum(), [wanting])
        nudged = [float((model(x + h * direction, 500.0).double() * direction).sum()) for h in (1e-2, -1e-2)]
        assert float((slope * direction).sum()) == pytest.approx((nudged[0] - nudged[1]) / 2e-2, rel=1e-2)
        with torch.no_grad():
            assert not model(wanting, 500.0).requires_grad


@pytest.mark.parametrize("family", ["sd15", "ddpm"])
def test_half_precision_stays_inside_the_pipeline(family):
    model = as_model(built(family).to(torch.float16 if family == "ddpm" else torch.bfloat16), asked(family))
    x = noise_of_seeds(model.shape)
    answer = model(x, 500.0)
    assert answer.dtype == torch.float32
    full = as_model(built(family), asked(family))(x, 500.0)
    assert_close(answer, full, share=0.1)
    assert not torch.equal(answer, full)
    if family != "ddpm":
        x0 = x - answer
        assert_close(model.pictures(x0), as_model(built(family), asked(family)).pictures(x0), share=0.1)


# The pipeline does not notice.


def everything_of(pipe):
    modules = {
        f"{part}.{name}": (module.training, len(module._forward_pre_hooks), len(module._forward_hooks))
        for part, component in pipe.components.items()
        if isinstance(component, torch.nn.Module)
        for name, module in component.named_modules()
    }
    attributes = {name: value if name == "_internal_dict" else id(value) for name, value in vars(pipe).items()}
    return modules, attributes, dict(pipe.scheduler.config), set(vars(pipe.scheduler))


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_the_pipeline_is_left_as_it_was_found(family):
    pipe = built(family)
    model = as_model(pipe, asked(family))  # text encoders put hooks on themselves when they are first used
    denoiser_of(pipe).train()
    before, x = everything_of(pipe), noise_of_seeds(model.shape)
    model(x, 500.0)
    assert everything_of(pipe) == before
    if tiny.takes_prompts(family):
        model.pictures(x)
        assert everything_of(pipe) == before


@pytest.mark.parametrize("wrong", [RuntimeError("out of memory"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("family", ["ddpm", "sd15", "flux"])
def test_the_pipeline_is_left_as_it_was_found_after_an_exception_inside_it(family, wrong):
    pipe = built(family)
    model = as_model(pipe, asked(family))

    def fail(*_):
        raise wrong

    denoiser_of(pipe).train()
    denoiser_of(pipe).register_forward_pre_hook(fail)
    before = everything_of(pipe)
    with pytest.raises(type(wrong)):
        model(noise_of_seeds(model.shape), 500.0)
    assert everything_of(pipe) == before


def test_dropout_of_a_network_in_training_is_off():
    pipe = built("ddpm")
    model, x = as_model(pipe), noise_of_seeds((3, 8, 8))
    for module in pipe.unet.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.9
    expected = model(x, 500.0)
    pipe.unet.train()
    assert torch.equal(model(x, 500.0), expected)
    with torch.no_grad():
        assert not torch.allclose(pipe.unet(x, 500).sample, expected)


# Pictures.


@pytest.mark.parametrize("family", PROMPTED)
def test_latents_are_decoded_as_the_pipeline_decodes_them(family):
    inputs = asked(family)
    model = as_model(built(family), inputs)
    noise = noise_of_seeds(model.shape)
    latents, _ = drawn_by_itself(built(family), family, noise, inputs)
    expected, _ = drawn_by_itself(built(family), family, noise, inputs, output_type="pt")
    found = decoder_of(model, batch=3)(latents)
    assert found.shape == (4, 3, 16, 16)
    assert float(expected.std()) > 0.01
    torch.testing.assert_close(found, expected * 2 - 1, rtol=0, atol=1e-5)


def test_a_decoder_that_fails_is_named_with_what_was_kept(saved, tmp_path, monkeypatch):
    def fails(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    monkeypatch.setattr(AutoencoderKL, "decode", fails)
    prompts = ["--prompts", saved / "prompts.txt", *DRAWN]
    with pytest.raises(ModelFailed) as said:
        command("sample", saved / "sd15", *prompts, "--steps", 2, "-n", 3, "-o", tmp_path / "x.png")
    assert str(said.value) == (
        f"the decoder of pipeline '{saved}/sd15' failed on a batch of 3 (fewer at once: --batch, in Python batch): "
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.; "
        "nothing was kept; the same command starts again"
    )


def test_pixels_are_pictures_already():
    samples = noise_of_seeds((3, 8, 8))
    assert decoder_of(as_model(built("ddpm")))(samples) is samples
    assert decoder_of(geosprint.load_model("digits"))(samples) is samples


# What cannot work is said plainly.


class Told(DiffusionPipeline):
    """A pipeline that does to its latents what a class says, before it asks its network."""

    def __init__(self, unet, scheduler):
        super().__init__()
        self.register_modules(unet=unet, scheduler=scheduler)

    def prepared(self, latents):
        return latents

    def walked(self, timesteps):
        return timesteps

    def answered(self, x, t):
        return self.unet(x, t).sample

    @torch.no_grad()
    def __call__(self, batch_size=1, generator=None, num_inference_steps=50, output_type="np", latents=None):
        given = latents is not None
        x = self.prepared(latents) if given else torch.randn(batch_size, 3, 8, 8, generator=generator[0])
        self.scheduler.set_timesteps(num_inference_steps)
        for t in self.walked(self.scheduler.timesteps) if given else self.scheduler.timesteps:
            answer = self.answered(x, t) if given else self.unet(x, t).sample
            x = self.scheduler.step(answer, t, x).prev_sample


class Scaling(Told):
    def prepared(self, latents):
        return 2 * latents


class Late(Told):
    def walked(self, timesteps):
        return timesteps - 1


class Idle(Told):
    def walked(self, timesteps):
        return []


class WithVariance(Told):
    def answered(self, x, t):
        return torch.cat([x, x], dim=1)


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Scaling, "changed the state that it was asked about"),
        (Late, "asked about t = 500 and stepped at 499"),
        (Idle, "asked for one step made none"),
        (WithVariance, r"answers \(4, 6, 8, 8\) to \(4, 3, 8, 8\)"),
    ],
)
def test_a_pipeline_that_asks_its_network_something_else_is_refused(kind, complaint):
    ordinary = built("ddpm")
    honest, other = (as_model(one(ordinary.unet, ordinary.scheduler)) for one in (Told, kind))
    x = noise_of_seeds((3, 8, 8))
    assert torch.equal(honest(x, 500.0), as_model(ordinary)(x, 500.0))
    with pytest.raises(ModelError, match=f"{complaint}.*geosprint.Network"):
        other(x, 500.0)


class ByClass(DiffusionPipeline):
    def __init__(self, unet, scheduler):
        super().__init__()
        self.register_modules(unet=unet, scheduler=scheduler)

    def __call__(self, class_labels, num_inference_steps=50):
        raise AssertionError("is not run")


def test_what_a_model_cannot_be_made_of_is_refused():
    ordinary = built("ddpm")
    with pytest.raises(ModelError, match=r"ByClass takes no latents.*geosprint\.Network"):
        as_model(ByClass(ordinary.unet, ordinary.scheduler))
    ordinary.scheduler = diffusers.DDIMScheduler(thresholding=True)
    with pytest.raises(ModelError, match="thresholding=False"):
        as_model(ordinary)
    with pytest.raises(ModelError, match="needs prompts"):
        as_model(built("sd15"))
    with pytest.raises(ModelError, match="takes no prompts"):
        as_model(built("ddpm"), PipelineInputs(("a cat",)))


# By name, and on the command line.


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    for family in ("ddpm", "sd15"):
        built(family).save_pretrained(folder / family)
    (folder / "prompts.txt").write_text("\n".join(tiny.PROMPTS))
    return folder


DRAWN = ["--negative-prompt", "dull", "--guidance-scale", "4", "--height", "16", "--width", "16"]


def command(*words):
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def test_any_model_is_found_by_its_name(saved):
    assert load_model("mixture").name == "mixture"
    assert load_model("fashion", label=3, guidance=2.0).conditions == {"label": 3, "guidance": 2.0}
    model = load_model(str(saved / "sd15"), inputs=asked("sd15"), dtype="bfloat16")
    assert (model.shape, model.conditions["dtype"]) == ((4, 8, 8), "bfloat16")
    assert load_model(str(saved / "ddpm")).shape == (3, 8, 8)


@pytest.mark.parametrize(
    ("name", "more", "complaint"),
    [
        ("mixture", {"inputs": PipelineInputs(("a cat",))}, "are for pipelines; 'mixture' is none"),
        ("mixture", {"dtype": "float16"}, "are for pipelines"),
        ("mixture", {"device": "meta"}, "computes on cpu alone"),
        ("ddpm", {"label": 1}, "label and guidance are for networks of the box"),
        ("ddpm", {"guidance": 2.0}, "give it prompts and a guidance scale"),
        ("nothing-there", {}, "there is no model 'nothing-there'"),
        ("nothing-there", {"inputs": PipelineInputs(("a cat",))}, "there is no model 'nothing-there'"),
        ("someone/nothing-there", {}, "cannot load a diffusers pipeline"),
    ],
)
def test_what_a_name_does_not_take_is_refused(name, more, complaint, saved):
    with pytest.raises(ModelError, match=complaint):
        load_model(str(saved / name) if name == "ddpm" else name, **more)


@pytest.mark.parametrize(
    "given", [{"prompts": ("a\x1b[31m",)}, {"negative_prompt": "a\x07"}, {"prompts": (3,)}], ids=str
)
def test_prompts_are_texts_that_a_terminal_can_show(given):
    with pytest.raises(ModelError, match=r"texts without control characters, got ('a\\x|3)"):
        PipelineInputs(**given)


def test_the_sample_verb_draws_latents_and_pictures_of_a_pipeline(saved, tmp_path):
    words = ["sample", saved / "sd15", "--prompts", saved / "prompts.txt", *DRAWN, "--steps", STEPS, "-n", 4]
    told = command(*words, "--batch", 3, "-o", tmp_path / "x.safetensors", "--json")
    assert json.loads(told.stdout)["nfe"] == 4 * STEPS * 2
    expected, _ = drawn_by_itself(built("sd15"), "sd15", noise_of_seeds((4, 8, 8)), asked("sd15"))
    assert_close(load_file(tmp_path / "x.safetensors")["samples"], expected)

    from PIL import Image

    assert command(*words, "-o", tmp_path / "x.png").exit_code == 0
    pictures, _ = drawn_by_itself(built("sd15"), "sd15", noise_of_seeds((4, 8, 8)), asked("sd15"), output_type="pt")
    sheet = np.asarray(Image.open(tmp_path / "x.png"))[::3, ::3]  # tiny pictures are enlarged threefold
    assert sheet.shape == (16 + 1 + 16, 16 + 1 + 16, 3)
    assert np.abs(sheet[:16, :16] / 255 - pictures[0].permute(1, 2, 0).numpy()).max() < 1 / 255
    assert np.abs(sheet[17:, 17:] / 255 - pictures[3].permute(1, 2, 0).numpy()).max() < 1 / 255


def test_the_compare_verb_measures_a_pipeline(saved, tmp_path):
    words = ["--steps", "3", "-n", "10", "--trajectories", "2", "--reference-steps", "8", "--fine-steps", "4"]
    methods = ["--methods", "uniform-trailing,geosprint", "-o", tmp_path, "--json"]
    told = command("compare", saved / "sd15", "--prompts", saved / "prompts.txt", *DRAWN, *words, *methods)
    assert told.exit_code == 0
    with pytest.raises(ModelError, match="needs prompts"):
        command("compare", saved / "sd15", *words, *methods)
    (column,) = json.loads(told.stdout[told.stdout.index("{") :])["columns"]
    assert (column["solver"], column["steps"]) == ("ddim", 3)
    assert (tmp_path / "results.md").exists()


@pytest.mark.parametrize("family", ["ddpm", "sd15"])
def test_two_threads_ask_one_pipeline_and_leave_it_whole(family):
    pipe = built(family)
    before = dict(vars(pipe))
    model = as_model(pipe, asked(family))
    x = noise_of_seeds(model.shape, SEEDS[:2])
    times = [900.0, 500.0, 100.0] * 3
    expected = [model(x, t) for t in times]
    with ThreadPoolExecutor(2) as threads:
        found = [threads.submit(lambda: [model(x, t) for t in times]) for _ in range(2)]
        assert all(
            torch.equal(one, other) for each in found for one, other in zip(each.result(), expected, strict=True)
        )
    assert vars(pipe) == before


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model_index.json", {"_class_name": "DDPMPipeline", "unet": 7}),
        ("model_index.json", {"_class_name": ["x"]}),
        ("model_index.json", []),
        ("scheduler/scheduler_config.json", {"_class_name": "DDPMScheduler", "num_train_timesteps": "x"}),
        ("scheduler/scheduler_config.json", {"_class_name": "DDPMScheduler", "prediction_type": 3}),
        ("unet/config.json", {"_class_name": "UNet2DModel", "block_out_channels": None}),
        ("unet/config.json", {"_class_name": "UNet2DModel", "act_fn": {}}),
        ("unet/config.json", {"_class_name": "UNet2DModel", "layers_per_block": 10**9}),
        ("unet/config.json", {"_class_name": "UNet2DModel", "layers_per_block": [2, 10**9]}),
    ],
    ids=str,
)
@pytest.mark.parametrize("verb", ["sample", "extract"])
def test_a_damaged_pipeline_is_refused_in_one_sentence(verb, file, content, tmp_path):
    built("ddpm").save_pretrained(tmp_path)
    (tmp_path / file).write_text(json.dumps(content))
    small = {"sample": ["--steps", "2", "-n", "1"], "extract": ["--trajectories", "1", "--reference-steps", "3"]}
    done = CliRunner().invoke(app, [verb, str(tmp_path), *small[verb], "-o", str(tmp_path / "out.safetensors")])
    assert isinstance(done.exception, ModelError), done.exception


@pytest.mark.parametrize(
    ("length", "is_refused"), [(10**9, True), (2**63, True), (77, False), (int(1e30), False)], ids=str
)
def test_prompts_are_not_padded_to_any_length(length, is_refused, saved, tmp_path):
    """Such a list of tokens would not fit into memory; the last length means that a tokenizer knows none."""
    shutil.copytree(saved / "sd15", tmp_path / "mine")
    path = tmp_path / "mine" / "tokenizer" / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_max_length": length}))
    if is_refused:
        with pytest.raises(ModelError, match=f"model_max_length of .* may be up to 1000000, and is {length}"):
            load_pipeline(tmp_path / "mine")
    else:
        assert load_pipeline(tmp_path / "mine").tokenizer.model_max_length == length


def test_a_pipeline_whose_code_fails_is_named(tmp_path):
    pipe = built("ddpm")

    def fail(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    pipe.unet.forward = fail
    with pytest.raises(
        ModelFailed, match=r"pipeline '.*' failed on a batch of 1: OutOfMemoryError: CUDA out of memory"
    ):
        as_model(pipe)
    with pytest.raises(ModelFailed, match=r"failed on a batch of 2 \(fewer at once: --batch, in Python batch\)"):
        next(record_pipeline(pipe, range(2), 3))


@pytest.mark.parametrize("inputs", [PipelineInputs(("a cat",)), PipelineInputs(negative_prompt="dull")])
def test_prompts_for_what_takes_none_are_refused_by_whoever_asks(inputs):
    for draw in (geosprint.extract, geosprint.record, geosprint.sample):
        how = {"seeds": [0]} if draw is not geosprint.extract else {}
        how |= {"made": [900.0, 10.0]} if draw is geosprint.sample else {}
        with pytest.raises(ModelError, match="takes no prompts; leave them out"):
            draw(built("ddpm"), inputs=inputs, **how)
        with pytest.raises(ModelError, match="inputs are for diffusers pipelines"):
            draw(geosprint.load_model("mixture"), inputs=inputs, **how)
