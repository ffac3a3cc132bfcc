"""Where to step and how to step, found together."""

from __future__ import annotations

import numpy as np
import pytest

from geosprint import tune
from geosprint.baselines import baseline_schedule
from geosprint.errors import ScheduleError
from geosprint.fitting.fit import calls_to_fit, fit_to_teacher
from geosprint.models.exact import ring
from geosprint.sampling import Counted
from geosprint.schedule import StepSchedule
from geosprint.teacher import TeacherSets
from geosprint.tuning.config import DEFAULT
from geosprint.tuning.joint import schedules_worth_a_fit, tune_solver
from geosprint.tuning.schedules import TuningProblem, search

STEPS = 3


def problem_of(model, teacher, budget):
    return TuningProblem.of(model, teacher, DEFAULT.joint_solver, budget)


@pytest.mark.parametrize("budget", [8_000, 14_000])
def test_the_fit_follows_the_teacher_of_the_search_within_the_budget(budget):
    model = Counted(ring())
    teacher = TeacherSets.recorded(model, budget)
    before = model.nfe
    solver = tune_solver(problem_of(model, teacher, budget), STEPS)
    made = solver.schedule.provenance
    assert made["calls"] == model.nfe - before + teacher.nfe <= budget
    assert made["walks"] == len(teacher.for_search)
    assert solver.validation["walks"] == round(2 / 3 * len(teacher.for_search))
    assert solver.validation["rmse"]["fitted"] < solver.validation["rmse"]["dpmpp-2m"]


def test_a_fit_is_tried_on_what_was_found_on_its_variant_on_other_candidates_and_on_closed_forms():
    model = Counted(ring())
    problem = problem_of(model, TeacherSets.recorded(model, 14_000), 14_000)
    found, forms = search(problem, STEPS, 3000), problem.closed_forms(STEPS)
    schedules = schedules_worth_a_fit(found, forms)
    assert np.array_equal(schedules[0].timesteps, found.best.times)  # where calls are few, it alone is fitted
    assert len({one.timesteps.tobytes() for one in schedules}) == len(schedules)
    known = [found.variant.times, *(one.evaluation.times for one in found.candidates), *forms.values()]
    assert all(any(np.array_equal(one.timesteps, times) for times in known) for one in schedules[1:])
    assert all(any(np.array_equal(form, one.timesteps) for one in schedules) for form in forms.values())


@pytest.mark.filterwarnings("ignore:on held-out")
def test_the_schedule_is_the_one_whose_fit_is_best():
    model = Counted(ring())
    teacher = TeacherSets.recorded(model, 14_000)
    far = StepSchedule.at([999.0, 998.0, 997.0], model.noise, {"method": "never leaves the noise"})
    near = baseline_schedule("quadratic", model.noise, STEPS)
    sets = teacher.for_search, teacher.for_validation
    for schedules in ([far, near], [near, far]):
        solver = fit_to_teacher(model, *sets, schedules, 4, 0, teacher.nfe, 14_000)
        assert np.array_equal(solver.schedule.timesteps, near.timesteps)
    few = teacher.nfe + calls_to_fit(model, STEPS, len(teacher.for_search), len(teacher.for_validation))
    solver = fit_to_teacher(model, *sets, [far, near], 4, 0, teacher.nfe, few)  # no calls to try both
    assert np.array_equal(solver.schedule.timesteps, far.timesteps)


def test_tune_with_the_solver_fitted_records_the_teacher_first_and_counts_every_call():
    class Asked(type(ring())):
        asked = 0

        def __call__(self, x, t):
            Asked.asked += len(x)
            return super().__call__(x, t)

    own = ring()
    own = Asked(**{name: getattr(own, name) for name in own.__dataclass_fields__})
    tuned = tune(own, STEPS, solver="fitted", budget_nfe=8_000)
    (result,) = tuned.results
    assert (tuned.steps, tuned.solver) == ((STEPS,), "fitted")
    assert result.nfe == tuned.nfe == Asked.asked <= 8_000
    counted = Counted(ring())
    again = tune_solver(problem_of(counted, TeacherSets.recorded(counted, 8_000), 8_000), STEPS)
    assert tuned[STEPS].coefficients == again.coefficients
    assert result.errors["fitted"] * result.gain.value == pytest.approx(result.errors["dpmpp-2m"])
    assert result.gain.low <= result.gain.value <= result.gain.high


def test_several_numbers_of_steps_share_the_teacher_and_are_fitted_as_if_alone(tmp_path):
    both = tune(ring(), [4, 3], solver="fitted", budget_nfe=8_000)
    alone = tune(ring(), 4, solver="fitted", budget_nfe=8_000)
    assert both.steps == (3, 4)
    assert both[4].coefficients == alone[4].coefficients
    assert [path.name for path in both.save(tmp_path / "solver.json")] == ["solver-3.json", "solver-4.json"]


def test_too_small_a_budget_is_refused_with_the_least_that_is_enough():
    with pytest.raises(ScheduleError, match=r"needs a budget of at least (\d+) network calls, got 500") as refused:
        tune(ring(), STEPS, solver="fitted", budget_nfe=500)
    least = int(str(refused.value).split("at least ")[1].split()[0])
    assert tune(ring(), STEPS, solver="fitted", budget_nfe=least).nfe <= least
    with pytest.raises(ScheduleError, match=f"got {least - 1}"):
        tune(ring(), STEPS, solver="fitted", budget_nfe=least - 1)
