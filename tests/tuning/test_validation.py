from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from geosprint.baselines import BASELINES
from geosprint.metrics.features import Features
from geosprint.models.exact import ring
from geosprint.sampling import Counted
from geosprint.solvers import solver_named
from geosprint.teacher import record_teacher
from geosprint.tuning.descent import PredictedError
from geosprint.tuning.evaluation import ErrorMeasure, Evaluator
from geosprint.tuning.surrogate import Surrogate
from geosprint.tuning.validation import is_surely_less, uniform_steps, validate

MODEL = ring()
FORMS = {
    name: BASELINES[name](MODEL.noise, 5) for name in ("uniform-leading", "uniform-trailing", "quadratic", "karras")
}
GOOD = np.array([205.0, 117.0, 54.0, 32.0, 22.0])
BAD = np.array([999.0, 998.0, 997.0, 996.0, 995.0])


@pytest.fixture(scope="module")
def evaluator():
    model = Counted(MODEL)
    return Evaluator(model, solver_named("ddim"), record_teacher(model, range(12)), ErrorMeasure(MODEL.shape), batch=5)


@pytest.fixture(scope="module")
def selecting(evaluator):
    """Other trajectories, which choose among candidates."""
    return replace(evaluator, trajectories=record_teacher(Counted(MODEL), range(50, 56)))


@pytest.fixture(scope="module")
def predictor(evaluator):
    projection = ErrorMeasure(MODEL.shape).projection(evaluator.trajectories)
    surrogate = Surrogate(projection.trajectories, projection.response, solver_named("ddim"))
    return PredictedError(surrogate, projection.measure)


def test_a_schedule_that_beats_all_closed_forms_is_chosen(selecting, evaluator, predictor):
    found = validate(selecting, evaluator, [GOOD], FORMS, {}, predictor, looks=4)
    assert found.chosen == "tuned"
    best = {name: evaluator.evaluate(times).error for name, times in FORMS.items()}
    assert found.error("tuned").value < min(best.values())
    uniform = min(("uniform-leading", "uniform-trailing"), key=best.get)
    assert found.old == found.uniform == uniform
    assert found.gain.value == pytest.approx(best[uniform] / found.error("tuned").value)


def test_a_schedule_that_loses_gives_way_to_the_best_closed_form(selecting, evaluator, predictor):
    found = validate(selecting, evaluator, [BAD], FORMS, {}, predictor, looks=4)
    best = min(FORMS, key=lambda name: evaluator.evaluate(FORMS[name]).error)
    assert found.chosen == best
    assert np.array_equal(found.evaluations[found.chosen].times, FORMS[best])


def test_a_closed_form_displaces_what_was_found_only_if_it_is_surely_better(selecting, evaluator, predictor):
    best = min(FORMS, key=lambda name: evaluator.evaluate(FORMS[name]).error)
    found = validate(selecting, evaluator, [FORMS[best]], FORMS, {}, predictor, looks=4)  # no better, and no worse
    assert found.chosen == "tuned"
    assert found.error("tuned").value == found.error(best).value


def test_a_schedule_of_the_user_that_is_not_surely_beaten_is_chosen(selecting, evaluator, predictor):
    found = validate(selecting, evaluator, [GOOD], FORMS, {"yours": GOOD}, predictor, looks=4)
    assert found.chosen == "yours"


def test_a_schedule_of_the_user_that_is_not_beaten_is_chosen(selecting, evaluator, predictor):
    found = validate(selecting, evaluator, [BAD, FORMS["karras"]], FORMS, {"yours": GOOD}, predictor, looks=4)
    assert found.chosen == found.old == "yours"
    assert np.array_equal(found.evaluations["yours"].times, GOOD)


@pytest.mark.parametrize("candidates", [[GOOD, BAD], [BAD, GOOD]])
def test_of_two_candidates_the_one_that_carries_over_better_is_decided_on(candidates, selecting, evaluator, predictor):
    found = validate(selecting, evaluator, candidates, FORMS, {}, predictor, looks=4)
    assert found.chosen == "tuned"
    assert np.array_equal(found.evaluations["tuned"].times, GOOD)


def test_what_chooses_among_candidates_has_no_part_in_the_decision(selecting, evaluator, predictor):
    rows = {"selecting": [], "deciding": []}

    def watched(evaluator, seen):
        class Watched(Evaluator):
            def evaluate(self, times, rows=None):
                seen.append(
                    (times.tobytes(), tuple(self.trajectories.at(rows or slice(None)).starts.flatten().tolist()))
                )
                return super().evaluate(times, rows)

        return Watched(*(getattr(evaluator, name) for name in Evaluator.__dataclass_fields__))

    both = watched(selecting, rows["selecting"]), watched(evaluator, rows["deciding"])
    found = validate(*both, [BAD, GOOD], FORMS, {}, predictor, looks=4)
    assert {times for times, _ in rows["deciding"]}.isdisjoint({BAD.tobytes()})  # one candidate is decided on
    assert len(found.errors["tuned"]) == len(evaluator.trajectories)
    assert {noise for _, noise in rows["selecting"]}.isdisjoint({noise for _, noise in rows["deciding"]})


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


def test_uniform_steps_of_the_uniform_spacing_itself_are_its_own(evaluator, predictor):
    one = evaluator.evaluate(FORMS["uniform-trailing"])
    steps = uniform_steps(evaluator, one, one, "uniform-trailing", predictor)
    assert (steps.value, steps.low, steps.high) == (5, 5, 5)


def test_a_uniform_spacing_of_seven_steps_is_worth_about_seven(evaluator, predictor):
    chosen = evaluator.evaluate(BASELINES["uniform-trailing"](MODEL.noise, 7))
    five = evaluator.evaluate(FORMS["uniform-trailing"])
    chosen = type(chosen)(five.times, chosen.states, chosen.x0, chosen.end, chosen.errors)  # errs as seven steps do
    steps = uniform_steps(evaluator, chosen, five, "uniform-trailing", predictor)
    assert 6.3 < steps.value < 7.7
    assert steps.low <= steps.value <= steps.high


def test_an_error_that_no_uniform_spacing_reaches_has_no_number(evaluator, predictor):
    perfect = evaluator.evaluate(FORMS["quadratic"])
    perfect = type(perfect)(perfect.times, perfect.states, perfect.x0, evaluator.trajectories.ends, np.full(12, 1e-9))
    assert (
        uniform_steps(evaluator, perfect, evaluator.evaluate(FORMS["uniform-trailing"]), "uniform-trailing", predictor)
        is None
    )


def test_an_evaluation_is_the_same_at_any_batch_size_and_in_parts(evaluator):
    whole = evaluator.evaluate(GOOD)
    parts = evaluator.evaluate(GOOD, slice(0, 7)).joined_with(evaluator.evaluate(GOOD, slice(7, 12)))
    assert torch.allclose(whole.end, parts.end, atol=1e-6)
    assert np.allclose(whole.errors, parts.errors, atol=1e-6)
    off = (whole.end - evaluator.trajectories.ends).double().flatten(1).numpy()
    assert np.allclose(whole.errors, np.sqrt((off**2).mean(axis=1)), atol=1e-7)


def test_the_error_in_raw_features_is_the_root_mean_square():
    samples = torch.randn(4, *MODEL.shape, generator=torch.Generator().manual_seed(0))
    raw = Features("raw", lambda some: some.flatten(1))
    assert torch.allclose(ErrorMeasure(MODEL.shape, raw)(samples).float(), ErrorMeasure(MODEL.shape)(samples))


def test_features_are_predicted_from_all_coordinates(evaluator):
    twice = Features("twice", lambda some: 2 * some.flatten(1))
    projection = ErrorMeasure(MODEL.shape, twice).projection(evaluator.trajectories)
    expected = ErrorMeasure(MODEL.shape, twice)(evaluator.trajectories.ends)
    assert torch.allclose(projection.measure(projection.trajectories.ends).float(), expected.float(), atol=1e-5)
