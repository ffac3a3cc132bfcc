from __future__ import annotations

import numpy as np
import pytest
import torch

import geosprint
from geosprint.baselines import BASELINES, applicable_baselines, baseline_schedule
from geosprint.metrics.estimates import endpoint_errors
from geosprint.models.exact import digits, ring
from geosprint.noise import Flow
from geosprint.sampling import Counted, sample
from geosprint.schedule import StepSchedule
from geosprint.teacher import fine_timesteps
from geosprint.tuning.run import TeacherSets, least_budget, prepared, tuned_schedule
from geosprint.tuning.search import Search

FRESH = range(77_000_000, 77_000_064)
SMALL = 4000


def fresh_error(model, times, solver):
    fine = sample(model, fine_timesteps(model.noise, 150), FRESH, "heun")
    return endpoint_errors(sample(model, times, FRESH, solver), fine).mean()


@pytest.mark.parametrize(
    ("model", "solver"),
    [
        *((ring(), solver) for solver in ("ddim", "dpmpp-2m", "unipc", "heun", "deis", "ipndm")),
        (ring(noise=Flow()), "euler"),
    ],
    ids=["ddim", "dpmpp-2m", "unipc", "heun", "deis", "ipndm", "flow"],
)
def test_on_fresh_noise_a_tuned_schedule_is_nearer_than_every_closed_form(model, solver):
    found = geosprint.tune(model, 6, solver, budget_nfe=SMALL)
    assert found.is_tuned
    assert len(found.schedule) == 6
    tuned = fresh_error(model, found.schedule.timesteps, solver)
    others = [fresh_error(model, BASELINES[name](model.noise, 6), solver) for name in applicable_baselines(model.noise)]
    assert tuned < min(others)
    assert found.nfe <= SMALL


def test_the_same_seed_gives_the_same_schedule_bit_for_bit():
    once, again = (geosprint.tune(digits(), 4, budget_nfe=SMALL) for _ in range(2))
    assert np.array_equal(once.schedule.timesteps, again.schedule.timesteps)
    assert once.summary() == again.summary()


def test_another_seed_gives_other_walks():
    once, again = (geosprint.tune(ring(), 4, budget_nfe=SMALL, seed=seed) for seed in (0, 1))
    assert once.error != again.error


@pytest.mark.parametrize(("steps", "solver"), [(2, "ddim"), (7, "heun"), (15, "ddim")])
def test_no_schedule_costs_more_than_the_least_budget(steps, solver):
    model = Counted(ring())
    least = least_budget(model, steps, solver)
    found = geosprint.tune(model, steps, solver, budget_nfe=least)
    assert model.nfe == found.nfe <= least


def test_several_numbers_of_steps_share_their_fine_walks_and_are_tuned_as_if_alone():
    model = Counted(ring())
    several = geosprint.tune(model, [6, 4], budget_nfe=SMALL)
    alone = geosprint.tune(ring(), 4, budget_nfe=SMALL)
    assert [len(one.schedule) for one in several] == [4, 6]
    assert np.array_equal(several[0].schedule.timesteps, alone.schedule.timesteps)
    shared = TeacherSets.recorded(Counted(ring()), SMALL).nfe
    assert model.nfe == sum(one.nfe for one in several) - shared


def test_what_the_schedule_says_of_itself_is_what_was_found():
    found = geosprint.tune(ring(), 4, "dpmpp-2m", budget_nfe=SMALL)
    made = found.schedule.provenance
    assert (made["method"], made["solver"], made["nfe"]) == ("tuned", "dpmpp-2m", found.nfe)
    assert made["error"] == found.error.value < made["old_error"]
    assert made["origin"]["model"] == "mixture"


def test_a_schedule_of_the_user_is_what_the_tuned_one_is_measured_against():
    yours = baseline_schedule("karras", ring().noise, 4)
    found = geosprint.tune(ring(), 4, budget_nfe=SMALL, against=yours)
    assert found.verdict.old == "yours"
    assert np.array_equal(found.verdict.trials["yours"].times, yours.timesteps)


def test_a_schedule_of_the_user_that_cannot_be_beaten_is_returned():
    best = geosprint.tune(ring(), 4, budget_nfe=3 * SMALL).schedule
    found = geosprint.tune(ring(), 4, budget_nfe=SMALL, seed=5, against=best)
    yours, chosen = (fresh_error(ring(), times, "ddim") for times in (best.timesteps, found.schedule.timesteps))
    assert chosen < 1.1 * yours


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"steps": 5, "solver": "ddpm"}, "fresh noise"),
        ({"steps": 5, "budget_nfe": 500}, "at least 3200 network calls, got 500"),
        ({"steps": 0}, "steps"),
        ({"steps": []}, "at least one number of steps"),
        ({"steps": 5, "solver": "rk4"}, "solver must be one of"),
        ({"steps": 5, "measure": "beauty"}, "no features 'beauty'"),
        ({"steps": 2, "against": StepSchedule(np.array([1e6]), np.array([1.0, 0]), np.array([0.0]))}, "knows"),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_the_model_is_asked(asked, told):
    model = Counted(ring())
    with pytest.raises(geosprint.GeoSprintError, match=told):
        geosprint.tune(model, **asked)
    assert model.nfe == 0


def test_a_budget_that_the_steps_outgrow_is_refused_with_the_least_that_would_do():
    least = least_budget(ring(), 60, "ddim")
    assert least > 10_000
    with pytest.raises(geosprint.GeoSprintError, match=f"60 steps of this model needs a budget of at least {least}"):
        geosprint.tune(ring(), [3, 60], budget_nfe=10_000)


def test_a_flow_of_pictures_is_tuned_as_well():
    model = digits(noise=Flow())
    counted = Counted(model)
    ground = prepared(counted, TeacherSets.recorded(counted, SMALL), "heun", SMALL)
    found = tuned_schedule(ground, 5)
    assert model.noise.contains(found.schedule.timesteps).all()
    assert torch.isfinite(found.verdict.trials[found.verdict.chosen].end).all()


def test_calls_that_the_search_does_not_need_are_left_to_the_judge(monkeypatch):
    def judges():
        return len(geosprint.tune(ring(), 15, budget_nfe=6000).verdict.errors["tuned"])

    class Hurried(Search):
        def __init__(self, course, telling, price, allowance):
            super().__init__(course, telling, price, allowance // 2)

    patient = judges()
    monkeypatch.setattr("geosprint.tuning.run.Search", Hurried)
    assert judges() > patient
