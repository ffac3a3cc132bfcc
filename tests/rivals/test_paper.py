from __future__ import annotations

import pytest

from geosprint.extraction import profile_trajectories
from geosprint.models.exact import digits
from geosprint.noise import Flow
from geosprint.rivals.base import Task, build
from geosprint.rivals.registry import RIVALS
from geosprint.sampling import record
from geosprint.schedule import build_schedule


@pytest.mark.parametrize(("method", "literal"), [(RIVALS["geosprint"], False), (RIVALS["geosprint-literal"], True)])
@pytest.mark.parametrize("noise", [None, Flow()], ids=["vp", "flow"])
def test_the_schedule_is_the_papers_from_the_tasks_own_seeds(noise, method, literal):
    model = digits(noise=noise)
    profile = profile_trajectories(record(model, range(7, 11), 20))
    expected = build_schedule(profile, 6, blend=0.6, literal=literal)
    built = build(method, Task.of(model, "ddim", trajectories=4, reference_steps=20, seed=7), 6)
    assert built.schedule.timesteps.tolist() == expected.timesteps.tolist()
    assert built.nfe == 4 * 20


def test_counting_the_forced_points_puts_more_steps_at_the_noise_end():
    task = Task.of(digits(), "ddim", trajectories=4, reference_steps=20)
    free, literal = (
        build(method, task, 8).schedule.timesteps for method in (RIVALS["geosprint"], RIVALS["geosprint-literal"])
    )
    assert (literal >= free).all()
    assert literal.sum() > free.sum()


def test_the_two_have_names_of_their_own():
    assert (RIVALS["geosprint"].name, RIVALS["geosprint-literal"].name) == ("geosprint", "geosprint-literal")
