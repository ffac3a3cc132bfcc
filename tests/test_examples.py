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
    printed = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in printed) == 2
    steps = geosprint.StepSchedule.load(tmp_path / "schedule.json")
    assert len(steps) == 8


def test_the_notebook_is_stored_without_outputs():
    for cell in nbformat.read(EXAMPLES / "quickstart.ipynb", as_version=4).cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.slow
def test_a_tuned_pipeline_is_saved_with_its_steps(tmp_path, capsys):
    from integrations import tiny_pipelines as tiny

    tiny.sd15().save_pretrained(tmp_path / "mine")
    example("tune_a_pipeline").tune_and_save(str(tmp_path / "mine"), tiny.PROMPTS, str(tmp_path / "out"), 3, 9000)
    pipe = geosprint.load_pipeline(tmp_path / "out")
    pipe.set_progress_bar_config(disable=True)
    pipe(tiny.PROMPTS[0], num_inference_steps=3, height=16, width=16)
    told = re.search(r"steps at \[(.*)\]", capsys.readouterr().out)[1]
    assert pipe.scheduler.timesteps.tolist() == pytest.approx([float(t) for t in told.split()], abs=0.5)


def test_sigmas_for_comfyui_fall_from_the_first_noise_to_zero(tmp_path):
    model = geosprint.load_model("mixture")
    path = geosprint.extract(model, trajectories=4, reference_steps=20).save(tmp_path / "profile.json")
    done = subprocess.run(
        [sys.executable, EXAMPLES / "comfyui_sigmas.py", path, "3", "5"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    for steps, line in zip((3, 5), done.stdout.splitlines(), strict=True):
        told, _, numbers = line.partition(" steps: ")
        sigmas = [float(number) for number in numbers.split(", ")]
        assert int(told) == steps == len(sigmas) - 1
        assert sigmas == sorted(sigmas, reverse=True)
        assert sigmas[0] == pytest.approx(float(model.noise.sigma(999)), rel=1e-6)
        assert sigmas[-1] == 0


def test_a_network_of_your_own_is_trained_and_measured(tmp_path, capsys):
    ours = example("measure_your_model")
    model = ours.wrapped(ours.train(steps=400))
    points = geosprint.sample(model, baseline_schedule("quadratic", model.noise, 50).timesteps, range(64))
    assert abs(points.norm(dim=1).mean() - 1) < 0.25  # the circle that it was trained on
    ours.measure(model, tmp_path, samples=12)
    assert re.findall(r"8 steps of ([\w-]+): [\w-]+ has the lowest error", capsys.readouterr().out) == [
        "ddim",
        "dpmpp-2m",
    ]
