from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from geosprint.baselines import reference_timesteps
from geosprint.models.exact import digits
from geosprint.noise import CLEAN, ContinuousVP, DiscreteVP, Flow
from geosprint.rivals.base import Task, build
from geosprint.rivals.local_errors import sharpness_density
from geosprint.rivals.registry import RIVALS
from geosprint.schedule import quantile_times
from geosprint.trajectory import Origin, Trajectories

NOISES = {"vp": DiscreteVP.named(), "flow": Flow(), "shifted flow": Flow(shift=3.0)}


def flow_time(noise, times):
    """s / (a + s)."""
    levels = np.array([noise.signal_and_sigma(t) for t in times])
    return levels[:, 1] / levels.sum(axis=1)


def recorded_with_velocities(noise, steps, *velocities):
    """Trajectories whose eps - x0 is each of these functions of the flow's time, along random directions."""
    times = reference_timesteps(noise, steps)
    tau = flow_time(noise, times)
    random = np.random.default_rng(0)
    directions = random.normal(size=(len(velocities), 1, 4))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    v = torch.from_numpy(np.stack([f(tau) for f in velocities])[:, :, None] * directions)
    x0 = torch.from_numpy(random.normal(size=v.shape))  # eps - x0 is what counts, not either of them
    states = torch.zeros(len(velocities), steps + 1, 4, dtype=torch.float64)
    origin = Origin("made up", (4,), noise, "eps", None, 1, "ddim")
    return Trajectories(states, np.append(times, CLEAN), tuple(range(len(v))), origin, x0=x0, eps=x0 + v)


@pytest.mark.parametrize("name", NOISES)
def test_steps_are_quantiles_of_the_root_of_a_known_acceleration(name):
    # v = tau³ accelerates by 3·tau², whose root grows as tau: the mass below tau is tau².
    noise, steps = NOISES[name], 10
    recorded = recorded_with_velocities(noise, 1000, lambda tau: tau**3, lambda tau: -(tau**3))
    times = quantile_times(sharpness_density(recorded), steps, noise)
    ends = flow_time(noise, [1000, CLEAN] if noise.continuous else [999, 0])
    shares = np.linspace(1, 0, steps + 1)[:-1] if noise.continuous else np.linspace(1, 0, steps)
    expected = np.sqrt(ends[1] ** 2 + shares * (ends[0] ** 2 - ends[1] ** 2))
    # One whole timestep is up to 0.005 of the flow's time; continuous times miss by the width of a cell's smoothing.
    assert np.allclose(flow_time(noise, times), expected, atol=1e-3 if noise.continuous else 3e-3)


@pytest.mark.parametrize("name", NOISES)
def test_a_steady_acceleration_is_stepped_along_evenly_in_the_time_of_a_flow(name):
    noise = NOISES[name]
    recorded = recorded_with_velocities(noise, 1000, lambda tau: 5 * tau)
    tau = flow_time(noise, [*quantile_times(sharpness_density(recorded), 8, noise), CLEAN])
    gaps = -np.diff(tau) if noise.continuous else -np.diff(tau[:-1])
    assert np.allclose(gaps, gaps.mean(), atol=4e-3)


def test_accelerations_are_averaged_before_the_root_is_taken():
    # Above 0.5 the mean acceleration is (4 + 1) / 2, below it is (0 + 1) / 2: their roots are as sqrt(5) to 1.
    noise = Flow()
    recorded = recorded_with_velocities(noise, 1000, lambda tau: 4 * np.maximum(tau - 0.5, 0), lambda tau: tau)
    times = quantile_times(sharpness_density(recorded), 1000, noise)
    assert abs((times > 500).mean() - np.sqrt(5) / (np.sqrt(5) + 1)) < 2e-3


def test_a_kink_is_smoothed_by_one_cell_of_the_recording():
    # The velocity jumps in one cell: the density is the Gaussian kernel, which holds 68% within one deviation.
    noise = Flow()
    recorded = recorded_with_velocities(noise, 200, lambda tau: np.where(tau > 0.6025 - 1e-9, 1.0, 0.0))
    jump = 1000 * (0.605 + 0.6) / 2
    times = quantile_times(sharpness_density(recorded), 1000, noise)
    assert abs(np.median(times) - jump) < 0.5
    # A cell is 5 wide; to interpolate between cells adds 5² / 6 to the variance. The first step is always at 1000.
    assert abs(times[1:].std() - np.sqrt(25 + 25 / 6)) < 0.1


def test_a_straight_path_is_stepped_along_evenly():
    noise = Flow()
    recorded = recorded_with_velocities(noise, 50, lambda tau: 0 * tau)
    recorded = replace(recorded, eps=recorded.x0)  # to the last bit
    assert np.allclose(quantile_times(sharpness_density(recorded), 5, noise), [1000, 800, 600, 400, 200])


@pytest.mark.parametrize("noise", [DiscreteVP.named(), Flow(), ContinuousVP()], ids=["vp", "flow", "continuous"])
def test_a_schedule_costs_nothing_but_the_recording(noise):
    task = Task.of(digits(noise=noise), "ddim", trajectories=4, reference_steps=20)
    built = build(RIVALS["sharp-euler"], task, 7)
    assert len(built.schedule) == 7
    assert built.schedule.timesteps[0] == noise.first
    assert built.nfe == 4 * 20
