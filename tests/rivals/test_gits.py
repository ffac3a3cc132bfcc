from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest

from geosprint.errors import ScheduleError
from geosprint.models.exact import Gaussian, digits
from geosprint.noise import Flow
from geosprint.rivals.base import Task, build
from geosprint.rivals.registry import RIVALS

MODELS = {"vp": digits(), "flow": digits(noise=Flow(shift=2.0))}


def mean_error_of_a_step(recorded, i, j):
    """The mean over trajectories of the RMS distance, divided by the signal unless the model is a flow."""
    noise = recorded.origin.noise
    a, s = noise.signal_and_sigma(recorded.timesteps[j])
    missed = (a * recorded.x0[:, i].double() + s * recorded.eps[:, i].double() - recorded.states[:, j].double()).numpy()
    return np.sqrt((missed**2).mean(axis=1)).mean() / (1 if isinstance(noise, Flow) else a)


def times_of_the_best_path(recorded, steps, coefficient):
    """Every path from the first state to clean written out; the k-th error counts coefficient^k."""
    last = len(recorded.timesteps) - 1
    error = {pair: mean_error_of_a_step(recorded, *pair) for pair in combinations(range(last + 1), 2)}

    def price(path):
        return sum(coefficient**k * error[pair] for k, pair in enumerate(pairwise([*path, last])))

    paths = [(0, *later) for later in combinations(range(1, last), steps - 1)]
    return recorded.timesteps[list(min(paths, key=price))]


@pytest.mark.parametrize("steps", [2, 3, 5])
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize(
    ("method", "coefficient"), [(RIVALS["gits"], 1.15), (RIVALS["gits-plain"], 1.0)], ids=["published", "plain"]
)
def test_the_times_are_those_of_the_best_of_all_paths(method, coefficient, kind, steps):
    task = Task.of(MODELS[kind], "ddim", trajectories=4, reference_steps=12)
    expected = times_of_the_best_path(task.recorded, steps, coefficient)
    assert method.build(task, steps).tolist() == expected.tolist()


def test_the_coefficient_moves_steps_towards_the_clean_end():
    task = Task.of(digits(), "ddim", trajectories=8, reference_steps=40)
    published, plain = (method.build(task, 10) for method in (RIVALS["gits"], RIVALS["gits-plain"]))
    assert (published <= plain).all()
    assert published.sum() < plain.sum()


@pytest.mark.parametrize("kind", MODELS)
def test_a_schedule_starts_at_pure_noise_and_costs_nothing_but_the_recording(kind):
    task = Task.of(MODELS[kind], "ddim", trajectories=4, reference_steps=20)
    built = build(RIVALS["gits"], task, 6)
    assert built.schedule.timesteps[0] == task.model.noise.first
    assert len(built.schedule) == 6
    assert built.nfe == 4 * 20


def test_as_many_steps_as_were_recorded_are_the_recorded_ones_and_more_are_refused():
    task = Task.of(Gaussian.of_images((1, 8, 8)), "ddim", trajectories=4, reference_steps=20)
    assert build(RIVALS["gits"], task, 20).schedule.timesteps.tolist() == task.recorded.timesteps[:-1].tolist()
    with pytest.raises(ScheduleError, match="more reference steps"):
        build(RIVALS["gits"], task, 21)
