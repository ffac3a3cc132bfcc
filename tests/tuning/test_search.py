from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from geosprint.models.exact import digits, ring
from geosprint.noise import Flow
from geosprint.rivals.dynamic_programs import one_step_errors
from geosprint.sampling import Counted
from geosprint.schedule import gaps_of
from geosprint.solvers import solver_named
from geosprint.tuning.evaluation import Course
from geosprint.tuning.run import TeacherSets, prepared
from geosprint.tuning.search import ALLOWED, HEATS, MOST_ENTRANTS, RADII, Search

STEPS = 4


@pytest.fixture(scope="module")
def ground():
    model = Counted(ring())
    return prepared(model, TeacherSets.recorded(model, budget=4000), "ddim", budget=4000)


def search_of(ground, allowance):
    course = Course(ground.model, solver_named("ddim"), ground.fine.for_search, ground.yardstick, batch=64)
    return Search(course, ground.telling, STEPS, allowance)


def test_starts_race_as_they_are_beside_what_grows_from_them(ground):
    starts = ground.starts.of(STEPS)
    racers = search_of(ground, 5000).best_of(starts).racers
    as_they_are = [racer for racer in racers if np.array_equal(racer.trial.times, starts[racer.name])]
    assert len(as_they_are) == MOST_ENTRANTS
    assert MOST_ENTRANTS < len(racers) <= MOST_ENTRANTS * (1 + len(RADII))
    assert len({racer.trial.times.tobytes() for racer in racers}) == len(racers)


@pytest.mark.parametrize("allowance", [700, 1500, 5000])
def test_a_search_keeps_within_its_allowance_and_more_calls_let_more_racers_in(ground, allowance):
    before = ground.model.nfe
    racers = search_of(ground, allowance).best_of(ground.starts.of(STEPS)).racers
    assert ground.model.nfe - before <= allowance
    fewer = search_of(ground, 500).best_of(ground.starts.of(STEPS)).racers
    assert len(racers) > len(fewer)


def test_what_grew_its_twin_and_the_best_start_are_candidates_and_know_where_they_come_from(ground):
    starts = ground.starts.of(STEPS)
    found = search_of(ground, 3000).best_of(starts)
    grown, twin, start = found.candidates
    assert np.array_equal(start, starts[found.origin_of(start)])
    assert np.array_equal(grown, found.trial.times)
    assert np.array_equal(twin, found.twin.times)
    assert found.origin_of(grown) == found.origin_of(twin) == found.grown_from
    first = ground.model.noise.first
    assert (grown[0] == first) != (twin[0] == first)
    raced_as_they_are = [racer for racer in found.racers if np.array_equal(racer.trial.times, starts[racer.name])]
    assert found.best_starter.real == min(racer.real for racer in raced_as_they_are)


def test_a_twin_begins_at_the_first_time_goes_downhill_there_and_keeps_to_half_of_the_calls(ground):
    search = search_of(ground, 3000)
    late = search._tried(np.array([700.0, 400.0, 200.0, 60.0]))
    calls = ground.model.nfe
    as_it_was = search._course.tried(np.array([999.0, 400.0, 200.0, 60.0]))
    search._last_call = ground.model.nfe + 2000
    twin = search._begun_at_the_first_time(late)
    assert twin.times[0] == 999
    assert not np.array_equal(twin.times, as_it_was.times)
    assert twin.tempered < as_it_was.tempered
    one_trial = STEPS * len(search._told)
    assert one_trial + calls < ground.model.nfe <= search._last_call - (2000 - one_trial) // 2


def test_what_begins_there_already_or_could_not_be_paid_for_is_its_own_twin(ground):
    search = search_of(ground, 3000)
    early = search._tried(np.array([999.0, 400.0, 200.0, 60.0]))
    assert search._begun_at_the_first_time(early) is early
    late = search._tried(np.array([700.0, 400.0, 200.0, 60.0]))
    search._last_call = ground.model.nfe + STEPS * len(search._told) - 1
    assert search._begun_at_the_first_time(late) is late


@pytest.mark.parametrize("first", [999.0, 700.0])
def test_neighbours_of_what_begins_at_the_first_time_begin_there_and_those_of_a_late_start_where_they_like(
    ground, first
):
    search = search_of(ground, 5000)
    best = search._tried(np.array([first, 400.0, 200.0, 60.0]))
    beginnings = {times[0] for times in search._neighbours(best, 0.1, 9, np.random.default_rng(0))}
    assert (beginnings == {999.0}) if first == 999 else len(beginnings) > 3


def test_what_is_found_is_no_farther_than_any_racer_that_finished(ground):
    found = search_of(ground, 3000).best_of(ground.starts.of(STEPS))
    finished = [racer.trial.tempered for racer in found.racers if len(racer.trial.errors) == len(found.trial.errors)]
    assert found.trial.tempered <= min(finished)


def test_after_the_first_heat_each_start_goes_on_in_its_best_form_alone(ground):
    found = search_of(ground, 5000).best_of(ground.starts.of(STEPS))
    first = round(HEATS[0] * len(found.trial.errors))
    went_on = [racer for racer in found.racers if len(racer.trial.errors) > first]
    names = [racer.name for racer in went_on]
    assert len(names) == len(set(names)) == MOST_ENTRANTS
    for racer in went_on:
        left = [other for other in found.racers if other.name == racer.name and other is not racer]
        after_one_heat = (
            np.sqrt(racer.foretold).mean()
            + (np.sqrt(racer.trial.errors) - np.sqrt(racer.foretold[: len(racer.trial.errors)]))[:first].mean()
        )
        assert all(after_one_heat <= other.real + 1e-12 for other in left)


def test_late_starts_race_only_where_they_are_foretold_to_be_near(ground):
    early = {f"early {i}": 0.1 + 0.01 * i for i in range(10)}
    late = {f"late {i}": 0.105 + 0.01 * i for i in range(20)}  # those from late 10 on err more than twice the least
    starts = {name: np.array([999.0 if name in early else 700.0, 10.0]) for name in (*early, *late)}
    search = search_of(ground, 50_000)
    half = MOST_ENTRANTS // 2
    assert search._entrants({**early, **late}, starts) == [*list(early)[:half], *list(late)[:half]]
    hopeless = {name: error + 0.1 for name, error in late.items()}
    assert search._entrants({**early, **hopeless}, starts) == list(early)
    few = dict(list(late.items())[8:])
    assert search._entrants({**early, **few}, starts) == [*early, "late 8", "late 9"]


def test_neighbours_differ_are_near_and_are_foretold_to_be_about_as_good(ground):
    search = search_of(ground, 5000)
    best = search._tried(ground.starts.of(STEPS)["weighted path"])
    found = search._neighbours(best, 0.05, 9, np.random.default_rng(0))
    assert len({times.tobytes() for times in [best.times, *found]}) == 1 + len(found) == 1 + 9
    noise = ground.model.noise
    for times in found:
        assert all(noise.contains(t) for t in times)
        assert search.law.tempered(times) < ALLOWED * search.law.tempered(best.times)
        moved = gaps_of(times, noise) - gaps_of(best.times, noise)
        assert np.abs(moved - moved.mean()).max() < 6 * 0.05 + 0.1  # whole times round the smallest gaps


def test_the_best_neighbour_is_the_one_that_errs_least_on_all_walks_where_few_walks_tell_them_apart(ground):
    search = search_of(ground, 50_000)
    starts = ground.starts.of(STEPS)
    best = search._tried(starts["karras"])
    far = [starts[name] for name in ("uniform-trailing", "quadratic", "weighted path", "logsnr")]
    errors = [search._course.tried(times).tempered for times in far]
    found = search._best_neighbour(best, far)
    assert found.tempered == pytest.approx(min(errors))
    assert len(found.errors) == len(search._told)
    assert search._best_neighbour(best, []) is best


def test_few_walks_are_enough_to_search_on(ground):
    few = ground.fine.for_search.at(slice(0, 3))  # the first two heats are one walk each
    course = Course(ground.model, solver_named("ddim"), few, ground.yardstick, batch=64)
    found = Search(course, ground.telling, STEPS, 2000).best_of(ground.starts.of(STEPS))
    assert len(found.trial.errors) == 3
    assert found.trial.tempered <= found.best_starter.trial.tempered


@pytest.mark.parametrize(
    ("walks", "neighbours"),  # n of them walk 1, a third 1 more, an eighth 3 and 5 more
    [(9, 0), (13, 4), (15, 5), (18, 8), (28, 15), (36, 15), (37, 16), (500, 16)],
)
def test_as_many_neighbours_race_as_calls_are_left_for(ground, walks, neighbours):
    search = search_of(ground, walks * STEPS)
    assert search._heats == [1, 2, 5, 10]
    assert search._affordable_neighbours == neighbours


@pytest.mark.parametrize("walks", [12, 13, 37, 200])
def test_looking_around_never_makes_it_worse_and_keeps_within_the_allowance(ground, walks):
    search = search_of(ground, 0)
    best = search._tried(ground.starts.of(STEPS)["uniform-trailing"])
    search._last_call = ground.model.nfe + walks * STEPS
    settled = search._settled(best)
    assert ground.model.nfe <= search._last_call
    assert (settled is best) if walks < 13 else (settled.tempered < best.tempered)


@pytest.mark.parametrize("model", [digits(), ring(noise=Flow())], ids=["whole times", "real times"])
def test_starts_are_falling_times_that_the_model_knows_and_cost_nothing(model):
    counted = Counted(model)
    starts = prepared(counted, TeacherSets.recorded(counted, budget=4000), "ddim").starts
    before = counted.nfe
    found = starts.of(6)
    assert counted.nfe == before  # they cost nothing
    assert {"weighted path", "one-step path", "student path", "even sharpness"} <= set(found)
    for times in found.values():
        assert len(times) == 6
        assert (np.diff(times) < 0).all()
        assert all(model.noise.contains(t) for t in times)


def test_the_one_step_path_has_the_least_sum_of_errors_of_all_paths(ground):
    told = ground.starts._told
    cost = torch.from_numpy(one_step_errors(told).mean(axis=0))
    last = len(told.timesteps) - 1
    sums = {(0, *between): cost[[0, *between], [*between, last]].sum() for between in combinations(range(1, last), 2)}
    best = min(sums, key=lambda path: float(sums[path]))
    assert ground.starts.programs(3)["one-step path"].tolist() == told.timesteps[list(best)].tolist()
