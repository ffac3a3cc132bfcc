"""Whether a figure is on the sheet, in pixels and in vectors."""

from __future__ import annotations

import numpy as np
from PIL import Image


def are_drawn(files):
    """A PNG with several colours and ink away from its border, and an SVG with curves and words."""
    pixels, vectors = files
    assert (pixels.suffix, vectors.suffix) == (".png", ".svg")
    with Image.open(pixels) as image:
        inner = np.asarray(image.convert("RGB")).astype(int)[10:-10, 10:-10].reshape(-1, 3)
    inked = len(np.unique(inner, axis=0)) > 5 and (inner.sum(axis=1) < 3 * 250).mean() > 0.003
    text = vectors.read_text()
    return inked and text.count("<path") > 20 and text.rstrip().endswith("</svg>")
