from __future__ import annotations

import numpy as np
import pytest

from geosprint.baselines import baseline_schedule
from geosprint.errors import ScheduleError
from geosprint.fitting.fit import calls_to_fit, fit_to_teacher
from geosprint.models.exact import ring
from geosprint.sampling import Counted
from geosprint.schedule import StepSchedule
from geosprint.tuning.joint import TUNED_FOR, places_worth_a_fit, tune_and_fit, tuned_and_fitted
from geosprint.tuning.run import TeacherSets, prepared, searched

STEPS = 3


@pytest.mark.parametrize("budget", [8_000, 14_000])
def test_the_fit_follows_the_walks_of_the_search_within_the_budget(budget):
    model = Counted(ring())
    fine = TeacherSets.recorded(model, budget)
    before = model.nfe
    solver = tuned_and_fitted(model, fine, STEPS, budget)
    said = solver.schedule.provenance
    assert said["calls"] == model.nfe - before + fine.nfe <= budget
    assert said["walks"] == len(fine.for_search)
    assert solver.validation["walks"] == round(2 / 3 * len(fine.for_search))
    assert solver.validation["rmse"]["fitted"] < solver.validation["rmse"]["dpmpp-2m"]


def test_a_fit_is_tried_on_what_was_found_on_its_twin_on_what_raced_and_on_closed_forms():
    model = Counted(ring())
    ground = prepared(model, TeacherSets.recorded(model, 14_000), TUNED_FOR)
    search, found = searched(ground, STEPS, 3000)
    forms = ground.starts.closed_forms(STEPS)
    places = places_worth_a_fit(found, forms, search.law, model.noise)
    assert np.array_equal(places[0].timesteps, found.trial.times)  # where calls are few, it alone is fitted
    assert len({place.timesteps.tobytes() for place in places}) == len(places)
    raced = [racer.trial.times for racer in found.racers]
    others = [place.timesteps for place in places[1:]]
    assert all(
        any(np.array_equal(times, known) for known in [found.twin.times, *raced, *forms.values()]) for times in others
    )
    assert all(any(np.array_equal(form, place.timesteps) for place in places) for form in forms.values())


@pytest.mark.filterwarnings("ignore:on held-out noise")
def test_the_place_is_the_one_whose_fit_is_best():
    model = Counted(ring())
    fine = TeacherSets.recorded(model, 14_000)
    far = StepSchedule.at([999.0, 998.0, 997.0], model.noise, {"method": "never leaves the noise"})
    near = baseline_schedule("quadratic", model.noise, STEPS)
    sets = fine.for_search, fine.for_validation
    for places in ([far, near], [near, far]):
        solver = fit_to_teacher(model, *sets, places, 4, 0, fine.nfe, 14_000)
        assert np.array_equal(solver.schedule.timesteps, near.timesteps)
    few = fine.nfe + calls_to_fit(model, STEPS, len(fine.for_search), len(fine.for_validation))
    solver = fit_to_teacher(model, *sets, [far, near], 4, 0, fine.nfe, few)  # no calls to try both
    assert np.array_equal(solver.schedule.timesteps, far.timesteps)


def test_alone_it_records_first_and_counts_every_call():
    class Asked(type(ring())):
        asked = 0

        def __call__(self, x, t):
            Asked.asked += len(x)
            return super().__call__(x, t)

    own = ring()
    own = Asked(**{name: getattr(own, name) for name in own.__dataclass_fields__})
    solver = tune_and_fit(own, STEPS, 8_000)
    assert solver.schedule.provenance["calls"] == Asked.asked <= 8_000
    counted = Counted(ring())
    again = tuned_and_fitted(counted, TeacherSets.recorded(counted, 8_000), STEPS, 8_000)
    assert solver.coefficients == again.coefficients


def test_too_small_a_budget_is_refused_with_the_least_that_is_enough():
    with pytest.raises(ScheduleError, match=r"needs a budget of at least (\d+) network calls, got 500") as refused:
        tune_and_fit(ring(), STEPS, 500)
    least = int(str(refused.value).split("at least ")[1].split()[0])
    assert tune_and_fit(ring(), STEPS, least).schedule.provenance["calls"] <= least
    with pytest.raises(ScheduleError, match=f"got {least - 1}"):
        tune_and_fit(ring(), STEPS, least - 1)
