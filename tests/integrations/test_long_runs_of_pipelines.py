"""Shards of a pipeline's recording, and what a pipeline's directory may not do to whoever loads it."""

from __future__ import annotations

import json
import sys

import pytest
import tiny_pipelines as tiny

import geosprint
from geosprint.errors import FileError, ModelError
from geosprint.integrations.pipelines import record_pipeline

ASKED = geosprint.PipelineInputs(("a cat", "a dog", "a house"))
RUN = {"trajectories": 5, "reference_steps": 6, "batch": 2}


def test_a_pipeline_that_was_interrupted_goes_on_with_the_prompts_that_are_left(tmp_path):
    whole = geosprint.extract(tiny.sd15(), **RUN, inputs=ASKED).save(tmp_path / "whole.json")
    pipe, calls = tiny.sd15(), []
    forward = pipe.unet.forward

    def stopping(*given, **named):
        calls.append(1)
        if len(calls) > 4 + 6 + 3:  # the short walk, the first shard, half of the second
            raise KeyboardInterrupt
        return forward(*given, **named)

    pipe.unet.forward = stopping
    with pytest.raises(KeyboardInterrupt):
        geosprint.extract(pipe, **RUN, inputs=ASKED, work=tmp_path / "work")
    assert len(list((tmp_path / "work").glob("shard-*"))) == 1
    found = geosprint.extract(tiny.sd15(), **RUN, inputs=ASKED, work=tmp_path / "work").save(tmp_path / "found.json")
    assert found.read_bytes() == whole.read_bytes()
    other = geosprint.PipelineInputs(("a cat", "a dog", "a horse"))
    with pytest.raises(FileError, match=r"model\.conditions\.prompts_sha256"):
        geosprint.extract(tiny.sd15(), **RUN, inputs=other, work=tmp_path / "work")


def test_some_batches_of_a_pipeline_are_those_of_all():
    everything = list(record_pipeline(tiny.sd15(), range(5), 4, batch=2, inputs=ASKED))
    (last,) = record_pipeline(tiny.sd15(), range(5), 4, inputs=ASKED, batches=[range(4, 5)])
    assert last.seeds == (4,)
    assert (last.states == everything[2].states).all()
    (dog,) = record_pipeline(tiny.sd15(), [4], 4, inputs=geosprint.PipelineInputs(("a dog",)))  # the fifth prompt
    (cat,) = record_pipeline(tiny.sd15(), [4], 4, inputs=geosprint.PipelineInputs(("a cat",)))
    assert (last.states == dog.states).all()
    assert (last.states != cat.states).any()


def test_a_batch_of_a_pipeline_is_made_to_fit_by_the_shape_of_its_latents(monkeypatch, tmp_path):
    one = 7 * 4 * 8 * 8 * 4  # bytes of six steps of a latent
    monkeypatch.setattr("geosprint.extraction.HELD_BYTES", 3 * one)
    geosprint.extract(tiny.sd15(), 5, 6, inputs=ASKED, work=tmp_path)
    assert [path.name for path in sorted(tmp_path.glob("shard-*"))] == [
        "shard-000000-000002.safetensors",
        "shard-000003-000004.safetensors",
    ]


CODE = """
from pathlib import Path
from diffusers import DDPMPipeline
Path({marker!r}).touch()

class Mine(DDPMPipeline):
    pass
"""


def test_code_in_a_pipelines_directory_runs_only_if_it_is_trusted(tmp_path, monkeypatch):
    monkeypatch.setattr("diffusers.utils.dynamic_modules_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    saved, marker = tmp_path / "saved", tmp_path / "it-ran"
    tiny.ddpm().save_pretrained(saved)
    index = json.loads((saved / "model_index.json").read_text())
    (saved / "model_index.json").write_text(json.dumps({**index, "_class_name": ["mine", "Mine"]}))
    (saved / "mine.py").write_text(CODE.format(marker=str(marker)))
    with pytest.raises(ModelError, match=r"brings code along; read it"):
        geosprint.load_pipeline(saved)
    assert not marker.exists()
    assert type(geosprint.load_pipeline(saved, trust_remote_code=True)).__name__ == "Mine"
    assert marker.exists()


def test_pickled_weights_are_refused(tmp_path):
    tiny.ddpm().save_pretrained(tmp_path, safe_serialization=False)
    assert list(tmp_path.rglob("*.bin"))
    with pytest.raises(ModelError, match="cannot load a diffusers pipeline"):
        geosprint.load_pipeline(tmp_path)
