"""Small stand-ins for the data sets and the networks, so that the tests need no downloads."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from geosprint.paper.learning import TrainingPlan
from recipes.networks.data import ImageSet, Source
from recipes.networks.recipe import RECIPES, Recipe, unet_config


def idx_bytes(array: np.ndarray) -> bytes:
    """The idx format: 0, 0, 8 (unsigned byte), rank, big-endian sizes, data."""
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes() + array.tobytes()


def png_bytes(pixels: np.ndarray) -> bytes:
    """(n, 32, 32, 3) as a picture of n rows, the way the npm package packs them."""
    file = io.BytesIO()
    Image.fromarray(pixels.reshape(len(pixels), -1, 3)).save(file, "png")
    return file.getvalue()


def write_source(directory: Path, name: str, content: bytes) -> Source:
    """Write one file and the source that describes it."""
    (directory / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return Source(name, len(content), hashlib.sha256(content).hexdigest())


def write_fashion(directory: Path, count: int = 40) -> tuple[Source, ...]:
    """A fake Fashion-MNIST: picture i is filled with the byte i, its label is i mod 10."""
    pictures = np.repeat(np.arange(count, dtype=np.uint8), 28 * 28).reshape(count, 28, 28)
    labels = (np.arange(count) % 10).astype(np.uint8)
    return (
        write_source(directory, "train-images-idx3-ubyte.gz", idx_bytes(pictures)),
        write_source(directory, "train-labels-idx1-ubyte.gz", idx_bytes(labels)),
    )


def write_cifar10(directory: Path, count: int = 8) -> tuple[Source, ...]:
    """A fake CIFAR-10 of two batches: red is the picture's number, green its row, blue its column."""
    batches = []
    for number in range(2):
        pixels = np.zeros((count, 32, 32, 3), dtype=np.uint8)
        pixels[..., 0] = (number * count + np.arange(count))[:, None, None]
        pixels[..., 1] = np.arange(32)[:, None]
        pixels[..., 2] = np.arange(32)
        batches.append(write_source(directory, f"data_batch_{number + 1}.png", png_bytes(pixels)))
    labels = json.dumps([i % 10 for i in range(2 * count)]).encode()
    return (*batches, write_source(directory, "train_lables.json", labels))


def toy_pictures(count: int = 64, size: int = 8) -> ImageSet:
    """Two classes: dark left of the middle, or dark above it, with a little noise."""
    labels = torch.arange(count) % 2
    ramp = torch.where(torch.arange(size) < size // 2, -0.8, 0.8)
    across = ramp.expand(size, size)
    pictures = torch.stack([across, across.T])[labels][:, None]
    noise = torch.randn(pictures.shape, generator=torch.Generator().manual_seed(0))
    return ImageSet((pictures + 0.05 * noise).clamp(-1, 1), labels)


def toy_recipe(name: str = "fashion", steps: int = 30) -> Recipe:
    """A recipe of the real family on 8×8 pictures of two classes."""
    return replace(
        RECIPES[name],
        name=f"toy-{name}",
        network=unet_config(4, 4, (32, 32), classes=2),
        shape=(1, 8, 8),
        classes=2,
        plan=TrainingPlan(steps=steps, batch=16, learning_rate=2e-3, warmup=3, ema_decay=0.9),
    )
