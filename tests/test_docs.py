"""The examples in README and docs run as printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def blocks(path: str, language: str) -> list[str]:
    """The fenced blocks of a page that are marked with this language (none: the empty string)."""
    fenced = re.split(r"^```(.*)\n", (ROOT / path).read_text(encoding="utf-8"), flags=re.MULTILINE)
    # text, mark, block, "", text, mark, block, "", ...
    return [block for mark, block in zip(fenced[1::4], fenced[2::4], strict=True) if mark == language]


def verbs(path: str) -> list[list[str]]:
    lines = "\n".join(blocks(path, "")).splitlines()
    return [shlex.split(line)[1:] for line in lines if line.startswith("geosprint ")]


def run(arguments: list[str], directory: Path) -> None:
    small = {"extract": ["--trajectories", "4", "--reference-steps", "30"]}.get(arguments[0], [])
    done = subprocess.run(
        [sys.executable, "-m", "geosprint.cli", *arguments, *small],
        cwd=directory,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr


def test_the_readme_has_a_python_example_of_ten_lines_and_it_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (example,) = blocks("README.md", "python")
    assert len([line for line in example.splitlines() if line.strip()]) <= 10
    exec(example.replace("trajectories=100, reference_steps=200", "trajectories=4, reference_steps=50"), {})
    assert (tmp_path / "schedule.json").exists()
    assert "steps are enough" in capsys.readouterr().out


@pytest.mark.parametrize("path", ["README.md", "docs/own-model.md", "docs/big-models.md"])
def test_the_commands_of_the_page_run_one_after_another(path, tmp_path):
    for example in blocks(path, "python"):
        if example.startswith("# my_model.py"):
            (tmp_path / "my_model.py").write_text(example)
    found = verbs(path)
    assert len(found) >= 3
    for arguments in found:
        run(arguments, tmp_path)
        if "-o" in arguments:
            assert (tmp_path / arguments[arguments.index("-o") + 1]).exists()


@pytest.mark.slow
def test_the_first_torchrun_command_of_the_page_runs_in_two_processes(tmp_path):
    lines = "\n".join(blocks("docs/big-models.md", "")).splitlines()
    arguments = next(shlex.split(line)[1:] for line in lines if line.startswith("torchrun "))
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *arguments, "--trajectories", "4", "--reference-steps", "30"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / arguments[arguments.index("-o") + 1]).exists()


@pytest.mark.parametrize("path", ["docs/compare.md", "docs/metrics.md", "docs/big-models.md", "docs/tune.md"])
def test_the_python_examples_of_the_page_run(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for example in blocks(path, "python"):
        exec(example, {})
    assert capsys.readouterr().out


def test_wrapping_a_torch_module_takes_fifteen_lines():
    (example,) = blocks("docs/own-model.md", "python")
    code = [line for line in example.splitlines() if line.strip() and not line.startswith("#")]
    assert len(code) <= 15


def test_every_page_that_readme_links_to_exists():
    for target in re.findall(r"\]\(([^)h][^)]*)\)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), target
