"""Every pipeline family from recording to the same images after save and reload."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings

import diffusers
import numpy as np
import pytest
import tiny_pipelines as tiny
import torch
from diffusers import DiffusionPipeline
from typer.testing import CliRunner

import geosprint
from geosprint.cli import app
from geosprint.errors import ScheduleError

SMALL = {"trajectories": 3, "reference_steps": 10, "batch": 2}


def inputs_of(family):
    if not tiny.takes_prompts(family):
        return None
    return geosprint.PipelineInputs(tiny.PROMPTS, guidance_scale=4.0, height=16, width=16)


def reloaded(pipe, directory):
    pipe.save_pretrained(directory)
    if isinstance(pipe, diffusers.DDIMPipeline):  # puts a stock DDIM scheduler in by itself
        return geosprint.load_pipeline(directory)
    return DiffusionPipeline.from_pretrained(directory)


@pytest.mark.parametrize("what", ["profile", "schedule"])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_a_family_goes_from_recording_to_the_same_images_after_reload(family, what, tmp_path):
    pipe = tiny.FAMILIES[family]()
    stock_images = tiny.drawn(pipe, family, 5)
    profile = geosprint.extract(pipe, **SMALL, inputs=inputs_of(family))
    assert np.array_equal(tiny.drawn(pipe, family, 5), stock_images)  # recording left no trace
    profile.save(tmp_path / "profile.json")
    profile = geosprint.CurvatureProfile.load(tmp_path / "profile.json")
    schedule = geosprint.build_schedule(profile, 5)
    assert geosprint.apply(pipe, profile if what == "profile" else schedule) is pipe
    images = tiny.drawn(pipe, family, 5)
    np.testing.assert_allclose(pipe.scheduler.timesteps.numpy(), schedule.timesteps, rtol=1e-6)
    assert np.isfinite(images).all()
    assert not np.allclose(images, stock_images)
    again = reloaded(pipe, tmp_path / "pipe")
    assert type(again.scheduler) is type(pipe.scheduler)
    np.testing.assert_allclose(tiny.drawn(again, family, 5), images, atol=1e-5)


SWAPS = {
    "sd15": [
        "DPMSolverMultistepScheduler",
        "DPMSolverSinglestepScheduler",
        "UniPCMultistepScheduler",
        "EulerAncestralDiscreteScheduler",
        "HeunDiscreteScheduler",
        "LCMScheduler",
        "DDPMScheduler",
    ],
    "sdxl": ["EulerDiscreteScheduler", "DPMSolverMultistepScheduler"],
}


@pytest.mark.parametrize(("family", "name"), [(family, name) for family, names in SWAPS.items() for name in names])
def test_a_pipeline_with_another_scheduler_keeps_it_and_its_images_after_reload(family, name, tmp_path):
    pipe = tiny.FAMILIES[family]()
    pipe.scheduler = getattr(diffusers, name).from_config(pipe.scheduler.config)
    profile = geosprint.extract(pipe, **SMALL, inputs=inputs_of(family))
    geosprint.apply(pipe, profile)
    assert isinstance(pipe.scheduler, getattr(diffusers, name))
    images = tiny.drawn(pipe, family, 6)
    found = pipe.scheduler.timesteps.double().numpy()
    times = np.append(found[:1], found[1::2]) if pipe.scheduler.order == 2 else found
    np.testing.assert_array_equal(times, geosprint.build_schedule(profile, 6).timesteps)
    again = reloaded(pipe, tmp_path)
    np.testing.assert_allclose(tiny.drawn(again, family, 6), images, atol=1e-5)


def test_a_schedule_drawn_with_first_order_solvers_gives_the_same_images_by_either():
    """DDIM, Euler and DPM++ of order 1 are the same step; only the way there differs."""
    drawn = []
    for name, more in (
        ("DDIMScheduler", {"set_alpha_to_one": True}),
        ("EulerDiscreteScheduler", {}),
        ("DPMSolverMultistepScheduler", {"solver_order": 1}),
    ):
        pipe = tiny.sd15()
        pipe.scheduler = getattr(diffusers, name).from_config(pipe.scheduler.config, **more)
        times = [999, 902, 760, 433, 120, 3]
        noise = geosprint.DiscreteVP(tiny.sd15().scheduler.alphas_cumprod.double().numpy())
        geosprint.apply(pipe, geosprint.StepSchedule.at(times, noise, {}))
        drawn.append(tiny.drawn(pipe, "sd15", len(times)))
    np.testing.assert_allclose(drawn[1], drawn[0], atol=1e-4)
    np.testing.assert_allclose(drawn[2], drawn[0], atol=1e-4)


@pytest.mark.slow
def test_a_saved_pipeline_opens_in_a_fresh_process(tmp_path):
    images = {}
    for family in ("ddpm", "ddim"):
        pipe = tiny.FAMILIES[family]()
        geosprint.apply(pipe, geosprint.extract(pipe, **SMALL))
        images[family] = tiny.drawn(pipe, family, 5)
        pipe.save_pretrained(tmp_path / family)
    code = (
        "import sys, numpy, torch, geosprint\n"
        "for family in sys.argv[2:]:\n"
        "    pipe = geosprint.load_pipeline(sys.argv[1] + '/' + family)\n"
        "    seed = torch.Generator().manual_seed(7)\n"
        "    images = pipe(num_inference_steps=5, generator=seed, output_type='np').images\n"
        "    numpy.save(sys.argv[1] + '/' + family, images)\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path, *images], check=True, capture_output=True)
    for family, expected in images.items():
        np.testing.assert_allclose(np.load(tmp_path / f"{family}.npy"), expected, atol=1e-5)


def test_a_payload_can_be_taken_up_again_after_a_swap():
    pipe = tiny.sd15()
    profile = geosprint.extract(pipe, **SMALL, inputs=inputs_of("sd15"))
    geosprint.apply(pipe, profile)
    pipe.scheduler = diffusers.UniPCMultistepScheduler.from_config(pipe.scheduler.config)
    geosprint.apply(pipe)
    assert isinstance(pipe.scheduler, diffusers.UniPCMultistepScheduler)
    pipe.scheduler.set_timesteps(6)
    assert pipe.scheduler.timesteps.tolist() == geosprint.build_schedule(profile, 6).timesteps.tolist()


def test_applying_nothing_to_a_pipeline_without_a_payload_is_an_error():
    with pytest.raises(ScheduleError, match="has no payload yet; give a profile or a schedule"):
        geosprint.apply(tiny.ddim())


def test_model_index_names_the_module_that_stays():
    pipe = tiny.ddim()
    geosprint.apply(pipe, geosprint.extract(pipe, **SMALL))
    assert pipe.config.scheduler == ("geosprint.integrations.schedulers", "GeoSprintDDIMScheduler")


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_the_command_line_goes_from_a_directory_to_a_schedule(family, tmp_path):
    tiny.FAMILIES[family]().save_pretrained(tmp_path / "pipe")
    (tmp_path / "prompts.txt").write_text("\n".join(tiny.PROMPTS) + "\n\n")
    profile, schedule = tmp_path / "profile.json", tmp_path / "schedule.json"
    words = ["extract", str(tmp_path / "pipe"), "-o", str(profile), "--json"]
    words += ["--trajectories", "3", "--reference-steps", "8", "--batch", "2"]
    if tiny.takes_prompts(family):
        words += [
            "--prompts",
            str(tmp_path / "prompts.txt"),
            "--guidance-scale",
            "4",
            "--height",
            "16",
            "--width",
            "16",
        ]
    if family in ("sd15", "sdxl", "sd3"):
        words += ["--negative-prompt", "dull"]
    told = CliRunner().invoke(app, words, catch_exceptions=False)
    assert told.exit_code == 0
    guided = family in ("sd15", "sdxl", "sd3")
    content = json.loads(profile.read_text())
    assert content["nfe"] == 3 * 8 * (2 if guided else 1)
    assert content["origin"]["calls"] == (2 if guided else 1)
    assert content["origin"]["prediction"] == ("flow" if family in tiny.FLOWS else "eps")
    conditions = content["origin"]["conditions"]
    assert conditions["dtype"] == "float32"
    if tiny.takes_prompts(family):
        assert (conditions["guidance_scale"], conditions["height"], conditions["width"]) == (4.0, 16, 16)
        assert conditions["prompts"] == 3
        assert conditions["negative_prompt"] == ("dull" if guided else None)
    CliRunner().invoke(app, ["schedule", str(profile), "--steps", "4", "-o", str(schedule)], catch_exceptions=False)
    pipe = DiffusionPipeline.from_pretrained(tmp_path / "pipe")
    geosprint.apply(pipe, geosprint.StepSchedule.load(schedule))
    assert tiny.drawn(pipe, family, 4).shape[0] == 1


def test_a_schedule_changes_how_often_the_network_is_called_and_nothing_else():
    pipe = tiny.sd15()
    profile = geosprint.extract(pipe, **SMALL, inputs=inputs_of("sd15"))
    geosprint.apply(pipe, profile)
    seen = []
    handle = pipe.unet.register_forward_pre_hook(lambda module, given: seen.append(float(given[1])))
    tiny.drawn(pipe, "sd15", 7)
    handle.remove()
    assert seen == geosprint.build_schedule(profile, 7).timesteps.tolist()


@pytest.mark.parametrize(
    ("family", "name"), [("sd15", "DDIMScheduler"), ("sdxl", "EulerDiscreteScheduler"), ("sd3", None)]
)
def test_drawing_at_another_resolution_than_recorded_is_a_warning(family, name, tmp_path):
    pipe = tiny.FAMILIES[family]()
    if name:
        pipe.scheduler = getattr(diffusers, name).from_config(pipe.scheduler.config)
    geosprint.apply(pipe, geosprint.extract(pipe, **SMALL, inputs=inputs_of(family)))
    pipe = reloaded(pipe, tmp_path)
    pipe.set_progress_bar_config(disable=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        pipe(tiny.PROMPTS[0], height=16, width=16, num_inference_steps=2, output_type="latent")
    with pytest.warns(UserWarning, match="recorded at size 4×8×8, this run has 4×12×8"):
        pipe(tiny.PROMPTS[0], height=24, width=16, num_inference_steps=2, output_type="latent")


def test_a_batch_draws_what_each_prompt_draws_alone():
    pipe = tiny.sd15()
    geosprint.apply(pipe, geosprint.extract(pipe, **SMALL, inputs=inputs_of("sd15")))
    pipe.set_progress_bar_config(disable=True)
    seeds = [torch.Generator().manual_seed(i) for i in range(2)]
    size = {"num_inference_steps": 5, "height": 16, "width": 16, "output_type": "np"}
    both = pipe(list(tiny.PROMPTS[:2]), generator=seeds, **size).images
    alone = pipe(tiny.PROMPTS[1], generator=torch.Generator().manual_seed(1), **size).images
    np.testing.assert_allclose(both[1], alone[0], atol=1e-3)
