"""The limit of fitted solvers: its gradient, and that it lies below where it starts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from geosprint.baselines import baseline_schedule
from geosprint.comparison.methods import LIMITS
from geosprint.fitted_solver import FittedSolver, known_coefficients
from geosprint.models.exact import Gaussian, digits
from geosprint.noise import ContinuousVP, DiscreteVP, Flow
from geosprint.rivals import bns, ld3
from geosprint.rivals.base import Task
from geosprint.rivals.bns import bns_l2, end_of_walk
from geosprint.rivals.ld3 import EndPairs
from geosprint.sampling import walk
from geosprint.schedule import StepSchedule, gaps_of
from geosprint.solvers import refuse_to_draw

VARIANCES = torch.tensor([0.02, 0.3, 1.0, 2.5], dtype=torch.float64)
NOISES = {"discrete": DiscreteVP.named(), "continuous": ContinuousVP(), "flow": Flow(shift=3.0)}


def task_and_pairs(noise):
    model = Gaussian(VARIANCES, noise, in_cosine_basis=False)
    start = torch.randn(6, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return Task.of(model, "ddim"), EndPairs(torch.arange(6), start, model.solution(start, noise.first))


def solver(noise, times):
    rows = known_coefficients("dpmpp-2m", noise, times, 3)
    moved = np.random.default_rng(1).normal(0, 0.05, (len(rows), 4))
    numbers = tuple(tuple(np.array(own) + moved[i, : len(own)]) for i, own in enumerate(rows))
    return FittedSolver(StepSchedule.at(times, noise, {"method": "by hand"}), numbers)


def free_of(made, noise):
    gaps = torch.from_numpy(gaps_of(made.schedule.timesteps, noise))
    return [gaps, *(torch.tensor(own, dtype=torch.float64) for own in made.coefficients)]


@pytest.mark.parametrize("kind", NOISES)
def test_the_walk_is_that_of_the_fitted_solver(kind):
    noise = NOISES[kind]
    task, pairs = task_and_pairs(noise)
    times = np.array([960.0, 600, 310, 90]) if kind == "discrete" else np.array([0.96, 0.6, 0.31, 0.09]) * noise.first
    made = solver(noise, times)
    *_, last = walk(task.model, pairs.noise, times, made, refuse_to_draw)
    torch.testing.assert_close(end_of_walk(task, free_of(made, noise), pairs), last.x, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["continuous", "flow"])
def test_the_gradient_is_a_finite_difference(kind, monkeypatch):
    monkeypatch.setattr(ld3, "NUDGE", 1e-3)
    noise = NOISES[kind]
    task, pairs = task_and_pairs(noise)
    free = free_of(solver(noise, np.array([0.96, 0.6, 0.31, 0.09]) * noise.first), noise)

    def error(parts):
        return pairs.errors(end_of_walk(task, parts, pairs)).mean()

    leaves = [part.clone().requires_grad_() for part in free]
    found = torch.autograd.grad(error(leaves), leaves)
    for i, gradient in enumerate(found):
        for j, slope in enumerate(gradient):
            ends = []
            for way in (1e-5, -1e-5):
                moved = [part.clone() for part in free]
                moved[i][j] += way
                ends.append(float(error(moved)))
            assert float(slope) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=0.02, abs=2e-3)


def test_it_ends_below_where_it_starts(monkeypatch):
    monkeypatch.setattr(bns, "UPDATES", 4 * ld3.LOOKS)
    task = Task.of(digits(), "ddim")
    start = solver(task.model.noise, baseline_schedule("kl-optimal", task.model.noise, 4).timesteps)
    found = bns_l2(task, start)
    teacher = task.recording.teacher
    pairs = EndPairs.of(teacher.for_validation).joined_with(EndPairs.of(teacher.for_search))
    assert sorted(pairs.rows.tolist()) == list(range(96))
    assert torch.equal(pairs.ends[64:], teacher.for_search.ends)
    ends = []
    for made in (found, start):
        *_, last = walk(task.model, pairs.noise, made.schedule.timesteps, made, refuse_to_draw)
        ends.append(float(pairs.errors(last.x).mean()))
    assert ends[0] < 0.7 * ends[1]  # coefficients that were moved at random are easy to mend
    assert [len(own) for own in found.coefficients] == [len(own) for own in start.coefficients]
    assert not np.array_equal(found.schedule.timesteps, start.schedule.timesteps)


@pytest.mark.parametrize(("steps", "share"), [(4, 1), (5, 1), (10, 1 / 2), (20, 1 / 4)])
def test_rates_fall_as_steps_become_more(monkeypatch, steps, share):
    """Many steps end elsewhere together: with the rates of five, fifteen steps of a trained network find nothing."""
    seen = []

    def no_descent(task, name, begun, *_):
        seen.extend(rate for _, rate in begun)
        return iter(())

    monkeypatch.setattr(bns, "adam_descent", no_descent)
    task = Task.of(digits(), "ddim")
    start = solver(task.model.noise, baseline_schedule("karras", task.model.noise, steps).timesteps)
    bns_l2(task, start)
    assert seen == pytest.approx([share * bns.TIME_RATE, *[share * bns.COEFFICIENT_RATE] * steps])


def test_it_is_a_limit_and_does_not_compete():
    assert "bns-l2" in LIMITS
