"""Fitting from a model to a proved solver."""

import numpy as np
import pytest

import geosprint
from geosprint import FittedSolver, StepSchedule
from geosprint.baselines import BASELINES, applicable_baselines, baseline_schedule
from geosprint.errors import ScheduleError
from geosprint.estimates import endpoint_errors
from geosprint.fitted_solver import known_coefficients
from geosprint.fitting import fit as fitting
from geosprint.fitting.config import FitConfig
from geosprint.fitting.fit import Fit, Lesson, best_fits, best_suited, fit_to_teacher, worth_fitting, worth_screening
from geosprint.fitting.refinement import slopes_price
from geosprint.fitting.stepwise import asking, stepwise_fit
from geosprint.models.base import Network
from geosprint.models.exact import digits, ring
from geosprint.models.spread import Spread
from geosprint.noise import Flow
from geosprint.sampling import sample
from geosprint.teacher import VALIDATION_SEED, fine_steps, fine_timesteps, record_teacher
from geosprint.tuned import OURS
from geosprint.tuning import candidates

SMALL = {"budget_nfe": 9600, "progress": False}  # 24 trajectories to learn from, 16 to decide by

KEPT = FitConfig(order=2, moved_times=0)  # the schedule

FRESH = range(10_000_000, 10_000_040)


def fresh_errors(model, fine, times, solver):
    return endpoint_errors(sample(model, times, FRESH, solver), fine).mean()


def fine_ends(model):
    return sample(model, fine_timesteps(model.noise, 60), FRESH, "heun")


@pytest.fixture(scope="module")
def of_digits():
    return geosprint.fit(digits(), 6, **SMALL)


def test_on_fresh_noise_it_is_nearer_than_known_solvers_on_closed_forms_that_suit_them(of_digits):
    model = digits()
    fine = fine_ends(model)
    ours = fresh_errors(model, fine, of_digits, None)
    for solver in ("ddim", "dpmpp-2m", "unipc", "deis", "ipndm"):
        places = [BASELINES[name](model.noise, 6) for name in ("uniform-trailing", "beta", "kl-optimal")]
        assert ours < min(fresh_errors(model, fine, times, solver) for times in places) / 1.6


def test_the_same_inputs_give_the_same_numbers_bit_for_bit(of_digits):
    again = geosprint.fit(digits(), 6, **SMALL)
    assert again.to_dict() == of_digits.to_dict()
    other = geosprint.fit(digits(), 6, seed=1000, **SMALL)
    assert other[6].coefficients != of_digits[6].coefficients


@pytest.mark.parametrize("budget", [1500, 3000, 5000, 20_000])
@pytest.mark.parametrize("calls", [1, 2])
def test_no_budget_is_exceeded(budget, calls):
    inner = ring()
    model = Spread(Network(inner, inner.shape, inner.noise, "x0", calls=calls))
    fitted = geosprint.fit(model, 4, budget_nfe=budget * calls, progress=False)
    assert model.nfe == fitted.nfe <= budget * calls


@pytest.mark.parametrize("known", ["ddim", "dpmpp-2m"])
def test_a_fit_that_loses_on_held_out_noise_gives_way_to_a_known_solver_on_its_best_closed_form(known, monkeypatch):
    model = digits()
    place = baseline_schedule("kl-optimal", model.noise, 5)
    useless = FittedSolver(StepSchedule.at(place.timesteps, model.noise, {"method": "useless"}), ((0.0, 0.0),) * 5)
    monkeypatch.setattr(fitting, "best_fits", lambda lesson, *_: [Fit(useless, lesson.teacher.starts)])
    monkeypatch.setattr(candidates, "KNOWN_SOLVERS", (known, "ddim"))
    (found,) = geosprint.fit(model, 5, place, **SMALL).results
    assert found.errors["useless"].mean() > found.errors[OURS].mean()
    forms = {name: BASELINES[name](model.noise, 5) for name in applicable_baselines(model.noise)}
    solver, form = str(found.schedule.provenance["method"]).split(", ")
    assert np.array_equal(found.schedule.timesteps, forms[form])
    np.testing.assert_allclose(
        np.concatenate(found.made.coefficients), np.concatenate(known_coefficients(solver, model.noise, forms[form], 4))
    )
    seeds = range(VALIDATION_SEED + 11, VALIDATION_SEED + 32)
    fine = sample(model, fine_steps(model.noise), seeds, "ipndm")
    expected = endpoint_errors(sample(model, forms[form], seeds, solver), fine)
    np.testing.assert_allclose(found.errors[OURS], expected, rtol=1e-3, atol=1e-6)


def test_a_given_schedule_is_kept_and_no_closed_form_tried():
    model = Spread(digits())
    place = baseline_schedule("karras", model.noise, 5)
    found = geosprint.fit(model, 5, place, order=2, **SMALL)[5]
    assert np.array_equal(found.schedule.timesteps, place.timesteps)
    assert found.schedule.provenance["method"] == "fitted on karras"
    assert [len(own) for own in found.coefficients] == [2, 3, 3, 3, 3]


def test_order_one_looks_back_at_nothing():
    place = baseline_schedule("quadratic", digits().noise, 5)
    found = geosprint.fit(digits(), 5, place, order=1, **SMALL)[5]
    assert max(map(len, found.coefficients)) == 2


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"steps": 1}, "steps must be at least 2"),
        ({"order": 5}, r"order must be in 1\.\.4"),
        ({"budget_nfe": 100}, r"at least [\d,]+ network calls, got 100; allow more"),
        ({"steps": 5, "schedule": "four"}, "the schedule has 4 steps, asked were 5"),
        ({"schedule": "of a flow"}, "knows 0..999"),
    ],
    ids=str,
)
def test_what_cannot_be_fitted_is_refused_before_it_costs_much(asked, said):
    model = Spread(digits())
    places = {
        "four": baseline_schedule("karras", model.noise, 4),
        "of a flow": baseline_schedule("karras", Flow(), 4),
    }
    asked = {"steps": 4, **SMALL} | asked
    if "schedule" in asked:
        asked["schedule"] = places[asked["schedule"]]
    with pytest.raises(ScheduleError, match=said):
        geosprint.fit(model, **asked)


def test_places_are_sorted_by_how_well_a_fit_follows_so_many_walks():
    model = Spread(digits())
    walks = record_teacher(model, range(12))
    places = [baseline_schedule(name, model.noise, 4) for name in applicable_baselines(model.noise)]
    before = model.nfe
    best = best_suited(Lesson(model, walks, FitConfig(2)), places, 6)
    assert model.nfe - before == 6 * 4 * len(places)
    some = walks.at(slice(0, 6))
    ask = asking(model, some.rows)
    ends = {place: stepwise_fit(ask, some, place.timesteps, FitConfig(2)).ends for place in places}
    error = {place: float(((ends[place] - some.ends).flatten(1).square().mean(1) ** 0.5).mean()) for place in places}
    in_order = sorted(places, key=error.__getitem__)
    assert best == in_order


@pytest.mark.parametrize("slopes", [24, KEPT.fewest_slopes])
def test_fewer_places_are_fitted_to_all_walks_where_calls_are_left_to_refine_but_one(slopes):
    """Refined well, or at the least price where calls for a single fit would not last for more."""
    model = Spread(digits())
    walks = record_teacher(model, range(24))
    places = [baseline_schedule(name, model.noise, 12) for name in applicable_baselines(model.noise)[:3]]
    fitting = 24 * 12
    refining = len(KEPT.ridges) * fitting + slopes * slopes_price(12, KEPT.fewest_directions, KEPT)
    spent = {}
    for count in (1, 2, 3):
        before = model.nfe
        best_fits(Lesson(model, walks, KEPT), places, model.nfe + count * fitting + refining)
        spent[count] = model.nfe - before
    assert spent == {count: count * fitting + refining for count in (1, 2, 3)}


@pytest.mark.parametrize(("steps", "fewest"), [(14, 1), (15, 4), (20, 4)])
def test_of_many_steps_some_places_are_fitted_rather_than_slopes_of_all_walks_measured(steps, fewest):
    lesson = Lesson(Spread(digits()), record_teacher(Spread(digits()), range(53)))
    fitting, whole = lesson.fitting_calls(steps), lesson.refining_calls(steps, 53)
    cheapest = lesson.refining_calls(steps, lesson.config.fewest_slopes)
    assert worth_fitting(lesson, steps, 6 * fitting + whole) == 6
    assert worth_fitting(lesson, steps, 5 * fitting - 1 + whole) == 4
    paid = [worth_fitting(lesson, steps, n * fitting + whole) for n in (1, 2, 3)]
    beside_cheapest = [(n * fitting + whole - cheapest) // fitting for n in (1, 2, 3)]
    assert paid == [max(n, min(fewest, most)) for n, most in zip((1, 2, 3), beside_cheapest, strict=True)]
    assert min(beside_cheapest) > 3  # so that the second line tells one number of steps from the other
    assert worth_fitting(lesson, steps, 0) == 1


def test_fits_refined_or_not_say_where_they_lead_from_the_trajectories_fitted_to():
    model = Spread(digits())
    walks = record_teacher(model, range(12))
    places = [baseline_schedule(name, model.noise, 4) for name in ("quadratic", "uniform-trailing")]
    for calls, times_move in ((2 * 12 * 4, False), (4000, False), (4000, True)):
        config = FitConfig(order=3, moved_times=4 if times_move else 3)
        fits = best_fits(Lesson(model, walks, config), places, model.nfe + calls)
        assert len(fits) == 2
        kept = [any(np.array_equal(fit.solver.schedule.timesteps, one.timesteps) for one in places) for fit in fits]
        assert all(kept) != times_move
        for fit in fits:
            np.testing.assert_allclose(fit.ends, sample(model, fit.solver, range(12)), atol=1e-3)


@pytest.mark.parametrize("calls", [3000, 4500, 6000, 9000])
@pytest.mark.parametrize("moved_times", [0, 6])
def test_calls_are_used_and_last_for_all_fits_that_are_refined(calls, moved_times):
    every_round_goes_on = FitConfig(order=3, moved_times=moved_times, least_gain=-1.0)
    model = Spread(digits())
    walks = record_teacher(model, range(24))
    places = [baseline_schedule(name, model.noise, 5) for name in applicable_baselines(model.noise)]
    before = model.nfe
    best_fits(Lesson(model, walks, every_round_goes_on), places, before + calls)
    assert 0.65 * calls < model.nfe - before <= calls


def test_without_rounds_of_refinement_all_calls_go_to_fits_on_more_schedules():
    model = Spread(digits())
    walks = record_teacher(model, range(12))
    places = [baseline_schedule(name, model.noise, 4) for name in applicable_baselines(model.noise)]
    calls = (len(places) * 8 + 5 * 12) * 4
    before = model.nfe
    assert len(fit_to_teacher(Lesson(model, walks, FitConfig(rounds=0)), places, calls)) == 5
    assert model.nfe - before == calls


def test_where_calls_last_for_one_of_both_some_places_are_tried_rather_than_one_refined():
    model = Spread(digits())
    walks = record_teacher(model, range(16))
    places = [baseline_schedule(name, model.noise, 12) for name in applicable_baselines(model.noise)]
    fitting, screening = 16 * 12, KEPT.screened_on * 12
    refining = len(KEPT.ridges) * fitting + 16 * slopes_price(12, KEPT.fewest_directions, KEPT)
    lesson, both = Lesson(model, walks, KEPT), fitting + refining + KEPT.fewest_screened * screening
    assert worth_screening(lesson, 12, both) == KEPT.fewest_screened
    assert worth_screening(lesson, 12, both + screening) == KEPT.fewest_screened + 1
    assert worth_screening(lesson, 12, both - 1) == (both - 1 - fitting) // screening
    assert worth_screening(lesson, 12, fitting - 1) == 0
    for calls in (fitting, fitting + 2 * screening, both):
        before = model.nfe
        fit_to_teacher(lesson, places, calls)
        assert model.nfe - before == calls
