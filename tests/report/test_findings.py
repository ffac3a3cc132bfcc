"""What lies in a directory, whatever state it is in."""

from __future__ import annotations

import csv
import html
import json
import shutil
from collections import Counter
from html.parser import HTMLParser

import numpy as np
import pytest

from geosprint.comparison.results import Comparison
from geosprint.errors import FileError
from geosprint.estimates import uniform_steps_with
from geosprint.fitted_solver import FittedSolver
from geosprint.noise import DiscreteVP
from geosprint.paper.base import Setting
from geosprint.paper.registry import reproduce
from geosprint.report.columns import columns_of
from geosprint.report.findings import found_in
from geosprint.report.page import parts_of, write_report
from geosprint.schedule import StepSchedule
from geosprint.tuned import as_tuned

NOISE = DiscreteVP.named()


def told(directory, tmp_path):
    """The text of the report of a directory."""
    return write_report(directory, tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_place_that_is_no_directory_is_refused(tmp_path):
    with pytest.raises(FileError, match="is none; name one"):
        write_report(tmp_path / "nowhere", tmp_path / "page.html")


def test_an_empty_directory_is_refused_and_leaves_nothing(tmp_path):
    (tmp_path / "other.json").write_text('{"name": "not ours"}')
    with pytest.raises(FileError, match="holds nothing that a report can show"):
        write_report(tmp_path, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_a_directory_of_broken_files_is_refused_with_what_is_wrong(tmp_path):
    (tmp_path / "schedule.json").write_text('{"format": "geosprint-schedule", "version": 1')
    with pytest.raises(FileError, match=r"holds nothing.*schedule\.json is not a whole JSON file"):
        write_report(tmp_path, tmp_path / "page.html")


def test_a_schedule_alone_makes_a_page(tmp_path):
    StepSchedule.at([999, 500, 3], NOISE, {}).save(tmp_path / "mine.json")
    page = told(tmp_path, tmp_path)
    assert "A schedule of 3 steps" in page
    assert "timesteps = [999, 500, 3]" in page
    assert "The files name no command." in page


@pytest.mark.parametrize("origin", ["x", {"noise": 3}, {"noise": {"kind": "flow", "shift": "y"}}, {"noise": {}}])
def test_a_schedule_of_an_origin_that_is_none_is_left_out_and_named(tmp_path, origin):
    StepSchedule.at([999, 5, 3], NOISE, {"origin": {}}).save(tmp_path / "known.json")
    StepSchedule.at([999, 3], NOISE, {"origin": origin}).save(tmp_path / "mine.json")
    page = told(tmp_path, tmp_path)
    assert "A schedule of 3 steps" in page
    assert "mine.json is damaged: " in page


def test_a_profile_alone_makes_a_page_with_the_command_that_makes_it(compared, tmp_path):
    shutil.copy(compared / "profile.json", tmp_path)
    shutil.copy(compared / "profile.json", tmp_path / "second.json")
    page = told(tmp_path, tmp_path)
    assert "A sample of digits needs" in page
    assert "geosprint extract digits --trajectories 4 --reference-steps 24 --solver ddim" in page
    assert "One profile is shown, profile.json; not shown: second.json." in page


def test_a_fitted_solver_alone_makes_a_page(tmp_path):
    as_tuned(FittedSolver(StepSchedule.at([999, 3], NOISE, {}), ((0.5, 0.5), (0.1, 0.9)))).save(
        tmp_path / "solver.json"
    )
    page = told(tmp_path, tmp_path)
    assert "A fitted solver of 2 steps" in page
    assert 'id="steps"' in page
    assert "solver.json" in page[page.index('id="pick-copyable"') :]


def test_a_record_of_an_earlier_version_is_left_out_with_a_sentence(tmp_path):
    StepSchedule.at([999, 3], NOISE, {}).save(tmp_path / "mine.json")
    (tmp_path / "mine-tuning.json").write_text('{"format": "geosprint-tuning", "version": 1}')
    assert "mine-tuning.json is the record of an earlier version of tune; tune again." in told(tmp_path, tmp_path)


def test_findings_of_the_paper_make_a_page_with_their_figures(tmp_path):
    small = Setting("mixture", (4, 8), trajectories=8, reference_steps=30)
    (finding,) = reproduce("where", small, tmp_path, "geosprint reproduce where")
    page = told(tmp_path, tmp_path)
    assert "One experiment of the paper" in page
    assert finding.verdict.replace("'", "&#39;").replace("<", "&lt;").replace(">", "&gt;") in page
    assert "geosprint reproduce where" in page
    assert page.count("data:image/webp") == 1
    (tmp_path / "where" / "figure.png").write_bytes(b"no picture")
    assert "data:image/webp" not in told(tmp_path, tmp_path)


@pytest.mark.parametrize("name", ["summary.json", "results.csv", "profile.json"])
@pytest.mark.parametrize("text", ["", "{", "[]", "\x00", '{"format": "geosprint-profile", "version": 99}'])
def test_a_broken_file_is_left_out_with_a_sentence_or_refused(copied, tmp_path, name, text):
    (copied / name).write_text(text)
    found = found_in(copied)
    page = told(copied, tmp_path)
    if found.left_out:
        assert "Left out" in page
        assert name in " ".join(found.left_out)
    else:
        assert text == "[]" or name == "results.csv"  # JSON of another kind; a table without lines


def test_without_cells_the_numbers_are_shown_and_the_rest_is_explained(copied, tmp_path):
    shutil.rmtree(copied / "cells")
    page = told(copied, tmp_path)
    assert "× lower error than 6 uniform steps" in page or "No schedule has a lower error" in page
    assert "the same command measures them again" in page
    assert 'id="ranking"' in page
    assert 'id="steps"' not in page
    assert 'id="samples"' not in page


def test_damaged_cells_are_left_out_one_by_one(copied, tmp_path):
    for cell in (copied / "cells").glob("ddim-karras-*"):
        cell.write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{")
    columns = columns_of(found_in(copied))
    entries = {entry.name: entry for entry in columns[0].entries}
    assert entries["karras"].error is not None
    assert entries["karras"].schedule is None
    assert entries["geosprint"].schedule is not None
    told(copied, tmp_path)


def test_samples_that_are_no_pictures_are_left_out_with_a_sentence(copied, tmp_path):
    from geosprint.comparison.plan import Plan
    from geosprint.comparison.run import compare
    from geosprint.models.exact import ring
    from geosprint.report.comparison import leave_files

    plan = Plan((4,), methods=("uniform-trailing",), samples=10, trajectories=2, reference_steps=10, fine_steps=5)
    leave_files(compare(ring(), tmp_path, plan), tmp_path, "x")
    page = told(tmp_path, tmp_path)
    assert "they are no pictures" in page
    assert "No schedule has a lower error than 4 uniform steps" in page


def test_what_a_schedule_is_worth_is_told_by_the_best_uniform_spacing_of_each_length(compared):
    kept = Comparison.load(compared / "summary.json")
    uniform = {}
    for steps in (4, 6, 9):
        pair = [cell.errors for cell in kept.column("ddim", steps) if cell.method.startswith("uniform")]
        assert len(pair) == 2
        uniform[steps] = min(pair, key=np.mean)
    for column in columns_of(found_in(compared)):
        for entry in column.entries:
            cell = kept.cell("ddim", entry.name, column.steps)
            assert entry.matched == uniform_steps_with(cell.errors, uniform)
            assert entry.error.value == pytest.approx(cell.errors.mean())


EVIL = "<img src=x onerror=alert(1)></script><script>alert(1)</script><!--{{ 7 * 7 }}&amp;"


class Elements(HTMLParser):
    """The tags of a page, as a browser would find them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes = Counter(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        self.attributes += attributes


def named(copied, tmp_path, name):
    """The page where the model, the command, the machine and a method have this name."""
    summary = json.loads((copied / "summary.json").read_text())
    (copied / "summary.json").write_text(json.dumps({**summary, "model": name, "command": name, "machine": name}))
    rows = list(csv.reader((copied / "results.csv").read_text().splitlines()))
    lines = [[name if cell in ("karras", "harmless") else cell for cell in row] for row in rows]
    with (copied / "results.csv").open("w", newline="") as file:
        csv.writer(file).writerows(lines)
    return told(copied, tmp_path)


def test_names_from_files_never_become_tags(copied, tmp_path):
    usual = Elements(named(copied, tmp_path, "harmless"))
    page = named(copied, tmp_path, EVIL)
    found = Elements(page)
    assert found.tags == usual.tags
    assert found.tags["script"] == 3
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    assert page.count(html.escape(EVIL)) > 5


def test_the_page_of_a_comparison_shows_where_its_schedules_step(compared):
    data = parts_of(found_in(compared), compared)["data"]
    column = next(one for one in data["columns"] if one["label"] == "6 steps of ddim")
    karras = next(entry for entry in column["entries"] if entry["name"] == "karras")
    assert len(karras["places"]["t"]) == 6
    np.testing.assert_allclose(np.exp(-np.array(karras["places"]["logsnr"]) / 2), karras["places"]["sigma"], rtol=1e-3)
    assert json.dumps(data, allow_nan=False)


def test_the_winner_of_a_column_is_offered_with_the_file_that_holds_it(compared):
    offered = {one["name"]: one["texts"] for one in parts_of(found_in(compared), compared)["data"]["copyables"]}
    kept = Comparison.load(compared / "summary.json")
    for steps in (4, 6):
        names = [name for name, texts in offered.items() if f"best/ddim-{steps}.json" in texts.get("geosprint", "")]
        assert names == [f"{steps} steps of ddim: {kept.winner('ddim', steps).method}"]
