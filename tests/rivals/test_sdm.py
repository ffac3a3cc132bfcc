from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from geosprint.baselines import reference_timesteps
from geosprint.models.base import predict
from geosprint.models.exact import digits
from geosprint.noise import CLEAN, ContinuousVP, DiscreteVP, Flow
from geosprint.rivals.base import Task, build
from geosprint.rivals.local_errors import EMPHASIS, error_density
from geosprint.rivals.registry import RIVALS
from geosprint.schedule import quantile_times
from geosprint.trajectory import Origin, Trajectories

NOISES = {"vp": DiscreteVP.named(), "flow": Flow()}


def recorded_with_slopes(noise, steps, *slopes):
    """Trajectories whose ODE slope is each of these functions of sigma: eps in vp, eps - x0 in a flow."""
    times = reference_timesteps(noise, steps)
    random = np.random.default_rng(0)
    directions = random.normal(size=(len(slopes), 1, 4))
    d = torch.from_numpy(np.stack([f(noise.sigma(times)) for f in slopes])[:, :, None] * directions)
    x0 = torch.from_numpy(random.normal(size=d.shape))
    states = torch.zeros(len(slopes), steps + 1, 4, dtype=torch.float64)
    origin = Origin("made up", (4,), noise, "eps", None, 1, "ddim")
    eps = x0 + d if isinstance(noise, Flow) else d
    return Trajectories(states, np.append(times, CLEAN), tuple(range(len(d))), origin, x0=x0, eps=eps)


def mass_below_each_time(task):
    """Trial steps made and the model asked where they land; the mass of each cell summed up from the noise end."""
    recorded, noise = task.recorded, task.model.noise
    times = recorded.timesteps[:-1]
    lengths = []
    for i in range(len(times) - 1):
        x = recorded.states[:, i].unflatten(1, task.model.shape).double()
        h = float(noise.sigma(times[i]) - noise.sigma(times[i + 1]))
        before = predict(task.model, x, float(times[i]))
        if isinstance(noise, Flow):
            d = before.eps - before.x0
            after = predict(task.model, x - h * d, float(times[i + 1]))
            d_there = after.eps - after.x0
        else:
            a, a_next = (noise.signal_and_sigma(t)[0] for t in times[i : i + 2])
            d = before.eps
            d_there = predict(task.model, a_next * (x / a - h * d), float(times[i + 1])).eps
        sharpness = float(((d_there - d).flatten(1).norm(dim=1) / h).mean())
        lengths.append(np.sqrt(h**2 * sharpness / 2) * float(noise.sigma(times[0]) / noise.sigma(times[i + 1])) ** 0.1)
    return np.append(0, np.cumsum(lengths))


@pytest.mark.parametrize("name", NOISES)
def test_recorded_slopes_give_what_trial_steps_with_the_model_give(name):
    task = Task.of(digits(noise=NOISES[name]), "ddim", trajectories=4, reference_steps=100)
    mass = mass_below_each_time(task)
    times = task.recorded.timesteps[:-1]
    clock = task.model.noise.clock(times)
    density = error_density(task.recorded)
    above = np.array([np.trapezoid(*_part(density, t)) for t in clock])
    # The same share of the mass above every recorded time; the flow's last cell, to clean, holds a little more.
    total = np.trapezoid(*_part(density, clock[-1]))
    assert np.abs(above / total - mass / mass[-1]).max() < 5e-3


def _part(density, clock):
    """The values and the nodes of a density from this clock up."""
    nodes = np.append(clock, density.clock[density.clock > clock])
    return np.interp(nodes, density.clock, density.values), nodes


@pytest.mark.parametrize("name", NOISES)
def test_a_slope_that_changes_steadily_is_stepped_along_in_a_known_power_of_sigma(name):
    # |dd/dsigma| is constant, so the mass below sigma is the integral of sigma^-q: sigma^(1-q).
    noise, steps = NOISES[name], 8
    recorded = recorded_with_slopes(noise, 1000, lambda sigma: 3 * sigma, lambda sigma: 1 - sigma)
    sigma = noise.sigma(quantile_times(error_density(recorded), steps, noise))
    power = 1 - EMPHASIS
    if noise.continuous:
        expected = (np.arange(steps, 0, -1) / steps) ** (1 / power)
    else:
        first, last = noise.sigma([999, 0]) ** power
        expected = np.linspace(first, last, steps) ** (1 / power)
    cell = 1e-3 if noise.continuous else 0.01  # a whole timestep is 1% of sigma at the noise end
    assert np.allclose(sigma, expected, rtol=cell, atol=cell * 0.2)


def test_errors_are_averaged_before_the_root_is_taken():
    # As for the paths of sharp-euler, with the weight sigma^-q above and below the middle.
    noise = Flow()
    steep, steady = (lambda sigma: 4 * np.maximum(sigma - 0.5, 0)), (lambda sigma: sigma)
    recorded = recorded_with_slopes(noise, 1000, steep, steady)
    lengths = [float(torch.linalg.vector_norm(one[0] - one[-1])) for one in recorded.eps - recorded.x0]
    per_sigma = np.array([lengths[0] / 0.5, lengths[1]])  # |dd/dsigma| of both where they move
    power = 1 - EMPHASIS
    below = np.sqrt(per_sigma[1]) * 0.5**power
    above = np.sqrt(per_sigma.sum()) * (1 - 0.5**power)
    times = quantile_times(error_density(recorded), 1000, noise)
    assert abs((times > 500).mean() - above / (above + below)) < 2e-3


def test_a_straight_path_is_still_stepped_along():
    recorded = recorded_with_slopes(Flow(), 50, lambda sigma: 0 * sigma)
    recorded = replace(recorded, eps=recorded.x0)  # to the last bit
    assert np.allclose(quantile_times(error_density(recorded), 5, Flow()), [1000, 800, 600, 400, 200])


@pytest.mark.parametrize("noise", [DiscreteVP.named(), Flow(), ContinuousVP()], ids=["vp", "flow", "continuous"])
def test_a_schedule_costs_nothing_but_the_recording(noise):
    task = Task.of(digits(noise=noise), "ddim", trajectories=4, reference_steps=20)
    built = build(RIVALS["sdm"], task, 7)
    assert len(built.schedule) == 7
    assert built.schedule.timesteps[0] == noise.first
    assert built.nfe == 4 * 20
