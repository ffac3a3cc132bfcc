"""Which device a model runs on."""

from __future__ import annotations

import torch

from geosprint.errors import ModelError

AUTO = "auto"


def device_named(name: str) -> str:
    """This device, if there is one; for "auto" the fastest."""
    if name == AUTO:
        return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as wrong:  # unknown, or unknown to this build of torch
        raise ModelError(f"there is no device {name!r} here; leave it out for {device_named(AUTO)!r}") from wrong
    return name
