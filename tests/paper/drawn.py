"""Whether a figure is on the sheet."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image


def is_drawn(figure):
    """Several colours, and ink away from the border."""
    file = io.BytesIO()
    figure.savefig(file, dpi=60)
    with Image.open(file) as image:
        inner = np.asarray(image.convert("RGB")).astype(int)[5:-5, 5:-5].reshape(-1, 3)
    return len(np.unique(inner, axis=0)) > 5 and (inner.sum(axis=1) < 3 * 250).mean() > 0.003
