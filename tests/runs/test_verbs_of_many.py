"""Every long verb by several processes writes the bytes that one writes, and every network call is made once."""

from __future__ import annotations

import os
import sys
from importlib import import_module

import pytest
from processes import ended, forked, team_of

from geosprint.cli import main
from geosprint.models.exact import ring
from geosprint.runs.team import Team
from geosprint.tuning.run import cost_notice

COUNTING = """
import os
from dataclasses import dataclass
from geosprint.models.exact import ring
from geosprint.models.wrappers import Wrapped

@dataclass(frozen=True, eq=False)
class Noted(Wrapped):
    def __call__(self, x, t):
        with open(f"asked-{os.environ.get('RANK', 0)}", "a") as file:
            file.write("x" * len(x))
        return self.inner(x, t)

def make():
    return Noted(ring())
"""
MODEL = "counting_model:make"
SMALL = ["--reference-steps", 12, "--trajectories", 8]
VERBS = {
    "extract": ["extract", MODEL, *SMALL, "--batch", 3, "-o", "found.json"],
    "extract until stable": ["extract", MODEL, *SMALL, "--batch", 1, "--until-stable", 0.3, "-o", "found.json"],
    "sample": ["sample", MODEL, "--steps", 4, "-n", 7, "--batch", 2, "-o", "found.safetensors"],
    "tune": ["tune", MODEL, "--budget-nfe", 1500, "-o", "found.json"],
    "fit": ["fit", MODEL, "--steps", 4, "--budget-nfe", 2000, "--batch", 2, "-o", "found.json"],
    "compare": [
        *("compare", MODEL, "--steps", 4, "--methods", "quadratic,geosprint,oss,fitted", "-n", 10, "--batch", 3),
        *("--fine-steps", 8, *SMALL, "-o", "."),
    ],
    "reproduce": ["reproduce", "straightness", "--model", MODEL, "--quick", "-o", "."],
}
WRITTEN = {"sample": "found.safetensors", "compare": "results.csv", "reproduce": "straightness/rows.csv"}


def bytes_of(verb, directory):
    content = (directory / WRITTEN.get(verb, "found.json")).read_bytes()
    if verb != "compare":
        return content
    lines = [line.split(",") for line in content.decode().splitlines()]
    timed = [i for i, name in enumerate(lines[0]) if "seconds" in name]
    return [[value for i, value in enumerate(line) if i not in timed] for line in lines]


def asked(directory):
    return [len(path.read_text()) for path in sorted(directory.glob("asked-*"))]


@pytest.fixture(scope="module")
def imported():
    """What verbs import is here already, so that forked children need not."""
    for name in ("comparison.run", "integrations.pipelines", "paper.registry", "report.comparison", "report.page"):
        import_module(f"geosprint.{name}")


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_two_and_three_processes_write_the_bytes_of_one(verb, tmp_path, monkeypatch, imported):
    (tmp_path / "counting_model.py").write_text(COUNTING)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def run(directory):
        def work():
            os.chdir(directory)
            sys.argv = ["geosprint", *map(str, VERBS[verb])]
            sys.stdout = sys.stderr = open(f"said-{os.environ.get('RANK', 0)}", "w")  # noqa: SIM115
            main()

        return work

    directories = [tmp_path / str(size) for size in (1, 2, 3)]
    for directory in directories:
        directory.mkdir()
    assert ended(forked(run(directories[0]))) == 0, (directories[0] / "said-0").read_text()
    for size in (2, 3):
        codes = [ended(child) for child in team_of(size, run(directories[size - 1]))]
        assert codes == [0] * size, (directories[size - 1] / "said-1").read_text()
        assert bytes_of(verb, directories[size - 1]) == bytes_of(verb, directories[0])
        assert (directories[size - 1] / "said-1").read_text() == ""  # only the first speaks
    one, two, three = map(asked, directories)
    for many in (two, three):
        if verb != "extract until stable":  # a round may make a shard that is not needed
            assert sum(many) == one[0]
        assert max(many) < one[0]


def test_the_estimate_is_divided_by_the_processes(monkeypatch):
    model = ring()
    monkeypatch.setattr("geosprint.tuning.run.time.perf_counter", iter(range(0, 80, 20)).__next__)  # 20 s a call
    # Of 600 calls, four trajectories can be learnt from, in eight parts: batches of one.
    assert cost_notice(model, 600, 6) == "at most 600 network calls, about 3:20:00 on cpu"
    monkeypatch.setattr("geosprint.tuning.run.time.perf_counter", iter(range(0, 80, 20)).__next__)
    monkeypatch.setattr("geosprint.tuning.run.this_team", lambda: Team(0, 4))
    assert cost_notice(model, 600, 6).endswith("about 0:50:00 on 4 × cpu, if all are always busy")
