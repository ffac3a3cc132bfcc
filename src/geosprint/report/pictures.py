"""Samples as pictures: in a grid, in a file, and inside the page as data URIs."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from geosprint.metrics.pictures import eight_bit

Name = TypeVar("Name")

COLUMNS = 5
WIDEST = 96  # pixels of one sample; larger ones are shrunk
MOST_BYTES = 2_400_000  # of all pictures of a page
LARGEST_FIGURE = 2**24  # bytes of a figure that is read


def are_pictures(samples: Tensor) -> bool:
    """Grey or coloured images, as opposed to points and latents."""
    return samples.ndim == 4 and samples.shape[1] in (1, 3)


def grid(samples: Tensor, columns: int) -> NDArray[np.uint8]:
    """Images in -1..1 as one picture of 8 bits, a thin white line between them."""
    images = eight_bit(samples).permute(0, 2, 3, 1).numpy()
    count, height, width, channels = images.shape
    lines = -(-count // columns)
    sheet = np.full((lines * (height + 1) - 1, columns * (width + 1) - 1, channels), 255, np.uint8)
    for i, image in enumerate(images):
        top, left = i // columns * (height + 1), i % columns * (width + 1)
        sheet[top : top + height, left : left + width] = image
    return sheet[..., 0] if channels == 1 else sheet


def sheets(samples: Mapping[Name, Tensor]) -> dict[Name, str]:
    """A sheet of each set of samples as a data URI, of fewer samples each where all would be too much."""
    for count in (2 * COLUMNS, COLUMNS, 2, 1):
        made = {name: sheet(of_one[:count]) for name, of_one in samples.items()}
        if sum(map(len, made.values())) <= MOST_BYTES:
            return made
    return {}


def sheet(samples: Tensor) -> str:
    """Samples in rows of five."""
    if max(samples.shape[2:]) > WIDEST:
        ratio = WIDEST / max(samples.shape[2:])
        size = [max(1, round(side * ratio)) for side in samples.shape[2:]]
        samples = torch.nn.functional.interpolate(samples.float(), size=size, mode="area")
    return data_uri(Image.fromarray(grid(samples, min(COLUMNS, len(samples)))))


def figure(path: Path) -> str | None:
    """A figure from a file, if it is there and is one."""
    try:
        if path.stat().st_size > LARGEST_FIGURE:
            return None
        with Image.open(path, formats=["PNG"]) as image:
            return data_uri(image.convert("RGB"))
    except (OSError, UnidentifiedImageError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None


def data_uri(image: Image.Image) -> str:
    """Without loss, as WebP."""
    held = io.BytesIO()
    image.save(held, format="WEBP", lossless=True, quality=80, method=4)
    return "data:image/webp;base64," + base64.b64encode(held.getvalue()).decode("ascii")
