"""Where teacher trajectories step."""

import numpy as np
import pytest
import torch

from geosprint.models.exact import Gaussian
from geosprint.models.spread import Spread
from geosprint.noise import ContinuousVP, DiscreteVP, Flow
from geosprint.sampling import SeededNoise
from geosprint.teacher import STEPS, TeacherConfig, fine_steps, fine_timesteps, record_teacher


@pytest.mark.parametrize(
    ("noise", "count"),
    [
        (DiscreteVP.named(), 60),
        (DiscreteVP.named(timesteps=40), 40),
        (ContinuousVP(), 60),
        (Flow(), 60),
        (Flow(3.0), 60),
    ],
    ids=str,
)
def test_the_steps_fall_from_pure_noise_and_the_model_knows_them(noise, count):
    times = fine_steps(noise)
    assert len(times) == count
    assert times[0] == noise.first
    assert (np.diff(times) < 0).all()
    assert noise.contains(times).all()
    if noise.kind == "flow":  # the clock at (i / 60)^1.5
        np.testing.assert_allclose(noise.clock(times), (np.arange(60, 0, -1) / 60) ** 1.5)


@pytest.mark.parametrize("noise", [DiscreteVP.named(), Flow()], ids=["vp", "flow"])
def test_the_walks_end_where_the_probability_flow_does(noise):
    model = Gaussian.of_images((1, 6, 6), noise=noise)
    counted = Spread(model, batch=3)
    walks = record_teacher(counted, range(5, 12))
    assert counted.nfe == 7 * STEPS
    assert walks.rows == tuple(range(7))
    starts = SeededNoise(range(5, 12), model.shape, model.device).draw()
    assert torch.equal(walks.starts, starts)
    torch.testing.assert_close(walks.ends, model.solution(starts, noise.first), rtol=5e-3, atol=1e-3)
    t = float(walks.times[30])
    torch.testing.assert_close(walks.state_at(t), model.solution(starts, noise.first, t), rtol=5e-3, atol=2e-3)


def test_the_truth_steps_where_the_walks_do_but_more_often():
    assert np.array_equal(fine_timesteps(DiscreteVP.named(), STEPS), fine_steps(DiscreteVP.named()))
    clock = (np.linspace(1, 0, 200) ** 1.5) * 999
    assert np.abs(fine_timesteps(DiscreteVP.named(), 200) - clock).max() <= 2  # whole, and pushed apart near the end


@pytest.mark.parametrize(
    ("budget", "calls", "counts"),
    [(1_000, 1, (4, 4)), (3_000, 1, (7, 8)), (5_000, 1, (8, 17)), (20_000, 2, (16, 34)), (20_000, 1, (32, 64))],
)
def test_three_tenths_of_the_calls_record_teachers_two_thirds_of_them_to_validate_on(budget, calls, counts):
    """At least four of each, and at most 96 together; up to eight to search on, both are equally many."""
    assert TeacherConfig().counts(budget, calls) == counts
