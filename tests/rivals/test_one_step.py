from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from geosprint.errors import GeometryError
from geosprint.models.exact import Gaussian, digits, ring
from geosprint.noise import CLEAN, DiscreteVP, Flow
from geosprint.rivals.dynamic_programs import mean_changes, one_step_errors
from geosprint.sampling import record
from geosprint.trajectory import Origin, Trajectories

MODELS = {
    "digits": digits(),
    "digits, flow": digits(noise=Flow(shift=2.0)),
    "ring": ring(),
    "gaussian": Gaussian.of_images((1, 8, 8)),
}


def recorded_of(states, x0, eps, times, noise):
    """Made-up trajectories (trajectories, N+1, dimensions) in double precision."""
    states, x0, eps = (torch.as_tensor(np.array(part), dtype=torch.float64) for part in (states, x0, eps))
    origin = Origin("made up", tuple(states.shape[2:]), noise, "eps", None, 1, "ddim")
    return Trajectories(states, np.append(times, CLEAN), tuple(range(len(states))), origin, x0=x0, eps=eps)


def errors_one_by_one(recorded, space):
    """Every step made, every distance taken."""
    noise = recorded.origin.noise
    z, x0, eps = (part.double().numpy() for part in (recorded.states, recorded.x0, recorded.eps))
    count, points, _ = z.shape
    errors = np.zeros((count, points, points))
    for b in range(count):
        for i in range(points - 1):
            for j in range(i + 1, points):
                a, s = noise.signal_and_sigma(recorded.timesteps[j])
                missed = a * x0[b, i] + s * eps[b, i] - z[b, j]
                errors[b, i, j] = np.sqrt(np.mean((missed / a if space == "ve" else missed) ** 2))
    return errors


@pytest.mark.parametrize("space", ["vp", "ve"])
@pytest.mark.parametrize("name", MODELS)
def test_errors_equal_those_of_steps_made_one_by_one(name, space):
    recorded = record(MODELS[name], range(3), steps=20, predictions=True)
    expected = errors_one_by_one(recorded, space)
    found = one_step_errors(recorded, space)
    # The states are stored to 6e-8 of their size, up to 157 in ve, which is all that neighbours differ by.
    assert np.abs(found - expected).max() < 1e-7
    skipping = np.triu(np.ones(expected.shape[1:], dtype=bool), k=2)
    assert np.allclose(found[:, skipping], expected[:, skipping], rtol=1e-5, atol=1e-8)
    assert expected[:, skipping].min() > 1e-6  # so that the comparison says something


def test_a_hand_example_of_one_dimension():
    # A flow at s = 1, 0.5, 0: from the first state x0 = 2 and eps = 4, from the second x0 = 1 and eps = 5.
    recorded = recorded_of([[[4], [3], [0.5]]], [[[2], [1]]], [[[4], [5]]], [1000, 500], Flow())
    # 0 -> 1 lands at (2 + 4) / 2 = 3 and hits; 0 -> 2 lands at 2, not 0.5; 1 -> 2 at 1, not 0.5.
    assert np.allclose(one_step_errors(recorded), [[[0, 0, 1.5], [0, 0, 0.5], [0, 0, 0]]], atol=1e-15)


def test_errors_are_means_over_dimensions_not_sums():
    states, x0, eps = [[[4] * 9, [3] * 9, [0.5] * 9]], [[[2] * 9, [1] * 9]], [[[4] * 9, [5] * 9]]
    recorded = recorded_of(states, x0, eps, [1000, 500], Flow())
    assert np.isclose(one_step_errors(recorded)[0, 0, 2], 1.5)


@pytest.mark.parametrize("noise", [DiscreteVP.named(), Flow()], ids=["vp", "flow"])
def test_where_x0_and_eps_stay_the_same_every_step_is_exact(noise):
    times = np.array([999.0, 700, 300, 5])
    x0, eps = np.random.default_rng(0).normal(size=(2, 6))
    levels = np.array([noise.signal_and_sigma(t) for t in (*times, CLEAN)])
    recorded = recorded_of([levels @ np.stack([x0, eps])], [[x0] * 4], [[eps] * 4], times, noise)
    assert one_step_errors(recorded, "ve" if noise.kind != "flow" else "vp").max() < 1e-13


def test_steps_to_the_next_state_are_exact_for_a_ddim_recording():
    errors = one_step_errors(record(digits(), range(3), steps=20, predictions=True))
    neighbours = np.diagonal(errors, offset=1, axis1=1, axis2=2)
    assert neighbours.max() < 1e-6
    assert np.diagonal(errors, offset=3, axis1=1, axis2=2).max() > 1e-3


def test_ve_divides_by_the_signal_where_the_step_lands():
    recorded = record(digits(), range(2), steps=20, predictions=True)
    signal = [recorded.origin.noise.signal_and_sigma(t)[0] for t in recorded.timesteps]
    vp, ve = one_step_errors(recorded), one_step_errors(recorded, "ve")
    assert np.allclose(ve * signal, vp, rtol=1e-12)


def test_a_first_state_without_signal_has_errors_too():
    noise = DiscreteVP.named(zero_terminal_snr=True)
    recorded = record(ring(noise=noise), range(2), steps=10, predictions=True)
    assert noise.signal_and_sigma(recorded.timesteps[0])[0] == 0
    errors = one_step_errors(recorded, "ve")
    assert np.isfinite(errors).all()
    assert errors[:, 0, 2:].min() > 0


def test_recordings_that_cannot_be_stepped_from_are_refused():
    recorded = record(ring(), range(2), steps=5, predictions=True)
    with pytest.raises(GeometryError, match="predictions=True"):
        one_step_errors(replace(recorded, x0=None))
    with pytest.raises(GeometryError, match="vp or ve"):
        one_step_errors(recorded, "x0")


def test_changes_are_the_mean_length_of_the_differences():
    # The first goes 5 and then 0; the second 1 and then 2, backwards.
    vectors = torch.tensor([[[0.0, 0], [3, 4], [3, 4]], [[1, 1], [1, 0], [1, -2]]])
    assert mean_changes(vectors).tolist() == [3.0, 1.0]
