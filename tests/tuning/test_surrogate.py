from __future__ import annotations

import numpy as np
import pytest
import torch

from geosprint.models.exact import Gaussian
from geosprint.models.spread import Spread
from geosprint.noise import DiscreteVP, Flow
from geosprint.principal_axes import PrincipalAxes
from geosprint.sampling import walk
from geosprint.solvers import solver_named
from geosprint.teacher import record_teacher
from geosprint.tuning.surrogate import Response, Surrogate

VARIANCES = torch.tensor([2.0, 0.7, 0.05], dtype=torch.float64)
NOISES = {"whole timesteps": DiscreteVP.named(), "flow": Flow()}
SCHEDULES = {5: [0.85, 0.6, 0.31, 0.12, 0.02], 3: [0.999, 0.4, 0.03]}


def model_and_surrogate(noise, solver):
    model = Gaussian(VARIANCES, noise=noise, in_cosine_basis=False)
    walks = record_teacher(Spread(model), range(6))
    return model, Surrogate(walks, Response(noise, PrincipalAxes(torch.eye(3), VARIANCES, 0.0)), solver_named(solver))


def times_of(noise, steps):
    times = [share * noise.first for share in SCHEDULES[steps]]
    return times if noise.continuous else [float(round(t)) for t in times]


@pytest.mark.parametrize("solver", ["ddim", "dpmpp-2m", "unipc", "heun"])
@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize("steps", SCHEDULES)
def test_the_surrogate_of_a_gaussian_model_ends_where_the_model_does(solver, kind, steps):
    noise = NOISES[kind]
    model, surrogate = model_and_surrogate(noise, solver)
    times = times_of(noise, steps)
    *_, last = walk(model, surrogate.trajectories.starts, times, solver_named(solver), None)
    error = (last.x - surrogate.trajectories.ends).norm(dim=1)
    assert ((surrogate.end(times) - last.x).norm(dim=1) < 0.05 * error + 0.01).all()


@pytest.mark.parametrize("solver", ["ddim", "dpmpp-2m", "unipc"])
@pytest.mark.parametrize("kind", NOISES)
def test_slopes_are_those_of_whole_walks(solver, kind):
    noise = NOISES[kind]
    _, surrogate = model_and_surrogate(noise, solver)
    times = times_of(noise, 5)
    end, slopes = surrogate.slopes(times)
    assert torch.allclose(end, surrogate.end(times), atol=1e-6)
    nudge = 5e-4 * noise.first
    for i in range(5):
        lower, upper = (surrogate.end([t + sign * nudge * (j == i) for j, t in enumerate(times)]) for sign in (-1, 1))
        expected = (upper - lower) / (2 * nudge)
        assert (slopes[i] - expected).norm() < 0.1 * expected.norm() + 1e-3 / noise.first


def test_a_first_time_at_the_very_start_has_a_slope_too():
    noise = NOISES["whole timesteps"]
    _, surrogate = model_and_surrogate(noise, "ddim")
    _, slopes = surrogate.slopes([999.0, 500.0, 0.0])
    assert torch.isfinite(slopes).all()
    assert (slopes.flatten(1).norm(dim=1) > 0).all()


@pytest.mark.parametrize("solver", ["ddim", "heun", "dpmpp-2m", "dpmpp-2m-kdiffusion", "unipc", "deis", "ipndm"])
@pytest.mark.parametrize("kind", NOISES)
def test_schedules_walked_together_end_where_each_ends_alone(solver, kind):
    noise = NOISES[kind]
    _, surrogate = model_and_surrogate(noise, solver)
    some = np.array([times_of(noise, 5), [0.9 * t for t in times_of(noise, 5)], times_of(noise, 5)])
    begun_at_noise = np.array([[noise.first, *times[1:]] for times in some])  # a flow has no signal there
    for schedules in (some, begun_at_noise, np.concatenate([some, begun_at_noise])):
        together = surrogate.ends(schedules)
        assert torch.allclose(together, torch.stack([surrogate.end(one.tolist()) for one in schedules]), atol=2e-5)
