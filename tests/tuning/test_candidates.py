"""Where to step and how to step, found together, and what they are compared with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from geosprint.baselines import baseline_schedule, closed_forms
from geosprint.estimates import tempered_mean
from geosprint.fitted_solver import FittedSolver, known_coefficients
from geosprint.fitting.fit import fit_to_teacher
from geosprint.models.exact import ring
from geosprint.models.spread import Spread
from geosprint.schedule import StepSchedule
from geosprint.solvers import solver_named
from geosprint.teacher import TeacherSets
from geosprint.tuned import FITTED
from geosprint.tuning import candidates
from geosprint.tuning.candidates import (
    KNOWN_SOLVERS,
    contenders,
    known_contenders,
    plain_predictor,
    schedules_for_fits,
    schedules_found,
)
from geosprint.tuning.descent import PredictedError
from geosprint.tuning.problem import TuningProblem
from geosprint.tuning.starts import starts_of
from geosprint.tuning.surrogate_fits import SurrogateFits
from geosprint.tuning.today import todays_run
from geosprint.tuning.wish import Wish

STEPS = 3


@pytest.fixture(scope="module")
def problem():
    model = Spread(ring())
    return TuningProblem.of(model, TeacherSets.recorded(model, 14_000))


@pytest.mark.parametrize("solver", ["ddim", FITTED])
@pytest.mark.parametrize("calls", [200, 1000, 3000, 8000])
def test_what_may_be_returned_is_found_within_the_calls(problem, solver, calls):
    before = problem.model.nfe
    ours, known = contenders(problem, Wish((STEPS,), todays_run(ring(), None), solver), STEPS, calls)
    assert problem.model.nfe - before <= calls
    assert {one.solver for one in (*ours, *known)} == {solver}
    assert all(len(one.schedule) == STEPS for one in (*ours, *known))
    if calls >= 3000:
        errors = {one.name: tempered_mean(problem.errors_of(one, problem.deciding)) for one in (*ours, *known)}
        assert min(errors, key=errors.get) in {one.name for one in ours}


def test_a_search_on_the_network_leaves_what_it_found_and_all_closed_forms_once_each(problem):
    found = schedules_found(problem, "dpmpp-2m", STEPS, 3000)
    everything = [*found.finalists.values(), *found.others.values()]
    assert next(iter(found.finalists)) == "tuned"  # where calls are few, it alone is fitted
    assert len({times.tobytes() for times in everything}) == len(everything)
    for form in closed_forms(problem.model.noise, STEPS).values():
        assert any(np.array_equal(form, times) for times in everything)


def test_without_calls_for_a_search_the_surrogate_alone_finds_schedules(problem):
    before = problem.model.nfe
    found = schedules_found(problem, "ddim", STEPS, 50)
    assert problem.model.nfe == before
    predicted = {name: found.predictor.tempered(times) for name, times in (found.finalists | found.others).items()}
    assert min(predicted, key=predicted.get) == "tuned"


def test_schedules_for_fits_cost_nothing_and_lower_the_error_that_they_are_for(problem):
    before, parts = problem.model.nfe, problem.projection
    found, known = schedules_for_fits(problem, STEPS), starts_of(problem.evidence, STEPS)
    assert problem.model.nfe == before
    given = (parts.trajectories, parts.response, solver_named("dpmpp-2m"), problem.config)
    aims = {"a fit": SurrogateFits(*given), "a refined fit": SurrogateFits(*given, refined=True)}
    seen = []
    for name, times in found.items():
        start, rest = name.split(", moved by up to ")
        aim = rest.split(" for ")[1]
        predicted = PredictedError(aims[aim], parts.measure, config=problem.config)
        best = min(predicted.tempered_each(list(known.values())))
        assert predicted.tempered(known[start]) == pytest.approx(best, rel=1e-2)  # fits of many round otherwise
        assert predicted.tempered(times) <= 1.05 * predicted.tempered(known[start])  # rounded to whole timesteps
        seen.append(aim)
    assert seen == ["a fit"] * 2 + ["a refined fit"] * 2


@pytest.mark.parametrize("most", [STEPS, STEPS - 1])
def test_they_are_tried_where_steps_are_few(problem, most, monkeypatch):
    tried = []
    monkeypatch.setattr(
        candidates,
        "fit_to_teacher",
        lambda model, teacher, schedules, *_: tried.extend(schedules) or [some_fit(problem)],
    )
    problem = replace(problem, config=replace(problem.config, proposed_steps=most))
    contenders(problem, Wish((STEPS,), todays_run(ring(), None)), STEPS, 3000)
    made = [one for one in tried if "moved by up to" in str(one.provenance["method"])]
    assert bool(made) == (most == STEPS)


def some_fit(problem):
    (name, form), *_ = closed_forms(problem.model.noise, STEPS).items()
    return FittedSolver(problem.schedule(form, name), known_coefficients("ddim", problem.model.noise, form, 2))


def test_known_solvers_are_sorted_by_what_is_predicted_and_walk_as_they_do(problem):
    predictor = plain_predictor(problem, "dpmpp-2m")
    known = known_contenders(problem, predictor, STEPS, KNOWN_SOLVERS)
    forms = closed_forms(problem.model.noise, STEPS)
    assert {one.name for one in known} == {f"{solver}, {form}" for solver in KNOWN_SOLVERS for form in forms}
    for one in known[:4]:
        solver, form = one.name.split(", ")
        plain = problem.evaluator(solver, problem.selecting).evaluate(forms[form])
        np.testing.assert_allclose(problem.errors_of(one, problem.selecting), plain.errors, rtol=1e-4, atol=1e-6)


def test_the_schedule_is_the_one_whose_fit_is_best(problem):
    model, teacher = problem.model, problem.teacher.for_search
    far = StepSchedule.at([999.0, 998.0, 997.0], model.noise, {"method": "never leaves the noise"})
    near = baseline_schedule("quadratic", model.noise, STEPS)
    for schedules in ([far, near], [near, far]):
        solver, *_ = fit_to_teacher(model, teacher, schedules, 4, 6000)
        assert np.array_equal(solver.schedule.timesteps, near.timesteps)
        assert solver.schedule.provenance["method"] == "fitted on quadratic"
    (solver,) = fit_to_teacher(model, teacher, [far, near], 4, len(teacher) * STEPS)  # no calls to try both
    assert np.array_equal(solver.schedule.timesteps, far.timesteps)
