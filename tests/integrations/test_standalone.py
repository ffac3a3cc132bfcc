"""Pipelines that load without geosprint: their scheduler brings its code along."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import diffusers
import numpy as np
import pytest
import tiny_families as families
import tiny_pipelines as tiny
import torch
from diffusers import DiffusionPipeline
from typer.testing import CliRunner

import geosprint
from geosprint.cli import app
from geosprint.errors import ScheduleError
from geosprint.fitted_solver import FittedSolver
from geosprint.integrations import geosprint_scheduler
from geosprint.noise import Flow

TIMES = [999, 720, 433, 120, 3]
ROWS = ((0.3, 0.7), (0.4, 0.5, 0.2), (0.2, 0.6, 0.3, -0.1), (0.1, 0.8, 0.2, 0.1, 0.05), (0.05, 0.95, 0.1, 0.0, 0.02))

WITHOUT_GEOSPRINT = textwrap.dedent("""
    import sys
    sys.modules["geosprint"] = None  # importing it fails
    import numpy, torch
    from diffusers import DiffusionPipeline
    where, out, steps = sys.argv[1:4]
    pipe = DiffusionPipeline.from_pretrained(where, trust_remote_code=True, local_files_only=True)
    assert type(pipe.scheduler).__module__ == "geosprint_scheduler", type(pipe.scheduler).__module__
    seed = torch.Generator().manual_seed(7)
    given = {"prompt": "a red cat", "height": 16, "width": 16} if "text_encoder" in pipe.components else {}
    images = pipe(num_inference_steps=int(steps), generator=seed, output_type="np", **given).images
    numpy.save(out, images)
    if len(sys.argv) > 4:
        pipe.save_pretrained(sys.argv[4])
""")


def drawn_without_geosprint(where, tmp_path, steps, *again, **environment):
    """What a process draws that has no geosprint."""
    out = tmp_path / "drawn.npy"
    paths = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "PATH": os.environ["PATH"], **environment}
    words = [sys.executable, "-I", "-c", WITHOUT_GEOSPRINT, str(where), str(out), str(steps), *map(str, again)]
    ended = subprocess.run(words, env=paths, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return np.load(out)


def schedule_of(family):
    if family in tiny.FLOWS:
        pipe = tiny.FAMILIES[family]()
        inputs = geosprint.PipelineInputs(tiny.PROMPTS[:1], height=16, width=16)
        shift = geosprint.as_model(pipe, inputs).noise.shift
        return geosprint.StepSchedule.at([1000.0, 850.0, 600.0, 250.0, 60.0], Flow(shift), {})
    noise = geosprint.DiscreteVP(tiny.FAMILIES[family]().scheduler.alphas_cumprod.double().numpy())
    return geosprint.StepSchedule.at(TIMES, noise, {})


SWAPS = [
    ("sd15", "DDIMScheduler", "fitted"),
    ("sd15", "DDIMScheduler", "schedule"),
    ("sd15", "DDPMScheduler", "schedule"),
    ("sd15", "LCMScheduler", "schedule"),
    ("sd15", "HeunDiscreteScheduler", "schedule"),
    ("sd15", "EulerDiscreteScheduler", "schedule"),
    ("sd15", "EulerAncestralDiscreteScheduler", "schedule"),
    ("sd15", "DPMSolverMultistepScheduler", "schedule"),
    ("sd15", "DPMSolverSinglestepScheduler", "schedule"),
    ("sd15", "UniPCMultistepScheduler", "schedule"),
    ("ddpm", "DDPMScheduler", "fitted"),
    ("sd3", "FlowMatchEulerDiscreteScheduler", "schedule"),
    ("sd3", "FlowMatchEulerDiscreteScheduler", "fitted"),
    ("flux", "FlowMatchEulerDiscreteScheduler", "fitted"),
]


@pytest.mark.parametrize(("family", "name", "what"), SWAPS)
def test_a_standalone_scheduler_draws_what_ours_draws(family, name, what):
    made = schedule_of(family)
    made = FittedSolver(made, ROWS) if what == "fitted" else made
    drawn = []
    for standalone in (False, True):
        pipe = tiny.FAMILIES[family]()
        pipe.scheduler = getattr(diffusers, name).from_config(pipe.scheduler.config)
        geosprint.apply(pipe, made, standalone=standalone)
        torch.manual_seed(0)
        drawn.append(tiny.drawn(pipe, family, len(made)))
    assert type(pipe.scheduler).__module__ == "geosprint_scheduler"
    np.testing.assert_allclose(drawn[1], drawn[0], atol=2e-5)


def test_image_to_image_begins_midway_as_ours_does():
    family, drawn = families.FAMILIES["StableDiffusionImg2ImgPipeline"], []
    for standalone in (False, True):
        pipe = family.build()
        geosprint.apply(pipe, FittedSolver(schedule_of("sd15"), ROWS), standalone=standalone)
        pipe.set_progress_bar_config(disable=True)
        given = families.inputs_of(family, strength=0.6, num_inference_steps=5, output_type="np")
        drawn.append(pipe(**given, generator=torch.Generator().manual_seed(3)).images)
    np.testing.assert_allclose(drawn[1], drawn[0], atol=2e-5)


def test_the_file_names_nothing_of_geosprint():
    lines = Path(geosprint_scheduler.__file__).read_text(encoding="utf-8").splitlines()
    imported = [line.split()[1].split(".")[0] for line in lines if line.startswith(("import ", "from "))]
    assert set(imported) - set(sys.stdlib_module_names) == {"diffusers", "numpy", "torch"}


def test_a_profile_becomes_lists_of_every_number_of_steps():
    pipe = tiny.sd3()
    inputs = geosprint.PipelineInputs(tiny.PROMPTS, height=16, width=16)
    profile = geosprint.extract(pipe, trajectories=2, reference_steps=8, inputs=inputs)
    geosprint.apply(pipe, profile, standalone=True)
    for steps in (2, 7, 50):
        tiny.drawn(pipe, "sd3", steps)
        np.testing.assert_allclose(
            pipe.scheduler.timesteps, geosprint.build_schedule(profile, steps).timesteps, rtol=1e-6
        )
    with pytest.raises(ValueError, match=r"has steps for 1, 2, .*, 51 were asked for"):
        tiny.drawn(pipe, "sd3", 51)


def test_a_ddim_pipeline_which_swaps_its_scheduler_when_it_is_loaded_is_refused():
    with pytest.raises(ScheduleError, match="a DDIMPipeline puts a stock scheduler in"):
        geosprint.apply(tiny.ddim(), schedule_of("ddim"), standalone=True)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "what"), [("sd3", "fitted"), ("ddpm", "schedule")])
def test_a_directory_loads_without_geosprint_and_draws_the_same_also_when_it_is_saved_again(family, what, tmp_path):
    made = schedule_of(family)
    pipe = tiny.FAMILIES[family]()
    if family == "ddpm":
        pipe.scheduler = diffusers.DPMSolverMultistepScheduler.from_config(pipe.scheduler.config)
    geosprint.apply(pipe, FittedSolver(made, ROWS) if what == "fitted" else made, standalone=True)
    images = tiny.drawn(pipe, family, len(made))
    pipe.save_pretrained(tmp_path / "pipe")
    again = [tmp_path / "again"] if family == "ddpm" else []
    found = drawn_without_geosprint(tmp_path / "pipe", tmp_path, len(made), *again)
    np.testing.assert_allclose(found, images, atol=1e-5)
    if not again:
        return
    found = drawn_without_geosprint(tmp_path / "again", tmp_path, len(made))
    np.testing.assert_allclose(found, images, atol=1e-5)


@pytest.mark.slow
def test_a_snapshot_of_the_hub_loads_without_geosprint_and_draws_the_same(tmp_path):
    """The layout of the cache: blobs, a snapshot of links to them, and a branch that names it."""
    pipe, made = tiny.sd15(), schedule_of("sd15")
    geosprint.apply(pipe, FittedSolver(made, ROWS), standalone=True)
    images = tiny.drawn(pipe, "sd15", len(made))
    pipe.save_pretrained(tmp_path / "saved")
    repository, commit = tmp_path / "hub" / "models--somebody--something", "0123456789abcdef0123456789abcdef01234567"
    blobs, snapshot = repository / "blobs", repository / "snapshots" / commit
    blobs.mkdir(parents=True)
    for i, file in enumerate(sorted(path for path in (tmp_path / "saved").rglob("*") if path.is_file())):
        blob, link = blobs / f"{i:064x}", snapshot / file.relative_to(tmp_path / "saved")
        file.rename(blob)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    found = drawn_without_geosprint("somebody/something", tmp_path, len(made), HF_HUB_CACHE=str(tmp_path / "hub"))
    np.testing.assert_allclose(found, images, atol=1e-5)


@pytest.mark.slow
def test_a_saved_fitted_pipeline_reloads_the_way_the_page_says(tmp_path):
    pipe, made = tiny.sd15(), schedule_of("sd15")
    geosprint.apply(pipe, FittedSolver(made, ROWS))
    images = tiny.drawn(pipe, "sd15", len(made))
    pipe.save_pretrained(tmp_path / "pipe")
    page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text(encoding="utf-8")
    line = "import geosprint.integrations.fitted_schedulers"
    assert f"`{line}`" in page
    code = WITHOUT_GEOSPRINT.replace('sys.modules["geosprint"] = None  # importing it fails', line)
    code = code.replace("trust_remote_code=True, ", "").replace('== "geosprint_scheduler"', '!= "diffusers"')
    words = [sys.executable, "-c", code, tmp_path / "pipe", tmp_path / "drawn.npy", str(len(made))]
    subprocess.run(words, check=True, capture_output=True)
    np.testing.assert_allclose(np.load(tmp_path / "drawn.npy"), images, atol=1e-5)
    assert isinstance(DiffusionPipeline.from_pretrained(tmp_path / "pipe"), type(pipe))


@pytest.mark.parametrize("standalone", [False, True])
def test_the_command_line_saves_a_pipeline_with_its_steps(standalone, tmp_path):
    tiny.sd15().save_pretrained(tmp_path / "pipe")
    schedule_of("sd15").save(tmp_path / "schedule.json")
    words = ["save", str(tmp_path / "pipe"), "--schedule", str(tmp_path / "schedule.json"), "-o", str(tmp_path / "out")]
    told = CliRunner().invoke(app, [*words, *(["--standalone"] if standalone else [])], catch_exceptions=False)
    assert told.exit_code == 0
    assert (tmp_path / "out" / "scheduler" / "geosprint_scheduler.py").exists() == standalone
    again = geosprint.load_pipeline(tmp_path / "out", trust_remote_code=standalone)
    tiny.drawn(again, "sd15", len(TIMES))
    assert again.scheduler.timesteps.tolist() == TIMES
