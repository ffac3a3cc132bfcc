from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import geosprint
from geosprint.baselines import BASELINES, applicable_baselines, baseline_schedule
from geosprint.estimates import endpoint_errors
from geosprint.models.exact import digits, ring
from geosprint.noise import Flow
from geosprint.sampling import Counted, sample
from geosprint.schedule import StepSchedule
from geosprint.teacher import TeacherSets, fine_timesteps
from geosprint.tuning.config import DEFAULT
from geosprint.tuning.schedules import TuningProblem, least_budget, tune_schedule

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
def test_on_fresh_noise_a_tuned_schedule_has_a_lower_error_than_every_closed_form(model, solver):
    budget = SMALL + 2000  # with fewer held-out samples not every solver's schedule is surely better
    found = geosprint.tune(model, 6, solver=solver, budget_nfe=budget)
    assert found.results[0].is_tuned
    assert len(found[6]) == 6
    tuned = fresh_error(model, found[6].timesteps, solver)
    others = [fresh_error(model, BASELINES[name](model.noise, 6), solver) for name in applicable_baselines(model.noise)]
    assert tuned < min(others)
    assert found.nfe <= budget


def test_the_same_seed_gives_the_same_schedule_bit_for_bit():
    once, again = (geosprint.tune(digits(), 4, budget_nfe=SMALL) for _ in range(2))
    assert np.array_equal(once[4].timesteps, again[4].timesteps)
    assert once.results[0].summary() == again.results[0].summary()


def test_another_seed_gives_another_teacher():
    once, again = (geosprint.tune(ring(), 4, budget_nfe=SMALL, seed=seed) for seed in (0, 1))
    assert once.results[0].errors != again.results[0].errors


@pytest.mark.parametrize(("steps", "solver"), [(2, "ddim"), (7, "heun"), (15, "ddim")])
def test_no_schedule_costs_more_than_the_least_budget(steps, solver):
    model = Counted(ring())
    least = least_budget(model, steps, solver)
    found = geosprint.tune(model, steps, solver=solver, budget_nfe=least)
    assert model.nfe == found.nfe <= least


def test_several_numbers_of_steps_share_the_teacher_and_are_tuned_as_if_alone():
    model = Counted(ring())
    several = geosprint.tune(model, [6, 4], budget_nfe=SMALL)
    alone = geosprint.tune(ring(), 4, budget_nfe=SMALL)
    assert several.steps == (4, 6)
    assert [len(one.schedule) for one in several.results] == [4, 6]
    assert np.array_equal(several[4].timesteps, alone[4].timesteps)
    shared = TeacherSets.recorded(Counted(ring()), SMALL).nfe
    assert model.nfe == several.nfe == sum(one.nfe for one in several.results) - shared
    with pytest.raises(geosprint.GeoSprintError, match="tuned were 4, 6 steps, not 5"):
        several[5]


def test_what_is_returned_has_one_line_and_one_file_for_each_number_of_steps(tmp_path):
    several = geosprint.tune(ring(), [3, 4], budget_nfe=SMALL)
    assert [line.split()[0] for line in several.headline.splitlines()] == ["3", "4"]
    files = several.save(tmp_path / "schedule.json")
    assert [path.name for path in files] == ["schedule-3.json", "schedule-4.json"]
    assert np.array_equal(StepSchedule.load(files[1]).timesteps, several[4].timesteps)
    (file,) = geosprint.tune(ring(), 3, budget_nfe=SMALL).save(tmp_path / "schedule.json")
    assert file.name == "schedule.json"


def test_what_the_schedule_says_of_itself_is_what_was_found():
    found = geosprint.tune(ring(), 4, solver="dpmpp-2m", budget_nfe=SMALL)
    made = found[4].provenance
    assert (made["method"], made["solver"], made["nfe"]) == ("tuned", found.solver, found.nfe)
    assert made["error"] == found.results[0].errors["tuned"].value < made["old_error"]
    assert made["origin"]["model"] == "mixture"


def test_a_schedule_of_the_user_is_what_the_tuned_one_is_measured_against():
    yours = baseline_schedule("karras", ring().noise, 4)
    found = geosprint.tune(ring(), 4, budget_nfe=SMALL, against=yours).results[0].validation
    assert found.old == "yours"
    assert np.array_equal(found.evaluations["yours"].times, yours.timesteps)


def test_what_is_returned_has_no_higher_error_on_held_out_noise_than_the_schedule_of_the_user():
    best = geosprint.tune(ring(), 4, budget_nfe=3 * SMALL)[4]
    (found,) = geosprint.tune(ring(), 4, budget_nfe=SMALL, seed=5, against=best).results
    assert found.errors[found.chosen].value <= found.errors["yours"].value
    assert found.chosen != "yours" or np.array_equal(found.schedule.timesteps, best.timesteps)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"steps": 5, "solver": "ddpm"}, "fresh noise"),
        ({"steps": 5, "budget_nfe": 500}, "at least 3200 network calls, got 500"),
        ({"steps": 0}, "steps"),
        ({"steps": []}, "at least one number of steps"),
        ({"steps": 5, "solver": "rk4"}, "solver must be one of"),
        ({"steps": 5, "solver": "fitted", "measure": "raw"}, "neither against nor measure"),
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
    found = tune_schedule(TuningProblem.of(counted, TeacherSets.recorded(counted, SMALL), "heun", SMALL), 5)
    assert model.noise.contains(found.schedule.timesteps).all()
    assert torch.isfinite(found.validation.evaluations[found.chosen].end).all()


def test_calls_that_the_search_does_not_need_are_left_to_the_validation():
    def validated_on(**changed):
        model = Counted(ring())
        config = replace(DEFAULT, **changed)
        problem = TuningProblem.of(model, TeacherSets.recorded(model, 6000), "ddim", 6000, config=config)
        return len(tune_schedule(problem, 25).validation.errors["tuned"])

    assert validated_on(most_neighbours=0, descent_share=0.0, full_range_variant=False) > validated_on()
