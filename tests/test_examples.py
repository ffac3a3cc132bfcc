"""The examples do what they say, at a smaller size."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import geosprint
from geosprint.baselines import baseline_schedule
from geosprint.tuned import TunedSteps

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(EXAMPLES / "quickstart.ipynb", as_version=4)
    NotebookClient(notebook, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert pictures(notebook) == 4
    assert geosprint.Tuned.load(tmp_path / "tuned.json").proved is not None


def test_the_notebook_is_stored_with_its_outputs():
    notebook = nbformat.read(EXAMPLES / "quickstart.ipynb", as_version=4)
    assert pictures(notebook) == 4
    assert "fewer network calls" in str([cell.get("outputs") for cell in notebook.cells])
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))


def pictures(notebook) -> int:
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return sum("image/png" in output.get("data", {}) for output in shown)


@pytest.mark.slow
def test_a_tuned_pipeline_of_the_layout_of_stable_diffusion_is_saved_with_its_steps(tmp_path, capsys):
    from diffusers import PNDMScheduler

    from integrations import tiny_pipelines as tiny

    pipe = tiny.sd15()
    pipe.scheduler = PNDMScheduler(**tiny.SD_NOISE, skip_prk_steps=True, steps_offset=1)  # as on the hub
    pipe.save_pretrained(tmp_path / "mine")
    tuned = example("tune_a_pipeline").tune_and_save(str(tmp_path / "mine"), tiny.PROMPTS, str(tmp_path / "out"), 2500)
    assert f"num_inference_steps={tuned.steps[0]} instead of 50 " in capsys.readouterr().out
    pipe = geosprint.load_pipeline(tmp_path / "out")
    pipe.set_progress_bar_config(disable=True)
    pipe(tiny.PROMPTS[0], num_inference_steps=tuned.steps[0], height=16, width=16)
    assert pipe.scheduler.timesteps.tolist() == pytest.approx(tuned.result(tuned.steps[0]).schedule.timesteps, abs=0.5)


def test_sigmas_for_comfyui_fall_from_noise_to_zero(tmp_path):
    noise = geosprint.load_model("mixture").noise
    schedules = [baseline_schedule("karras", noise, steps) for steps in (3, 5)]
    results = tuple(TunedSteps(schedule, "dpmpp-2m") for schedule in schedules)
    path = geosprint.Tuned(results).save(tmp_path / "tuned.json")
    done = subprocess.run(
        [sys.executable, EXAMPLES / "comfyui_sigmas.py", path],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    for schedule, line in zip(schedules, done.stdout.splitlines(), strict=True):
        told, _, numbers = line.partition(" steps of dpmpp-2m: ")
        sigmas = [float(number) for number in numbers.split(", ")]
        assert int(told) == len(schedule)
        assert sigmas == pytest.approx([*schedule.sigmas[:-1], 0], rel=1e-6)


@pytest.mark.slow
def test_a_network_of_your_own_is_trained_and_tuned(tmp_path, capsys):
    ours = example("tune_your_model")
    model = ours.wrapped(ours.train(steps=400))
    points = geosprint.sample(model, baseline_schedule("quadratic", model.noise, 50).timesteps, range(64))
    assert abs(points.norm(dim=1).mean() - 1) < 0.25  # the circle that it was trained on
    ours.tune_and_compare(model, tmp_path, budget_nfe=4000, samples=12)
    told = re.search(
        r"(\d+) tuned steps instead of 50 DDIM steps: error .*\n(\d+) ddim steps of [\w-]+, ", capsys.readouterr().out
    )
    assert told[1] == told[2]
    assert int(told[1]) in geosprint.Tuned.load(tmp_path / "tuned.json").steps
