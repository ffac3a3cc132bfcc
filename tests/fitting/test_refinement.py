"""All steps refined together on the error at the end."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from gaussian_walks import exact_walks, ones, random_starts, spread
from scipy.optimize import least_squares

from geosprint.estimates import tempered_mean
from geosprint.fitted_solver import order_of
from geosprint.fitting.config import FitConfig
from geosprint.fitting.refinement import (
    TIME,
    Move,
    Refined,
    Slopes,
    affordable_slopes,
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
from geosprint.principal_axes import PrincipalAxes
from geosprint.teacher import record_teacher

TIMES = [999.0, 640.0, 300.0, 60.0]
MOVING, KEPT = FitConfig(), FitConfig(moved_times=0)


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
    return stepwise_fit(asking(model, walks.rows), walks, times, FitConfig(order))


def refined(model, walks, start, calls, config=KEPT):
    own = replace(config, order=order_of(start.coefficients[-1]))
    return refine(model, walks, Refined(start, start.errors(walks)), calls, own)


def test_a_gaussian_is_refined_to_where_a_general_minimiser_of_the_exact_error_gets():
    model = spread(300)
    counted = Spread(model)
    walks = exact_walks(model, TIMES, random_starts(model, 36))
    start = begun_on(counted, walks, TIMES, 1)
    begun = start.coefficients
    soon = refined(counted, walks, start, 10**9).student
    ridges = ((1e-9, 1.0), (1e-6, 1.0), (1e-3, 1.0))
    to_the_end = replace(KEPT, ridges=ridges, rounds=40, least_gain=1e-6, end_bound=100.0)
    found = refined(counted, walks, start, 10**9, to_the_end).student
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
    of_times = ((1e-9, 1e-3), (1e-6, 1e-2), (1e-3, 1e-1))
    times_too = replace(to_the_end, ridges=(), time_ridges=of_times, moved_times=len(TIMES))
    moved_too = refined(counted, walks, start, 10**9, times_too).student
    assert error(moved_too) < 0.8 * error(best)  # what no coefficients at these times reach
    assert not np.array_equal(moved_too.times, TIMES)


def axes_of(walks):
    return PrincipalAxes.of(walks.ends.flatten(1))


def walked_again(model, walks, start, moves):
    """The slopes, by walking again with every number moved by itself."""
    ask = asking(model, walks.rows)

    def ends(by):
        found = student_trajectories(ask, walks.starts, *moved(start, moves, by, model.noise))
        return found.ends.flatten(1).double().numpy()

    here = start.ends.flatten(1).double().numpy()
    effects = np.stack([ends(unit) - here for unit in np.eye(len(moves))], axis=1)
    return slopes_of(effects, walks.ends.flatten(1).double().numpy() - here)


def assert_alike(slopes, other, tolerance):
    np.testing.assert_allclose(slopes.products, other.products, rtol=0, atol=tolerance * np.abs(other.products).max())
    np.testing.assert_allclose(slopes.pulls, other.pulls, rtol=0, atol=tolerance * np.abs(other.pulls).max())
    np.testing.assert_allclose(slopes.squares, other.squares, rtol=1e-3)


NUDGE = 1e-3  # digits curve where a sample turns to another one


@pytest.mark.parametrize(("times_move", "tolerance"), [(False, 0.01), (True, 0.15)])
def test_slopes_along_all_directions_are_what_walking_again_with_moved_numbers_gives(times_move, tolerance):
    model = Spread(digits(), batch=2)
    walks = record_teacher(model, range(4))
    start = begun_on(model, walks, TIMES, 3)
    moves = moves_of(start, model.noise, replace(MOVING if times_move else KEPT, nudge=NUDGE))
    assert len(moves) == 2 + 3 + 4 + 4 + 4 * times_move
    slopes = measured_slopes(model, walks, start, moves, len(moves), axes_of(walks), NUDGE)
    assert_alike(slopes, walked_again(model, walks, start, moves), tolerance)


def test_few_directions_are_those_that_the_end_feels():
    model = Spread(digits(), batch=2)
    walks = record_teacher(model, range(4))
    start = begun_on(model, walks, TIMES, 3)
    moves, axes = moves_of(start, model.noise, replace(KEPT, nudge=NUDGE)), axes_of(walks)
    expected = walked_again(model, walks, start, moves)
    off = [
        np.abs(measured_slopes(model, walks, start, moves, count, axes, NUDGE).products - expected.products).max()
        for count in (1, 4, len(moves))
    ] / expected.products.max()
    assert 2 * off[1] < off[0]
    assert off[1] < 0.1


@pytest.mark.parametrize("times_move", [False, True])
def test_what_no_direction_shows_is_answered_for_as_gaussian_data_would(times_move):
    """Of exact Gaussian data, so, a single direction tells the slopes of all moves."""
    exact = spread(300)
    model = Spread(exact)
    walks = exact_walks(exact, TIMES, random_starts(exact, 12))
    start = begun_on(model, walks, TIMES, 3)
    moves = moves_of(start, exact.noise, MOVING if times_move else KEPT)
    axes = PrincipalAxes(torch.eye(len(exact.variances)).to(walks.ends), exact.variances.double(), 1.0)
    slopes = measured_slopes(model, walks, start, moves, 1, axes, MOVING.nudge)
    assert_alike(slopes, walked_again(model, walks, start, moves), 3e-2 if times_move else 1e-3)


def test_a_moved_time_is_one_the_model_knows_and_its_coefficients_stay():
    model = Spread(digits())
    start = begun_on(model, record_teacher(model, range(9)), TIMES, 2)
    moves = moves_of(start, model.noise, MOVING)
    of_times = [move for move in moves if move.index == TIME]
    gaps = [359, 340, 240, 60]  # down to the last time, which is 0
    assert of_times == [Move(i, TIME, -np.round(0.1 * gap)) for i, gap in enumerate(gaps)]
    amounts = [0.77 * (move in of_times) for move in moves]
    times, numbers = moved(start, moves, amounts, model.noise)
    np.testing.assert_array_equal(
        times, [round(t - 0.77 * np.round(0.1 * gap)) for t, gap in zip(TIMES, gaps, strict=True)]
    )
    assert numbers == start.coefficients
    flow = Flow()
    first = moves_of(replace(start, times=np.array([0.9, 0.5, 0.3, 0.1])), flow, MOVING)[0]
    assert first == Move(0, TIME, pytest.approx(-0.04))
    up = [-5.0 * (move is of_times[0]) for move in moves]
    times, _ = moved(start, moves, up, model.noise)
    assert times[0] == 999.0  # no time lies above the first that the model knows


def test_every_move_moves_the_states_after_it_by_as_much():
    model = Spread(digits())
    start = begun_on(model, record_teacher(model, range(9)), TIMES, 3)
    last = moves_of(start, model.noise, KEPT)[-1]
    assert (last.step, last.index) == (3, 3)  # x0 of two steps before
    part = last.by * (start.predicted[1][0] - start.predicted[3][0])
    assert float(part.square().mean().sqrt()) == pytest.approx(KEPT.nudge, rel=1e-5)


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
        for _ in range(KEPT.end_reweightings):
            left = np.linalg.norm(missing[rows] - np.einsum("m,wmd->wd", found, effects[rows]), axis=1)
            roots = np.sqrt(left.mean() / left)
            columns = np.concatenate(effects[rows] * roots[:, None, None], axis=1).T
            found = np.linalg.lstsq(columns, np.concatenate(missing[rows] * roots[:, None]), rcond=None)[0]
        return found

    slopes, everything = slopes_of(effects, missing), np.arange(14)
    np.testing.assert_allclose(slopes.best_amounts(1e-12, KEPT), regression(everything), rtol=1e-6)
    left_out = slopes.left_out_distances(1e-12, KEPT)
    for row in everything:
        others = everything[everything % KEPT.folds != row % KEPT.folds]
        gone = np.einsum("m,md->d", regression(others), effects[row])
        assert left_out[row] == pytest.approx(np.sqrt(((missing[row] - gone) ** 2).mean()), rel=1e-6)
    amounts = slopes.best_amounts(1e-3, KEPT)
    assert np.linalg.norm(slopes.best_amounts(10.0, KEPT)) < np.linalg.norm(amounts)
    expected = tempered_mean(slopes.left_out_distances(1e-3, KEPT)) - tempered_mean(slopes.distances(amounts))
    assert slopes.flattery(1e-3, amounts, KEPT) == pytest.approx(expected)
    assert slopes.flattery(1e-3, amounts, KEPT) > 0


@pytest.mark.parametrize(
    ("steps", "order", "directions", "times_move"), [(4, 3, 5, True), (4, 3, 2, False), (7, 2, 4, True)]
)
def test_what_slopes_cost_is_known_before(steps, order, directions, times_move):
    model = Spread(digits())
    walks = record_teacher(model, range(6))
    start = begun_on(model, walks, np.linspace(999, 60, steps).round(), order)
    before = model.nfe
    config = FitConfig(order, moved_times=steps if times_move else 0)
    moves = moves_of(start, model.noise, config)
    measured_slopes(model, walks, start, moves, directions, axes_of(walks), config.nudge)
    assert model.nfe - before == len(walks) * slopes_price(steps, directions, config)


def test_where_calls_are_few_slopes_are_of_fewer_trajectories_and_their_number_is_known_before():
    model = Spread(digits())
    walks = record_teacher(model, range(16))
    start = begun_on(model, walks, TIMES, 2)
    for config, ridges in ((KEPT, KEPT.ridges), (MOVING, MOVING.ridges + MOVING.time_ridges)):
        price = slopes_price(len(TIMES), config.fewest_directions, replace(config, order=2))
        walking = 16 * len(TIMES)
        least = config.fewest_slopes * price + len(ridges) * walking
        for allowed, cost in ((least - 1, 0), (least, least), (least + price, least + price)):
            before = model.nfe
            refined(model, walks, start, allowed, config)
            spent = model.nfe - before
            assert spent <= cost
            assert (cost - spent) % walking == 0  # times that do not fall are not walked
            assert spent >= cost - walking * (len(ridges) - 1)
            assert spent == cost or config is MOVING


def test_where_calls_are_few_the_network_is_asked_along_fewer_directions():
    most, fewest = KEPT.directions, KEPT.fewest_directions
    fine, coarse = (slopes_price(20, directions, KEPT) for directions in (most, fewest))
    assert coarse < 0.6 * fine
    assert affordable_slopes(20, 48 * fine, 48, KEPT) == (most, 48)
    assert affordable_slopes(20, 100 * fine, 48, KEPT) == (most, 48)
    assert affordable_slopes(20, 48 * fine - 1, 48, KEPT) == (most - 1, 48)
    assert affordable_slopes(20, 48 * coarse, 48, KEPT) == (fewest, 48)
    assert affordable_slopes(20, 48 * coarse - 1, 48, KEPT) == (fewest, 47)  # then on fewer trajectories
    assert affordable_slopes(20, 12 * coarse - 1, 48, KEPT)[1] < KEPT.fewest_slopes
    assert affordable_slopes(20, -5, 48, KEPT)[1] == 0


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
    assert found is start or count >= KEPT.fewest_slopes

    def error(student):
        walked = student_trajectories(asking(model, exam.rows), exam.starts, TIMES, student.coefficients)
        return tempered_mean(walked.errors(exam))

    assert error(found) < 1.03 * error(start)


def test_numbers_beyond_the_bound_are_not_tried():
    model = Spread(digits())
    walks = record_teacher(model, range(24))
    start = begun_on(model, walks, TIMES, 2)
    assert refined(model, walks, start, 10**6, replace(KEPT, end_bound=1e-9)).student is start


def test_every_sample_is_asked_about_with_its_own_condition():
    """Slopes are measured on parts of the samples: none may be asked as another."""

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
    moves = moves_of(start, model.noise, KEPT)
    axes = axes_of(teacher)
    whole = measured_slopes(model, teacher, start, moves, 4, axes, KEPT.nudge)
    np.testing.assert_allclose(whole.squares, start.errors(teacher) ** 2, rtol=1e-4)
    last = measured_slopes(model, teacher.at(slice(20, 24)), start, moves, 4, axes, KEPT.nudge)
    np.testing.assert_allclose(last.squares, whole.squares[20:], rtol=1e-3)
    found = refined(model, teacher, start, 60_000, replace(KEPT, least_gain=-1.0))  # every round goes on
    again = student_trajectories(asking(model, teacher.rows), teacher.starts, TIMES, found.student.coefficients)
    assert tempered_mean(again.errors(teacher)) <= found.error * (1 + 1e-5)
