from __future__ import annotations

import hashlib
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from geosprint.errors import FileError, ModelError
from geosprint.models.networks import (
    ASSETS,
    CARD,
    CONFIG,
    WEIGHTS,
    Card,
    PatchedUNet,
    PretrainedModel,
    load_classifier,
    load_pretrained,
    load_statistics,
    pretrained_names,
    read_weights,
    write_card,
)
from geosprint.models.unet import build_unet
from geosprint.noise import Flow
from recipes.networks.export import write_halves
from recipes.networks.recipe import unet_config

SHIPPED = ["fashion", "fashion-flow", "fashion-reflow", "cifar10"]


class Answer(nn.Module):
    """In place of a UNet: says x + t + 10 · label, and notes how large each batch was."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.batches = []

    def forward(self, x, t, labels=None):
        self.batches.append(len(x))
        return x + t + (0 if labels is None else 10.0 * labels.view(-1, 1, 1, 1))


def answering(labels=None, guidance=1.0, classes=10):
    card = Card("answer", Flow(), "flow", None, (1, 4, 4), 2, classes, "")
    return PretrainedModel(card, Answer(), None if labels is None else torch.tensor(labels), guidance)


@pytest.fixture
def toy_assets(tmp_path):
    """A directory that looks like assets/, with one untrained network."""
    torch.manual_seed(0)
    config = unet_config(4, 4, (32, 32), classes=3)
    (tmp_path / "toy").mkdir()
    digest = write_halves(build_unet(config).state_dict(), tmp_path / "toy" / WEIGHTS)
    write_card(Card("toy", Flow(), "flow", None, (1, 8, 8), 2, 3, digest), tmp_path / "toy")
    (tmp_path / "toy" / CONFIG).write_text(json.dumps(config))
    return tmp_path


def test_without_a_label_the_null_class_is_asked_once():
    model = answering()
    assert model(torch.zeros(3, 1, 4, 4), 5.0).unique().tolist() == [105.0]
    assert model.calls == 1
    assert model.network.batches == [3]


def test_guidance_of_one_is_the_conditional_prediction_in_one_call():
    model = answering([2], 1.0)
    assert model(torch.zeros(3, 1, 4, 4), 5.0).unique().tolist() == [25.0]
    assert model.calls == 1
    assert model.network.batches == [3]


@given(st.floats(0, 20).filter(lambda g: g != 1))
def test_guidance_follows_the_formula_in_one_batch_of_two_calls(guidance):
    model = answering([2], guidance)
    answer = model(torch.zeros(3, 1, 4, 4), 5.0)
    null, conditional = 5.0 + 100, 5.0 + 20
    assert answer.flatten().tolist() == pytest.approx([null + guidance * (conditional - null)] * 48, rel=1e-5, abs=1e-4)
    assert model.calls == 2
    assert model.network.batches == [6]


def test_guidance_is_linear_between_null_and_conditional_on_a_real_network(toy_assets):
    x = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(1))

    def ask(labels, guidance):
        return load_pretrained("toy", labels=labels, guidance=guidance, assets=toy_assets)(x, 300.0)

    null, conditional = ask(None, None), ask([0, 2], 1.0)
    assert not torch.allclose(null, conditional, atol=1e-3)
    torch.testing.assert_close(ask([0, 2], 0.0), null, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(ask([0, 2], 3.5), null + 3.5 * (conditional - null), atol=1e-4, rtol=1e-4)


def test_each_sample_gets_its_own_label():
    answers = answering([1, 2, 3])(torch.zeros(3, 1, 4, 4), 0.0)
    assert answers[:, 0, 0, 0].tolist() == [10.0, 20.0, 30.0]


def test_a_batch_of_some_samples_gets_their_labels():
    some = answering([1, 2, 3, 4]).for_samples([3, 0])
    assert some(torch.zeros(2, 1, 4, 4), 0.0)[:, 0, 0, 0].tolist() == [40.0, 10.0]
    assert answering([5]).for_samples([9, 7]).labels.tolist() == [5]


def test_labels_that_do_not_fit_the_batch_are_counted():
    with pytest.raises(ModelError, match="holds 2 labels and was given 3 samples"):
        answering([1, 2])(torch.zeros(3, 1, 4, 4), 0.0)


def test_a_network_without_classes_is_asked_without_labels():
    assert answering(classes=None)(torch.zeros(1, 1, 4, 4), 7.0).unique().tolist() == [7.0]


@pytest.mark.parametrize("patch", [1, 2, 4])
def test_space_to_depth_and_back_is_the_identity(patch):
    class Same(nn.Module):
        def forward(self, x, t, labels=None):
            self.seen = x.shape
            return x

    x, same = torch.randn(2, 3, 8, 8), Same()
    assert torch.equal(PatchedUNet(same, patch)(x, 0.0), x)
    assert same.seen == (2, 3 * patch**2, 8 // patch, 8 // patch)


def test_a_loaded_network_is_float32_in_eval_mode_and_its_weights_are_fixed(toy_assets):
    model = load_pretrained("toy", labels=1, assets=toy_assets)
    assert not model.network.training
    assert all(p.dtype == torch.float32 and not p.requires_grad for p in model.network.parameters())
    assert not model(torch.zeros(1, 1, 8, 8), 10.0).requires_grad
    assert model(torch.zeros(1, 1, 8, 8, requires_grad=True), 10.0).requires_grad  # ld3 descends through it
    assert (model.name, model.shape, model.prediction, model.clip) == ("toy", (1, 8, 8), "flow", None)
    assert model.noise.same_as(Flow())
    assert model.device == torch.device("cpu")


def test_a_changed_byte_in_the_weights_is_found(toy_assets):
    path = toy_assets / "toy" / WEIGHTS
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(FileError, match="must have sha256"):
        load_pretrained("toy", assets=toy_assets)


def test_a_damaged_card_is_named(toy_assets):
    path = toy_assets / "toy" / CARD
    path.write_text(path.read_text().replace("patch", "pitch"))
    with pytest.raises(FileError, match=r"card.json is damaged: 'patch' is missing"):
        load_pretrained("toy", assets=toy_assets)


def test_missing_weights_are_named(tmp_path):
    with pytest.raises(FileError, match=r"expected .*, found no such file; reinstall"):
        read_weights(tmp_path / WEIGHTS, "")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"labels": 3}, "must be in 0..2, got 3"),
        ({"labels": [0, -1]}, "must be in 0..2"),
        ({"labels": []}, "must be in 0..2"),
        ({"guidance": 2.0}, "needs a label to guide to"),
        ({"labels": 1, "guidance": -1.0}, "guidance must be a number of at least 0"),
    ],
)
def test_labels_and_guidance_out_of_range_are_named(toy_assets, asked, told):
    with pytest.raises(ModelError, match=told):
        load_pretrained("toy", assets=toy_assets, **asked)


def test_labels_for_an_unconditional_network_are_refused(toy_assets):
    path = toy_assets / "toy" / CARD
    path.write_text(json.dumps({**json.loads(path.read_text()), "classes": None}))
    with pytest.raises(ModelError, match="trained without labels"):
        load_pretrained("toy", labels=1, assets=toy_assets)


def test_an_unknown_name_is_told_the_known_ones():
    with pytest.raises(ModelError, match=r"must be one of .*fashion.*got 'mnist'"):
        load_pretrained("mnist")


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_weights_have_the_checksum_of_their_card(name):
    card = json.loads((ASSETS / name / CARD).read_text())
    assert hashlib.sha256((ASSETS / name / WEIGHTS).read_bytes()).hexdigest() == card["sha256"]
    assert card["name"] == name


def test_every_shipped_network_is_listed_and_they_are_small():
    assert set(SHIPPED) <= set(pretrained_names())
    assert sum(path.stat().st_size for path in ASSETS.rglob("*")) < 36e6  # the wheel stays below 40 MB


def test_diffusers_reads_the_shipped_files_itself():
    from diffusers import UNet2DModel

    theirs = UNet2DModel.from_pretrained(ASSETS / "fashion", torch_dtype=torch.float32)
    ours = load_pretrained("fashion", labels=4)
    x = torch.randn(2, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    folded = nn.functional.pixel_unshuffle(x, 2)
    with torch.no_grad():
        expected = theirs(folded, 500, class_labels=torch.tensor([4, 4])).sample
    torch.testing.assert_close(nn.functional.pixel_unshuffle(ours(x, 500.0), 2), expected, atol=1e-5, rtol=1e-4)


def test_shipped_network_knows_noise_from_signal():
    model = load_pretrained("fashion")
    eps = torch.randn(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    a, s = model.noise.signal_and_sigma(700)
    error = (model(a * torch.full_like(eps, -1.0) + s * eps, 700.0) - eps).square().mean()
    assert error < 0.1


def test_shipped_statistics_fit_the_classifier():
    statistics, classifier = load_statistics(), load_classifier()
    features = classifier.features(torch.zeros(1, 1, 28, 28)).shape[1]
    assert statistics.mean.shape == (features,)
    assert statistics.covariance.shape == (features, features)
    assert statistics.count == 60_000
