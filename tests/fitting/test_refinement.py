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
    Slopes,
    affordable_slopes,
    blocks,
    fewest_slopes,
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


def test_a_gaussian_is_refined_to_where_a_general_minimiser_of_the_exact_error_gets(monkeypatch):
    model = spread(300)
    counted = Spread(model)
    walks = exact_walks(model, TIMES, random_starts(model, 36))
    start = begun_on(counted, walks, TIMES, 1)
    begun = start.coefficients
    soon = refine(counted, walks, np.array(TIMES), start, calls=10**9).coefficients
    for name, value in {"RIDGES": (1e-9, 1e-6, 1e-3), "ROUNDS": 40, "ENOUGH": 1e-6, "BOUND": 100.0}.items():
        monkeypatch.setattr(refinement, name, value)
    found = refine(counted, walks, np.array(TIMES), start, calls=10**9).coefficients
    target = model.solution(ones(model), TIMES[0]).numpy()[0]

    def error(numbers):
        return np.sqrt(np.mean((end_response(model, TIMES, numbers) - target) ** 2))

    def packed(flat):
        cuts = np.cumsum([len(own) for own in begun])[:-1]
        return [tuple(own) for own in np.split(flat, cuts)]

    best = least_squares(lambda flat: end_response(model, TIMES, packed(flat)) - target, np.concatenate(begun)).x
    assert error(soon) < 0.6 * error(begun)
    assert error(found) < 1.3 * error(packed(best))  # what flatters counts against the last moves


@pytest.mark.parametrize("away", [0.0, 1.0])
def test_slopes_are_what_walking_again_with_moved_numbers_gives(away):
    model = Spread(digits(), batch=9)
    walks = record_teacher(model, range(9))
    ask, start = asking(model, walks.rows), begun_on(model, walks, TIMES, 3)
    moves = moves_of(start)
    amounts = away * np.random.default_rng(0).normal(size=len(moves))
    slopes = measured_slopes(model, walks, np.array(TIMES), start, moves, amounts)
    assert len(moves) == 2 + 3 + 4 + 4

    def ends(by):
        found = student_trajectories(ask, walks.starts, TIMES, moved(start.coefficients, moves, by))
        return found.ends.flatten(1).double().numpy()

    effects = np.stack([ends(amounts + unit) - ends(amounts) for unit in np.eye(len(moves))], axis=1)
    missing = walks.ends.flatten(1).double().numpy() - ends(amounts) + np.einsum("m,wmd->wd", amounts, effects)
    dimensions = missing.shape[1]
    products = np.einsum("wmd,wnd->wmn", effects, effects) / dimensions
    np.testing.assert_allclose(slopes.products, products, rtol=2e-2, atol=1e-3 * products.max())
    pulls = np.einsum("wmd,wd->wm", effects, missing) / dimensions
    np.testing.assert_allclose(slopes.pulls, pulls, rtol=2e-2, atol=1e-3 * np.abs(pulls).max())
    np.testing.assert_allclose(slopes.squares, (missing**2).mean(axis=1), rtol=1e-3)


def test_every_move_moves_the_states_after_it_by_as_much():
    model = Spread(digits())
    start = begun_on(model, record_teacher(model, range(9)), TIMES, 3)
    ((place, by),) = moves_of(start)[-1].items()  # the last number of the last step: x0 of two steps before
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
    price, judging = slopes_price(start.coefficients), len(refinement.RIDGES) * 16 * len(TIMES)
    least = refinement.FEWEST * price + judging
    for allowed, cost in ((least - 1, 0), (least, least), (least + price, least + price)):
        before = model.nfe
        refine(model, walks, np.array(TIMES), start, allowed)
        assert model.nfe - before == cost


def test_where_calls_are_few_more_steps_are_moved_together():
    numbers = tuple((0.0,) * min(i + 2, 4) for i in range(20))
    fine, coarse = (slopes_price(numbers, parts) for parts in (refinement.BLOCKS, refinement.FEWEST_BLOCKS))
    assert coarse < 0.6 * fine
    assert affordable_slopes(numbers, 12 * fine, 48) == (refinement.BLOCKS, 12)
    assert affordable_slopes(numbers, 100 * fine, 48) == (refinement.BLOCKS, 48)
    assert affordable_slopes(numbers, 12 * fine - 1, 48)[0] == refinement.BLOCKS - 1
    assert affordable_slopes(numbers, 12 * coarse, 48) == (refinement.FEWEST_BLOCKS, 12)
    assert affordable_slopes(numbers, 12 * coarse - 1, 48)[1] < refinement.FEWEST
    assert affordable_slopes(numbers, 8 * fine, 8) == (refinement.BLOCKS, 8)  # all that there are
    assert [fewest_slopes(count) for count in (4, 6, 8, 12, 48)] == [6, 6, 8, 12, 12]
    assert affordable_slopes(numbers, -5, 48)[1] == 0


@pytest.mark.parametrize("allowed", [0, 900, 2500, 6000, 30_000])
def test_it_keeps_to_its_calls_and_never_gets_worse_on_the_trajectories_that_judge(allowed):
    model = Spread(digits())
    walks = record_teacher(model, range(24))
    start = begun_on(model, walks, TIMES, 3)
    before = model.nfe
    found = refine(model, walks, np.array(TIMES), start, allowed)
    assert model.nfe - before <= allowed
    if allowed == 0:
        assert found.coefficients == start.coefficients
    again = student_trajectories(asking(model, walks.rows), walks.starts, TIMES, found.coefficients)
    walked, begun = (tempered_mean(one.errors(walks)[-refinement.JUDGES :]) for one in (again, start))
    assert walked <= found.error * (1 + 1e-6) <= begun * (1 + 1e-5)


def test_numbers_beyond_the_bound_are_not_tried(monkeypatch):
    monkeypatch.setattr(refinement, "BOUND", 1e-9)
    model = Spread(digits())
    walks = record_teacher(model, range(24))
    start = begun_on(model, walks, TIMES, 2)
    assert refine(model, walks, np.array(TIMES), start, 10**6).coefficients == start.coefficients


def test_every_sample_is_asked_about_with_its_own_condition(monkeypatch):
    """Slopes are measured on parts of the samples: none may be asked as another."""
    monkeypatch.setattr(refinement, "ENOUGH", -1.0)  # every round goes on

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
    moves, times = moves_of(start), np.array(TIMES)
    whole = measured_slopes(model, teacher, times, start, moves, np.zeros(len(moves)))
    np.testing.assert_allclose(whole.squares, start.errors(teacher) ** 2, rtol=1e-4)
    last = measured_slopes(model, teacher.at(slice(20, 24)), times, start, moves, np.zeros(len(moves)))
    np.testing.assert_allclose(last.squares, whole.squares[20:], rtol=1e-3)
    found = refine(model, teacher, times, start, calls=60_000)
    again = student_trajectories(asking(model, teacher.rows), teacher.starts, TIMES, found.coefficients)
    assert tempered_mean(again.errors(teacher)) <= found.error * (1 + 1e-5)
