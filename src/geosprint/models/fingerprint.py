"""What steps are made for: a model, told apart from others of its name by some of its weights."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from geosprint.models.base import Model
from geosprint.models.wrappers import innermost
from geosprint.runs.store import Store, digest_of
from geosprint.trajectory import Origin, Trajectories

SAMPLED = 16
SAME_WEIGHTS = 0.01  # relative distance: bfloat16 moves weights by up to 0.004, training by far more

PROBE_STEPS, PROBE_NUMBERS = 4, 512
"""A short walk of the first sample; so many numbers of it tell weights apart."""

ROUNDING, OTHER_DEVICE = 1e-4, 0.01
"""Relative distances of the numbers of one model. What cannot be told by its weights is told by its answers, to
rounding; where the weights are the same bit for bit, another device may round to half of its digits."""


def made_for(model: Model) -> dict[str, Any]:
    """The model, for a file: what it is asked to draw, some of its weights, and the versions that run it."""
    origin = Origin.of(model, "", 0.0).to_dict()
    del origin["solver"], origin["eta"]  # of a recording, not of a model
    network = network_of(model)
    kinds = [] if network is None else [str(own.dtype).removeprefix("torch.") for own in network.parameters()]
    here = {**versions(), "diffusers": version("diffusers")}
    return {**origin, "weights": weights_of(network), "dtype": next(iter(kinds), None), "versions": here}


def versions() -> dict[str, str]:
    """Of the packages that numbers depend on."""
    return {name: version(name) for name in ("geosprint", "torch", "numpy")}


def network_of(model: Model) -> nn.Module | None:
    """The module behind a model; None for exact models and plain functions."""
    model = innermost(model)
    parts = (model, getattr(model, "network", None), getattr(model, "function", None))
    return next((part for part in parts if isinstance(part, nn.Module)), None)


def weights_of(network: nn.Module | None) -> dict[str, Any] | None:
    """A digest of the names and shapes of all parameters, and some of the weights; None where none can be read."""
    if network is None:
        return None
    # torch.compile puts a prefix before names.
    parameters = {name.replace("_orig_mod.", ""): own for name, own in network.named_parameters()}
    floats = [own for _, own in sorted(parameters.items()) if own.is_floating_point()]
    matrices = [own for own in floats if own.ndim > 1] or floats  # biases and norms begin alike in all networks
    if not matrices or any(own.is_meta for own in matrices):  # offloaded weights are elsewhere
        return None
    shapes = {name: list(own.shape) for name, own in parameters.items()}
    return {"names_sha256": digest_of(shapes), "values": _sampled(matrices)}


def weights_digest(network: nn.Module | None) -> str | None:
    """All parameters and buffers of a network, bit for bit; None where there are none to read."""
    held = {} if network is None else network.state_dict()
    if not held or any(own.is_meta for own in held.values()):  # offloaded weights are elsewhere
        return None
    digest = hashlib.sha256()
    for name, own in sorted(held.items()):
        digest.update(f"{name.replace('_orig_mod.', '')} {own.dtype} {tuple(own.shape)}".encode())
        digest.update(own.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def begun_store(directory: Path, job: dict[str, Any], walk: Trajectories, network: nn.Module | None) -> Store:
    """The directory of a job on the model of this walk, of PROBE_STEPS from seed 0; refuses another job or weights."""
    weights, every = weights_digest(network), max(1, walk.states.numel() // PROBE_NUMBERS)
    answers = walk.states.flatten()[::every].double().tolist()
    job = {**job, "model": walk.origin.to_dict(), "weights": weights}
    return Store.begun(directory, job, answers, OTHER_DEVICE if weights else ROUNDING)


def warn_of_another_model(made_for: dict[str, Any], name: str, network: nn.Module | None) -> None:
    """Steps made for one model may suit another less than a closed form does: say so, naming both."""
    before, recorded, here = made_for.get("model"), made_for.get("weights"), weights_of(network)
    is_same = _same_weights(recorded, here) if recorded and here else before in (None, name)
    if not is_same:
        other = " with other weights" if before == name else ""
        warnings.warn(
            f"these steps were made for model {before!r}{other} and are used with {name!r}; "
            "tune them for this one, or compare the samples with those of a known solver",
            stacklevel=3,
        )


def _sampled(tensors: Sequence[Tensor]) -> list[float]:
    """Numbers at equal distances through all of these tensors."""
    ends = np.cumsum([own.numel() for own in tensors])
    found = []
    for i in np.linspace(0, ends[-1] - 1, SAMPLED).astype(int):
        which = int(np.searchsorted(ends, i, side="right"))
        found.append(float(tensors[which].detach().reshape(-1)[i - ends[which]]))  # counted from its end
    return [float(f"{value:.6g}") for value in found]


def _same_weights(before: dict[str, Any], here: dict[str, Any]) -> bool:
    one, other = np.array(before["values"]), np.array(here["values"])
    if before["names_sha256"] != here["names_sha256"] or one.shape != other.shape:
        return False
    return bool(np.linalg.norm(one - other) <= SAME_WEIGHTS * np.linalg.norm(one))
