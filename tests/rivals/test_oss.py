from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from geosprint.errors import ScheduleError
from geosprint.models.base import predict
from geosprint.models.exact import Gaussian, digits, ring
from geosprint.models.spread import Spread
from geosprint.noise import Flow
from geosprint.rivals import oss as student_paths
from geosprint.rivals.base import Task, build
from geosprint.rivals.oss import best_paths
from geosprint.rivals.registry import RIVALS
from geosprint.sampling import Counted, record

MODELS = {"digits": digits(), "ring": ring(), "flow": ring(noise=Flow()), "gaussian": Gaussian.of_images((1, 8, 8))}


def best_path_of_one_image(model, teacher, times, steps):
    """One image, one state and one step at a time: the best student at each point, and the points it went by."""
    last = len(times) - 1
    students = {0: (teacher[:1], [])}
    for _ in range(steps):
        found = {}
        for i, (x, points) in students.items():
            if i == last:
                continue
            p = predict(model, x, float(times[i]))
            for j in range(i + 1, last + 1):
                a, s = model.noise.signal_and_sigma(times[j])
                landed = a * p.x0 + s * p.eps
                error = float((landed - teacher[j]).square().mean())
                if j not in found or error < found[j][0]:
                    found[j] = (error, landed, [*points, i])
        students = {j: (landed, points) for j, (_, landed, points) in found.items()}
    return students[last][1]


def teacher_of(model, count, steps):
    recorded = record(model, range(count), steps)
    return recorded.states.double().unflatten(2, model.shape), recorded.timesteps


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
@pytest.mark.parametrize("name", MODELS)
def test_paths_equal_those_found_image_by_image(name, steps):
    model = MODELS[name]
    teacher, times = teacher_of(model, 3, 9)
    expected = [best_path_of_one_image(model, one, times, steps) for one in teacher]
    assert best_paths(partial(predict, model), model.noise, teacher, times, steps).tolist() == expected


def test_the_network_is_asked_at_the_students_own_states():
    # With the teacher's states instead, the last step of two would be chosen by other errors.
    asked = []

    class Watched(Counted):
        def __call__(self, x, t):
            asked.append((t, x.clone()))
            return super().__call__(x, t)

    model = ring()
    teacher, times = teacher_of(model, 2, 6)
    best_paths(partial(predict, Watched(model)), model.noise, teacher, times, 2)
    p = predict(model, teacher[:, 0], float(times[0]))
    for t, x in asked[1:]:
        a, s = model.noise.signal_and_sigma(t)
        assert torch.allclose(x, a * p.x0 + s * p.eps, rtol=0, atol=1e-12)
    assert [t for t, _ in asked] == times[:-1].tolist()  # the first from noise, then once at each later point


@pytest.mark.parametrize("steps", [2, 5, 9])
def test_it_costs_one_call_at_first_and_then_one_at_every_point_within_reach(steps):
    task = Task.of(ring(), "ddim", trajectories=5, reference_steps=20)
    built = build(RIVALS["oss"], task, steps)
    calls = 1 + sum(20 - k for k in range(1, steps))  # after k steps the student cannot be before point k
    assert built.nfe == 5 * (20 + calls)


def test_a_path_over_all_recorded_times_is_the_recording_itself():
    task = Task.of(Gaussian.of_images((1, 8, 8)), "ddim", trajectories=4, reference_steps=20)
    assert build(RIVALS["oss"], task, 20).schedule.timesteps.tolist() == task.recorded.timesteps[:-1].tolist()
    with pytest.raises(ScheduleError, match="more reference steps"):
        build(RIVALS["oss"], task, 21)


@pytest.mark.parametrize("noise", [None, Flow(shift=2.0)], ids=["vp", "flow"])
def test_every_step_is_the_median_over_images(noise):
    task = Task.of(digits(noise=noise), "ddim", trajectories=5, reference_steps=20)
    times = task.recorded.timesteps
    teachers = task.recorded.states.unflatten(2, (1, 8, 8))
    paths = np.array([best_path_of_one_image(task.model, one, times, 6) for one in teachers])
    assert len(np.unique(paths, axis=0)) > 1  # so that the median says something
    middle = np.sort(times[paths], axis=0)[2]
    assert RIVALS["oss"].build(task, 6).tolist() == middle.tolist()


def test_batches_make_no_difference():
    task = Task.of(ring(), "ddim", trajectories=5, reference_steps=20)
    small = replace(task, model=Spread(ring(), batch=2))
    assert RIVALS["oss"].build(small, 5).tolist() == RIVALS["oss"].build(task, 5).tolist()


def test_a_fine_recording_is_searched_on_a_coarse_grid_with_both_ends_and_room_to_choose():
    recorded, chosen = 200, 10
    grid = student_paths._coarse_grid(recorded, chosen)
    assert len(grid) == student_paths.POINTS + 1
    assert grid[[0, -2, -1]].tolist() == [0, recorded - 1, recorded]
    assert len(student_paths._coarse_grid(recorded, 60)) == 2 * 60 + 1
    assert student_paths._coarse_grid(20, 15).tolist() == list(range(21))
    assert (np.diff(student_paths._coarse_grid(173, 40)) > 0).all()


def test_schedules_have_whole_falling_times_from_the_first():
    task = Task.of(digits(), "ddim", trajectories=4, reference_steps=60)
    times = build(RIVALS["oss"], task, 8).schedule.timesteps
    assert times[0] == 999
    assert (np.diff(times) < 0).all()
    assert (times == np.round(times)).all()
