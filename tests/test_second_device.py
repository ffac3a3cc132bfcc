"""Every verb on a model that is not on the CPU: no tensor may be left behind."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import pytest
import torch

import geosprint
from geosprint.baselines import baseline_schedule
from geosprint.comparison.methods import METHODS
from geosprint.models.base import Network
from geosprint.models.networks import load_pretrained
from geosprint.noise import DiscreteVP, Flow
from geosprint.profile import Settings
from geosprint.rivals import bns, ld3, learnt
from geosprint.rivals.base import Task, build
from geosprint.solvers import SOLVERS
from geosprint.teacher import TeacherConfig
from geosprint.tuning.config import DEFAULT
from second_device import DEVICE, second_device


@pytest.fixture(autouse=True)
def elsewhere():
    with second_device() as device:
        yield device


@pytest.fixture
def few_walks(monkeypatch):
    """As few steps of as few teacher trajectories as there can be."""
    monkeypatch.setattr("geosprint.teacher.STEPS", 12)
    monkeypatch.setattr("geosprint.tuning.run.DEFAULT", replace(DEFAULT, teacher=TeacherConfig(fewest=2)))


def model_of(noise, prediction):
    weights = 0.3 * torch.eye(8, device=DEVICE)

    def network(x, t):
        assert x.device == DEVICE
        return torch.tanh(x.flatten(1) @ weights).view_as(x) + 0.5 * x

    return Network(network, (2, 2, 2), noise, prediction, name="elsewhere", device=DEVICE)


@pytest.fixture(params=["vp", "flow"])
def model(request):
    return model_of(Flow(), "flow") if request.param == "flow" else model_of(DiscreteVP.named(), "eps")


def on_the_cpu(model):
    """The same numbers without the device."""
    plain = replace(model, function=lambda x, t: torch.tanh(0.3 * x) + 0.5 * x, device=torch.device("cpu"))
    assert plain.device.type == "cpu"
    return plain


def test_two_devices_do_not_mix_here():
    there, here = torch.ones(3, device=DEVICE), torch.ones(3)
    with pytest.raises(RuntimeError, match="two devices"):
        there + here
    with pytest.raises(RuntimeError, match="two devices"):
        here[torch.tensor([0, 2], device=DEVICE)]
    with pytest.raises(RuntimeError, match="not supported"):
        there.numpy()
    assert torch.equal((there * 2 + torch.tensor(1.0)).cpu(), torch.full((3,), 3.0))


@pytest.mark.parametrize("solver", SOLVERS)
def test_sample(model, solver):
    found = geosprint.sample(model, [900, 500, 100], range(3), solver, batch=2)
    assert torch.equal(found, geosprint.sample(on_the_cpu(model), [900, 500, 100], range(3), solver, batch=2))


def test_sample_with_fresh_noise(model):
    assert geosprint.sample(model, [900, 500, 100], range(3), eta=0.5).device.type == "cpu"


@pytest.mark.parametrize("space", ["vp", "x0"])
def test_extract(model, space, tmp_path):
    found = geosprint.extract(model, 3, 8, settings=Settings(space=space), work=tmp_path)
    expected = geosprint.extract(on_the_cpu(model), 3, 8, settings=Settings(space=space))
    assert found.kept.tolist() == expected.kept.tolist()


def test_fit(model, few_walks, tmp_path):
    schedule = baseline_schedule("uniform-trailing", model.noise, 3)
    fitted = geosprint.fit(model, 3, schedule, order=2, budget_nfe=600, work=tmp_path)
    assert geosprint.sample(model, fitted, range(2)).isfinite().all()


@dataclass(frozen=True)
class Guided(Network):
    """It also tells the conditional prediction, which is asked for on the device too."""

    answers: int = 1

    def __call__(self, x, t):
        guided = self.function(x, t)
        return guided if self.answers == 1 else torch.stack([guided, 0.8 * guided], dim=1)

    def with_conditional(self):
        return replace(self, answers=2)


def test_fit_a_guided_model(model, few_walks):
    told = {field.name: getattr(model, field.name) for field in fields(model)}
    guided = Guided(**{**told, "calls": 2})
    schedule = baseline_schedule("uniform-trailing", guided.noise, 3)
    fitted = geosprint.fit(guided, 3, schedule, order=2, budget_nfe=2000)
    assert fitted[3].guided  # coefficients of its own for what guidance adds
    assert geosprint.sample(guided, fitted, range(2)).isfinite().all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:no step was retained")
@pytest.mark.parametrize("solver", ["ddim", "fitted"])
def test_tune(model, solver, few_walks, tmp_path):
    found = geosprint.tune(model, 3, solver=solver, budget_nfe=1500, work=tmp_path)
    assert len(found[3]) == 3


SLOW = ("fitted", "s4s-alt", "dyweight", "neural-solver", "ld3-l2", "bns-l2")
TUNED = ("tuned", "tuned+fitted")  # what test_tune does
MADE = [name for name, method in METHODS.items() if method.source != "closed form" and name not in SLOW + TUNED]


@pytest.mark.parametrize("name", [*MADE, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_compare_builds_with(name, few_walks, monkeypatch):
    for descending in (ld3, bns, learnt):
        monkeypatch.setattr(descending, "UPDATES", ld3.LOOKS)  # of a device, one update tells as much as a hundred
    model = model_of(Flow(), "flow") if name == "neural-solver" else model_of(DiscreteVP.named(), "eps")
    assert len(build(METHODS[name], Task.of(model, "ddim", trajectories=3, reference_steps=12), 3).schedule) == 3


@pytest.mark.filterwarnings("ignore:no step was retained")
def test_compare(model, tmp_path):
    options = {"steps": (3,), "samples": 10, "trajectories": 2, "reference_steps": 8, "fine_steps": 8}
    methods = ("uniform-trailing", "geosprint")
    assert geosprint.compare(model, tmp_path, methods=methods, solvers=("ddim",), **options).rows


@pytest.mark.parametrize("labels", [None, 3, [1, 2, 3]])
def test_a_network_of_the_box(labels):
    network = load_pretrained("fashion", labels=labels, guidance=None if labels is None else 2.0)
    expected = geosprint.sample(network, [900, 300], range(3), batch=2)
    network.network.to(DEVICE)
    torch.testing.assert_close(geosprint.sample(network, [900, 300], range(3), batch=2), expected, rtol=0, atol=1e-3)
