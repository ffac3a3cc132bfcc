"""Code that lies in the directory of a pipeline runs only if it is trusted."""

from __future__ import annotations

import json

import pytest
import tiny_pipelines as tiny
from typer.testing import CliRunner

import geosprint
from geosprint.cli import app
from geosprint.errors import ModelError

CODE = """
from pathlib import Path
Path({marker!r}).touch()
from diffusers import {base} as Base
class Own(Base):
    pass
"""


def leave_a_scheduler(directory, marker):
    """A scheduler that model_index.json takes from a file beside its config."""
    index = directory / "model_index.json"
    index.write_text(json.dumps({**json.loads(index.read_text()), "scheduler": ["own", "Own"]}))
    (directory / "scheduler" / "own.py").write_text(CODE.format(marker=str(marker), base="DDPMScheduler"))


def leave_a_pipeline(directory, marker):
    """A pipeline class of the repository itself."""
    index = directory / "model_index.json"
    index.write_text(json.dumps({**json.loads(index.read_text()), "_class_name": ["own", "Own"]}))
    (directory / "own.py").write_text(CODE.format(marker=str(marker), base="DDPMPipeline"))


@pytest.fixture(params=[leave_a_scheduler, leave_a_pipeline])
def with_code(request, tmp_path):
    """A pipeline with code, and the file that the code leaves when it runs."""
    tiny.ddpm().save_pretrained(tmp_path / "pipe")
    request.param(tmp_path / "pipe", tmp_path / "it-ran")
    return tmp_path / "pipe", tmp_path / "it-ran"


def test_code_in_a_directory_does_not_run_by_itself(with_code):
    directory, ran = with_code
    with pytest.raises(ModelError, match="brings code along; read it, and say --trust-remote-code"):
        geosprint.load_pipeline(directory)
    assert not ran.exists()


def test_code_in_a_directory_runs_if_it_is_trusted(with_code):
    directory, ran = with_code
    geosprint.load_pipeline(directory, trust_remote_code=True)
    assert ran.exists()


@pytest.mark.parametrize("trusted", [False, True])
def test_the_command_line_must_say_that_code_is_trusted(with_code, trusted):
    directory, ran = with_code
    words = ["extract", str(directory), "--trajectories", "2", "--reference-steps", "4"]
    words += ["-o", str(directory / "profile.json"), *(["--trust-remote-code"] if trusted else [])]
    told = CliRunner().invoke(app, words)
    assert (told.exit_code == 0) == ran.exists() == trusted, told.output
