from __future__ import annotations

import numpy as np
import pytest

from geosprint.comparison.methods import METHODS, TUNED
from geosprint.models.exact import digits, ring
from geosprint.noise import Flow
from geosprint.rivals.base import Task, build
from geosprint.rivals.registry import RIVALS
from geosprint.rivals.weighted_path import cheapest_weighted_path, sensitivities


def test_both_are_among_the_methods_and_before_the_limit():
    names = list(METHODS)
    assert names.index("weighted-path") < names.index("tuned") < names.index("ld3-l2")


@pytest.mark.parametrize("model", [digits(), digits(noise=Flow())], ids=["whole timesteps", "flow"])
def test_a_weighted_path_is_the_cheapest_one_with_the_model_s_own_sensitivity(model):
    task = Task.of(model, "ddim", trajectories=6, reference_steps=30)
    left = sensitivities(task, gap=6)
    built = build(RIVALS["weighted-path"], task, 5)
    assert np.array_equal(built.schedule.timesteps, cheapest_weighted_path(task.recorded, left, 5, power=2))
    assert built.nfe > task.recorded.nfe


def test_the_calls_of_a_tuned_schedule_include_the_teacher_however_many_share_them():
    task = Task.of(ring(), "ddim")
    first, second = build(TUNED, task, 3), build(TUNED, task, 4)
    fine = task.recording.teacher.nfe
    assert len(first.schedule) == 3
    assert min(first.nfe, second.nfe) > fine
    assert task.model.nfe == first.nfe + second.nfe - fine
    assert second.nfe <= 20_000
