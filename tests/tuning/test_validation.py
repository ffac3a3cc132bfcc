from __future__ import annotations

import numpy as np
import pytest
import torch

from geosprint.baselines import BASELINES
from geosprint.metrics.features import Features
from geosprint.models.exact import ring
from geosprint.sampling import Counted
from geosprint.solvers import solver_named
from geosprint.teacher import record_teacher
from geosprint.tuning.descent import Foretold
from geosprint.tuning.evaluation import Course
from geosprint.tuning.measures import Yardstick
from geosprint.tuning.surrogate import Shadow
from geosprint.tuning.validation import is_surely_less, uniform_steps, validated

MODEL = ring()
FORMS = {
    name: BASELINES[name](MODEL.noise, 5) for name in ("uniform-leading", "uniform-trailing", "quadratic", "karras")
}
GOOD = np.array([205.0, 117.0, 54.0, 32.0, 22.0])
BAD = np.array([999.0, 998.0, 997.0, 996.0, 995.0])


@pytest.fixture(scope="module")
def course():
    model = Counted(MODEL)
    return Course(model, solver_named("ddim"), record_teacher(model, range(12)), Yardstick(MODEL.shape), batch=5)


@pytest.fixture(scope="module")
def law(course):
    telling = Yardstick(MODEL.shape).told(course.walks)
    return Foretold(Shadow(telling.walks, telling.response, solver_named("ddim")), telling.measure)


def test_a_schedule_that_beats_all_closed_forms_is_chosen(course, law):
    verdict = validated(course, [GOOD], FORMS, {}, law, looks=4)
    assert verdict.chosen == "tuned"
    best = {name: course.tried(times).error for name, times in FORMS.items()}
    assert verdict.error("tuned").value < min(best.values())
    uniform = min(("uniform-leading", "uniform-trailing"), key=best.get)
    assert verdict.old == verdict.uniform == uniform
    assert verdict.gain.value == pytest.approx(best[uniform] / verdict.error("tuned").value)


def test_a_schedule_that_loses_gives_way_to_the_best_closed_form(course, law):
    verdict = validated(course, [BAD], FORMS, {}, law, looks=4)
    best = min(FORMS, key=lambda name: course.tried(FORMS[name]).error)
    assert verdict.chosen == best
    assert np.array_equal(verdict.trials[verdict.chosen].times, FORMS[best])


@pytest.mark.parametrize("found", [[GOOD, BAD], [BAD, GOOD]])
def test_of_two_schedules_the_one_that_carries_over_better_is_judged(found, course, law):
    verdict = validated(course, found, FORMS, {}, law, looks=4)
    assert verdict.chosen == "tuned"
    assert np.array_equal(verdict.trials["tuned"].times, GOOD)


def test_a_schedule_that_is_only_as_good_is_not_surely_less():
    errors = np.random.default_rng(0).uniform(1, 2, size=40)
    assert not is_surely_less(errors, errors)
    assert is_surely_less(errors - 0.01, errors)
    assert not is_surely_less(errors + np.where(np.arange(40) % 2, 0.3, -0.301), errors)


def test_one_sample_in_twenty_sways_neither_way():
    errors = np.random.default_rng(0).uniform(1, 2, size=40)
    is_tipped = np.arange(40) % 20 == 0
    assert is_surely_less(
        np.where(is_tipped, errors + 0.5, errors - 0.1), errors
    )  # mean 0.07 lower, two samples higher
    assert not is_surely_less(np.where(is_tipped, errors - 0.5, errors + 0.02), errors)  # lower in the mean alone
    assert not is_surely_less(np.where(is_tipped, errors + 5, errors - 0.1), errors)  # higher in the mean


def test_uniform_steps_of_the_uniform_spacing_itself_are_its_own(course, law):
    trial = course.tried(FORMS["uniform-trailing"])
    steps = uniform_steps(course, trial, trial, "uniform-trailing", law)
    assert (steps.value, steps.low, steps.high) == (5, 5, 5)


def test_a_uniform_spacing_of_seven_steps_is_worth_about_seven(course, law):
    chosen = course.tried(BASELINES["uniform-trailing"](MODEL.noise, 7))
    five = course.tried(FORMS["uniform-trailing"])
    chosen = type(chosen)(five.times, chosen.states, chosen.x0, chosen.end, chosen.errors)  # errs as seven steps do
    steps = uniform_steps(course, chosen, five, "uniform-trailing", law)
    assert 6.3 < steps.value < 7.7
    assert steps.low <= steps.value <= steps.high


def test_an_error_that_no_uniform_spacing_reaches_has_no_number(course, law):
    perfect = course.tried(FORMS["quadratic"])
    perfect = type(perfect)(perfect.times, perfect.states, perfect.x0, course.walks.ends, np.full(12, 1e-9))
    assert uniform_steps(course, perfect, course.tried(FORMS["uniform-trailing"]), "uniform-trailing", law) is None


def test_a_trial_is_the_same_at_any_batch_size_and_in_parts(course):
    whole = course.tried(GOOD)
    parts = course.tried(GOOD, slice(0, 7)).joined_with(course.tried(GOOD, slice(7, 12)))
    assert torch.allclose(whole.end, parts.end, atol=1e-6)
    assert np.allclose(whole.errors, parts.errors, atol=1e-6)
    off = (whole.end - course.walks.ends).double().flatten(1).numpy()
    assert np.allclose(whole.errors, np.sqrt((off**2).mean(axis=1)), atol=1e-7)


def test_the_error_in_raw_features_is_the_root_mean_square():
    samples = torch.randn(4, *MODEL.shape, generator=torch.Generator().manual_seed(0))
    raw = Features("raw", lambda some: some.flatten(1))
    assert torch.allclose(Yardstick(MODEL.shape, raw)(samples).float(), Yardstick(MODEL.shape)(samples))


def test_features_are_foretold_from_all_coordinates(course):
    twice = Features("twice", lambda some: 2 * some.flatten(1))
    telling = Yardstick(MODEL.shape, twice).told(course.walks)
    expected = Yardstick(MODEL.shape, twice)(course.walks.ends)
    assert torch.allclose(telling.measure(telling.walks.ends).float(), expected.float(), atol=1e-5)
