from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from geosprint.training.ema import decay_at, update_average


@given(st.floats(0, 1), st.integers(1, 30))
def test_average_of_constant_weights_follows_the_closed_form(decay, steps):
    average, weights = [torch.zeros(3, dtype=torch.float64)], [torch.ones(3, dtype=torch.float64)]
    for _ in range(steps):
        update_average(average, weights, decay)
    assert average[0].tolist() == pytest.approx([1 - decay**steps] * 3, abs=1e-12)


def test_average_is_the_sum_of_decayed_weights():
    history = torch.randn(20, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    average = [torch.zeros(4, dtype=torch.float64)]
    for weights in history:
        update_average(average, [weights], 0.9)
    ages = torch.arange(19, -1, -1, dtype=torch.float64)
    expected = (0.1 * 0.9**ages)[:, None].mul(history).sum(0)
    torch.testing.assert_close(average[0], expected)


def test_a_young_average_forgets_faster():
    decays = [decay_at(step, 0.999) for step in range(1, 20_000, 7)]
    assert decays == sorted(decays)
    assert decays[0] == pytest.approx(2 / 11)
    assert decays[-1] == 0.999
