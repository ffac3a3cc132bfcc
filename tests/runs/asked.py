"""Models for the tests of long runs."""

from __future__ import annotations

import torch

from geosprint.models.exact import Gaussian


def gaussian() -> Gaussian:
    """Five numbers a sample: a whole search on it takes seconds."""
    return Gaussian(torch.tensor([4.0, 1.0, 0.3, 0.05, 0.01], dtype=torch.float64), in_cosine_basis=False)


class Asked:
    """A model that notes how many samples it was asked about, and stops like Ctrl-C when it was enough."""

    def __init__(self, most: int = 10**9, model=None) -> None:
        self.samples, self.questions, self.most, self._model = 0, 0, most, model or gaussian()

    def __getattr__(self, name):
        return getattr(self._model, name)

    def __call__(self, x, t):
        if self.samples >= self.most:
            raise KeyboardInterrupt
        self.samples += len(x)
        self.questions += 1
        return self._model(x, t)
