"""Fitting from a model to a proved solver."""

import warnings

import numpy as np
import pytest

import geosprint
from geosprint.baselines import BASELINES, baseline_schedule
from geosprint.errors import ScheduleError
from geosprint.estimates import endpoint_errors
from geosprint.fitted_solver import ddim_coefficients, dpmpp_coefficients
from geosprint.fitting import fit as fitting
from geosprint.fitting.fit import best_fit, best_suited_schedules, closed_forms
from geosprint.fitting.refinement import FEWEST, FEWEST_BLOCKS, round_calls
from geosprint.fitting.stepwise import stepwise_fit, x0_predictor
from geosprint.models.base import Network
from geosprint.models.exact import Gaussian, digits, ring
from geosprint.noise import Flow
from geosprint.sampling import Counted, sample
from geosprint.teacher import fine_steps, fine_timesteps, record_teacher

SMALL = {"trajectories": 24, "held_out": 12, "budget_nfe": 6000}


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
    ours = fresh_errors(model, fine, of_digits.schedule.timesteps, of_digits)
    for solver in ("ddim", "dpmpp-2m", "unipc", "deis", "ipndm"):
        places = [BASELINES[name](model.noise, 6) for name in ("uniform-trailing", "beta", "kl-optimal")]
        assert ours < min(fresh_errors(model, fine, times, solver) for times in places) / 1.6


def test_the_same_inputs_give_the_same_numbers_bit_for_bit(of_digits):
    again = geosprint.fit(digits(), 6, **SMALL)
    assert again.coefficients == of_digits.coefficients
    assert again.validation == of_digits.validation
    assert again.schedule.provenance == of_digits.schedule.provenance
    assert np.array_equal(again.schedule.timesteps, of_digits.schedule.timesteps)
    other = geosprint.fit(digits(), 6, seed=1000, **SMALL)
    assert other.coefficients != of_digits.coefficients


def test_its_calls_are_those_the_model_was_asked(of_digits):
    model = Counted(digits())
    geosprint.fit(model, 6, **SMALL)
    assert model.nfe == of_digits.schedule.provenance["calls"] <= SMALL["budget_nfe"]


@pytest.mark.parametrize("budget", [3000, 4000, 5000, 20_000])
@pytest.mark.parametrize("calls", [1, 2])
def test_no_budget_is_exceeded(budget, calls):
    inner = ring()
    model = Counted(Network(inner, inner.shape, inner.noise, "x0", calls=calls))
    fitted = geosprint.fit(model, 4, trajectories=16, held_out=8, budget_nfe=budget * calls)
    assert model.nfe == fitted.schedule.provenance["calls"] <= budget * calls


def test_what_it_says_of_unseen_walks_is_measured_on_them(of_digits):
    told = of_digits.validation
    assert (told["ships"], told["walks"]) == ("fitted", 12)
    model, times = digits(), of_digits.schedule.timesteps
    seeds = range(24, 36)
    fine = sample(model, fine_steps(model.noise), seeds, "ipndm")
    for name, solver in {"fitted": of_digits, "ddim": "ddim", "dpmpp-2m": "dpmpp-2m"}.items():
        measured = endpoint_errors(sample(model, times, seeds, solver), fine).mean()
        assert told["rmse"][name] == pytest.approx(measured, rel=1e-3)
    for name in ("ddim", "dpmpp-2m"):
        value, low, high = told["gap"][name]
        assert value == pytest.approx(told["rmse"]["fitted"] - told["rmse"][name])
        assert low <= value <= high < 0


@pytest.mark.parametrize("order", [1, 4])
@pytest.mark.parametrize(("bad", "expected"), [("ddim", "dpmpp-2m"), ("dpmpp-2m", "ddim")])
def test_a_fit_that_loses_on_unseen_walks_does_not_ship(bad, expected, order, monkeypatch):
    """The better of the known solvers is returned in its place, and a warning says so."""
    known = {"ddim": ddim_coefficients, "dpmpp-2m": dpmpp_coefficients}
    model = digits()
    place = baseline_schedule("beta" if expected == "dpmpp-2m" else "kl-optimal", model.noise, 5)
    useless = tuple((0.0, 0.0) for _ in range(5))
    monkeypatch.setattr(fitting, "best_fit", lambda model, walks, places, order, last: (place, useless))
    with pytest.warns(UserWarning, match=f"the coefficients of {expected} are returned"):
        found = geosprint.fit(model, 5, place, order, **SMALL)
    assert found.validation["ships"] == found.schedule.provenance["ships"] == expected
    assert found.coefficients == known[expected](model.noise, place.timesteps, max(order, 2))
    assert found.validation["rmse"]["fitted"] > found.validation["rmse"][expected]
    assert found.validation["rmse"][bad] > found.validation["rmse"][expected]


def test_a_given_schedule_is_kept_and_no_closed_form_tried():
    model = Counted(digits())
    place = baseline_schedule("karras", model.noise, 5)
    found = geosprint.fit(model, 5, place, order=2, trajectories=12, held_out=4, budget_nfe=1200)
    assert np.array_equal(found.schedule.timesteps, place.timesteps)
    assert found.schedule.provenance["method"] == "fitted on karras"
    assert [len(own) for own in found.coefficients] == [2, 3, 3, 3, 3]


def test_a_flow_from_pure_noise_can_be_fitted():
    model = Gaussian.of_images((1, 6, 6), noise=Flow())
    found = geosprint.fit(model, 4, **SMALL)
    assert found.validation["ships"] == "fitted"
    fine, times = fine_ends(model), found.schedule.timesteps
    assert fresh_errors(model, fine, times, found) < 0.2 * fresh_errors(model, fine, times, "euler")


def test_order_one_looks_back_at_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = geosprint.fit(ring(), 4, order=1, trajectories=16, held_out=4, budget_nfe=4000)
    assert max(map(len, found.coefficients)) == 2 or found.validation["ships"] != "fitted"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"steps": 1}, "steps must be at least 2"),
        ({"order": 5}, r"order must be in 1\.\.4"),
        ({"trajectories": 1}, "at least 2 trajectories"),
        ({"held_out": 1}, "at least 2 trajectories"),
        ({"budget_nfe": 100}, r"takes \d+ network calls, the budget is 100; allow more"),
        ({"budget_nfe": 2500}, "choosing among 8 closed forms takes .* give a schedule"),
        ({"trajectories": 6, "budget_nfe": 20_000}, "choosing among 8 closed forms takes .* give a schedule"),
        ({"steps": 5, "schedule": "four"}, "the schedule has 4 steps, asked were 5"),
        ({"schedule": "of a flow"}, "knows 0..999"),
    ],
    ids=str,
)
def test_what_cannot_be_fitted_is_refused_before_it_costs_much(asked, said):
    model = Counted(digits())
    places = {
        "four": baseline_schedule("karras", model.noise, 4),
        "of a flow": baseline_schedule("karras", Flow(), 4),
    }
    asked = {"steps": 4, "trajectories": 24, "held_out": 12, "budget_nfe": 8000} | asked
    if "schedule" in asked:
        asked["schedule"] = places[asked["schedule"]]
    with pytest.raises(ScheduleError, match=said):
        geosprint.fit(model, **asked)


def test_places_are_sorted_by_how_well_a_fit_follows_so_many_walks():
    model = Counted(digits())
    walks = record_teacher(model, range(12))
    places = closed_forms(model.noise, 4)
    before = model.nfe
    best = best_suited_schedules(model, walks, places, 2, 6)
    assert model.nfe - before == 6 * 4 * len(places)
    some = walks.at(slice(0, 6))
    ask = x0_predictor(model, some.rows)
    ends = {place: stepwise_fit(ask, some, place.timesteps, 2).ends for place in places}
    error = {place: ((ends[place] - some.ends).flatten(1).square().mean(1) ** 0.25).mean() for place in places}
    assert best == sorted(places, key=error.__getitem__)[:3]


def test_fewer_places_are_fitted_to_all_walks_where_calls_are_left_to_refine_but_one():
    model = Counted(digits())
    walks = record_teacher(model, range(24))
    places = closed_forms(model.noise, 12)[:3]
    following = 24 * 12
    refining = 8 * 12 + round_calls(dpmpp_coefficients(model.noise, places[0].timesteps, 2), 8, FEWEST, FEWEST_BLOCKS)
    spent = {}
    for count in (1, 2, 3):
        before = model.nfe
        best_fit(model, walks, places, 2, model.nfe + count * following + refining)
        spent[count] = model.nfe - before
    assert spent == {count: count * following + refining for count in (1, 2, 3)}
