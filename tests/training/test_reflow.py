from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

from geosprint.training.reflow import Pairs, draw_pairs, load_pairs, save_pairs, transport


def towards(point):
    """The exact velocity eps - x0 of the flow whose data is one point."""
    return lambda x, t, labels: (x - point) / (t / 1000)


def test_pairs_transport_noise_to_the_only_sample_there_is():
    pairs = draw_pairs(towards(0.25), (1, 2, 2), torch.zeros(7).long(), steps=5, batch=3)
    torch.testing.assert_close(pairs.samples, torch.full((7, 1, 2, 2), 0.25))
    assert pairs.noise.std() > 0.5


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


def test_pairs_depend_on_the_seed_alone():
    labels = torch.arange(6) % 2
    first, again = (draw_pairs(gaussian_flow(0.5), (2,), labels, steps=3, seed=4, batch=3) for _ in range(2))
    other = draw_pairs(gaussian_flow(0.5), (2,), labels, steps=3, seed=5, batch=3)
    assert torch.equal(first.noise, again.noise)
    assert torch.equal(first.samples, again.samples)
    assert not torch.equal(first.noise, other.noise)


def test_pairs_survive_their_file(tmp_path):
    pairs = Pairs(torch.randn(3, 2), torch.tensor([1, 2, 3]), torch.randn(3, 2))
    save_pairs(pairs, tmp_path / "pairs.safetensors")
    read = load_pairs(tmp_path / "pairs.safetensors")
    assert all(torch.equal(getattr(read, part), getattr(pairs, part)) for part in ("samples", "labels", "noise"))
