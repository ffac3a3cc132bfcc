"""Reflow (Liu et al. 2023): the couplings of noise and sample that a flow is straightened by, kept in a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from geosprint.errors import FileError
from geosprint.files import write_whole


@dataclass(frozen=True)
class Couplings:
    """Where a flow takes each noise: what the next round learns."""

    samples: Tensor  # (n, *shape)
    labels: Tensor  # (n,) int64
    noise: Tensor  # (n, *shape)


def save_couplings(couplings: Couplings, path: Path) -> None:
    """Written under a temporary name and renamed, like a checkpoint."""
    write_whole(path, lambda unfinished: save_file(dict(vars(couplings)), unfinished))


def load_couplings(path: Path) -> Couplings:
    """The couplings that `save_couplings` wrote."""
    try:
        found = Couplings(**load_file(path))
    except (OSError, SafetensorError, TypeError) as wrong:
        raise FileError(
            f"{path} holds no pairs of noise and sample ({wrong}); remove it, and they are drawn again"
        ) from wrong
    one_shape = found.samples.shape == found.noise.shape
    if not one_shape or found.labels.shape != found.samples.shape[:1] or found.labels.dtype != torch.int64:
        raise FileError(
            f"{path} must hold a sample, a noise and a label of each pair; remove it, and they are drawn again"
        )
    return found
