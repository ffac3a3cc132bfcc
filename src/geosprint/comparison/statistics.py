"""Statistics of a data set in some features, from the npz files that FID tools exchange."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from geosprint.errors import FileError
from geosprint.models.pretrained import FeatureStatistics

MOST_BYTES = 2**29
"""Of one array: features of 8192 dimensions have a covariance of this size."""

_NAMES = ("mu", "sigma", "mean", "covariance", "count")


def read_statistics(path: Path) -> FeatureStatistics:
    """`mu` and `sigma`, as other FID tools write them, or `mean` and `covariance`, as ours are."""
    try:
        with zipfile.ZipFile(path) as archive:
            held = {name: _array(archive, f"{name}.npy") for name in _NAMES if f"{name}.npy" in archive.namelist()}
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
    if size > MOST_BYTES:
        raise ValueError(f"{name} must have up to {MOST_BYTES} bytes, it has {size}")
    with archive.open(name) as member:
        read_header = npy.read_array_header_1_0 if npy.read_magic(member) == (1, 0) else npy.read_array_header_2_0
        shape, by_columns, kind = read_header(member)
        if kind.kind not in "fiu" or math.prod(shape) * kind.itemsize != size - member.tell():
            raise ValueError(f"{name} says that it holds {shape} of {kind}, and does not")
        numbers = np.frombuffer(member.read(), kind).reshape(shape, order="F" if by_columns else "C")
    return numbers.astype(np.float64)
