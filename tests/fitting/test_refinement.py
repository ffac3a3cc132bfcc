"""All steps refined together on the error at the end."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from gaussian_walks import exact_walks, ones, random_starts, spread
from scipy.optimize import least_squares

from geosprint.estimates import tempered_mean
from geosprint.fitting import refinement
from geosprint.fitting.refinement import (
    TIME,
    Refined,
    Slopes,
    affordable_slopes,
    blocks,
    measured_slopes,
    moved,
    moves_of,
    refine,
    slopes_price,
)
from geosprint.fitting.stepwise import asking, stepwise_fit, student_trajectories
from geosprint.models.base import Network
from geosprint.models.exact import digits
from geosprint.models.spread import Spread
from geosprint.noise import Flow
from geosprint.teacher import record_teacher

TIMES = [999.0, 640.0, 300.0, 60.0]


def end_response(model, times, coefficients):
    """Of a diagonal Gaussian, per unit of noise and coordinate."""
    response, past = np.ones(len(model.variances)), []
    for t, own in zip(times, coefficients, strict=True):
        a, s = model.noise.signal_and_sigma(t)
        variances = model.variances.numpy()
        x0 = response * a * variances / (a**2 * variances + s**2)
        columns = [response, x0, *(before - x0 for before in past[: len(own) - 2])]
        response, past = sum(c * column for c, column in zip(own, columns, strict=True)), [x0, *past]
    return response


def begun_on(model, walks, times, order):
    return stepwise_fit(asking(model, walks.rows), walks, times, order)


def refined(model, walks, start, calls, times_move=False):
    return refine(model, walks, Refined(start, start.errors(walks)), calls, times_move)


def test_a_gaussian_is_refined_to_where_a_general_minimiser_of_the_exact_error_gets(monkeypatch):
    model = spread(300)
    counted = Spread(model)
    walks = exact_walks(model, TIMES, random_starts(model, 36))
    start = begun_on(counted, walks, TIMES, 1)
    begun = start.coefficients
    soon = refined(counted, walks, start, 10**9).student
    to_the_end = {"RIDGES": ((1e-9, 1.0), (1e-6, 1.0), (1e-3, 1.0)), "ROUNDS": 40, "LEAST_GAIN": 1e-6, "BOUND": 100.0}
    for name, value in to_the_end.items():
        monkeypatch.setattr(refinement, name, value)
    found = refined(counted, walks, start, 10**9).student
    target = model.solution(ones(model), TIMES[0]).numpy()[0]

    def error(student):
        return np.sqrt(np.mean((end_response(model, student.times, student.coefficients) - target) ** 2))

    def packed(flat):
        cuts = np.cumsum([len(own) for own in begun])[:-1]
        return replace(start, coefficients=tuple(tuple(own) for own in np.split(flat, cuts)))

    def missing(flat):
        return end_response(model, TIMES, packed(flat).coefficients) - target

    best = packed(least_squares(missing, np.concatenate(begun)).x)
    assert error(soon) < 0.6 * error(start)
    assert error(found) < 1.3 * error(best)  # what flatters counts against the last moves
    monkeypatch.setattr(refinement, "TIME_RIDGES", ((1e-9, 1e-3), (1e-6, 1e-2), (1e-3, 1e-1)))
    moved_too = refined(counted, walks, start, 10**9, times_move=True).student
    assert error(moved_too) < 0.8 * error(best)  # what no coefficients at these times reach
    assert not np.array_equal(moved_too.times, TIMES)


@pytest.mark.parametrize("times_move", [False, True])
def test_slopes_are_what_walking_again_with_moved_numbers_gives(times_move):
    model = Spread(digits(), batch=9)
    walks = record_teacher(model, range(9))
    ask, start = asking(model, walks.rows), begun_on(model, walks, TIMES, 3)
    moves = moves_of(start, model.noise, times_move=times_move)
    slopes = measured_slopes(model, walks, start, moves)
    assert len(moves) == 2 + 3 + 4 + 4 + 4 * times_move

    def ends(by):
        found = student_trajectories(ask, walks.starts, *moved(start, moves, by, model.noise))
        return found.ends.flatten(1).double().numpy()

    effects = np.stack([ends(unit) - start.ends.flatten(1).numpy() for unit in np.eye(len(moves))], axis=1)
    missing = (walks.ends - start.ends).flatten(1).double().numpy()
    dimensions = missing.shape[1]
    products = np.einsum("wmd,wnd->wmn", effects, effects) / dimensions
    np.testing.assert_allclose(slopes.products, products, rtol=2e-2, atol=1e-3 * products.max())
    pulls = np.einsum("wmd,wd->wm", effects, missing) / dimensions
    np.testing.assert_allclose(slopes.pulls, pulls, rtol=2e-2, atol=1e-3 * np.abs(pulls).max())
    np.testing.assert_allclose(slopes.squares, (missing**2).mean(axis=1), rtol=1e-3)


def test_a_moved_time_is_one_the_model_knows_and_its_coefficients_stay():
    model = Spread(digits())
    start = begun_on(model, record_teacher(model, range(9)), TIMES, 2)
    moves = moves_of(start, model.noise, times_move=True)
    of_times = [move for move in moves if TIME in {index for _, index in move}]
    gaps = [359, 340, 240, 60]  # down to the last time, which is 0
    assert of_times == [{(i, TIME): -np.round(0.1 * gap)} for i, gap in enumerate(gaps)]
    amounts = [0.77 * (move in of_times) for move in moves]
    times, numbers = moved(start, moves, amounts, model.noise)
    np.testing.assert_array_equal(
        times, [round(t - 0.77 * np.round(0.1 * gap)) for t, gap in zip(TIMES, gaps, strict=True)]
    )
    assert numbers == start.coefficients
    flow = Flow()
    (first, *_) = [{}, *moves_of(replace(start, times=np.array([0.9, 0.5, 0.3, 0.1])), flow, times_move=True)][-4:]
    assert first == {(0, TIME): pytest.approx(-0.04)}
    up = [-5.0 * (i == len(moves) - 4) for i in range(len(moves))]
    times, _ = moved(start, moves, up, model.noise)
    assert times[0] == 999.0  # no time lies above the first that the model knows


def test_every_move_moves_the_states_after_it_by_as_much():
    model = Spread(digits())
    start = begun_on(model, record_teacher(model, range(9)), TIMES, 3)
    ((place, by),) = moves_of(start, model.noise)[
        -1
    ].items()  # the last number of the last step: x0 of two steps before
    assert place == (3, 3)
    part = by * (start.predicted[1][0] - start.predicted[3][0])
    assert float(part.square().mean().sqrt()) == pytest.approx(refinement.NUDGE, rel=1e-5)


def slopes_of(effects, missing):
    """Effects (trajectories, moves, dimensions) and what is missing (trajectories, dimensions)."""
    count = missing.shape[1]
    products = np.einsum("wmd,wnd->wmn", effects, effects) / count
    return Slopes(products, np.einsum("wmd,wd->wm", effects, missing) / count, (missing**2).mean(axis=1))


def test_amounts_are_those_of_a_regression_by_distance_and_left_out_trajectories_have_no_say():
    random = np.random.default_rng(1)
    effects = random.normal(size=(14, 3, 40))
    missing = np.einsum("m,wmd->wd", [1.0, -2.0, 0.5], effects) + random.normal(size=(14, 40))
    missing[5] += 30 * random.normal(size=40)  # lands in another mode

    def regression(rows):
        found = np.zeros(3)
        for _ in range(refinement.REWEIGHTINGS):
            left = np.linalg.norm(missing[rows] - np.einsum("m,wmd->wd", found, effects[rows]), axis=1)
            roots = np.sqrt(left.mean() / left)
            columns = np.concatenate(effects[rows] * roots[:, None, None], axis=1).T
            found = np.linalg.lstsq(columns, np.concatenate(missing[rows] * roots[:, None]), rcond=None)[0]
        return found

    slopes, everything = slopes_of(effects, missing), np.arange(14)
    np.testing.assert_allclose(slopes.best_amounts(1e-12), regression(everything), rtol=1e-6)
    left_out = slopes.left_out_distances(1e-12)
    for row in everything:
        others = everything[everything % refinement.FOLDS != row % refinement.FOLDS]
        gone = np.einsum("m,md->d", regression(others), effects[row])
        assert left_out[row] == pytest.approx(np.sqrt(((missing[row] - gone) ** 2).mean()), rel=1e-6)
    amounts = slopes.best_amounts(1e-3)
    assert np.linalg.norm(slopes.best_amounts(10.0)) < np.linalg.norm(amounts)
    expected = tempered_mean(slopes.left_out_distances(1e-3)) - tempered_mean(slopes.distances(amounts))
    assert slopes.flattery(1e-3, amounts) == pytest.approx(expected)
    assert slopes.flattery(1e-3, amounts) > 0


def test_neighbouring_steps_are_moved_together_where_there_are_many():
    few = blocks(((1.0, 2.0), (1.0, 2.0, 3.0)))
    assert few == [([0], 0), ([0], 1), ([1], 0), ([1], 1), ([1], 2)]
    numbers = tuple((0.0,) * min(i + 2, 4) for i in range(20))
    many = blocks(numbers)
    assert all(len(steps) <= 2 for steps, _ in many)
    seen = sorted((step, place) for steps, place in many for step in steps)
    assert seen == [(step, place) for step in range(20) for place in range(len(numbers[step]))]
    fewer = blocks(numbers, 5)
    assert {len(steps) for steps, place in fewer if place < 2} == {4}
    assert sorted((step, place) for steps, place in fewer for step in steps) == seen


def test_where_calls_are_few_slopes_are_of_fewer_trajectories_and_their_number_is_known_before():
    model = Spread(digits())
    walks = record_teacher(model, range(16))
    start = begun_on(model, walks, TIMES, 2)
    for times_move, ridges in ((False, refinement.RIDGES), (True, refinement.TIME_RIDGES)):
        price, walking = slopes_price(start.coefficients, times_move=times_move), 16 * len(TIMES)
        least = refinement.FEWEST * price + len(ridges) * walking
        for allowed, cost in ((least - 1, 0), (least, least), (least + price, least + price)):
            before = model.nfe
            refined(model, walks, start, allowed, times_move)
            spent = model.nfe - before
            assert spent <= cost
            assert (cost - spent) % walking == 0  # times that do not fall are not walked
            assert spent >= cost - walking * (len(ridges) - 1)
            assert spent == cost or times_move


def test_where_calls_are_few_more_steps_are_moved_together():
    numbers = tuple((0.0,) * min(i + 2, 4) for i in range(20))
    fine, coarse = (slopes_price(numbers, parts) for parts in (refinement.BLOCKS, refinement.FEWEST_BLOCKS))
    assert coarse < 0.6 * fine
    enough = refinement.ENOUGH
    assert affordable_slopes(numbers, enough * fine, 48) == (refinement.BLOCKS, enough)
    assert affordable_slopes(numbers, 100 * fine, 48) == (refinement.BLOCKS, 48)
    assert affordable_slopes(numbers, enough * fine - 1, 48)[0] == refinement.BLOCKS - 1
    assert affordable_slopes(numbers, enough * coarse - 1, 48) == (refinement.FEWEST_BLOCKS, enough - 1)
    assert affordable_slopes(numbers, 12 * coarse, 48) == (refinement.FEWEST_BLOCKS, 12)
    assert affordable_slopes(numbers, 12 * coarse - 1, 48)[1] < refinement.FEWEST
    assert affordable_slopes(numbers, 14 * fine, 14) == (refinement.BLOCKS, 14)  # all that there are
    assert affordable_slopes(numbers, -5, 48)[1] == 0


@pytest.mark.parametrize("allowed", [0, 900, 2500, 6000, 30_000])
def test_it_keeps_to_its_calls_and_never_gets_worse_on_the_trajectories_that_judge(allowed):
    model = Spread(digits())
    walks = record_teacher(model, range(24))
    start = begun_on(model, walks, TIMES, 3)
    before = model.nfe
    found = refined(model, walks, start, allowed)
    assert model.nfe - before <= allowed
    if allowed == 0:
        assert found.student is start
    again = student_trajectories(asking(model, walks.rows), walks.starts, TIMES, found.student.coefficients)
    np.testing.assert_allclose(again.errors(walks), found.errors, rtol=1e-4)
    walked, begun = (tempered_mean(one.errors(walks)) for one in (again, start))
    assert walked <= found.error * (1 + 1e-6) <= begun * (1 + 1e-5)


@pytest.mark.parametrize("count", [6, 11, 12, 16])
def test_slopes_of_few_trajectories_do_not_spoil_a_fit_for_others(count):
    """Thirteen numbers are learnt by heart from six samples: what is left out in turn says so."""
    model = Spread(digits())
    walks, exam = record_teacher(model, range(count)), record_teacher(model, range(100, 164))
    start = begun_on(model, walks, TIMES, 3)
    found = refined(model, walks, start, 10**6).student
    assert found is start or count >= refinement.FEWEST

    def error(student):
        walked = student_trajectories(asking(model, exam.rows), exam.starts, TIMES, student.coefficients)
        return tempered_mean(walked.errors(exam))

    assert error(found) < 1.03 * error(start)


def test_numbers_beyond_the_bound_are_not_tried(monkeypatch):
    monkeypatch.setattr(refinement, "BOUND", 1e-9)
    model = Spread(digits())
    walks = record_teacher(model, range(24))
    start = begun_on(model, walks, TIMES, 2)
    assert refined(model, walks, start, 10**6).student is start


def test_every_sample_is_asked_about_with_its_own_condition(monkeypatch):
    """Slopes are measured on parts of the samples: none may be asked as another."""
    monkeypatch.setattr(refinement, "LEAST_GAIN", -1.0)  # every round goes on

    @dataclass(frozen=True, eq=False)
    class OfRows(Network):
        rows: tuple = ()

        def for_samples(self, rows):
            return replace(self, rows=tuple(rows))

        def __call__(self, x, t):
            shift = torch.tensor(self.rows, dtype=x.dtype).view(-1, *[1] * len(self.shape)) / 10
            return super().__call__(x - shift, t) + shift

    model = Spread(OfRows(digits(), digits().shape, digits().noise, digits().prediction))
    teacher = record_teacher(model, range(24))
    start = begun_on(model, teacher, TIMES, 2)
    moves = moves_of(start, model.noise)
    whole = measured_slopes(model, teacher, start, moves)
    np.testing.assert_allclose(whole.squares, start.errors(teacher) ** 2, rtol=1e-4)
    last = measured_slopes(model, teacher.at(slice(20, 24)), start, moves)
    np.testing.assert_allclose(last.squares, whole.squares[20:], rtol=1e-3)
    found = refined(model, teacher, start, 60_000)
    again = student_trajectories(asking(model, teacher.rows), teacher.starts, TIMES, found.student.coefficients)
    assert tempered_mean(again.errors(teacher)) <= found.error * (1 + 1e-5)
