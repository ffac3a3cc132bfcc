"""Arguments that only some pipelines take, in Python and on the command line: images, frames, lengths of texts."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
import tiny_families as families
import tiny_pipelines as tiny
import torch
from diffusers.models.autoencoders.vae import DiagonalGaussianDistribution
from typer.testing import CliRunner

import geosprint
from geosprint.cli import app
from geosprint.cli.running import call_of
from geosprint.errors import FileError, ModelError
from geosprint.integrations.pipelines import record_pipeline

WITH_CALLS = [
    "StableDiffusionImg2ImgPipeline",
    "StableDiffusionInpaintPipeline",
    "StableDiffusionControlNetPipeline",
    "LatentConsistencyModelPipeline",
    "FluxKontextPipeline",
    "FluxControlPipeline",
    "Flux2KleinPipeline",
    "PixArtAlphaPipeline",
    "CogVideoXPipeline",
    "CogVideoXImageToVideoPipeline",
    "CogView4Pipeline",
    "WanPipeline, two experts",
]


def inputs_of(name, **more):
    family = families.FAMILIES[name]
    return geosprint.PipelineInputs(tiny.PROMPTS[:1], **family.size, call={**family.call, **more})


@pytest.mark.parametrize("name", WITH_CALLS)
def test_a_recording_is_what_its_model_walks(name, monkeypatch):
    """Every step of the pipeline is the first-order step of the answers that the pipeline gives as a model."""
    # Latents of an image are drawn too, for every seed others; here they are the most likely ones.
    monkeypatch.setattr(DiagonalGaussianDistribution, "sample", lambda self, generator=None: self.mode())
    pipe, inputs = families.FAMILIES[name].build(), inputs_of(name)
    seen = next(record_pipeline(pipe, [5], 3, inputs=inputs))
    model = geosprint.as_model(pipe, inputs)
    assert model.calls == seen.origin.calls
    times = [*seen.timesteps[:-1], -1.0 if model.prediction != "flow" else 0.0]
    for i, (here, there) in enumerate(pairwise(times)):
        x = seen.states[:, i].reshape(1, *model.shape)
        signal, sigma = model.noise.signal_and_sigma(float(here))
        signal_next, sigma_next = model.noise.signal_and_sigma(float(there))
        answer = model(x, float(here))
        if model.prediction == "flow":
            x0, eps = x - sigma * answer, x + signal * answer
        elif model.prediction == "v":
            x0, eps = signal * x - sigma * answer, sigma * x + signal * answer
        else:
            x0, eps = (x - sigma * answer) / signal, answer
        if model.clip is not None:
            x0 = x0.clamp(-model.clip, model.clip)
            eps = (x - signal * x0) / sigma
        expected = (signal_next * x0 + sigma_next * eps).flatten(1)
        torch.testing.assert_close(seen.states[:, i + 1], expected, atol=1e-4, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CogVideoXImageToVideoPipeline", "FluxKontextPipeline"])
def test_a_pipeline_that_needs_an_image_is_fitted_and_draws_by_it(name):
    pipe = families.FAMILIES[name].build()
    fitted = geosprint.fit(pipe, 3, inputs=inputs_of(name), batch=1, budget_nfe=2000, progress=False)
    call = fitted.made_for["conditions"]["call"]
    assert call["image"].startswith("sha256:")
    geosprint.apply(pipe, fitted)
    pipe.set_progress_bar_config(disable=True)
    given = families.inputs_of(families.FAMILIES[name], num_inference_steps=3, output_type="latent")
    assert torch.isfinite(pipe(**given)[0]).all()
    assert len(pipe.scheduler.timesteps) == 3


def test_another_call_is_told_apart_and_the_same_one_is_not():
    pipe = families.FAMILIES["StableDiffusionImg2ImgPipeline"].build()
    said = [
        geosprint.PipelineInputs(tiny.PROMPTS, call=call).describe(pipe).get("call")
        for call in (
            {"image": families.picture(shade=90)},
            {"image": families.picture(shade=90)},
            {"image": families.picture(shade=91)},
            {"image": torch.ones(1, 3, 8, 8)},
            {"image": np.ones((1, 3, 8, 8))},
            {"clip_skip": 1},
            {},
        )
    ]
    assert said[0] == said[1]
    assert len({json.dumps(one) for one in said[1:]}) == len(said) - 1
    assert said[-2:] == [{"clip_skip": 1}, None]


def test_arguments_that_a_pipeline_does_not_take_or_that_are_said_elsewhere_are_refused():
    inputs = geosprint.PipelineInputs(tiny.PROMPTS, call={"num_frames": 3})
    with pytest.raises(ModelError, match="a StableDiffusionPipeline does not take num_frames; leave that out"):
        geosprint.as_model(tiny.sd15(), inputs)
    with pytest.raises(ModelError, match="that nothing else says, got height, latents"):
        geosprint.PipelineInputs(tiny.PROMPTS, call={"latents": None, "height": 3})


def test_a_strength_below_one_is_refused_by_name():
    pipe = families.FAMILIES["StableDiffusionImg2ImgPipeline"].build()
    with pytest.raises(ModelError, match="asked for 2 steps made 1; it cannot be recorded, leave out a strength"):
        geosprint.as_model(pipe, inputs_of("StableDiffusionImg2ImgPipeline", strength=0.6))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("TextToVideoSDPipeline", "makes one step for 2 parts of 1 samples"),
        ("StableDiffusionXLInpaintPipeline", "changes what it draws between two steps"),
        ("LTXConditionPipeline, an image", "changes what it draws between two steps"),
        ("DiTPipeline", "takes no latents, so it cannot be asked"),
        ("IFPipeline", "takes no latents, so it cannot be asked"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_sentence(name, sentence):
    family = families.FAMILIES[name]
    with pytest.raises(ModelError, match=sentence):
        geosprint.as_model(
            family.build(), geosprint.PipelineInputs(family.prompts[:1], **family.size, call=family.call)
        )


def test_deepfloyd_is_recorded_without_the_variance_that_its_network_learnt():
    family = families.FAMILIES["IFPipeline"]
    inputs = geosprint.PipelineInputs(tiny.PROMPTS, **family.size)
    seen = next(record_pipeline(family.build(), [0, 1], 4, inputs=inputs))
    assert seen.origin.shape == (3, 16, 16)


def test_both_experts_of_a_pipeline_are_counted_and_known_by_their_weights():
    name = "WanPipeline, two experts"
    pipe = families.FAMILIES[name].build()
    seen = next(record_pipeline(pipe, [0], 6, inputs=inputs_of(name)))
    boundary = pipe.config.boundary_ratio * 1000
    assert any(seen.timesteps[:-1] < boundary)
    assert any(seen.timesteps > boundary)
    assert seen.nfe == 12  # guided: two a step, whichever expert has its turn
    model, other = (geosprint.as_model(pipe, inputs_of(name)) for _ in range(2))
    x = torch.ones(1, *model.shape)
    before = [model(x, t) for t in (950.0, 200.0)]
    with torch.no_grad():
        pipe.transformer_2.proj_out.bias += 1
    assert torch.equal(other(x, 950.0), before[0])
    assert not torch.allclose(other(x, 200.0), before[1])
    assert len(list(model.network.parameters())) == 2 * len(list(pipe.transformer.parameters()))
    assert model.boundary == boundary
    assert geosprint.as_model(families.FAMILIES["WanPipeline"].build(), inputs_of("WanPipeline")).boundary is None


def test_words_of_the_command_line_become_arguments(tmp_path):
    families.picture().save(tmp_path / "cat.png")
    (tmp_path / "more.json").write_text(json.dumps({"num_frames": 9, "image": str(tmp_path / "cat.png")}))
    words = ["strength=0.5", "clean_caption=false", "style=plain words", f'images=["{tmp_path / "cat.png"}"]']
    call = call_of([*words, str(tmp_path / "more.json"), "sizes=[1, 2]"])
    picture, (again,) = call.pop("image"), call.pop("images")
    assert picture.size == again.size == (16, 16)
    assert call == {
        "strength": 0.5,
        "clean_caption": False,
        "style": "plain words",
        "num_frames": 9,
        "sizes": [1, 2],
    }


def test_words_that_are_no_arguments_are_refused(tmp_path):
    with pytest.raises(FileError, match=r"takes NAME=VALUE or a \.json file"):
        call_of(["num_frames"])
    with pytest.raises(FileError, match=r"cannot read a picture from .*gone.png"):
        call_of([f"image={tmp_path / 'gone.png'}"])
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(FileError, match="must hold an object of names and values"):
        call_of([str(tmp_path / "list.json")])


def test_a_verb_takes_arguments_of_the_pipeline(tmp_path):
    families.FAMILIES["StableDiffusionControlNetPipeline"].build().save_pretrained(tmp_path / "pipe")
    families.picture().save(tmp_path / "edges.png")
    (tmp_path / "prompts.txt").write_text("a red cat\n")
    words = ["extract", str(tmp_path / "pipe"), "-o", str(tmp_path / "profile.json"), "--trajectories", "2"]
    words += ["--reference-steps", "5", "--prompts", str(tmp_path / "prompts.txt"), "--height", "16", "--width", "16"]
    words += ["--call", f"image={tmp_path / 'edges.png'}", "--call", "controlnet_conditioning_scale=0.5"]
    told = CliRunner().invoke(app, words, catch_exceptions=False)
    assert told.exit_code == 0
    call = json.loads((tmp_path / "profile.json").read_text())["origin"]["conditions"]["call"]
    assert call["controlnet_conditioning_scale"] == 0.5
    assert call["image"].startswith("sha256:")
