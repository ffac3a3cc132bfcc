"""Where to step and how to step, found together, and what they are compared with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from geosprint.baselines import baseline_schedule, closed_forms
from geosprint.estimates import tempered_mean
from geosprint.fitting.config import FitConfig
from geosprint.fitting.fit import Lesson, fit_to_teacher
from geosprint.metrics.features import Features
from geosprint.models.exact import ring
from geosprint.models.spread import Spread
from geosprint.schedule import StepSchedule
from geosprint.solvers import solver_named
from geosprint.teacher import TeacherSets
from geosprint.tuned import FITTED
from geosprint.tuning import candidates
from geosprint.tuning.candidates import (
    KNOWN_SOLVERS,
    best_predicted,
    contenders,
    fit_predictor,
    known_contenders,
    plain_predictor,
    schedules_found,
    schedules_proposed,
)
from geosprint.tuning.descent import PredictedError
from geosprint.tuning.evaluation import ErrorMeasure
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


def test_a_search_on_the_network_leaves_what_it_found_once_each(problem):
    found = schedules_found(problem, "dpmpp-2m", STEPS, 3000)
    assert found.finalists[0].provenance["method"] == "tuned"
    assert len({one.timesteps.tobytes() for one in found.finalists}) == len(found.finalists)


def test_without_calls_for_a_search_the_surrogate_alone_finds_schedules(problem):
    before = problem.model.nfe
    found = schedules_found(problem, "ddim", STEPS, 50)
    assert problem.model.nfe == before
    forms = closed_forms(problem.model.noise, STEPS)
    first, *_ = found.finalists
    assert first.provenance["method"] == "tuned"
    assert found.predictor.tempered(first.timesteps) <= min(map(found.predictor.tempered, forms.values()))


def proposed(problem):
    """By name, in order."""
    return {one.provenance["method"]: one.timesteps for one in schedules_proposed(problem, STEPS)}


def test_schedules_proposed_for_fits_cost_nothing_and_lower_the_error_that_they_are_for(problem):
    before, parts = problem.model.nfe, problem.projection
    found, known = proposed(problem), starts_of(problem.evidence, STEPS)
    assert problem.model.nfe == before
    given = (parts.trajectories, parts.response, solver_named("dpmpp-2m"), problem.config)
    aims = {"a fit": SurrogateFits(*given), "a refined fit": SurrogateFits(*given, refined=True)}
    moved = {name: times for name, times in found.items() if ", moved by up to " in name}
    assert {name.split(" for ")[1] for name in moved} == set(aims)
    for name, times in moved.items():
        start, rest = name.split(", moved by up to ")
        predicted = PredictedError(aims[rest.split(" for ")[1]], parts.measure, config=problem.config)
        assert predicted.tempered(times) <= 1.05 * predicted.tempered(known[start])  # rounded to whole timesteps
    for_fits = PredictedError(aims["a fit"], parts.measure, config=problem.config)
    best = sorted(for_fits.tempered_each(list(known.values())))[: problem.config.fit_starts]
    as_they_were = for_fits.tempered_each([times for name, times in found.items() if name not in moved])
    assert sorted(as_they_were)[: len(best) // 2] == pytest.approx(best[: len(best) // 2], rel=1e-2)


def test_what_is_always_tried_for_fits_is_tried_as_it_is_and_moved_however_it_is_ranked(problem):
    predictor = fit_predictor(problem)
    starts = starts_of(problem.evidence, STEPS)
    errors = dict(zip(starts, predictor.tempered_each(list(starts.values())), strict=True))
    worst = max(starts, key=errors.__getitem__)
    assert worst not in proposed(problem)
    found = proposed(replace(problem, config=replace(problem.config, always_tried=(worst,))))
    np.testing.assert_array_equal(found[worst], starts[worst])
    moved = [name for name in found if name.startswith(f"{worst}, moved by up to")]
    assert {name.split(" for ")[1] for name in moved} == {"a fit", "a refined fit"}
    assert {name.split(",")[0] for name in list(found)[: 1 + len(moved)]} == {worst}  # first, while calls last
    starts_of_the_next = [name.split(", moved")[0] for name in list(found)[1 + len(moved) :]]
    turn = len(set(starts_of_the_next))
    assert len(set(starts_of_the_next[:turn])) == turn  # one of each before a second of one


@pytest.mark.parametrize("joint_from", [STEPS - 1, STEPS, STEPS + 1])
def test_what_is_predicted_to_suit_a_known_solver_is_tried_from_some_steps_on(problem, joint_from):
    found = proposed(replace(problem, config=replace(problem.config, joint_from=joint_from)))
    assert any(name.endswith("for dpmpp-2m") for name in found) == (joint_from <= STEPS)


def test_without_starts_to_move_there_are_no_descents_and_all_starts_are_still_tried(problem):
    unmoved = proposed(replace(problem, config=replace(problem.config, moved_starts=0)))
    assert {*unmoved} == {name for name in proposed(problem) if ", moved by up to " not in name}


def test_given_schedules_are_tried_in_the_order_of_what_is_predicted_for_a_fit(problem):
    schedules = [problem.schedule(times, name) for name, times in closed_forms(problem.model.noise, STEPS).items()]
    errors = [fit_predictor(problem).tempered(one.timesteps) for one in best_predicted(problem, schedules)]
    assert len(errors) == len(schedules)
    assert errors == pytest.approx(sorted(errors), rel=1e-3)


@pytest.mark.parametrize("given", [True, False])
def test_times_move_with_the_coefficients_unless_the_schedule_was_given(problem, given):
    schedule = problem.schedule(np.array([999.0, 600.0, 200.0]), "hardly suited")
    monkey = pytest.MonkeyPatch()
    monkey.setattr(candidates, "schedules_proposed", lambda *_: [schedule])
    wish = Wish((STEPS,), todays_run(ring(), None), schedules=(schedule,) if given else ())
    (best, *_), _ = contenders(problem, wish, STEPS, 6000)
    monkey.undo()
    assert np.array_equal(best.schedule.timesteps, schedule.timesteps) == given
    assert best.schedule.provenance["method"] == "fitted on hardly suited"


def test_known_solvers_are_sorted_by_what_is_predicted_and_walk_as_they_do(problem):
    predictor = plain_predictor(problem, "dpmpp-2m")
    known = known_contenders(problem, predictor, STEPS, KNOWN_SOLVERS)
    forms = closed_forms(problem.model.noise, STEPS)
    assert {one.name for one in known} == {f"{solver}, {form}" for solver in KNOWN_SOLVERS for form in forms}
    for one in known[:4]:
        solver, form = one.name.split(", ")
        plain = problem.evaluator(solver, problem.selecting).evaluate(forms[form])
        np.testing.assert_allclose(problem.errors_of(one, problem.selecting), plain.errors, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("features", [None, Features("twice", lambda some: 2 * some.flatten(1))], ids=str)
def test_fits_say_their_errors_where_nothing_is_decided_in_the_measure_that_is_tuned_for(problem, features):
    problem = replace(problem, measure=ErrorMeasure(problem.model.shape, features))
    found, _ = contenders(problem, Wish((STEPS,), todays_run(ring(), None)), STEPS, 4000)
    for one in found:
        expected = problem.errors_of(one, problem.undecided)
        np.testing.assert_allclose(one.learnt, expected, rtol=1e-3, atol=1e-6)


def test_the_schedule_is_the_one_whose_fit_is_best(problem):
    model, teacher = problem.model, problem.teacher.for_search
    far = StepSchedule.at([999.0, 998.0, 997.0], model.noise, {"method": "never leaves the noise"})
    near = baseline_schedule("quadratic", model.noise, STEPS)
    lesson = Lesson(model, teacher, FitConfig(moved_times=0))
    for both in ([far, near], [near, far]):
        best, *_ = fit_to_teacher(lesson, both, 6000)
        assert np.array_equal(best.solver.schedule.timesteps, near.timesteps)
        assert best.solver.schedule.provenance["method"] == "fitted on quadratic"
    no_calls_to_try_both = len(teacher) * STEPS
    (first,) = fit_to_teacher(lesson, [far, near], no_calls_to_try_both)
    assert np.array_equal(first.solver.schedule.timesteps, far.timesteps)
