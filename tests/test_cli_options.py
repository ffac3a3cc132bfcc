"""Options about the model are described once, and reach the model from every verb that takes them."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest
from typer.testing import CliRunner

from geosprint import cli
from geosprint.cli.options import ModelOptions, takes_model_options
from geosprint.errors import ModelError

VERBS = {"extract": [], "sample": ["--steps", "3"], "tune": ["--steps", "3"], "fit": ["--steps", "3"], "compare": []}
SAID = ["--dtype", "float16", "--device", "meta", "--trust-remote-code", "--guidance-scale", "7.5", "--height", "16"]
SAID += ["--width", "24", "--negative-prompt", "blurry", "--prompts", "prompts.txt"]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_that_loads_a_model_takes_all_options_about_it(verb):
    known = inspect.signature(getattr(cli, verb)).parameters
    assert "options" not in known
    assert {field.name: known[field.name].default for field in fields(ModelOptions)} == {
        field.name: field.default for field in fields(ModelOptions)
    }


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_said_about_a_pipeline_is_what_it_is_loaded_with(verb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts.txt").write_text("a cat\n\n   \n  a dog \n")
    seen = {}

    def load_pipeline(*given, **named):
        seen["given"] = (*given, *named.values())
        raise ModelError("far enough")

    def inputs(self, *given):
        seen["inputs"] = given

    monkeypatch.setattr("geosprint.integrations.pipelines.load_pipeline", load_pipeline)
    monkeypatch.setattr("geosprint.load_pipeline", load_pipeline)
    monkeypatch.setattr("geosprint.PipelineInputs.__init__", inputs)
    told = CliRunner().invoke(cli.app, [verb, "somebody/something", *VERBS[verb], *SAID])
    assert str(told.exception) == "far enough"
    assert seen["inputs"] == (("a cat", "a dog"), "blurry", 7.5, 16, 24)
    assert seen["given"][0] == "somebody/something"
    assert [word for word in seen["given"][1:] if word is not None] == ["float16", "meta", True]


def test_a_verb_gets_its_own_words_beside_the_options():
    @takes_model_options
    def verb(model: str, options: ModelOptions, steps: int = 3) -> None:
        heard.append((model, steps, options))

    heard = []
    verb(model="digits", steps=5, **{field.name: field.default for field in fields(ModelOptions)} | {"label": 4})
    assert heard == [("digits", 5, ModelOptions(label=4))]


def test_nothing_said_about_a_pipeline_is_nothing_asked_of_it():
    assert ModelOptions().inputs() is None


def test_prompts_that_cannot_be_read_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["geosprint", "sample", "a/b", "--steps", "3", "--prompts", str(tmp_path / "none")])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    assert f"cannot read the prompts in {tmp_path / 'none'}" in capsys.readouterr().err
