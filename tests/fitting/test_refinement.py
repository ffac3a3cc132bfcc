"""All steps refined together on the error at the end."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from gaussian_walks import exact_walks, ones, random_starts, spread
from scipy.optimize import least_squares

from geosprint.baselines import baseline_schedule
from geosprint.fitted_solver import known_coefficients
from geosprint.fitting import refinement
from geosprint.fitting.refinement import blocks, measured_slopes, moved, refine, round_calls, trajectories_within
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


def test_a_gaussian_is_refined_to_where_a_general_minimiser_of_the_exact_error_gets(monkeypatch):
    model = spread(300)
    counted = Spread(model)
    walks = exact_walks(model, TIMES, random_starts(model, 36))
    begun = stepwise_fit(asking(counted, walks.rows), walks, TIMES, 1).coefficients
    soon = refine(counted, walks, np.array(TIMES), begun, calls=10**9).coefficients
    for name, value in {"RIDGES": (1e-9, 1e-6, 1e-3), "ROUNDS": 40, "ENOUGH": 1e-6, "BOUND": 100.0}.items():
        monkeypatch.setattr(refinement, name, value)
    found = refine(counted, walks, np.array(TIMES), begun, calls=10**9).coefficients
    target = model.solution(ones(model), TIMES[0]).numpy()[0]

    def error(numbers):
        return np.sqrt(np.mean((end_response(model, TIMES, numbers) - target) ** 2))

    def packed(flat):
        cuts = np.cumsum([len(own) for own in begun])[:-1]
        return [tuple(own) for own in np.split(flat, cuts)]

    best = least_squares(lambda flat: end_response(model, TIMES, packed(flat)) - target, np.concatenate(begun)).x
    assert error(soon) < 0.6 * error(begun)
    assert error(found) < 1.1 * error(packed(best))


def test_slopes_are_what_walking_again_with_moved_numbers_gives():
    model = Spread(digits(), batch=9)  # all at once: batches of other sizes round differently
    walks = record_teacher(model, range(9))
    ask = asking(model, walks.rows)
    numbers = known_coefficients("dpmpp-2m", model.noise, TIMES, 3)
    slopes = measured_slopes(model, walks, np.array(TIMES), numbers)
    here = student_trajectories(ask, walks.starts, TIMES, numbers)
    assert len(slopes.moves) == 2 + 3 + 4 + 4
    for move, effect in zip(slopes.moves, slopes.effects, strict=True):
        again = student_trajectories(ask, walks.starts, TIMES, moved(numbers, move))
        torch.testing.assert_close(effect, (again.ends - here.ends).flatten(1), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(slopes.missing, (walks.ends - here.ends).flatten(1))
    ((place, by),) = slopes.moves[-1].items()  # the last number of the last step: x0 of two steps before
    assert place == (3, 3)
    part = by * (here.predicted[1][0] - here.predicted[3][0])
    assert float(part.square().mean().sqrt()) == pytest.approx(refinement.NUDGE, rel=1e-5)
    torch.testing.assert_close(slopes.effects[-1], part.flatten(1), rtol=1e-3, atol=1e-6)


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


def test_where_calls_are_few_more_steps_are_moved_together():
    model = Spread(digits())
    walks = record_teacher(model, range(24))
    times = baseline_schedule("quadratic", model.noise, 12).timesteps
    begun = stepwise_fit(asking(model, walks.rows), walks, times, 2).coefficients
    few, many = (round_calls(begun, 16, refinement.FEWEST, parts) for parts in (5, 10))
    assert few < many
    for allowed, cost in ((few - 1, 0), (few, few), (many, many)):
        before = model.nfe
        refine(model, walks, times, begun, allowed)
        judging = 16 * len(times)
        assert model.nfe - before == judging + cost


@pytest.mark.parametrize("allowed", [0, 900, 2500, 6000, 30_000])
def test_it_keeps_to_its_calls_and_never_gets_worse_on_its_judges(allowed):
    model = Spread(digits())
    walks = record_teacher(model, range(24))
    begun = stepwise_fit(asking(model, walks.rows), walks, TIMES, 3).coefficients
    before = model.nfe
    found = refine(model, walks, np.array(TIMES), begun, allowed)
    judging = 16 * len(TIMES)
    assert model.nfe - before <= allowed + judging
    if allowed == 0:
        assert found.coefficients == begun
        assert model.nfe - before == judging
    judges = walks.at(slice(8, None))
    ask = asking(model, judges.rows)
    errors = [
        np.sqrt(student_trajectories(ask, judges.starts, TIMES, some).errors(judges)).mean() ** 2
        for some in (found.coefficients, begun)
    ]
    assert errors[0] == pytest.approx(found.error)
    assert errors[0] <= errors[1]


def test_what_a_round_costs_is_foretold_exactly():
    model = Spread(digits())
    walks = record_teacher(model, range(8))
    numbers = known_coefficients("dpmpp-2m", model.noise, TIMES, 4)
    before = model.nfe
    measured_slopes(model, walks, np.array(TIMES), numbers)
    spent = model.nfe - before
    judging = len(refinement.RIDGES) * 5 * len(TIMES)
    assert trajectories_within(spent + judging, numbers, 5) == 8
    assert trajectories_within(spent + judging - 1, numbers, 5) == 7


def test_numbers_beyond_the_bound_are_not_tried(monkeypatch):
    monkeypatch.setattr(refinement, "BOUND", 1e-9)
    model = Spread(digits())
    walks = record_teacher(model, range(24))
    begun = stepwise_fit(asking(model, walks.rows), walks, TIMES, 2).coefficients
    assert refine(model, walks, np.array(TIMES), begun, 10**6).coefficients == begun


def test_every_sample_is_asked_about_with_its_own_condition(monkeypatch):
    """Slopes are measured on other samples than errors: neither may be asked as the other."""
    monkeypatch.setattr(refinement, "ENOUGH", -1.0)  # every round goes on

    @dataclass(frozen=True, eq=False)
    class OfRows(Network):
        rows: tuple = ()

        def for_samples(self, rows):
            return replace(self, rows=tuple(rows))

        def __call__(self, x, t):
            shift = torch.tensor(self.rows, dtype=x.dtype).view(-1, *[1] * len(self.shape)) / 10
            return super().__call__(x - shift, t) + shift

    model = OfRows(digits(), digits().shape, digits().noise, digits().prediction)
    teacher = record_teacher(Spread(model), range(24))
    begun = stepwise_fit(asking(Spread(model), teacher.rows), teacher, TIMES, 2).coefficients
    found = refine(Spread(model), teacher, np.array(TIMES), begun, calls=60_000)
    held_out = teacher.at(slice(refinement.measured_on(24), None))
    again = student_trajectories(asking(Spread(model), held_out.rows), held_out.starts, TIMES, found.coefficients)
    assert found.error == pytest.approx(np.sqrt(again.errors(held_out)).mean() ** 2, rel=1e-5)
