from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from geosprint.paper.learning import DataOrder, Learner, TrainingPlan, draw_couplings, generator_of, transport


def weights_of_plain_adamw(slopes, plan, start):
    """Loshchilov and Hutter's update, written out, for one number whose loss has these slopes."""
    weight, first, second = start, 0.0, 0.0
    for step, slope in enumerate(slopes):
        slope = slope * min(1.0, plan.clip_gradient / abs(slope))
        first, second = 0.9 * first + 0.1 * slope, 0.99 * second + 0.01 * slope**2
        scale = math.sqrt(second / (1 - 0.99 ** (step + 1))) + 1e-8
        rate = plan.learning_rate_at(step)
        weight = weight - rate * plan.weight_decay * weight - rate * first / (1 - 0.9 ** (step + 1)) / scale
        yield weight


def one_number(start):
    network = nn.Linear(1, 1, bias=False).double()
    with torch.no_grad():
        network.weight.fill_(start)
    return network


SLOPES = np.random.default_rng(1).normal(size=25)


def test_steps_are_those_of_adamw_with_clipped_gradients():
    plan = TrainingPlan(steps=25, learning_rate=0.05, warmup=3, weight_decay=0.1, clip_gradient=0.7)
    network = one_number(0.8)
    learner = Learner(network, plan)
    for slope, expected in zip(SLOPES, weights_of_plain_adamw(SLOPES, plan, 0.8), strict=True):
        learner.learn(float(slope) * network.weight.sum())
        assert network.weight.item() == pytest.approx(expected, rel=1e-5)


def test_the_average_is_the_sum_of_decayed_weights_and_a_young_one_forgets_faster():
    plan = TrainingPlan(steps=25, learning_rate=0.05, warmup=1, ema_decay=0.6)
    network = one_number(0.8)
    learner, expected = Learner(network, plan), 0.8
    for step, slope in enumerate(SLOPES):
        learner.learn(float(slope) * network.weight.sum())
        decay = min(0.6, (2 + step) / (11 + step))
        expected = decay * expected + (1 - decay) * network.weight.item()
        assert learner.average["weight"].item() == pytest.approx(expected, rel=1e-9)


def test_learning_rate_warms_up_and_falls_to_nothing():
    plan = TrainingPlan(steps=1000, learning_rate=2.0, warmup=100)
    rates = [plan.learning_rate_at(step) for step in range(1000)]
    assert rates[0] == pytest.approx(0.02)
    assert rates[99] == pytest.approx(2.0)
    assert rates[550] == pytest.approx(1.0)
    assert rates[-1] < 1e-5
    assert rates[99:] == sorted(rates[99:], reverse=True)


def test_every_epoch_sees_every_row_once_in_another_order():
    order = DataOrder(count=10, batch=4, seed=3)
    rows = torch.cat([order.rows(step) for step in range(5)])
    assert sorted(rows[:10].tolist()) == sorted(rows[10:].tolist()) == list(range(10))
    assert rows[:10].tolist() != rows[10:].tolist()
    assert torch.equal(order.rows(3), DataOrder(10, 4, 3).rows(3))


def test_a_batch_may_be_larger_than_the_data():
    rows = DataOrder(count=3, batch=8, seed=0).rows(0)
    assert sorted(rows[:3].tolist()) == [0, 1, 2]
    assert len(rows) == 8


def test_generators_differ_by_seed_purpose_and_index():
    keys = [(0, "noise", 0), (1, "noise", 0), (0, "order", 0), (0, "noise", 1)]
    draws = {float(torch.rand(1, generator=generator_of(*key))) for key in keys}
    assert len(draws) == 4
    assert torch.equal(torch.rand(3, generator=generator_of(*keys[0])), torch.rand(3, generator=generator_of(*keys[0])))


def towards(point):
    """The exact velocity eps - x0 of the flow whose data is one point."""
    return lambda x, t, labels: (x - point) / (t / 1000)


def test_couplings_transport_noise_to_the_only_sample_there_is():
    samples, noise = draw_couplings(towards(0.25), (1, 2, 2), torch.zeros(7).long(), steps=5, batch=3)
    torch.testing.assert_close(samples, torch.full((7, 1, 2, 2), 0.25))
    assert noise.std() > 0.5


def test_transport_follows_the_label():
    points = torch.tensor([-0.5, 0.5])

    def velocity(x, t, labels):
        return (x - points[labels].view(-1, 1)) / (t / 1000)

    arrived = transport(velocity, torch.randn(4, 1), torch.tensor([0, 1, 1, 0]), steps=4)
    torch.testing.assert_close(arrived[:, 0], torch.tensor([-0.5, 0.5, 0.5, -0.5]))


def gaussian_flow(variance):
    """The exact velocity for Gaussian data: x at s has variance (1-s)² v + s²."""

    def velocity(x, t, labels):
        s = t / 1000
        return x * (s - (1 - s) * variance) / ((1 - s) ** 2 * variance + s**2)

    return velocity


def test_transport_is_second_order():
    noise, labels, variance = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1).long(), 0.25
    expected = math.sqrt(variance)
    errors = [abs(float(transport(gaussian_flow(variance), noise, labels, n)) - expected) for n in (20, 40, 80, 160)]
    slopes = [math.log2(coarse / fine) for coarse, fine in pairwise(errors)]
    assert slopes[-1] == pytest.approx(2, abs=0.25)


def test_couplings_depend_on_the_seed_alone():
    labels = torch.arange(6) % 2
    first, again = (draw_couplings(gaussian_flow(0.5), (2,), labels, steps=3, seed=4, batch=3) for _ in range(2))
    other = draw_couplings(gaussian_flow(0.5), (2,), labels, steps=3, seed=5, batch=3)
    assert all(torch.equal(one, same) for one, same in zip(first, again, strict=True))
    assert not torch.equal(first[1], other[1])
