"""The moving average of the weights: what is shipped is the average, not the last step."""

from __future__ import annotations

import torch
from torch import Tensor


def decay_at(step: int, decay: float) -> float:
    """A young average forgets faster, so that it does not remember the random start."""
    return min(decay, (1 + step) / (10 + step))


@torch.no_grad()
def update_average(average: list[Tensor], weights: list[Tensor], decay: float) -> None:
    """average = decay · average + (1 - decay) · weights, in place."""
    torch._foreach_lerp_(average, weights, 1 - decay)
