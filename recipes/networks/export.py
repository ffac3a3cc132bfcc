"""From a finished run to the files that ship: averaged weights in half precision, config and card."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from geosprint.errors import FileError
from geosprint.files import write_text, write_whole
from geosprint.models.networks import (
    CONFIG,
    STATISTICS,
    WEIGHTS,
    Card,
    FashionClassifier,
    FeatureStatistics,
    read_weights,
    write_card,
)
from recipes.networks.classifier import feature_statistics
from recipes.networks.loop import CHECKPOINT, opened
from recipes.networks.recipe import Recipe


def averaged_weights(directory: Path) -> dict[str, Tensor]:
    """The moving average of the weights in a run's checkpoint."""
    path = Path(directory) / CHECKPOINT
    if not path.is_file():
        raise FileError(f"expected a checkpoint at {path}, found none; train first")
    mark = "average/"
    with opened(path) as file:
        return {key.removeprefix(mark): file.get_tensor(key) for key in file.keys() if key.startswith(mark)}  # noqa: SIM118


def export_network(recipe: Recipe, run: Path, target: Path) -> Card:
    """Write config.json, the weights and card.json of a denoising network into `target`."""
    weights = {key.removeprefix("unet."): value for key, value in averaged_weights(run).items()}
    card = Card(
        name=recipe.name,
        noise=recipe.noise,
        prediction=recipe.prediction,
        clip=recipe.clip,
        shape=recipe.shape,
        patch=recipe.patch,
        classes=recipe.classes,
        sha256=write_halves(weights, target / WEIGHTS),
    )
    _write_json({"_class_name": "UNet2DModel", **recipe.network}, target / CONFIG)
    write_card(card, target)
    return card


def export_classifier(run: Path, images: Tensor, widths: tuple[int, ...], target: Path) -> None:
    """Write the classifier's weights, its widths with the checksum, and the statistics of the training pictures."""
    digest = write_halves(averaged_weights(run), target / WEIGHTS)
    _write_json({"widths": list(widths), "sha256": digest}, target / CONFIG)
    classifier = FashionClassifier(widths)
    classifier.load_state_dict(read_weights(target / WEIGHTS, digest))  # statistics of what ships, rounding included
    _write_statistics(feature_statistics(classifier.eval(), images), target / STATISTICS)


def write_halves(weights: dict[str, Tensor], path: Path) -> str:
    """Save the weights as float16 and return the checksum of the file."""
    halves = {key: value.to(torch.float16).contiguous() for key, value in weights.items()}
    write_whole(path, lambda unfinished: save_file(halves, unfinished, metadata={"format": "pt"}))
    path.chmod(0o644)  # safetensors writes files that only their owner can read
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _write_json(content: dict[str, Any], path: Path) -> None:
    write_text(path, json.dumps(content, indent=2) + "\n")


def _write_statistics(statistics: FeatureStatistics, path: Path) -> None:
    def write(unfinished: Path) -> None:
        with unfinished.open("wb") as file:  # given a name, numpy would add .npz to it
            np.savez(file, **vars(statistics))

    write_whole(path, write)
