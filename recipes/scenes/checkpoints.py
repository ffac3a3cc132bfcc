"""Checkpoints that a run resumes from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch


class Stateful(Protocol):
    """What has a state to save: a module, an optimizer, a schedule."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


def save_checkpoint(path: Path, step: int, parts: Mapping[str, Stateful]) -> None:
    """Write all states and the number of steps done, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    torch.save({"step": step, **{name: part.state_dict() for name, part in parts.items()}}, unfinished)
    os.replace(unfinished, path)


def load_checkpoint(path: Path, parts: Mapping[str, Stateful]) -> int:
    """Restore all states and return the number of steps done, 0 where there is no checkpoint."""
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    for name, part in parts.items():
        part.load_state_dict(state[name])
    return int(state["step"])
