"""The rows `fitted` and `tuned+fitted` of the comparison."""

from dataclasses import replace

import numpy as np
import pytest

import geosprint
from geosprint.comparison.methods import FITTED, TUNED_AND_FITTED
from geosprint.comparison.plan import QUICK
from geosprint.estimates import endpoint_errors
from geosprint.fitted_solver import FittedSolver
from geosprint.models.exact import ring
from geosprint.report.comparison import leave_files
from geosprint.rivals.base import Task, build
from geosprint.sampling import sample
from geosprint.schedule import StepSchedule
from geosprint.teacher import fine_timesteps
from geosprint.tuned import OURS, Tuned


@pytest.mark.parametrize("method", [FITTED, TUNED_AND_FITTED], ids=lambda method: method.name)
def test_it_steps_in_its_own_way_with_a_lower_error_than_known_solvers_on_its_steps_within_its_calls(method):
    model = ring()
    task = Task.of(model, "ddim", trajectories=4, reference_steps=10, seed=3)
    built = build(method, task, 4)
    assert task.recording.teacher.seed == 3
    assert built.nfe == task.model.nfe <= 20_000  # nothing else was recorded
    times, seeds = built.schedule.timesteps, range(10_000, 10_064)
    fine = sample(model, fine_timesteps(model.noise, 100), seeds, "heun")
    error, *known = (
        endpoint_errors(sample(model, times, seeds, solver), fine).mean()
        for solver in (built.solver, "ddim", "dpmpp-2m", "unipc")
    )
    assert error < min(known)


def test_a_comparison_steps_with_the_fitted_solver_under_every_solver(tmp_path):
    plan = replace(
        QUICK, steps=(4,), solvers=("ddim", "dpmpp-2m"), methods=("karras", "fitted"), samples=20, leave_out=()
    )
    model = ring()
    done = geosprint.compare(model, tmp_path, plan)
    for solver in plan.solvers:
        cell = done.cell(solver, "fitted", 4)
        made = FittedSolver(StepSchedule.at(cell.timesteps, model.noise, {}), cell.coefficients)
        samples = sample(model, cell.timesteps, plan.fresh_seeds, made)
        np.testing.assert_allclose(cell.errors, endpoint_errors(samples, done.reference.samples), rtol=1e-4, atol=1e-6)
        assert cell.own_solver
        assert cell.nfe == 4
        assert not done.cell(solver, "karras", 4).own_solver
    one, other = (done.cell(solver, "fitted", 4) for solver in plan.solvers)
    assert (one.coefficients, one.build_nfe) == (other.coefficients, other.build_nfe)
    again = geosprint.compare(model, tmp_path, plan)  # remembered
    assert again.cell("ddim", "fitted", 4).coefficients == one.coefficients
    assert np.array_equal(again.cell("ddim", "fitted", 4).errors, one.errors)


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
