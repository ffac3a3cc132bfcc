"""A model is known again in any precision, and told apart from others by its weights."""

from __future__ import annotations

import copy
import hashlib
import json
import warnings

import pytest
import torch
from torch import nn

import geosprint
from geosprint.models.exact import ring
from geosprint.models.fingerprint import SAMPLED, made_for, network_of, warn_of_another_model, weights_of
from geosprint.noise import DiscreteVP
from geosprint.sampling import Counted


class Small(nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.norm, self.last = nn.Linear(4, 9), nn.LayerNorm(9), nn.Linear(9, 4)

    def forward(self, x, t):
        return self.last(self.norm(self.first(x)))


def model_of(network, name="network"):
    return geosprint.Network(network, (4,), DiscreteVP.named(), name=name)


def warned(made, network, name="network"):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_another_model(made, name, network)
    return [str(one.message) for one in caught]


def test_it_holds_names_shapes_and_weights_in_order():
    network = Small()
    found = weights_of(network)
    shapes = {name: list(own.shape) for name, own in network.named_parameters()}
    assert found["names_sha256"] == hashlib.sha256(json.dumps(shapes, sort_keys=True).encode()).hexdigest()
    every = torch.cat([network.first.weight.flatten(), network.last.weight.flatten()])
    expected = every[torch.linspace(0, len(every) - 1, SAMPLED, dtype=torch.float64).long()]
    torch.testing.assert_close(torch.tensor(found["values"]), expected.detach(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_same_weights_are_known_in_any_precision_and_by_any_name(dtype):
    made = made_for(model_of(Small(), "one"))
    assert warned(made, Small().to(dtype), "other") == []


def test_a_compiled_network_is_known():
    assert weights_of(torch.compile(Small())) == weights_of(Small())


def test_other_weights_of_the_same_name_are_a_warning():
    (said,) = warned(made_for(model_of(Small())), Small(seed=1))
    assert said.startswith("these steps were made for model 'network' with other weights and are used with 'network';")


def test_another_architecture_is_a_warning_that_names_both():
    wider = Small()
    wider.extra = nn.Linear(2, 2)
    (said,) = warned(made_for(model_of(Small(), "one")), wider, "other")
    assert "model 'one' and are used with 'other'" in said


def test_a_few_steps_of_training_are_noticed_and_rounding_is_not():
    network = Small()
    trained = copy.deepcopy(network)
    with torch.no_grad():
        for own in trained.parameters():
            own.add_(0.05 * own.std(unbiased=False) * torch.randn_like(own))
    assert len(warned(made_for(model_of(network)), trained)) == 1


@pytest.mark.parametrize("network", [None, nn.Identity(), Small().to("meta")], ids=["none", "empty", "offloaded"])
def test_where_no_weights_can_be_read_the_name_decides(network):
    assert weights_of(network) is None
    made = made_for(ring())
    assert made["weights"] is None
    assert warned(made, network, ring().name) == []
    assert "model 'mixture' and are used with 'fashion'" in warned(made, network, "fashion")[0]
    assert warned({}, network, "anything") == []


def test_the_network_is_found_behind_wrappers():
    network, fashion = Small(), geosprint.load_model("fashion")
    assert network_of(Counted(Counted(model_of(network)))) is network
    assert network_of(fashion) is fashion.network
    assert network_of(model_of(lambda x, t: network(x, t))) is None
    assert network_of(ring()) is None


def test_a_file_says_what_was_drawn_by_what():
    made = made_for(geosprint.load_model("fashion", 3, 2.0))
    assert (made["model"], made["shape"], made["calls"], made["dtype"]) == ("fashion", [1, 28, 28], 2, "float32")
    assert made["conditions"] == {"label": 3, "guidance": 2.0}
    assert made["versions"]["torch"] == torch.__version__
    assert made == json.loads(json.dumps(made))
