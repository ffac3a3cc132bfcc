from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from geosprint.comparison.cells import cell_key, reference_key
from geosprint.comparison.methods import METHODS
from geosprint.comparison.plan import Plan
from geosprint.comparison.results import Comparison, read_csv
from geosprint.comparison.run import compare
from geosprint.errors import FileError
from geosprint.models.exact import ring
from geosprint.report.comparison import leave_files
from geosprint.tuned import OURS, Tuned

PLAN = Plan(
    steps=(4, 6), methods=("uniform-trailing", "karras", "geosprint"), samples=10, trajectories=4, reference_steps=20,
    fine_steps=10, ruler=(6, 8),
)  # fmt: skip


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    out = tmp_path_factory.mktemp("kept")
    comparison = compare(ring(), out, PLAN)
    leave_files(comparison, out, "geosprint compare mixture --steps 4,6")
    return out, comparison


@pytest.fixture
def spoilt(kept):
    """Write something else into summary.json for a while."""
    path = kept[0] / "summary.json"
    whole = path.read_text()

    def spoil(**changes):
        content = json.loads(whole)
        path.write_text(json.dumps({**content, **changes}))
        return path

    yield spoil
    path.write_text(whole)


def test_everything_that_was_measured_is_found_again(kept):
    out, comparison = kept
    found = Comparison.load(out / "summary.json")
    assert found.model == "mixture"
    assert found.plan == comparison.plan
    assert [asdict(row) for row in found.rows] == [asdict(row) for row in comparison.rows]
    assert len(found.cells) == len(comparison.cells) == 3 * 2 + 1
    by_place = {(cell.method, cell.steps): cell for cell in comparison.cells}
    for cell in found.cells:
        np.testing.assert_array_equal(cell.errors, by_place[cell.method, cell.steps].errors)
        np.testing.assert_array_equal(cell.timesteps, by_place[cell.method, cell.steps].timesteps)
    assert torch.equal(found.reference.samples, comparison.reference.samples)
    assert found.origin.noise.same_as(ring().noise)


def test_the_ruler_is_measured_for_uniform_spacings_alone_and_nothing_twice(kept):
    _, comparison = kept
    assert comparison.plan.ruler == (8,)
    assert [cell.method for cell in comparison.cells if cell.steps == 8] == ["uniform-trailing"]
    assert {row.steps for row in comparison.rows if row.method == "karras"} == {4, 6}


def test_without_its_cells_a_comparison_still_has_its_numbers(kept, tmp_path):
    for name in ("summary.json", "results.csv"):
        (tmp_path / name).write_bytes((kept[0] / name).read_bytes())
    found = Comparison.load(tmp_path / "summary.json")
    assert found.rows
    assert (found.cells, found.reference, found.origin) == ([], None, None)


def test_more_recording_asks_for_new_cells_only_of_methods_that_look_at_it():
    other = replace(PLAN, trajectories=5)
    for method, looks in (("geosprint", True), ("tuned", True), ("karras", False)):
        one, two = (cell_key(plan, "ddim", METHODS[method], 4) for plan in (PLAN, other))
        assert (one != two) == looks
    assert reference_key(PLAN) == reference_key(other) != reference_key(replace(PLAN, samples=11))


def test_parts_of_a_plan_that_only_other_versions_know_are_no_reason_to_fail(spoilt):
    plan = {**asdict(PLAN), "colour": "blue"}
    del plan["ruler"]
    assert Comparison.load(spoilt(plan=plan)).plan == replace(PLAN, ruler=())


@pytest.mark.parametrize(
    "changes",
    [
        {"plan": None},
        {"plan": {"steps": "many"}},
        {"plan": {"steps": [4.5]}},
        {"plan": {"steps": []}},
        {"plan": {"samples": -3}},
        {"plan": {"samples": "12"}},
        {"plan": {"solvers": ["../../etc"]}},
        {"plan": {"solvers": [7]}},
        {"model": 7},
        {"command": None},
    ],
)
def test_a_damaged_summary_is_refused_by_name(spoilt, changes):
    with pytest.raises(FileError, match=r"summary\.json is damaged"):
        Comparison.load(spoilt(**changes))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model,solver\nmixture,ddim\n", "'method' is missing"),
        ("", None),
        ("HEAD\nmixture,ddim,karras,4,4,rmse,nan,,,0,0,1\n", "finite"),
        ("HEAD\nmixture,ddim,karras,four,4,rmse,1,,,0,0,1\n", "four"),
        ("HEAD\nmixture\n", "shorter"),
    ],
)
def test_a_damaged_table_is_refused_by_name(tmp_path, text, said):
    head = "model,solver,method,steps,nfe,metric,value,low,high,build_nfe,build_seconds,start"
    path = tmp_path / "results.csv"
    path.write_text(text.replace("HEAD", head))
    if said is None:
        assert read_csv(path) == []
        return
    with pytest.raises(FileError, match=f"results.csv is damaged.*{said}"):
        read_csv(path)


def test_a_table_that_is_no_text_or_not_there_is_refused(tmp_path):
    (tmp_path / "results.csv").write_bytes(b"\xff\xfe\x00model")
    with pytest.raises(FileError, match="not a text file"):
        read_csv(tmp_path / "results.csv")
    with pytest.raises(FileError, match="cannot read"):
        read_csv(tmp_path / "nothing.csv")


def test_cells_that_were_judged_by_another_truth_are_not_taken(monkeypatch):
    before = cell_key(PLAN, "ddim", METHODS["quadratic"], 4), reference_key(PLAN)
    monkeypatch.setattr("geosprint.comparison.plan.POWER", 2.0)
    after = cell_key(PLAN, "ddim", METHODS["quadratic"], 4), reference_key(PLAN)
    assert all(one != other for one, other in zip(before, after, strict=True))


def test_the_best_of_a_comparison_is_a_file_of_one_k_with_its_proof(kept, tmp_path):
    _, comparison = kept
    column = sorted(comparison.column("ddim", 4), key=lambda cell: cell.errors.mean())
    found = comparison.best("ddim", 4)
    one = Tuned.load(found.save(tmp_path / "best.json")).result(4)
    np.testing.assert_array_equal(one.made.timesteps, column[0].timesteps)
    one.schedule.check_fits(ring().noise, "mixture")
    assert one.schedule.provenance["method"] == column[0].method
    assert (one.solver, found.nfe) == ("ddim", column[0].build_nfe)
    beside = {cell.method for cell in column[1:] if cell in (column[1], comparison.best_uniform("ddim", 4))}
    assert one.errors.keys() == {OURS} | beside
    np.testing.assert_allclose(one.errors[OURS], column[0].errors, rtol=1e-5)
    np.testing.assert_allclose(one.errors[column[1].method], column[1].errors, rtol=1e-5)


def test_without_knowing_its_model_a_comparison_has_nothing_to_take_along(kept):
    with pytest.raises(FileError, match="no longer say which model"):
        replace(kept[1], origin=None).best("ddim", 4)
