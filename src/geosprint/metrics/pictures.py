"""Samples as the pictures that other programs measure."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from geosprint.errors import FileError, GeometryError
from geosprint.files import write_whole


def eight_bit(samples: Tensor) -> Tensor:
    """Pictures in -1..1, grey or RGB, as the whole numbers 0..255 of a PNG (samples, channels, height, width)."""
    if samples.ndim != 4 or samples.shape[1] not in (1, 3):
        raise GeometryError(f"pictures must be (samples, 1 or 3, height, width), got {tuple(samples.shape)}")
    if not bool(torch.isfinite(samples).all()):
        raise GeometryError("pictures must be finite, got a pixel that is not a number or infinite")
    return ((samples.float().clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)


def save_pngs(samples: Tensor, directory: Path | str) -> list[Path]:
    """One PNG per sample, 000000.png and on, in a folder that holds nothing else: it is measured as a whole."""
    from PIL import Image

    pixels = eight_bit(samples).permute(0, 2, 3, 1).cpu().numpy()
    paths = require_folder(Path(directory), len(pixels))
    for path, picture in zip(paths, pixels, strict=True):
        image = Image.fromarray(picture.squeeze(2) if picture.shape[2] == 1 else picture)
        write_whole(path, partial(image.save, format="png"))
    return paths


def require_folder(directory: Path, count: int) -> list[Path]:
    """Where so many pictures go, if nothing else lies there."""
    paths = [directory / f"{number:06d}.png" for number in range(count)]
    if directory.exists() and not directory.is_dir():
        raise FileError(f"pictures need a folder, {directory} is a file; name another directory")
    strangers = sorted({path.name for path in directory.glob("*")} - {path.name for path in paths})
    if strangers:
        raise FileError(
            f"{directory} must be empty or hold only pictures to be replaced, it has {strangers[0]}; "
            "choose another folder or empty it"
        )
    return paths
