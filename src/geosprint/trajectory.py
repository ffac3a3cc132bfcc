"""Trajectories: the recorded states, and beside them what the model predicted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from geosprint.errors import GeometryError
from geosprint.files import VERSION, finite, read_tensors, refusing_damage, write_whole
from geosprint.geometry import gram_of_centred
from geosprint.models.base import Model
from geosprint.noise import CLEAN, Array, Flow, NoiseSchedule, noise_from_dict

FORMAT = "geosprint-trajectories"
SPACES = ("vp", "ve", "x0")
NORMALISATIONS = ("time", "pooled", "none")
TOGETHER = 16384
"""Dimensions whose share of the inner products is taken at once: what that needs is then little beside the states."""

_TENSORS = ("states", "x0", "eps")
_AS_RECORDED = {"space": "vp", "normalisation": "none", "compressed": False}  # of all states that are kept
_PRECISIONS = (torch.float16, torch.float32, torch.float64)


@dataclass(frozen=True)
class Origin:
    """What was recorded: enough to know whether a schedule belongs to a model."""

    model: str
    shape: tuple[int, ...]
    noise: NoiseSchedule
    prediction: str
    clip: float | None
    calls: int
    solver: str
    eta: float = 0.0
    conditions: dict[str, Any] = field(default_factory=dict)  # what it was asked to draw: label, guidance, size, ...

    @classmethod
    def of(cls, model: Model, solver: str, eta: float) -> Origin:
        """The origin of whatever this model and this solver make."""
        asked = dict(model.conditions)
        return cls(model.name, model.shape, model.noise, model.prediction, model.clip, model.calls, solver, eta, asked)

    def to_dict(self) -> dict[str, Any]:
        """For a file; the inverse of `from_dict`."""
        return {**self.__dict__, "shape": list(self.shape), "noise": self.noise.to_dict()}

    @classmethod
    def from_dict(cls, described: dict[str, Any]) -> Origin:
        """What `to_dict` described."""
        given = {**described, "shape": tuple(described["shape"]), "noise": noise_from_dict(described["noise"])}
        origin = cls(**given)
        words = (origin.model, origin.prediction, origin.solver)
        numbers = (origin.eta, 0.0 if origin.clip is None else origin.clip)
        counts = (origin.calls, *origin.shape)
        if not all(isinstance(word, str) for word in words) or not isinstance(origin.conditions, dict):
            raise ValueError("the origin must name a model, a prediction and a solver, and list the conditions")
        if not all(isinstance(number, int | float) for number in numbers):
            raise ValueError(
                f"eta and clip of the origin must be numbers, got {origin.eta!r:.60} and {origin.clip!r:.60}"
            )
        if not all(isinstance(count, int) and count > 0 for count in counts):
            raise ValueError(f"shape and calls of the origin must be whole and positive, got {counts!r:.60}")
        if not isinstance(terminal := origin.conditions.get("shift_terminal"), int | float | None):
            raise ValueError(f"shift_terminal of the origin must be a number or null, got {terminal!r:.60}")
        return origin


def check_origin(described: Any) -> dict[str, Any]:
    """What a file says of the model that it was made for: as much of an origin as it knows, and perhaps more."""
    least = Origin("", (1,), Flow(), "", None, 1, "").to_dict()
    Origin.from_dict({name: described.get(name, otherwise) for name, otherwise in least.items()})
    return described


@dataclass(frozen=True, eq=False, repr=False)
class Trajectories:
    """N + 1 states of each seed's walk: state i stands at timesteps[i], the last one is CLEAN."""

    states: Tensor  # (trajectories, N+1, dimensions)
    timesteps: Array  # (N+1,)
    seeds: tuple[int, ...]
    origin: Origin
    nfe: int = 0  # network calls that recording took
    x0: Tensor | None = None  # (trajectories, N, dimensions) predicted at each state but the last
    eps: Tensor | None = None

    def __post_init__(self) -> None:
        if self.states.ndim != 3 or self.states.shape[:2] != (len(self.seeds), len(self.timesteps)):
            raise GeometryError(
                f"states must be (trajectories, N+1, dimensions) = ({len(self.seeds)}, {len(self.timesteps)}, any), "
                f"got {tuple(self.states.shape)}"
            )
        if len(self.timesteps) < 3 or self.timesteps[-1] != CLEAN or not (np.diff(self.timesteps) < 0).all():
            raise GeometryError("timesteps must fall strictly, at least two of them, and end with CLEAN (-1)")
        expected = (self.states.shape[0], self.states.shape[1] - 1, self.states.shape[2])
        for name in ("x0", "eps"):
            beside = getattr(self, name)
            if beside is not None and tuple(beside.shape) != expected:
                raise GeometryError(f"{name} must have shape {expected}, got {tuple(beside.shape)}")

    def __repr__(self) -> str:
        count, points, dimensions = self.states.shape
        beside = "" if self.x0 is None else ", with predictions"
        return f"Trajectories({self.origin.model}: {count} of {points} states in {dimensions} dimensions{beside})"

    @classmethod
    def joined(cls, parts: Sequence[Trajectories]) -> Trajectories:
        """Recordings of different seeds of one model as one."""
        first = parts[0]
        if len(parts) == 1:
            return first
        if not all(np.array_equal(part.timesteps, first.timesteps) for part in parts):
            raise GeometryError("recordings can be joined if they stand at the same timesteps; record them alike")
        together: dict[str, Any] = {name: torch.cat([part._tensors[name] for part in parts]) for name in first._tensors}
        seeds = tuple(seed for part in parts for seed in part.seeds)
        return replace(first, seeds=seeds, nfe=sum(part.nfe for part in parts), **together)

    def states_in(self, space: str, rows: slice = slice(None)) -> Tensor:
        """The states of some trajectories as recorded (vp), as x / a (ve), or the predicted clean samples (x0)."""
        states = self.states[rows]
        if space not in SPACES:
            raise GeometryError(f"space must be one of {', '.join(SPACES)}, got {space!r}")
        if space == "vp":
            return states
        if space == "x0":
            if self.x0 is None:
                raise GeometryError("the x0 space needs recorded predictions: record with predictions=True")
            return torch.cat([self.x0[rows], states[:, -1:]], dim=1)
        signal = states.new_tensor([self.origin.noise.signal_and_sigma(t)[0] for t in self.timesteps])
        if (signal == 0).any():
            raise GeometryError("the ve space is not defined for states without signal (zero terminal SNR, flow start)")
        return states / signal[:, None]

    def gram(self, normalisation: str = "time", space: str = "vp", precise: bool = False) -> Array:
        """Inner products of the centred normalised states (trajectories, N+1, N+1), never copying all states.

        `precise` multiplies in float64: the test against a line does not need it, the one against planes does.
        """
        if normalisation not in NORMALISATIONS:
            raise GeometryError(f"normalisation must be one of {', '.join(NORMALISATIONS)}, got {normalisation!r}")
        pooled = _scale(self.states_in(space), "pooled") if normalisation == "pooled" else None
        count, points, _ = self.states.shape
        gram = np.zeros((count, points, points))
        for i in range(count):
            states = self.states_in(space, slice(i, i + 1))
            scale = _scale(states, normalisation, precise) if pooled is None else pooled
            for part, by in zip(_in_parts(states, precise), _in_parts(scale.expand_as(states[:, :1])), strict=True):
                gram[i] += gram_of_centred(part, by)[0]
        return gram

    @property
    def _tensors(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _TENSORS if getattr(self, name) is not None}

    def taken_apart(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors, and beside them what JSON can say; the inverse of `put_together`."""
        about = {"timesteps": self.timesteps.tolist(), "seeds": list(self.seeds), "nfe": self.nfe}
        return self._tensors, {**about, "origin": self.origin.to_dict(), **_AS_RECORDED}

    @classmethod
    def put_together(cls, tensors: dict[str, Tensor], about: dict[str, Any]) -> Trajectories:
        """What `taken_apart` took apart; half precision, in which states may be kept, becomes single again."""
        if unknown := set(tensors) - set(_TENSORS):
            raise ValueError(f"it holds unknown tensors {sorted(unknown)}")
        if strange := [str(tensor.dtype) for tensor in tensors.values() if tensor.dtype not in _PRECISIONS]:
            raise ValueError(f"its tensors must be float16, float32 or float64, got {strange[0]}")
        if not all(torch.isfinite(tensor).all() for tensor in tensors.values()):
            raise ValueError("it holds nan or infinity")
        if (kept := {name: about[name] for name in _AS_RECORDED}) != _AS_RECORDED:
            raise ValueError(f"its states must be as recorded, {_AS_RECORDED}, and are {kept!s:.200}")
        return cls(
            timesteps=np.array(finite(about["timesteps"])),
            seeds=tuple(int(seed) for seed in finite(about["seeds"])),
            origin=Origin.from_dict(about["origin"]),
            nfe=int(about["nfe"]),
            **{name: tensor.float() if tensor.dtype == torch.half else tensor for name, tensor in tensors.items()},
        )

    def save(self, path: Path) -> Path:
        """A safetensors file whose header says what it holds."""
        tensors, about = self.taken_apart()
        said = json.dumps({"format": FORMAT, "version": VERSION, **about})
        contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
        return write_whole(Path(path), lambda to: save_file(contiguous, to, {"geosprint": said}))

    def save_states(self, path: Path) -> Path:
        """The states alone, in half precision: off by half a thousandth at most, in half the room."""
        halved = self.states.half()
        if not torch.isfinite(halved).all():
            raise GeometryError(f"half precision ends at 65504, the states go to {float(self.states.abs().max()):g}")
        return replace(self, states=halved, x0=None, eps=None).save(path)

    @classmethod
    def load(cls, path: Path) -> Trajectories:
        """The inverse of `save`."""
        with refusing_damage(path):
            return cls.put_together(*read_tensors(Path(path), FORMAT))


def _scale(states: Tensor, how: str, precise: bool = False) -> Tensor:
    """Standard deviation of every dimension, 1 for those that do not move."""
    if how == "none":
        return states.new_ones(1, 1, 1)
    axes = (0, 1) if how == "pooled" else (1,)
    deviation = torch.cat([_deviation(part, axes) for part in _in_parts(states, precise)], dim=-1)
    still = deviation <= 1e-6 * deviation.amax(dim=-1, keepdim=True)
    return deviation.masked_fill(still, 1.0)


def _deviation(states: Tensor, axes: tuple[int, ...]) -> Tensor:
    if states.device.type == "cpu":
        return torch.from_numpy(states.numpy().std(axis=axes, keepdims=True))  # see geometry.gram_of_centred
    return states.std(dim=axes, keepdim=True, correction=0)


def _in_parts(states: Tensor, precise: bool = False) -> Iterator[Tensor]:
    """Some dimensions after others: their products add up."""
    return (part.double() if precise else part for part in states.split(TOGETHER, dim=-1))
