"""A fit step by step, against the closed-form optimum of a Gaussian and against brute force."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gaussian_walks import exact_walks, ones, random_starts, spread

from geosprint.errors import ModelError
from geosprint.fitted_solver import known_coefficients
from geosprint.fitting import stepwise
from geosprint.fitting.config import FitConfig
from geosprint.fitting.stepwise import asking, bounded_fit, stepwise_fit, student_trajectories
from geosprint.models.base import Network, predict
from geosprint.models.exact import digits
from geosprint.models.spread import Spread
from geosprint.noise import CLEAN, DiscreteVP
from geosprint.principal_axes import PrincipalAxes
from geosprint.teacher import record_teacher

TIMES = [999.0, 700.0, 420.0, 200.0, 40.0]
LATER = [600.0, 420.0, 260.0, 110.0, 20.0]  # where the parts of a step differ enough for its numbers to be definite
FREE = FitConfig(ridge=1e-14, bound=1e9)


def population_optimum(model, times, order, by_end=False):
    """Of a diagonal Gaussian: every quantity is a number per coordinate, and each step is one linear regression.

    `by_end` counts errors as they will be at the end: there, all has the deviation of the data.
    """
    variances = model.variances.numpy()

    def factors(t):
        return model.noise.signal_and_sigma(t)

    def deviation(t):
        a, s = factors(t)
        return np.sqrt(a**2 * variances + s**2)

    response, past, numbers = np.ones_like(variances), [], []
    for t, t_next in zip(times, [*times[1:], CLEAN], strict=True):
        a, s = factors(t)
        x0 = response * a * variances / (a**2 * variances + s**2)
        columns = np.stack([response, x0, *(before - x0 for before in past[: order - 1])], axis=1)
        counts = deviation(CLEAN) / deviation(t_next) if by_end else np.ones_like(variances)
        target = deviation(t_next) / deviation(times[0])
        numbers.append(np.linalg.lstsq(counts[:, None] * columns, counts * target, rcond=None)[0])
        response, past = columns @ numbers[-1], [x0, *past]
    return numbers, np.abs(response - deviation(CLEAN) / deviation(times[0]))


def ask_of(model):
    return lambda x, t: (predict(model, x, t).x0,)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_fit_of_a_gaussian_is_the_closed_form_optimum(order):
    model = spread()
    found = stepwise_fit(ask_of(model), exact_walks(model, LATER, ones(model)), LATER, replace(FREE, order=order))
    expected, errors = population_optimum(model, LATER, order)
    for own, best in zip(found.coefficients, expected, strict=True):
        np.testing.assert_allclose(own, best, rtol=1e-4, atol=1e-4)
    exact = model.solution(ones(model), LATER[0])
    np.testing.assert_allclose((found.ends - exact).abs().numpy()[0], errors, atol=1e-6)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_errors_count_by_what_the_end_still_has_of_them(order, monkeypatch):
    model = spread()
    axes = PrincipalAxes(torch.eye(24, dtype=torch.float64), model.variances, 0.0)
    monkeypatch.setattr(stepwise.PrincipalAxes, "of", lambda ends: axes)
    walks = exact_walks(model, LATER, ones(model))
    weighed = replace(FREE, order=order)
    by_end, alike = (population_optimum(model, LATER, order, by_end) for by_end in (True, False))
    for config, (expected, _) in ((weighed, by_end), (replace(weighed, weighs_errors=False), alike)):
        found = stepwise_fit(ask_of(model), walks, LATER, config)
        for own, best in zip(found.coefficients, expected, strict=True):
            np.testing.assert_allclose(own, best, rtol=1e-4, atol=1e-4)
    assert np.linalg.norm(by_end[1]) < 0.9 * np.linalg.norm(alike[1])


@pytest.mark.parametrize("order", [1, 2, 4])
def test_random_noise_and_the_default_ridge_lead_near_the_closed_form_optimum(order):
    model = spread(400)
    found = stepwise_fit(ask_of(model), exact_walks(model, TIMES, random_starts(model, 64)), TIMES, FitConfig(order))
    there = student_trajectories(ask_of(model), ones(model), TIMES, found.coefficients)
    _, errors = population_optimum(model, TIMES, order, by_end=True)
    known = student_trajectories(
        ask_of(model), ones(model), TIMES, known_coefficients("dpmpp-2m", model.noise, TIMES, order)
    )
    exact = exact_walks(model, TIMES, ones(model))
    best = np.sqrt(np.mean(errors**2))
    assert float(there.errors(exact)[0]) < 1.3 * best
    assert float(known.errors(exact)[0]) > 2 * best


def test_later_steps_make_up_for_earlier_errors():
    """Fitted to its own states, a student ends with a lower error than if every step were fitted on the teacher's."""
    model = spread()
    walks = exact_walks(model, TIMES, random_starts(model, 32))
    own = stepwise_fit(ask_of(model), walks, TIMES, FitConfig(2))
    teacher_forced = []
    for i in range(len(TIMES)):
        x = walks.state_at(TIMES[i])
        now, before = walks.prediction_at(TIMES[i]).x0, walks.prediction_at(TIMES[max(i - 1, 0)]).x0
        columns = [x, now] + ([before - now] if i else [])
        target = walks.ends if i + 1 == len(TIMES) else walks.state_at(TIMES[i + 1])
        table = torch.stack([part.flatten() for part in columns], dim=1).numpy()
        teacher_forced.append(tuple(np.linalg.lstsq(table, target.flatten().numpy(), rcond=None)[0]))
    forced = student_trajectories(ask_of(model), walks.starts, TIMES, tuple(teacher_forced))
    assert own.errors(walks).mean() < 0.8 * forced.errors(walks).mean()


def test_the_walk_of_a_fit_is_the_walk_of_its_numbers():
    model = digits()
    walks = record_teacher(Spread(model), range(12))
    ask = asking(Spread(model), walks.rows)
    found = stepwise_fit(ask, walks, TIMES, FitConfig(4))
    again = student_trajectories(ask, walks.starts, TIMES, found.coefficients)
    torch.testing.assert_close(again.ends, found.ends, rtol=1e-6, atol=1e-6)
    assert [len(own) for own in found.coefficients] == [2, 3, 4, 5, 5]
    assert len(again.states) == len(again.predicted) == 5


def test_a_fit_costs_one_call_per_step_and_walk_in_batches():
    model = Spread(digits())
    walks = record_teacher(model, range(10))
    before, sizes = model.nfe, []
    inner = model.inner
    watched = Network(lambda x, t: sizes.append(len(x)) or inner(x, t), model.shape, model.noise, "x0")
    counted = Spread(watched, batch=4)
    stepwise_fit(asking(counted, walks.rows), walks, TIMES, FitConfig(2))
    assert counted.nfe == 10 * len(TIMES)
    assert sizes == [2, 2, 2, 2, 2] * len(TIMES)  # at most 4, and work for eight
    assert model.nfe == before


def test_every_sample_is_asked_with_its_own_condition():
    """A model that holds something of each sample is told which rows it gets."""
    noise = DiscreteVP.named()

    class Labelled:
        name, shape, prediction, clip, calls, device = "labelled", (2,), "x0", None, 1, torch.device("cpu")

        def __init__(self, labels):
            self.labels, self.noise = labels, noise

        def __call__(self, x, t):
            return self.labels[:, None].expand_as(x).clone()

        def for_samples(self, rows):
            return Labelled(torch.tensor([float(row) for row in rows]))

    ask = asking(Spread(Labelled(torch.zeros(1)), batch=2), (5, 6, 7))
    assert ask(torch.zeros(3, 2), 500.0)[0][:, 0].tolist() == [5, 6, 7]


def test_numbers_stay_within_the_bound_of_dpmpp():
    """Two directions that nearly cancel would take huge numbers to fit a little noise."""
    random = torch.Generator().manual_seed(0)
    one = torch.randn(6, 50, generator=random, dtype=torch.float64)
    tiny = 1e-3 * torch.randn(6, 50, generator=random, dtype=torch.float64)
    parts, missing = torch.stack([one, one + tiny]), 20 * tiny
    loose = np.linalg.lstsq(parts.reshape(2, -1).numpy().T, missing.flatten().numpy(), rcond=None)[0]
    assert np.abs(loose).max() > 15
    config = FitConfig()
    assert 0 < np.abs(bounded_fit(parts, missing, config)).max() <= config.bound


def test_strong_ridge_falls_back_to_dpmpp():
    model = spread()
    strong = FitConfig(order=3, ridge=1e12)
    found = stepwise_fit(ask_of(model), exact_walks(model, TIMES, random_starts(model, 8)), TIMES, strong)
    for own, known in zip(found.coefficients, known_coefficients("dpmpp-2m", model.noise, TIMES, 3), strict=True):
        np.testing.assert_allclose(own, known, atol=1e-9)


def test_nonsense_of_the_model_is_named():
    noise = DiscreteVP.named()
    model = Spread(Network(lambda x, t: x / 0, (2,), noise, "x0", name="broken"))
    with pytest.raises(ModelError, match="'broken' returned nan or infinity at t = 500"):
        asking(model, (0, 1))(torch.ones(2, 2), 500.0)
