"""A pipeline is tuned as any model is, with its guidance, and its schedule goes back into it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tiny_pipelines as tiny

import geosprint
from geosprint import PipelineInputs
from geosprint.teacher import TeacherConfig
from geosprint.tuning.config import DEFAULT


@pytest.fixture
def few_walks(monkeypatch):
    """Tiny networks are slow enough on a small machine."""
    monkeypatch.setattr("geosprint.teacher.STEPS", 20)
    monkeypatch.setattr("geosprint.tuning.run.DEFAULT", replace(DEFAULT, teacher=TeacherConfig(fewest=2)))


@pytest.mark.parametrize("family", ["sd15", "sd3"])
def test_a_guided_pipeline_is_tuned_within_its_budget_and_takes_the_schedule(family, few_walks, tmp_path):
    pipe = tiny.FAMILIES[family]()
    pipe.set_progress_bar_config(disable=True)
    inputs = PipelineInputs(tiny.PROMPTS, guidance_scale=4.0, height=16, width=16)
    solver = "euler" if family in tiny.FLOWS else "ddim"
    found = geosprint.tune(pipe, 3, solver=solver, budget_nfe=900, inputs=inputs, work=tmp_path)
    assert found.nfe <= 900
    assert found.made_for["calls"] == 2
    other = replace(inputs, prompts=tiny.PROMPTS[:1])
    with pytest.raises(geosprint.GeoSprintError, match=r"begun with model\.conditions\.prompts"):
        geosprint.tune(pipe, 3, solver=solver, budget_nfe=900, inputs=other, work=tmp_path)
    geosprint.apply(pipe, found)
    pipe(tiny.PROMPTS[0], num_inference_steps=3, height=16, width=16, output_type="latent")
    assert np.allclose(np.asarray(pipe.scheduler.timesteps, dtype=float), found[3].timesteps, atol=1e-2)
