"""Fits to what the surrogate predicts, beside slow fits of one schedule at a time."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from geosprint.baselines import closed_forms
from geosprint.fitted_solver import features, stepped
from geosprint.fitting.stepwise import fit_by_distance
from geosprint.models.exact import digits
from geosprint.models.spread import Spread
from geosprint.noise import CLEAN
from geosprint.solvers import ddim
from geosprint.teacher import TeacherSets
from geosprint.tuning.config import DEFAULT
from geosprint.tuning.problem import TuningProblem
from geosprint.tuning.surrogate import Surrogate
from geosprint.tuning.surrogate_fits import SurrogateFits

STEPS = 5
RIDGE = 1e-5  # enough that the rounding of float32 does not show


@pytest.fixture(scope="module")
def parts():
    model = Spread(digits())
    return TuningProblem.of(model, TeacherSets.recorded(model, 6000)).projection


@pytest.fixture(scope="module")
def schedules(parts):
    return np.array(list(closed_forms(parts.trajectories.noise, STEPS).values()))


def errors(parts, ends):
    return (ends - parts.trajectories.ends).norm(dim=-1)


def slow_fit(surrogate, times):
    """One schedule, one step after another, by the package's own regression."""
    teacher = surrogate.trajectories
    x, past, numbers = teacher.starts, [], []
    for t, t_next in pairwise([*times, CLEAN]):
        now = (surrogate.predict(x, t).x0,)
        own = torch.stack(features(x, now, past, 4))
        target = teacher.ends if t_next == CLEAN else teacher.state_at(t_next)
        a, s = teacher.noise.signal_and_sigma(t_next)
        *along, rest = surrogate.response.data.left_at_end(a, s).float()
        left = torch.cat([torch.stack(along), rest.expand(own.shape[-1] - len(along))])
        numbers.append(fit_by_distance(own * left, target * left, RIDGE, 6))
        x, past = torch.einsum("n,n...->...", torch.from_numpy(numbers[-1]).float(), own), [now, *past]
    return x, numbers


def walked(surrogate, times, numbers):
    x, past = surrogate.trajectories.starts, []
    for t, own in zip(times, numbers, strict=True):
        now = (surrogate.predict(x, t).x0,)
        x, past = stepped(x, now, past, own), [now, *past]
    return x


def test_stepwise_fits_of_many_schedules_end_where_slow_ones_of_each_do(parts, schedules):
    config = replace(DEFAULT, surrogate_ridge=RIDGE, fit=replace(DEFAULT.fit, end_reweightings=6))
    found = SurrogateFits(parts.trajectories, parts.response, ddim, config).ends(schedules)
    slow = Surrogate(parts.trajectories, parts.response, ddim)
    for times, ends in zip(schedules, found, strict=True):
        expected = errors(parts, slow_fit(slow, times.tolist())[0])
        assert errors(parts, ends).mean() == pytest.approx(float(expected.mean()), rel=0.03)


def test_refined_fits_have_no_higher_error_and_tend_to_the_least_there_is(parts, schedules):
    stepwise = errors(parts, SurrogateFits(parts.trajectories, parts.response, ddim).ends(schedules))
    few = SurrogateFits(parts.trajectories, parts.response, ddim, refined=True)
    refined = errors(parts, few.ends(schedules))
    assert (refined.sqrt().mean(dim=1) <= stepwise.sqrt().mean(dim=1) * (1 + 1e-5)).all()
    assert refined.sqrt().mean() < 0.99 * stepwise.sqrt().mean()
    many = replace(few, config=replace(DEFAULT, surrogate_rounds=30, surrogate_end_ridge=1e-7))
    slow, times = Surrogate(parts.trajectories, parts.response, ddim), schedules[3].tolist()
    _, begun = slow_fit(slow, times)
    cuts = np.cumsum([len(own) for own in begun])[:-1]

    def mean_distance(flat):
        return float(errors(parts, walked(slow, times, np.split(flat, cuts))).double().mean())

    least = minimize(mean_distance, np.concatenate(begun), method="BFGS", options={"maxiter": 60, "eps": 1e-3}).fun
    found = float(errors(parts, many.ends(schedules[3:4])[0]).mean())
    assert found < 1.05 * least


def test_schedules_do_not_look_at_each_other(parts, schedules):
    fits = SurrogateFits(parts.trajectories, parts.response, ddim, refined=True)
    together = fits.ends(schedules[:3])
    for times, ends in zip(schedules, together, strict=False):
        torch.testing.assert_close(ends, fits.ends(times[None])[0], rtol=1e-2, atol=1e-2)
