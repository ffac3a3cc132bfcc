from __future__ import annotations

import numpy as np
import pytest

from geosprint.noise import DiscreteVP, Flow
from geosprint.schedule import gaps_of, known_times, roughness_of, slopes_of, times_of

NOISES = {"whole timesteps": DiscreteVP.named(), "flow": Flow(shift=3.0)}


@pytest.mark.parametrize("kind", NOISES)
def test_times_come_back_from_their_gaps(kind):
    noise = NOISES[kind]
    times = np.array([0.93, 0.7, 0.66, 0.2, 0.05]) * noise.first
    assert np.allclose(times_of(gaps_of(times, noise), noise), times)


@pytest.mark.parametrize("kind", NOISES)
def test_any_numbers_give_times_that_fall_strictly_within_the_known_ones(kind):
    noise = NOISES[kind]
    times = times_of(np.random.default_rng(0).normal(size=9) * 3, noise)
    assert (np.diff(times) < 0).all()
    assert noise.contains(times).all() if noise.continuous else (times > 0).all()
    assert times[0] < noise.first


@pytest.mark.parametrize("kind", NOISES)
def test_slopes_are_those_of_small_differences(kind):
    noise, gaps = NOISES[kind], np.random.default_rng(1).normal(size=6)
    found = slopes_of(gaps, noise)
    for j in range(6):
        nudged = gaps + 1e-6 * np.eye(6)[j]
        assert np.allclose(found[:, j], (times_of(nudged, noise) - times_of(gaps, noise)) / 1e-6, atol=1e-3)


def test_gaps_that_grow_by_one_factor_are_not_rough_wherever_they_begin():
    gaps = np.array([-7.0, *np.linspace(0, 2, 7), -3.0])
    assert abs(gaps @ roughness_of(8) @ gaps) < 1e-12


def test_roughness_is_the_mean_squared_second_difference():
    gaps = np.array([9.0, 0, 1, 0, 2, 9])
    assert gaps @ roughness_of(5) @ gaps == pytest.approx(((-2) ** 2 + 3**2) / 2)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_too_few_steps_cannot_be_rough(steps):
    assert not roughness_of(steps).any()


def test_whole_timesteps_are_rounded_and_real_ones_are_left_alone():
    times = np.array([812.4, 811.9, 3.2])
    assert known_times(times, NOISES["whole timesteps"]).tolist() == [812, 811, 3] or known_times(
        times, NOISES["whole timesteps"]
    ).tolist() == [813, 812, 3]
    assert known_times(times, NOISES["flow"]) is times
