"""What `tune` leaves beside its schedule, and the page of it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from geosprint.errors import FileError
from geosprint.models.exact import ring
from geosprint.report.columns import columns_of
from geosprint.report.findings import found_in
from geosprint.report.page import write_report_of
from geosprint.tuning.result import load_record, save_record
from geosprint.tuning.run import tune


@pytest.fixture(scope="module")
def tuned():
    return tune(ring(), [4], budget_nfe=3600).results


@pytest.fixture
def figures(tuned, tmp_path):
    return save_record(tuned, tmp_path / "schedule-tuning.json", "geosprint tune mixture --steps 4", "a machine")


def test_what_was_written_is_read_again(tuned, figures):
    found = load_record(figures)
    (judged,), (one,) = found.judged, tuned
    assert (found.command, found.machine) == ("geosprint tune mixture --steps 4", "a machine")
    assert (judged.steps, judged.chosen, judged.nfe) == (4, one.chosen, one.nfe)
    assert judged.uniform_steps == one.validation.uniform_steps
    for name, errors in one.validation.errors.items():
        np.testing.assert_array_equal(judged.errors[name], errors)
        np.testing.assert_array_equal(judged.timesteps[name], one.validation.evaluations[name].times)
    assert found.origin.noise.same_as(ring().noise)


def test_the_page_shows_who_was_judged(tuned, figures, tmp_path):
    schedule = tuned[0].schedule.save(tmp_path / "schedule.json")
    (tmp_path / "stranger.json").write_text('{"format": "geosprint-schedule"}')
    page = write_report_of([schedule, figures], tmp_path / "schedule.html").read_text(encoding="utf-8")
    assert "stranger" not in page
    assert "geosprint tune mixture --steps 4" in page
    (column,) = columns_of(found_in(tmp_path))
    assert {entry.name for entry in column.entries} == set(tuned[0].validation.errors)
    assert [entry.error.value for entry in column.entries] == sorted(entry.error.value for entry in column.entries)


def test_more_uniform_steps_than_were_looked_at_are_a_bound(figures, tmp_path):
    content = json.loads(figures.read_text())
    content["judged"][0] |= {"uniform_steps": None, "chosen": "tuned"}
    figures.write_text(json.dumps(content))
    (column,) = columns_of(found_in(tmp_path))
    matched = next(entry.uniform_steps for entry in column.entries if entry.name == "tuned")
    assert matched.is_beyond
    assert matched.most == 12


@pytest.mark.parametrize(
    "spoil",
    [
        lambda one: one.pop("errors"),
        lambda one: one.update(chosen="nobody"),
        lambda one: one["errors"].update(tuned=[1.0]),
        lambda one: one["errors"].update(tuned=["x"]),
        lambda one: one["timesteps"].pop("tuned"),
        lambda one: one["timesteps"].update(tuned=[1.0]),
        lambda one: one.update(steps=0),
        lambda one: one.update(solver=3),
        lambda one: one.update(uniform_steps={"value": 3}),
    ],
)
def test_damaged_figures_are_refused_by_name(figures, spoil):
    content = json.loads(figures.read_text())
    spoil(content["judged"][0])
    figures.write_text(json.dumps(content))
    with pytest.raises(FileError, match=r"schedule-tuning\.json is damaged"):
        load_record(figures)
