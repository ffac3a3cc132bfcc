from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from geosprint.baselines import BASELINES
from geosprint.metrics.features import Features
from geosprint.models.exact import ring
from geosprint.models.spread import Spread
from geosprint.sampling import walk
from geosprint.schedule import StepSchedule
from geosprint.solvers import refuse_to_draw, solver_named
from geosprint.teacher import TeacherSets, record_teacher
from geosprint.tuned import OURS, TODAY, Today, TunedSteps
from geosprint.tuning.config import DEFAULT
from geosprint.tuning.deciding import Decision, Yardstick, decided, is_surely_less, student_quantile, upper_bound
from geosprint.tuning.evaluation import ErrorMeasure, Evaluator
from geosprint.tuning.fewest import (
    affordable_number,
    following_number,
    least_calls,
    most_affordable,
    next_number,
    proved_number,
)
from geosprint.tuning.problem import Contender, TuningProblem
from geosprint.tuning.surrogate import Coordinates
from geosprint.tuning.today import todays_run
from geosprint.tuning.wish import Wish

MODEL = ring()
GOOD = np.array([205.0, 117.0, 54.0, 32.0, 22.0])
BAD = np.array([999.0, 998.0, 997.0, 996.0, 995.0])


@pytest.fixture(scope="module")
def problem():
    model = Spread(MODEL)
    return TuningProblem.of(model, TeacherSets.recorded(model, 7200))


def contender(name, times):
    return Contender(name, StepSchedule.at(times, MODEL.noise, {"method": name}), "ddim")


FORMS = [contender(name, BASELINES[name](MODEL.noise, 5)) for name in ("karras", "uniform-leading", "quadratic")]


def mean_error(problem, one):
    return problem.errors_of(one, problem.deciding).mean()


def test_trajectories_that_choose_have_no_part_in_the_decision(problem):
    chosen, decide = (set(map(float, part.starts[:, 0])) for part in (problem.selecting, problem.deciding))
    assert len(decide) == 2 * len(chosen) == 16
    assert not chosen & decide
    assert not decide & set(map(float, problem.teacher.for_search.starts[:, 0]))


def test_what_is_better_than_known_schedules_is_returned_with_their_errors(problem):
    decision = decided(problem, [contender("tuned", GOOD)], FORMS, None, None)
    one = decision.result
    assert np.array_equal(one.schedule.timesteps, GOOD)
    assert one.errors[OURS].mean() < min(mean_error(problem, form) for form in FORMS)
    assert set(one.errors) == {OURS, FORMS[0].name}  # the known one that is predicted to be best is decided against
    assert len(decision.choosing) == len(problem.selecting)


def test_what_is_surely_worse_gives_way_to_the_known_one(problem):
    decision = decided(problem, [contender("tuned", BAD)], FORMS, None, None)
    one = decision.result
    best = FORMS[0]
    assert np.array_equal(one.schedule.timesteps, best.schedule.timesteps)
    assert one.errors["tuned"].mean() > one.errors[OURS].mean()
    np.testing.assert_array_equal(decision.choosing, one.errors[OURS])  # nothing of it was seen elsewhere
    np.testing.assert_array_equal(decision.everywhere, one.errors[OURS])


def test_what_is_as_good_as_a_known_one_is_not_displaced_by_it(problem):
    one = decided(problem, [replace(FORMS[0], name="tuned")], FORMS[:1], None, None).result
    assert one.schedule.provenance["method"] == "karras"
    np.testing.assert_array_equal(one.errors[OURS], one.errors["karras"])


@pytest.mark.parametrize("times", [GOOD, BAD], ids=["no better", "worse"])
def test_what_does_not_surely_beat_yours_gives_way_to_it(problem, times):
    yours = contender("yours", GOOD)
    one = decided(problem, [contender("tuned", times)], FORMS, yours, None).result
    assert one.made is yours.made


@pytest.mark.parametrize("order", [(GOOD, BAD), (BAD, GOOD)])
def test_of_two_candidates_the_one_that_carries_over_better_is_decided_on(problem, order):
    ours = [contender(f"candidate {i}", times) for i, times in enumerate(order)]
    one = decided(problem, ours, FORMS, None, None).result
    assert np.array_equal(one.schedule.timesteps, GOOD)


@pytest.mark.parametrize("worst", [0, 1])
def test_fits_are_chosen_by_all_trajectories_but_those_that_decide(problem, worst):
    """Two that walk alike: what one of them left there tells them apart, and costs no call."""
    alike = [replace(contender(f"fit {i}", GOOD), learnt=np.full(24, 0.1 + (i == worst))) for i in range(2)]
    before, walked = problem.model.nfe, 2 * len(problem.deciding)
    decision = decided(problem, alike, FORMS, None, None)
    assert problem.model.nfe - before == walked * len(GOOD)  # of this one and a known schedule
    assert decision.result.made is alike[1 - worst].made
    np.testing.assert_array_equal(decision.choosing, 0.1)
    np.testing.assert_array_equal(decision.everywhere, np.append(np.full(24, 0.1), decision.result.errors[OURS]))


def test_fits_learn_from_all_trajectories_but_those_that_decide(problem):
    learnt, decide = (set(map(float, part.starts[:, 0])) for part in (problem.undecided, problem.deciding))
    everything = (problem.teacher.for_search, problem.teacher.for_validation)
    assert learnt | decide == {float(x) for part in everything for x in part.starts[:, 0]}
    assert not learnt & decide
    for rows in (slice(0, 2), slice(-2, None)):
        some = problem.undecided.at(rows)
        again = record_teacher_of(problem, some)
        torch.testing.assert_close(again, some.ends, rtol=1e-4, atol=1e-5)


def record_teacher_of(problem, some):
    """Where a teacher's walks from these starts end."""
    solver, x = solver_named("ipndm"), some.starts
    *_, last = walk(problem.model.for_samples(some.rows), x, some.times, solver, refuse_to_draw)
    return last.x


def test_today_is_measured_on_the_same_noise(problem):
    yardstick = Yardstick.measured(problem, todays_run(MODEL, "ddim:20:quadratic"))
    times = BASELINES["quadratic"](MODEL.noise, 20)
    np.testing.assert_allclose(
        yardstick.deciding, problem.errors_of(contender("", times), problem.deciding), rtol=1e-5, atol=1e-7
    )
    one = decided(problem, [contender("tuned", GOOD)], FORMS, None, yardstick).result
    np.testing.assert_array_equal(one.errors[TODAY], yardstick.deciding)
    chosen_by = problem.errors_of(contender("", times), problem.selecting)
    assert yardstick.goal == pytest.approx(np.sqrt(chosen_by).mean() ** 2, rel=1e-4, abs=1e-7)


def of_today(deciding, fewer, target=None):
    return Yardstick(Today("ddim", 40, "uniform-trailing"), deciding[:3], deciding, 10, fewer, target)


def test_errors_that_fall_by_a_power_law_give_todays_steps_exactly():
    scale = np.random.default_rng(0).uniform(1, 2, size=12)
    yardstick = of_today(scale * 40.0**-1.3, scale * 10.0**-1.3)
    for steps in (12, 25, 40, 70):
        found = yardstick.steps_of_today(scale * float(steps) ** -1.3)
        assert found.value == pytest.approx(steps)
        assert found.low == pytest.approx(steps)
    assert yardstick.steps_of_today(scale * 5.0**-1.3) is None  # beyond what was measured
    assert yardstick.steps_of_today(scale * 200.0**-1.3) is None


@pytest.mark.parametrize("share", [0.9, 0.95, 0.975, 0.99])
@pytest.mark.parametrize("freedom", [3, 7, 15, 31, 200])
def test_quantiles_are_students(share, freedom):
    assert student_quantile(share, freedom) == pytest.approx(stats.t.ppf(share, freedom), rel=2e-2 / freedom)


def test_the_bound_lies_above_the_mean_as_often_as_it_says():
    random = np.random.default_rng(0)
    covered = [upper_bound(random.normal(size=8), 0.95) >= 0 for _ in range(4000)]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.012)
    assert upper_bound(np.ones(1), 0.95) == np.inf


def decision_of(errors, others=(), steps=3):
    schedule = StepSchedule.at(np.arange(2 * steps, 0, -2.0), MODEL.noise, {})
    return Decision(TunedSteps(schedule, "ddim", {OURS: errors}), errors[:1], np.concatenate([errors, others]))


def test_what_is_proved_is_lower_by_more_than_chance_or_below_the_target():
    random = np.random.default_rng(0)
    today = random.uniform(1, 2, size=30)
    jitter = random.normal(scale=0.1, size=30)
    yardstick = of_today(today, today[:15])
    assert yardstick.is_proved(decision_of(today - 0.2 + jitter))
    assert not yardstick.is_proved(decision_of(today + jitter - jitter.mean()))
    assert not yardstick.is_proved(decision_of(today + 0.1 + jitter))
    assert of_today(today, today[:15], target=1.7).is_proved(decision_of(today))
    assert not of_today(today, today[:15], target=1.4).is_proved(decision_of(today))


def test_samples_that_land_elsewhere_where_nothing_decides_are_a_reason_to_doubt():
    random = np.random.default_rng(0)
    today = random.uniform(1, 2, size=30)
    yardstick = of_today(today, today[:15])
    ours = today - 0.3
    assert yardstick.is_proved(decision_of(ours, ours))
    assert not yardstick.is_proved(decision_of(ours, np.where(np.arange(30) % 10 == 0, 9.0, ours)))


def decisions(**by_steps):
    return [decision_of(np.full(12, level), steps=int(k[1:])) for k, level in by_steps.items()]


def test_the_fewest_proved_steps_are_reached_from_the_most_without_a_gap():
    yardstick = of_today(np.ones(12) + 1e-3 * np.arange(12), np.ones(6))
    assert proved_number(decisions(k4=2.0, k6=0.9, k8=0.8), yardstick) == 6
    assert proved_number(decisions(k4=0.9, k6=2.0, k8=0.8), yardstick) == 8  # four may be luck
    assert proved_number(decisions(k4=0.9, k6=0.8, k8=2.0), yardstick) is None


@pytest.mark.parametrize("slope", [1.0, 2.0, 3.5])
def test_numbers_of_steps_that_are_tried_close_in_on_the_fewest_that_reach_the_goal(slope):
    for fewest in (3, 9, 14, 40):
        goal = (fewest - 0.5) ** -slope
        tried = {10: 10.0**-slope}
        while (steps := next_number(tried, goal, 60, 2.0)) is not None:
            assert steps not in tried
            tried[steps] = float(steps) ** -slope
        assert min(k for k, error in tried.items() if error <= goal) == fewest
        assert len(tried) <= 6


def students_bound(values):
    """By SciPy's interval of the mean."""
    return values.mean() + stats.t.ppf(0.95, len(values) - 1) * stats.sem(values)


def test_one_more_error_as_large_as_the_largest_seen_would_still_be_proved():
    """Ours lies surely below today's, unless today's steps show a sample that lands in another mode."""
    today = 1 + 0.05 * np.random.default_rng(2).random(30)
    ours = today - 0.2
    assert of_today(today, today[:15]).is_proved(decision_of(ours))
    flips = np.where(np.arange(30) == 7, 4.0, today)
    yardstick, decision = of_today(flips, flips[:15]), decision_of(np.where(np.arange(30) == 7, 3.0, ours))
    todays = np.concatenate([flips[:3], flips])  # those that choose, and those that decide
    expected = students_bound(np.append(decision.everywhere, 4.0)) / todays.mean()
    assert yardstick.bound(decision) == pytest.approx(expected, rel=1e-4)
    assert not yardstick.is_proved(decision)


def test_the_expected_bound_is_that_of_as_many_trajectories_with_errors_like_these():
    today, errors = np.array([1.0, 1.2, 0.8, 1.1]), np.array([0.3, 0.4, 0.9])
    yardstick = of_today(today, today[:2])
    most = np.append(np.tile(errors, 8), 1.2)  # the largest of today's that choose
    assert yardstick.expected_bound(errors, 24) == pytest.approx(students_bound(most), rel=1e-3)
    target = of_today(today, today[:2], target=0.5)
    assert target.expected_bound(errors, 24) == pytest.approx(2 * students_bound(most), rel=1e-3)
    assert yardstick.expected_bound(errors, 48) < yardstick.expected_bound(errors, 24)


def test_after_one_number_of_steps_fewer_are_tried_if_it_is_proved_and_more_if_not():
    def following(*given):
        return following_number(*given, 50, DEFAULT)

    assert following([10], None, 1.2) == 13
    assert following([10], None, 4.0) == 20  # by a slope of two
    assert following([10, 13], 13, 0.9) == 12  # ten were refused
    assert following([10, 13], 13, 0.5) == 11
    assert following([12, 13], 13, 0.5) is None
    assert following([16], 16, 0.125) == 8  # an eighth of what is enough, by a slope of three
    assert following([16], 16, 1.0) == 15
    assert following([50], None, 1.2) is None
    assert following([2], 2, 0.1) is None


def test_of_more_steps_as_many_are_tried_as_calls_are_left_for():
    assert affordable_number(20, [10], 25) == 20
    assert affordable_number(20, [10], 15) == 15
    assert affordable_number(20, [10], 10) is None  # they were refused
    assert affordable_number(8, [10], 7) is None  # of fewer, so few are not wanted
    assert affordable_number(None, [10], 15) is None


@pytest.mark.parametrize("solver", ["ddim", "heun", "fitted"])
def test_the_most_affordable_steps_cost_no_more_than_there_is_and_one_more_would(problem, solver):
    """Of a solver that asks twice on the way, the first step costs half as much as another."""
    wish = Wish(None, todays_run(MODEL, None), solver)
    for calls in (1000, 1999, 4321):
        most = most_affordable(problem, wish, calls)
        assert least_calls(problem, wish, most) <= calls < least_calls(problem, wish, most + 1)


def test_no_more_steps_than_today_are_tried():
    assert next_number({20: 9.0}, 1.0, 30, 1.0) == 30
    assert next_number({30: 9.0}, 1.0, 30, 1.0) is None


def test_a_schedule_that_is_only_as_good_is_not_surely_less():
    errors = np.random.default_rng(0).uniform(1, 2, size=40)
    assert not is_surely_less(errors, errors)
    assert is_surely_less(errors - 0.01, errors)
    assert not is_surely_less(errors + np.where(np.arange(40) % 2, 0.3, -0.301), errors)


def test_one_sample_in_twenty_sways_neither_way():
    errors = np.random.default_rng(0).uniform(1, 2, size=40)
    other_mode = np.arange(40) % 20 == 0  # lands there
    assert is_surely_less(
        np.where(other_mode, errors + 0.5, errors - 0.1), errors
    )  # mean 0.07 lower, two samples higher
    assert not is_surely_less(np.where(other_mode, errors - 0.5, errors + 0.02), errors)  # lower in the mean alone
    assert not is_surely_less(np.where(other_mode, errors + 5, errors - 0.1), errors)  # higher in the mean


@pytest.fixture(scope="module")
def evaluator():
    model, measure = Spread(MODEL, batch=5), ErrorMeasure(MODEL.shape)
    teacher = record_teacher(model, range(12))
    return Evaluator(model, solver_named("ddim"), teacher, measure, Coordinates.of(teacher, None))


def test_an_evaluation_is_the_same_at_any_batch_size_and_in_parts(evaluator):
    whole = evaluator.evaluate(GOOD)
    parts = evaluator.evaluate(GOOD, slice(0, 7)).joined_with(evaluator.evaluate(GOOD, slice(7, 12)))
    assert torch.allclose(whole.end, parts.end, atol=1e-6)
    assert np.allclose(whole.errors, parts.errors, atol=1e-6)
    ends = evaluator.coordinates.samples_at(whole.end)
    off = (ends - evaluator.trajectories.ends.flatten(1)).double().flatten(1).numpy()
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
