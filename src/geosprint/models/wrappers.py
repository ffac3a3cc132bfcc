"""Models around a model: each names what it forwards, here, once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from torch import Tensor

from geosprint.errors import ModelError
from geosprint.models.base import Model, forwarded
from geosprint.runs.progress import Progress

REQUIRED = ("name", "shape", "noise", "prediction", "clip", "calls", "device")
"""What an object must have to be a model, besides being callable."""


@dataclass(frozen=True, eq=False)
class Wrapped(Model):
    """A model that answers as the one inside; derive from it and change what shall differ."""

    inner: Model

    name = forwarded("inner.name")
    shape = forwarded("inner.shape")
    noise = forwarded("inner.noise")
    prediction = forwarded("inner.prediction")
    clip = forwarded("inner.clip")
    calls = forwarded("inner.calls")
    device = forwarded("inner.device")
    conditions = forwarded("inner.conditions")

    def for_samples(self, rows: Sequence[int]) -> Self:
        return replace(self, inner=self.inner.for_samples(rows))

    def __call__(self, x: Tensor, t: float) -> Tensor:
        return self.inner(x, t)


def innermost(model: Model) -> Model:
    """The model itself, without what is around it."""
    while isinstance(model, Wrapped):
        model = model.inner
    return model


@dataclass(frozen=True, eq=False)
class _Completed(Wrapped):
    """A user's object that does not say what it draws, or draws the same for every sample."""

    @property
    def conditions(self) -> dict[str, Any]:
        return getattr(self.inner, "conditions", {})

    def for_samples(self, rows: Sequence[int]) -> Self:
        return super().for_samples(rows) if hasattr(self.inner, "for_samples") else self


def check_model(candidate: Any, source: str) -> Model:
    """The candidate itself, or completed where it lacks `for_samples` or `conditions`; the other names it must have."""
    missing = [name for name in REQUIRED if not hasattr(candidate, name)]
    if missing or not callable(candidate):
        raise ModelError(
            f"{source} must be a model with {', '.join(REQUIRED)} and __call__(x, t); {type(candidate).__name__} lacks "
            f"{', '.join(missing) or '__call__(x, t)'} (geosprint.Network wraps a plain module)"
        )
    return (
        candidate if hasattr(candidate, "for_samples") and hasattr(candidate, "conditions") else _Completed(candidate)
    )


@dataclass(frozen=True, eq=False)
class Shown(Wrapped):
    """A model that moves a progress bar with every network call."""

    bar: Progress

    def __call__(self, x: Tensor, t: float) -> Tensor:
        answer = self.inner(x, t)
        self.bar.update(len(x) * self.calls)
        return answer
