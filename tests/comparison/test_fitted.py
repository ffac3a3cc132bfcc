"""The row `fitted` of the comparison."""

from dataclasses import replace

import numpy as np
import pytest

import geosprint
from geosprint.comparison.methods import FITTED, TUNED_AND_FITTED
from geosprint.comparison.plan import QUICK
from geosprint.estimates import endpoint_errors
from geosprint.models.exact import ring
from geosprint.report.comparison import leave_files
from geosprint.rivals.base import Task, build
from geosprint.sampling import sample
from geosprint.tuned import OURS, Tuned
from geosprint.tuning.run import tune


def test_it_builds_the_fit_of_the_recording_seed_and_counts_its_calls():
    task = Task.of(ring(), "ddim", trajectories=4, reference_steps=10, seed=3)
    built = build(FITTED, task, 4)
    made = geosprint.fit(ring(), 4, seed=3)
    assert built.solver.coefficients == made.coefficients
    assert np.array_equal(built.schedule.timesteps, made.schedule.timesteps)
    assert built.nfe == made.schedule.provenance["calls"] == task.model.nfe  # nothing else was recorded


def test_tuned_and_fitted_is_what_tune_with_the_solver_fitted_finds():
    task = Task.of(ring(), "ddim", trajectories=4, reference_steps=10)
    built = build(TUNED_AND_FITTED, task, 3)
    alone = tune(ring(), 3, solver="fitted")[3]
    assert np.array_equal(built.schedule.timesteps, alone.schedule.timesteps)
    assert built.solver.coefficients == alone.coefficients
    assert built.nfe == alone.schedule.provenance["calls"] <= 20_000


def test_a_comparison_steps_with_the_fitted_solver_under_every_solver(tmp_path):
    plan = replace(
        QUICK, steps=(4,), solvers=("ddim", "dpmpp-2m"), methods=("karras", "fitted"), samples=20, leave_out=()
    )
    model = ring()
    done = geosprint.compare(model, tmp_path, plan)
    made = geosprint.fit(model, 4)
    expected = endpoint_errors(sample(model, made.schedule.timesteps, plan.fresh_seeds, made), done.reference.samples)
    for solver in plan.solvers:
        cell = done.cell(solver, "fitted", 4)
        np.testing.assert_allclose(cell.errors, expected, rtol=1e-4, atol=1e-6)
        assert cell.own_solver
        assert cell.nfe == 4
        assert cell.build_nfe == made.schedule.provenance["calls"]
        assert not done.cell(solver, "karras", 4).own_solver
    again = geosprint.compare(model, tmp_path, plan)  # remembered
    assert again.cell("ddim", "fitted", 4).own_solver
    assert np.array_equal(again.cell("ddim", "fitted", 4).errors, done.cell("ddim", "fitted", 4).errors)


def test_a_winner_that_was_fitted_is_taken_along_with_its_coefficients(tmp_path):
    plan = replace(QUICK, steps=(4,), methods=("uniform-leading", "fitted"), samples=20, leave_out=())
    model = ring()
    geosprint.compare(model, tmp_path, plan)
    remembered = geosprint.compare(model, tmp_path, plan)
    leave_files(remembered, tmp_path, "geosprint compare mixture")
    one = Tuned.load(tmp_path / "best" / "ddim-4.json").result()
    assert one.solver == "fitted"
    again = sample(model, one.schedule.timesteps, plan.fresh_seeds, one.made)
    np.testing.assert_allclose(
        endpoint_errors(again, remembered.reference.samples), one.errors[OURS], rtol=1e-4, atol=1e-6
    )
    assert one.errors[OURS].mean() < one.errors["uniform-leading"].mean()


def test_exact_values_of_a_solver_by_name_are_not_claimed_for_a_fitted_one(tmp_path):
    plan = replace(QUICK, steps=(3,), methods=("karras", "fitted"), samples=12, leave_out=(), fine_steps=20)
    model = geosprint.load_model("gaussian")
    small = type(model).of_images((1, 4, 4))
    done = geosprint.compare(small, tmp_path, plan)
    metrics = {cell.method: {row.metric for row in done.rows if row.method == cell.method} for cell in done.cells}
    assert "rmse-exact" in metrics["karras"]
    assert "rmse-exact" not in metrics["fitted"]
    assert done.value(done.cell("ddim", "fitted", 3), "rmse").value == pytest.approx(
        done.cell("ddim", "fitted", 3).errors.mean()
    )
