from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch

from geosprint.models.exact import digits, ring
from geosprint.models.spread import Spread
from geosprint.noise import Flow
from geosprint.rivals.dynamic_programs import one_step_errors
from geosprint.rivals.registry import RIVALS
from geosprint.teacher import TeacherSets
from geosprint.tuning.config import DEFAULT
from geosprint.tuning.problem import TuningProblem
from geosprint.tuning.search import ScheduleSearch
from geosprint.tuning.starts import starts_of

STEPS = 4


@pytest.fixture(scope="module")
def problem():
    model = Spread(ring())
    return TuningProblem.of(model, TeacherSets.recorded(model, budget=6000))


def found_with(problem, allowance, starts=None, walks=None, **changed):
    """A search on some of the trajectories with a changed config."""
    projection = replace(problem.projection, config=replace(DEFAULT, **changed))
    evaluator = problem.evaluator("ddim", problem.teacher.for_search.at(slice(0, walks)))
    return ScheduleSearch(evaluator, projection, STEPS, allowance).best_of(starts or starts_of(problem.evidence, STEPS))


def is_start(candidate, starts):
    return np.array_equal(candidate.evaluation.times, starts[candidate.name])


def test_starts_are_candidates_as_they_are_beside_what_grows_from_them(problem):
    starts = starts_of(problem.evidence, STEPS)
    candidates = found_with(problem, 5000).candidates
    assert sum(is_start(one, starts) for one in candidates) == DEFAULT.most_starts
    assert DEFAULT.most_starts < len(candidates) <= DEFAULT.most_starts * (1 + len(DEFAULT.radii))
    assert len({one.evaluation.times.tobytes() for one in candidates}) == len(candidates)


@pytest.mark.parametrize("allowance", [700, 1500, 5000])
def test_a_search_keeps_within_its_allowance_and_more_calls_let_more_candidates_in(problem, allowance):
    before = problem.model.nfe
    candidates = found_with(problem, allowance).candidates
    assert problem.model.nfe - before <= allowance
    assert len(candidates) > len(found_with(problem, 500).candidates)


def test_of_what_grew_and_its_variant_one_begins_at_the_first_time_and_the_best_start_stays_as_it_is(problem):
    starts = starts_of(problem.evidence, STEPS)
    found = found_with(problem, 3000)
    assert np.array_equal(found.best_start.evaluation.times, starts[found.best_start.name])
    first = problem.model.noise.first
    assert (found.best.times[0] == first) != (found.variant.times[0] == first)
    as_they_are = [one for one in found.candidates if is_start(one, starts)]
    assert found.best_start.mean_root == min(one.mean_root for one in as_they_are)


def test_a_late_start_gets_a_variant_over_the_full_range_that_goes_downhill(problem):
    late = {"late": np.array([700.0, 400.0, 200.0, 60.0])}
    found = found_with(problem, 3000, late, radii=(), descent_share=0.0)
    both = (found.best, found.variant)
    early = next(one for one in both if one.times[0] == 999)
    assert any(np.array_equal(one.times, late["late"]) for one in both)
    as_it_was = problem.evaluator("ddim", problem.teacher.for_search).evaluate(np.array([999.0, 400.0, 200.0, 60.0]))
    assert early.tempered < as_it_was.tempered


@pytest.mark.parametrize("first", [999.0, 700.0])
def test_what_begins_at_the_first_time_or_has_no_calls_left_has_no_variant(problem, first):
    starts = {"one": np.array([first, 400.0, 200.0, 60.0])}
    walks = len(problem.teacher.for_search)
    found = found_with(problem, STEPS * walks, starts, radii=(), descent_share=0.0)
    assert np.array_equal(found.best.times, found.variant.times)


def test_what_begins_at_the_first_time_stays_there(problem):
    early = {"early": np.array([999.0, 400.0, 200.0, 60.0])}
    found = found_with(problem, 3000, early, radii=())
    assert found.best.times[0] == 999
    assert not np.array_equal(found.best.times, early["early"])


def test_what_is_found_is_no_worse_than_any_candidate_that_finished(problem):
    found = found_with(problem, 3000)
    finished = [one.evaluation for one in found.candidates if len(one.evaluation.errors) == len(found.best.errors)]
    assert found.best.tempered <= min(one.tempered for one in finished)


@pytest.mark.parametrize(
    "without",
    [
        {"published_starts": False},
        {"ranks_by_prediction": False},
        {"radii": ()},
        {"descent_share": 0.0},
        {"secant_reach": 0.0},
        {"full_range_variant": False},
        {"learns_response": False},
    ],
    ids=lambda without: next(iter(without)),
)
def test_every_stage_can_be_switched_off(problem, without):
    before = problem.model.nfe
    found = found_with(problem, 1500, **without)
    assert problem.model.nfe - before <= 1500
    assert len(found.best.errors) == len(problem.teacher.for_search)


def test_after_the_first_rung_each_start_goes_on_in_its_best_form_alone(problem):
    found = found_with(problem, 5000)
    first = round(DEFAULT.rungs[0] * len(found.best.errors))
    went_on = [one for one in found.candidates if len(one.evaluation.errors) > first]
    names = [one.name for one in went_on]
    assert len(names) == len(set(names)) == DEFAULT.most_starts
    for one in went_on:
        left = [other for other in found.candidates if other.name == one.name and other is not one]
        off = np.sqrt(one.evaluation.errors[:first]) - np.sqrt(one.predicted[:first])
        after_one_rung = np.sqrt(one.predicted).mean() + off.mean()
        assert all(after_one_rung <= other.mean_root + 1e-12 for other in left)


def test_late_starts_are_let_in_only_where_they_are_predicted_to_be_near(problem):
    starts = starts_of(problem.evidence, STEPS)
    found = found_with(problem, 5000)
    early = [name for name in starts if problem.model.noise.clock(starts[name][0]) > DEFAULT.early_clock]
    chosen = {one.name for one in found.candidates}
    late = chosen - set(early)
    assert len(late) <= DEFAULT.most_starts // 2
    limit = DEFAULT.late_factor * min(found.predicted.values())
    assert all(found.predicted[name] < limit for name in late)
    best_early = sorted(early, key=lambda name: (found.predicted[name], name))[: len(chosen) - len(late)]
    assert chosen == late | set(best_early)


def test_few_trajectories_are_enough_to_search_on(problem):
    found = found_with(problem, 2000, walks=3)  # the first two rungs are one trajectory each
    assert len(found.best.errors) == 3
    assert found.best.tempered <= found.best_start.evaluation.tempered


@pytest.mark.parametrize("model", [digits(), ring(noise=Flow())], ids=["whole times", "real times"])
def test_starts_are_falling_times_that_the_model_knows_and_cost_nothing(model):
    counted = Spread(model)
    problem = TuningProblem.of(counted, TeacherSets.recorded(counted, budget=6000))
    before = counted.nfe
    found = starts_of(problem.evidence, 6)
    assert counted.nfe == before  # they cost nothing
    assert {name for name, method in RIVALS.items() if method.is_start} <= set(found)
    for times in found.values():
        assert len(times) == 6
        assert (np.diff(times) < 0).all()
        assert all(model.noise.contains(t) for t in times)


def test_of_as_many_steps_as_are_recorded_paths_may_be_missing_but_nothing_breaks(problem):
    assert "oss" not in starts_of(problem.evidence, 101)
    assert "sdm" in starts_of(problem.evidence, 101)


def test_the_one_step_path_has_the_least_sum_of_errors_of_all_paths(problem):
    recorded = problem.evidence.recorded
    cost = torch.from_numpy(one_step_errors(recorded).mean(axis=0))
    last = len(recorded.timesteps) - 1
    sums = {(0, *between): cost[[0, *between], [*between, last]].sum() for between in combinations(range(1, last), 2)}
    best = min(sums, key=lambda path: float(sums[path]))
    found = starts_of(problem.evidence, 3)["gits-plain, raw states"]
    assert found.tolist() == recorded.timesteps[list(best)].tolist()
