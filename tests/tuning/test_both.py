from __future__ import annotations

import numpy as np
import pytest

from geosprint.errors import ScheduleError
from geosprint.models.mixture import ring
from geosprint.sampling import CountedModel
from geosprint.tuning.both import TUNED_FOR, TUNING, tune_and_fit, tuned_and_fitted
from geosprint.tuning.run import FineSets, prepared, tuned_schedule

STEPS = 3


@pytest.mark.parametrize("budget", [8_000, 14_000])
def test_the_schedule_is_the_tuned_one_and_the_fit_follows_the_same_walks_within_the_budget(budget):
    model = CountedModel(ring())
    fine = FineSets.recorded(model, budget)
    tuned = tuned_schedule(prepared(model, fine, TUNED_FOR, int(TUNING * budget)), STEPS)
    before = model.nfe
    solver = tuned_and_fitted(model, fine, STEPS, budget)
    assert np.array_equal(solver.schedule.timesteps, tuned.schedule.timesteps)
    said = solver.schedule.provenance
    assert said["calls"] == model.nfe - before + fine.nfe <= budget
    assert said["walks"] == len(fine.for_search)
    assert solver.validation["walks"] == round(2 / 3 * len(fine.for_search))
    assert solver.validation["rmse"]["fitted"] < solver.validation["rmse"]["dpmpp-2m"]


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
    counted = CountedModel(ring())
    again = tuned_and_fitted(counted, FineSets.recorded(counted, 8_000), STEPS, 8_000)
    assert solver.coefficients == again.coefficients


def test_too_small_a_budget_is_refused_with_the_least_that_is_enough():
    with pytest.raises(ScheduleError, match=r"needs a budget of at least (\d+) network calls, got 500") as refused:
        tune_and_fit(ring(), STEPS, 500)
    least = int(str(refused.value).split("at least ")[1].split()[0])
    assert tune_and_fit(ring(), STEPS, least).schedule.provenance["calls"] <= least
    with pytest.raises(ScheduleError, match=f"got {least - 1}"):
        tune_and_fit(ring(), STEPS, least - 1)
