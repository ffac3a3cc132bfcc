"""Every sample keeps its own condition, and every state is on the model's device, whoever asks."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch

import geosprint
from geosprint.models.base import CPU, Model
from geosprint.models.exact import ring
from geosprint.models.spread import Spread
from geosprint.models.wrappers import Wrapped
from geosprint.noise import DiscreteVP, Flow
from geosprint.rivals import ld3, learnt
from geosprint.rivals.base import Recording, Task, build
from geosprint.rivals.registry import RIVALS
from geosprint.sampling import sample
from second_device import DEVICE, second_device


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """A descent that need not arrive."""
    for descending in (ld3, learnt):
        monkeypatch.setattr(descending, "UPDATES", ld3.LOOKS)


@dataclass(frozen=True, eq=False)
class Labelled(Model):
    """Sample i draws the number i whatever its noise, and only with its own label."""

    labels: tuple[int, ...] = tuple(range(200))
    asked: list[tuple[int, ...]] = field(default_factory=list)
    shape: tuple[int, ...] = (2,)
    noise: DiscreteVP = field(default_factory=DiscreteVP.named)
    name: str = "labelled"
    prediction: str = "x0"
    clip: float | None = None
    calls: int = 1
    device: torch.device = CPU

    def for_samples(self, rows):
        return Labelled(tuple(self.labels[row] for row in rows), self.asked)

    def __call__(self, x, t):
        assert len(x) == len(self.labels), "as many states as labels"
        self.asked.append(self.labels)
        return torch.tensor(self.labels, dtype=x.dtype)[:, None] + t / 1e6 * torch.tanh(x)


@pytest.mark.parametrize("name", ["oss", "weighted-path", "s4s-alt", "dyweight", "ld3-l2"])
def test_a_published_schedule_asks_about_each_sample_with_its_own_condition(name):
    model = Labelled()
    spread = Spread(model, batch=5)
    task = Task(spread, "ddim", Recording(spread, trajectories=18, steps=20))
    assert len(task.recorded.states) == 18
    model.asked.clear()
    build(RIVALS[name], task, 4)
    assert {label for labels in model.asked for label in labels} >= set(range(16))
    if name == "oss":  # 16 students in eight batches
        assert set(model.asked) == {(row, row + 1) for row in range(0, 16, 2)}


@dataclass(frozen=True, eq=False)
class There(Wrapped):
    """A model on the second device."""

    @property
    def device(self):
        return DEVICE

    def __call__(self, x, t):
        assert x.device == DEVICE, "the state is not on the model's device"
        return self.inner(x.cpu(), t).to(DEVICE)


@pytest.mark.parametrize("name", [name for name, method in RIVALS.items() if method.from_recording])
def test_published_schedules_are_made_on_the_model_s_device(name):
    here = build(RIVALS[name], Task.of(ring(), "ddim", trajectories=6, reference_steps=20), 4)
    with second_device():
        there = build(RIVALS[name], Task.of(There(ring()), "ddim", trajectories=6, reference_steps=20), 4)
    assert there.schedule.timesteps.tolist() == here.schedule.timesteps.tolist()


@pytest.mark.parametrize("name", ["s4s-alt", "dyweight", "neural-solver"])
def test_learnt_solvers_are_made_and_walked_on_the_model_s_device(name):
    model = ring(noise=Flow())
    here = build(RIVALS[name], Task.of(model, "ddim"), 3)
    expected = sample(model, here.schedule.timesteps, range(4), here.solver)
    with second_device():
        there = build(RIVALS[name], Task.of(There(model), "ddim"), 3)
        found = sample(There(model), there.schedule.timesteps, range(4), there.solver)
    assert (there.nfe, there.backprops) == (here.nfe, here.backprops)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_a_schedule_is_tuned_on_the_model_s_device():
    def tuned(model):
        return geosprint.tune(model, 3, solver="dpmpp-2m", budget_nfe=3300, progress=False)[3].timesteps.tolist()

    here = tuned(ring())
    with second_device():
        assert tuned(There(ring())) == here
