"""Every snippet of docs/pipelines.md, and README's four lines, run as they stand on tiny pipelines."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path

import diffusers
import pytest
import tiny_pipelines as tiny
from diffusers import DiffusionPipeline
from typer.testing import CliRunner

import geosprint
from geosprint.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"
BLOCKS = re.findall(r"^```(python|console)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
README = (PAGE.parents[1] / "README.md").read_text(encoding="utf-8")
SNIPPETS = [text for kind, text in BLOCKS if kind == "python"] + re.findall(r"^```py\n(.*?)^```", README, re.M | re.S)
BUDGET = 2600  # little more than the least for two numbers of steps under guidance
COMMANDS = [line for kind, text in BLOCKS if kind == "console" for line in text.splitlines()]


def as_on_the_hub(name):
    """A tiny pipeline with the scheduler that the real one comes with."""
    if "xl" in name:
        pipe = tiny.sdxl()
        pipe.scheduler = diffusers.EulerDiscreteScheduler(**tiny.SD_NOISE, steps_offset=1, timestep_spacing="leading")
    elif "diffusion-3" in name:
        pipe = tiny.sd3()
        pipe.default_sample_size = 8
    elif "FLUX" in name:
        pipe = tiny.flux()
        pipe.default_sample_size = 8
    elif "ddpm" in name:
        pipe = tiny.ddpm()
    else:
        pipe = tiny.sd15()
        pipe.scheduler = diffusers.PNDMScheduler(**tiny.SD_NOISE, skip_prk_steps=True, steps_offset=1)
    pipe.set_progress_bar_config(disable=True)
    return pipe


@pytest.fixture
def small_world(monkeypatch, tmp_path):
    """Hub ids are tiny pipelines, recordings and budgets are small, and files go to a directory of the test."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts.txt").write_text("a lighthouse\na bowl of figs\n")
    ordinary, extract, tune = DiffusionPipeline.from_pretrained.__func__, geosprint.extract, geosprint.tune

    def from_pretrained(cls, name, **options):
        return ordinary(cls, name, **options) if Path(name).is_dir() else as_on_the_hub(str(name))

    def short(*given, **named):
        asked = inspect.signature(extract).bind(*given, **named).arguments
        return extract(**{**asked, "trajectories": 2, "reference_steps": 16})

    monkeypatch.setattr(DiffusionPipeline, "from_pretrained", classmethod(from_pretrained))

    def cheap(*given, **named):
        return tune(*given, **{**named, "budget_nfe": BUDGET, "progress": False})

    monkeypatch.setattr(geosprint, "extract", short)
    monkeypatch.setattr(geosprint, "tune", cheap)


def named_before(snippet):
    """What a reader has at hand who comes from the top of the page."""
    pipe = tiny.sd15()
    pipe.set_progress_bar_config(disable=True)
    named = {"geosprint": geosprint, "pipe": pipe, "prompts": tiny.PROMPTS}
    if "(pipe, profile)" in snippet and "profile = " not in snippet:
        named["profile"] = geosprint.extract(pipe, inputs=geosprint.PipelineInputs(tiny.PROMPTS))
    if "(pipe, tuned" in snippet and "tuned = " not in snippet:
        named["tuned"] = geosprint.tune(pipe, steps=4, prompts=tiny.PROMPTS)
    return named


@pytest.mark.slow
@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda text: text.split("\n")[0])
def test_a_snippet_runs_as_it_stands(snippet, small_world):
    begins, loads, _ = snippet.partition("from_pretrained(")
    namespace = {} if loads and "(pipe" not in begins else named_before(snippet)
    exec(snippet, namespace)
    assert "geosprint" in type(namespace["pipe"].scheduler).__module__
    if "num_inference_steps=" in snippet:
        steps = eval(re.findall(r"num_inference_steps=([\w.\[\]]+)", snippet)[-1], namespace)
        assert len(namespace["pipe"].scheduler.timesteps) == steps
        assert len(namespace["images"]) >= 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:these steps have coefficients of their own")  # which a standalone file cannot use
def test_the_commands_run_one_after_the_other(small_world):
    for line in COMMANDS:
        program, *words = shlex.split(line)
        assert program == "geosprint"
        words += ["--budget-nfe", str(BUDGET)] if words[0] == "tune" else []
        told = CliRunner().invoke(app, words, catch_exceptions=False)
        assert told.exit_code == 0, line
        assert told.stdout


def test_the_page_has_a_snippet_for_every_family():
    text = "\n".join(SNIPPETS)
    for name in (
        "StableDiffusionPipeline",
        "StableDiffusionXLPipeline",
        "StableDiffusion3Pipeline",
        "FluxPipeline",
        "DDPMPipeline",
    ):
        assert f"{name}.from_pretrained(" in text
