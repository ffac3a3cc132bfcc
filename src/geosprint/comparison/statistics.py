"""Statistics of a data set in some features, from the npz files that FID tools exchange."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from geosprint.errors import FileError
from geosprint.models.pretrained import FeatureStatistics


def read_statistics(path: Path) -> FeatureStatistics:
    """`mu` and `sigma`, as other FID tools write them, or `mean` and `covariance`, as ours are."""
    try:
        with np.load(path, allow_pickle=False) as file:
            held = {name: np.asarray(file[name], dtype=np.float64) for name in file.files}
    except OSError as wrong:
        raise FileError(f"cannot read {path}: {wrong.strerror or wrong}") from wrong
    except (ValueError, AttributeError) as wrong:
        raise FileError(f"{path} must be an npz file with mu and sigma ({wrong})") from wrong
    mean, covariance = held.get("mu", held.get("mean")), held.get("sigma", held.get("covariance"))
    if mean is None or covariance is None or mean.ndim != 1 or covariance.shape != (len(mean), len(mean)):
        shapes = {name: array.shape for name, array in held.items()}
        raise FileError(f"{path} must hold mu (features) and sigma (features, features), it holds {shapes}")
    return FeatureStatistics(mean, covariance, int(held.get("count", np.array(0))))
