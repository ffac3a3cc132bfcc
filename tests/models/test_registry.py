"""A name that leads to no model is refused in one sentence that says what to write instead."""

from __future__ import annotations

import pytest

from geosprint.errors import ModelError
from geosprint.integrations.adapter import load_model
from geosprint.models.registry import model_named, names_pipeline

MAKES_A_RING = """
from geosprint.models.exact import ring

def make():
    return ring(modes=5)
"""


@pytest.mark.parametrize(
    ("written", "meant"),
    [("fashon", "fashion"), ("Digits", "digits"), ("cifar", "cifar10"), ("fashion_flow", "fashion-flow")],
)
def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(written, meant):
    with pytest.raises(
        ModelError, match=rf"there is no model '{written}'; did you mean {meant}\? the models in the box"
    ):
        load_model(written)


def test_a_name_like_no_other_is_answered_with_all_of_them():
    with pytest.raises(
        ModelError, match="there is no model 'stable'; the models in the box are gaussian, mixture"
    ) as said:
        load_model("stable")
    assert "did you mean" not in str(said.value)


@pytest.mark.parametrize("name", ["./nowhere", "/no/where", "runs/of/mine", "../nowhere"])
def test_a_path_that_leads_nowhere_is_a_missing_directory_and_is_not_looked_for_on_the_hub(name):
    with pytest.raises(ModelError, match=f"there is no directory '{name}'; a model may be a directory that holds"):
        load_model(name)


@pytest.mark.parametrize("name", ["./makes_a_ring.py:make", "makes_a_ring.py:make", "./makes_a_ring:make"])
def test_a_factory_that_is_named_by_its_file_is_answered_with_the_name_of_its_module(tmp_path, monkeypatch, name):
    (tmp_path / "makes_a_ring.py").write_text(MAKES_A_RING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelError, match="named by its module: makes_a_ring:make, from the directory"):
        load_model(name)
    assert load_model("makes_a_ring:make").means.shape == (5, 2)


def test_a_directory_with_a_colon_in_its_name_is_a_directory(tmp_path, monkeypatch):
    (tmp_path / "run 12:30").mkdir()
    monkeypatch.chdir(tmp_path)
    assert names_pipeline("run 12:30")
    with pytest.raises(ModelError, match=r"cannot load a diffusers pipeline from 'run 12:30'.*model_index\.json"):
        load_model("run 12:30")


@pytest.mark.parametrize("name", ["stable-diffusion-v1-5/stable-diffusion-v1-5", "CompVis/ldm.x", "a/b"])
def test_the_hub_is_asked_for_what_can_be_there(name):
    assert names_pipeline(name)
    with pytest.raises(ModelError, match="there is no directory"):
        model_named(name)  # which knows no pipelines
