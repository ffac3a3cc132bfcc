"""The verb `report`, and the page that other verbs leave."""

from __future__ import annotations

import json

import pytest

from geosprint.noise import DiscreteVP
from geosprint.schedule import StepSchedule

FAST = ["--steps", "3", "-n", "10", "--trajectories", "2", "--reference-steps", "10", "--fine-steps", "5"]


@pytest.fixture
def held(tmp_path):
    StepSchedule.at([999, 3], DiscreteVP.named(), {}).save(tmp_path / "held" / "schedule.json")
    return tmp_path / "held"


def test_a_report_goes_into_its_directory_or_where_it_is_asked_to(run, held, tmp_path):
    code, out, _ = run("report", held)
    assert (code, out.strip()) == (0, str(held / "report.html"))
    assert (held / "report.html").read_text().startswith("<!doctype html>")
    code, out, _ = run("report", held, "-o", tmp_path / "new" / "page.html")
    assert (code, out.strip()) == (0, str(tmp_path / "new" / "page.html"))
    assert (tmp_path / "new" / "page.html").read_bytes() == (held / "report.html").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "a report is made of a directory"),
        (["."], "holds nothing that a report can show"),
        (["held", "-o", "page.pdf"], "the output must end in .html"),
        (["held", "-o", "held/schedule.json/page.html"], "cannot write"),
    ],
)
def test_mistakes_are_one_sentence(run, held, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("report", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_compare_ends_with_its_report(run, tmp_path):
    few = ["--methods", "uniform-trailing,geosprint"]
    code, out, _ = run("compare", "mixture", *FAST, *few, "-o", tmp_path)
    assert code == 0
    assert out.splitlines()[-1] == f"report → {tmp_path / 'report.html'}"
    assert "geosprint compare mixture" in (tmp_path / "report.html").read_text()
    assert (tmp_path / "profile.json").exists()
    code, out, _ = run("compare", "mixture", *FAST, *few, "-o", tmp_path, "--json")
    assert str(tmp_path / "report.html") in json.loads(out)["files"]
