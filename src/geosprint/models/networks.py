"""The networks in the box: small UNets in diffusers format, checked and loaded from `assets/`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from geosprint.errors import ModelError
from geosprint.files import check_sha256, parsed_json, read_json, read_text, refusing_damage, write_json
from geosprint.models import ASSETS
from geosprint.models.base import Model, forwarded
from geosprint.models.unet import build_unet
from geosprint.noise import Array, NoiseSchedule, noise_from_dict

WEIGHTS = "diffusion_pytorch_model.safetensors"
CONFIG = "config.json"
CARD = "card.json"
CARD_FORMAT = "geosprint-model-card"
MOST_NUMBERS = 2**26  # of a sample that a card speaks of: 4096 × 4096 pixels in four channels
CLASSIFIER = "fashion-classifier"
DETECTOR = "scenes-detector"
STATISTICS = "train-statistics.npz"


class PatchedUNet(nn.Module):
    """A UNet that works on patches: space to depth before it, depth to space after."""

    def __init__(self, unet: nn.Module, patch: int) -> None:
        super().__init__()
        self.unet = unet
        self.patch = patch

    def forward(self, x: Tensor, t: Tensor | float, labels: Tensor | None = None) -> Tensor:
        folded = F.pixel_unshuffle(x, self.patch)
        return F.pixel_shuffle(self.unet(folded, t, labels), self.patch)


@dataclass(frozen=True)
class Card:
    """What a sampler must know of shipped weights besides the weights."""

    name: str
    noise: NoiseSchedule
    prediction: str
    clip: float | None
    shape: tuple[int, ...]  # of one sample
    patch: int
    classes: int | None  # None: unconditional; else the null class has this index
    sha256: str  # of the weights file


@dataclass(frozen=True, eq=False)
class PretrainedModel(Model):
    """A shipped network as a model: labels and guidance are fixed at birth."""

    card: Card
    network: nn.Module = field(repr=False)
    labels: Tensor | None = None  # (1,) for all samples or (samples,); None: the null class
    guidance: float = 1.0
    answers: int = 1  # to a sample: 2 with the conditional prediction

    name = forwarded("card.name")
    shape = forwarded("card.shape")
    noise = forwarded("card.noise")
    prediction = forwarded("card.prediction")
    clip = forwarded("card.clip")

    @property
    def calls(self) -> int:
        return 1 if self.labels is None or self.guidance == 1 else 2

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    @property
    def conditions(self) -> dict[str, Any]:
        """What it is asked to draw, as files store it: one class, or a list of the classes; {} for any."""
        if self.labels is None:
            return {}
        classes = self.labels.unique().tolist()
        return {"label": classes[0] if len(classes) == 1 else classes, "guidance": self.guidance}

    def __call__(self, x: Tensor, t: float) -> Tensor:
        guided, conditional = self._guided_and_conditional(x, t)
        return guided if self.answers == 1 else torch.stack([guided, conditional], dim=1)

    def _guided_and_conditional(self, x: Tensor, t: float) -> tuple[Tensor, Tensor]:
        if self.card.classes is None:
            return (self.network(x, t),) * 2
        nothing = torch.full((len(x),), self.card.classes, device=x.device)
        wanted = nothing if self.labels is None else self._labels_of(self.labels, len(x)).to(x.device)
        if self.calls == 1:
            return (self.network(x, t, wanted),) * 2
        free, conditional = self.network(torch.cat([x, x]), t, torch.cat([nothing, wanted])).chunk(2)
        return free + self.guidance * (conditional - free), conditional

    def with_conditional(self) -> PretrainedModel:
        return replace(self, answers=2)

    def for_samples(self, rows: Sequence[int]) -> PretrainedModel:
        """The same model for some of the samples, when a long list of them is walked in batches."""
        if self.labels is None or len(self.labels) == 1:
            return self
        if max(rows) >= len(self.labels):
            raise ModelError(
                f"model {self.name!r} holds {len(self.labels)} labels and was asked for sample {max(rows) + 1}; "
                "give one label for all, or one per sample"
            )
        return replace(self, labels=self.labels[torch.as_tensor(rows)])

    def _labels_of(self, labels: Tensor, batch: int) -> Tensor:
        if len(labels) not in (1, batch):
            raise ModelError(
                f"model {self.name!r} holds {len(labels)} labels and was given {batch} samples; "
                "give one label for all, or one per sample (for_samples picks those of a batch)"
            )
        return labels.expand(batch)


class FashionClassifier(nn.Module):
    """Three convolutions at two sizes, one layer of 96 features and one linear layer to 10 classes."""

    def __init__(self, widths: Sequence[int] = (32, 64, 96), classes: int = 10) -> None:
        super().__init__()
        narrow, wide, features = widths
        self.body = nn.Sequential(
            *_convolution(1, narrow),
            nn.MaxPool2d(2),
            *_convolution(narrow, wide),
            *_convolution(wide, wide),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(wide * 7 * 7, features),
            nn.ReLU(),
        )
        self.head = nn.Linear(features, classes)

    def features(self, images: Tensor) -> Tensor:
        """(n, 1, 28, 28) in [-1, 1] to (n, 96)."""
        return self.body(images)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))


class SceneDetector(nn.Module):
    """For each 4×4 cell of a scene: is a shape's centre here, which shape, which colour; and which background."""

    def __init__(self, shapes: int = 6, colours: int = 8, backgrounds: int = 8, width: int = 64) -> None:
        super().__init__()
        self.kinds = (1, shapes, colours)
        self.stem = nn.Sequential(
            nn.Conv2d(3, 24, 5, stride=2, padding=2),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.Conv2d(24, width, 3, stride=2, padding=1),
        )
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)) for _ in range(5)
        )
        self.of_cells = nn.Conv2d(width, sum(self.kinds), 1)
        self.of_picture = nn.Linear(width, backgrounds)

    def features(self, pictures: Tensor) -> Tensor:
        """(n, 3, height, width) in [-1, 1] to (n, 64)."""
        return self._cells(pictures).mean(dim=(2, 3))

    def forward(self, pictures: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Logits of a centre, of its shape and of its colour for each cell, and of the picture's background."""
        cells = self._cells(pictures)
        centre, shape, colour = self.of_cells(cells).split(self.kinds, dim=1)
        return centre[:, 0], shape, colour, self.of_picture(cells.mean(dim=(2, 3)))

    def _cells(self, pictures: Tensor) -> Tensor:
        found = self.stem(pictures)
        for block in self.blocks:
            found = found + block(found)
        return found.relu()


@dataclass(frozen=True, eq=False)
class FeatureStatistics:
    """Mean and covariance of features: all that a Fréchet distance needs of a data set."""

    mean: Array  # (features,)
    covariance: Array  # (features, features)
    count: int


def pretrained_names(assets: Path = ASSETS) -> list[str]:
    """The names that `load_pretrained` knows."""
    return sorted(path.parent.name for path in assets.glob(f"*/{CARD}"))


def load_pretrained(
    name: str,
    *,
    labels: int | Sequence[int] | None = None,
    guidance: float | None = None,
    assets: Path = ASSETS,
) -> PretrainedModel:
    """A shipped network, its weights verified, ready to sample; labels are class numbers, None means any class."""
    if name not in pretrained_names(assets):
        raise ModelError(f"the model must be one of {', '.join(pretrained_names(assets))}, got {name!r}")
    card = read_card(assets / name)
    weights = read_weights(assets / name / WEIGHTS, card.sha256)
    with refusing_damage(assets / name / CONFIG):
        config = _read_config(assets / name)
        _check_sizes(config, weights)
        network = PatchedUNet(build_unet(config), card.patch)
        network.unet.load_state_dict(weights)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a tenth faster on CPUs
    network.eval().requires_grad_(False)
    scale = 1.0 if guidance is None else check_guidance(guidance, labels)
    return PretrainedModel(card, network, check_labels(labels, card), scale)


def load_classifier(assets: Path = ASSETS) -> FashionClassifier:
    """The Fashion-MNIST classifier, its weights verified; `features` is its penultimate layer."""
    config = _read_config(assets / CLASSIFIER)
    classifier = FashionClassifier(config["widths"])
    classifier.load_state_dict(read_weights(assets / CLASSIFIER / WEIGHTS, config["sha256"]))
    return classifier.eval().requires_grad_(False)


def load_detector(assets: Path = ASSETS) -> SceneDetector:
    """The detector of scenes, its weights verified."""
    detector = SceneDetector()
    weights = assets / DETECTOR / WEIGHTS
    detector.load_state_dict(read_weights(weights, _read_config(assets / DETECTOR)["sha256"]))
    return detector.eval().requires_grad_(False)


def load_statistics(assets: Path = ASSETS, network: str = CLASSIFIER) -> FeatureStatistics:
    """The features of the classifier over Fashion-MNIST, or of the detector over drawn scenes."""
    with np.load(assets / network / STATISTICS, allow_pickle=False) as file:
        return FeatureStatistics(file["mean"], file["covariance"], int(file["count"]))


def write_card(card: Card, directory: Path) -> None:
    """The card beside its weights, the inverse of `read_card`."""
    content = {part.name: getattr(card, part.name) for part in fields(card)}
    write_json(directory / CARD, CARD_FORMAT, {**content, "noise": card.noise.to_dict(), "shape": list(card.shape)})


def read_card(directory: Path) -> Card:
    """The card that `write_card` wrote."""
    content = read_json(directory / CARD, CARD_FORMAT)
    with refusing_damage(directory / CARD):
        known = {part.name: content[part.name] for part in fields(Card)}
        card = Card(**{**known, "noise": noise_from_dict(known["noise"]), "shape": tuple(known["shape"])})
        if not all(isinstance(word, str) for word in (card.name, card.prediction, card.sha256)):
            raise ValueError("name, prediction and sha256 must be words")
        counts = (card.patch, card.classes or 1, *card.shape)
        if not all(isinstance(count, int) and 0 < count <= MOST_NUMBERS for count in (*counts, math.prod(card.shape))):
            raise ValueError(f"patch, classes and shape must be whole, positive and no more than {MOST_NUMBERS}")
        if card.clip is not None and not (isinstance(card.clip, int | float) and 0 < card.clip <= MOST_NUMBERS):
            raise ValueError(f"clip must be a positive number of no strange size or null, got {card.clip!r:.60}")
        return card


def read_weights(path: Path, sha256: str) -> dict[str, Tensor]:
    """Half-precision weights as float32, once the file's checksum agrees."""
    check_sha256(path, sha256, "reinstall the package or train it again")
    return {key: value.float() for key, value in load_file(path).items()}


def check_labels(labels: int | Sequence[int] | None, card: Card) -> Tensor | None:
    """Class numbers as a tensor, each of a class the network was taught."""
    if labels is None:
        return None
    if card.classes is None:
        raise ModelError(f"model {card.name!r} was trained without labels, got {labels}; leave the label away")
    given = torch.as_tensor(labels, dtype=torch.int64).reshape(-1)
    if len(given) == 0 or not bool(((given >= 0) & (given < card.classes)).all()):
        raise ModelError(f"labels of {card.name!r} must be in 0..{card.classes - 1}, got {labels}")
    return given


def check_guidance(guidance: float, labels: object) -> float:
    """The guidance scale: 1 is the plain conditional prediction, more exaggerates the label."""
    if labels is None and guidance != 1:
        raise ModelError(f"guidance {guidance:g} needs a label to guide to, got none; give one or leave guidance away")
    if not 0 <= guidance < math.inf:
        raise ModelError(f"guidance must be a number of at least 0, got {guidance}")
    return float(guidance)


def _check_sizes(config: dict[str, Any], weights: dict[str, Tensor]) -> None:
    """Refuse a config that claims more than its weights hold, before room is made for it."""
    layers, widths = config["layers_per_block"], config["block_out_channels"]
    sizes = [layers, *widths, config["in_channels"], config["out_channels"], config["num_class_embeds"] or 1]
    largest = max(max(tensor.shape, default=1) for tensor in weights.values())
    if not all(isinstance(size, int) and 0 < size <= largest for size in sizes) or layers * len(widths) > len(weights):
        raise ValueError(f"it claims {str(sizes)[:60]}, and its {len(weights)} weights go to {largest}")


def _read_config(directory: Path) -> dict[str, Any]:
    with refusing_damage(directory / CONFIG):
        return parsed_json(read_text(directory / CONFIG))


def _convolution(before: int, after: int) -> list[nn.Module]:
    return [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
