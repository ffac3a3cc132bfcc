"""Learnt solvers in the comparison: walked, remembered, shown, and not written where no file can hold them."""

from dataclasses import replace

import numpy as np
import pytest

import geosprint
from geosprint.comparison.plan import QUICK
from geosprint.comparison.results import Comparison, read_csv
from geosprint.errors import ScheduleError
from geosprint.estimates import endpoint_errors
from geosprint.linear_solver import LinearSolver
from geosprint.models.exact import ring
from geosprint.noise import Flow
from geosprint.report.columns import compared
from geosprint.report.comparison import costs_of, leave_files
from geosprint.report.page import write_report
from geosprint.rivals import ld3, learnt
from geosprint.sampling import sample
from geosprint.schedule import StepSchedule
from geosprint.tuned import Tuned

PLAN = replace(
    QUICK,
    steps=(3,),
    solvers=("euler", "dpmpp-2m"),
    methods=("uniform-trailing", "s4s-alt", "dyweight", "neural-solver"),
    samples=12,
    leave_out=(),
    fine_steps=20,
)
LINEAR = ("dyweight", "neural-solver")


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """A descent that need not arrive."""
    monkeypatch.setattr(learnt, "UPDATES", ld3.LOOKS)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out = tmp_path_factory.mktemp("learnt")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learnt, "UPDATES", ld3.LOOKS)
        return out, geosprint.compare(ring(noise=Flow()), out, PLAN)


@pytest.mark.parametrize("method", LINEAR)
def test_a_cell_is_walked_with_its_own_solver_whatever_the_solver_beside_it(done, method):
    _, comparison = done
    model = ring(noise=Flow())
    one, other = (comparison.cell(solver, method, 3) for solver in PLAN.solvers)
    made = LinearSolver(StepSchedule.at(one.timesteps, model.noise, {}), one.linear)
    samples = sample(model, one.timesteps, PLAN.fresh_seeds, made)
    np.testing.assert_allclose(one.errors, endpoint_errors(samples, comparison.reference.samples), rtol=1e-4, atol=1e-6)
    assert one.own_solver
    assert (one.nfe, one.coefficients) == (3, None)
    assert (one.linear, one.build_nfe, one.build_backprops) == (other.linear, other.build_nfe, other.build_backprops)


def test_what_s4s_learnt_is_of_the_fitted_form(done):
    cell = done[1].cell("euler", "s4s-alt", 3)
    assert cell.linear == ()
    assert [len(own) for own in cell.coefficients] == [2, 3, 4]


def test_a_second_run_builds_nothing_again(done, monkeypatch):
    out, comparison = done
    monkeypatch.setattr("geosprint.comparison.run.build", lambda method, *asked: pytest.fail(f"{method.name} again"))
    again = geosprint.compare(ring(noise=Flow()), out, PLAN)
    assert [row.__dict__ for row in again.rows] == [row.__dict__ for row in comparison.rows]
    for method in LINEAR:
        assert again.cell("euler", method, 3).linear == comparison.cell("euler", method, 3).linear


def test_back_propagations_are_beside_the_calls_in_every_table(done, tmp_path):
    _, comparison = done
    expected = {"uniform-trailing": 0, "s4s-alt": 24 * 8 * 2, "dyweight": 12 * 8 * 2, "neural-solver": 12 * 8 * 2}
    leave_files(comparison, tmp_path, "geosprint compare")
    rows = read_csv(tmp_path / "results.csv")
    assert rows == comparison.rows
    assert {row.method: row.build_backprops for row in rows} == expected
    costs = costs_of(comparison)
    shown = {line[0]: line[costs.header.index("back-propagations")] for line in costs.lines}
    assert shown == {name: f"{count:,}" for name, count in expected.items()}
    table = compared(comparison)[0].table
    where = table.header.index("back-propagations")
    assert {line[0]: line[where] for line in table.lines} == shown
    assert {line[0]: len(line) for line in table.lines} == dict.fromkeys(expected, len(table.header))


def test_a_table_of_an_earlier_version_has_no_back_propagations(tmp_path):
    head = "model,solver,method,steps,nfe,metric,value,low,high,build_nfe,build_seconds,start"
    (tmp_path / "results.csv").write_text(f"{head}\nmixture,ddim,karras,4,4,rmse,1,,,0,0,1\n")
    assert [row.build_backprops for row in read_csv(tmp_path / "results.csv")] == [0]


def winning(comparison, method):
    """The same comparison, had this method won everywhere."""
    cells = [replace(cell, errors=cell.errors * 1e-3) if cell.method == method else cell for cell in comparison.cells]
    return replace(comparison, cells=cells)


def test_a_winner_that_no_file_holds_wins_and_the_next_one_is_taken_along(done, tmp_path):
    comparison = winning(done[1], "dyweight")
    assert comparison.winner("euler", 3).method == "dyweight"
    ranked = sorted(comparison.column("euler", 3), key=lambda cell: cell.error)
    expected = next(cell.method for cell in ranked if cell.method not in LINEAR)
    leave_files(comparison, tmp_path, "geosprint compare")
    assert Tuned.load(tmp_path / "best/euler-3.json").result().schedule.provenance["method"] == expected
    with pytest.raises(ScheduleError, match="no file holds how dyweight steps"):
        comparison.tuned(comparison.winner("euler", 3))


def test_a_comparison_of_such_solvers_alone_leaves_no_best_file(done, tmp_path):
    cells = [cell for cell in done[1].cells if cell.method in LINEAR]
    comparison = replace(done[1], cells=cells)
    files = leave_files(comparison, tmp_path, "geosprint compare")
    assert [path.name for path in files] == ["results.csv", "summary.json", "results.md"]
    with pytest.raises(ScheduleError, match="no file holds how the methods of 3 steps of euler step"):
        comparison.best("euler", 3)


def test_the_page_shows_where_they_ask_and_offers_no_text_to_copy_of_them(done):
    out, comparison = done
    leave_files(comparison, out, "geosprint compare")
    columns = compared(Comparison.load(out / "summary.json"))
    entries = {entry.name: entry for column in columns for entry in column.entries}
    for method in LINEAR:
        np.testing.assert_array_equal(entries[method].schedule.timesteps, comparison.cell("euler", method, 3).timesteps)
        assert entries[method].of_files is None
    page = write_report(out, out / "report.html").read_text(encoding="utf-8")
    assert "3 steps of euler: s4s-alt" in page
    assert "3 steps of euler: dyweight" not in page
    assert "back-propagations" in page


def test_progress_expects_a_budget_of_a_descent(tmp_path, monkeypatch):
    def refuse(name, total, *_):
        raise InterruptedError(f"{name} {total}")

    monkeypatch.setattr("geosprint.comparison.run.Progress", refuse)
    plan = replace(PLAN, solvers=("ddim",), methods=("uniform-trailing", "dyweight"))
    expected = 12 * (2 * 20 - 1 + 2 * 3) + 20_000  # Heun takes two calls a step but the last, each of two methods three
    with pytest.raises(InterruptedError, match=f"compare, about {expected}"):
        geosprint.compare(ring(), tmp_path, plan)
