"""Models for the tests of long runs."""

from __future__ import annotations

import torch

from geosprint.models.exact import Gaussian
from geosprint.models.wrappers import Wrapped


def gaussian() -> Gaussian:
    """Five numbers a sample: a whole search on it takes seconds."""
    return Gaussian(torch.tensor([4.0, 1.0, 0.3, 0.05, 0.01], dtype=torch.float64), in_cosine_basis=False)


class Asked(Wrapped):
    """A model that notes how many samples it was asked about, and stops like Ctrl-C when it was enough."""

    def __init__(self, most: int = 10**9, model=None) -> None:
        super().__init__(model or gaussian())
        self.samples, self.questions, self.most = 0, 0, most

    def for_samples(self, rows):
        return self

    def __call__(self, x, t):
        if self.samples >= self.most:
            raise KeyboardInterrupt
        self.samples += len(x)
        self.questions += 1
        return self.inner(x, t)
