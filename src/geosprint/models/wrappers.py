"""Models around a model: each names what it forwards, here, once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from geosprint.errors import ModelError, ScheduleError
from geosprint.files import CONTROL
from geosprint.models.base import Model, ask, forwarded
from geosprint.noise import NoiseSchedule
from geosprint.runs.progress import Progress

REQUIRED = ("name", "shape", "noise", "prediction", "clip", "calls", "device")
"""What an object must have to be a model, besides being callable."""

SAME_ANSWER = 0.01
"""Relative distance: two calls of a network in half precision may round so differently, dropout moves them further."""


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
    boundary = forwarded("inner.boundary")

    def for_samples(self, rows: Sequence[int]) -> Self:
        return replace(self, inner=self.inner.for_samples(rows))

    def with_conditional(self) -> Self:
        inner = self.inner.with_conditional()
        return self if inner is self.inner else replace(self, inner=inner)

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

    @property
    def boundary(self) -> float | None:
        return getattr(self.inner, "boundary", None)

    def for_samples(self, rows: Sequence[int]) -> Self:
        return super().for_samples(rows) if hasattr(self.inner, "for_samples") else self

    def with_conditional(self) -> Self:
        return super().with_conditional() if hasattr(self.inner, "with_conditional") else self


def check_model(candidate: Any, source: str) -> Model:
    """The candidate itself, or completed where it lacks what a model may leave out; the other names it must have."""
    missing = [name for name in REQUIRED if not hasattr(candidate, name)]
    if missing or not callable(candidate):
        raise ModelError(
            f"{source} must be a model with {', '.join(REQUIRED)} and __call__(x, t); {type(candidate).__name__} lacks "
            f"{', '.join(missing) or '__call__(x, t)'} (geosprint.Network wraps a plain module)"
        )
    _check_description(candidate, source)
    is_whole = all(hasattr(candidate, name) for name in ("for_samples", "conditions", "boundary", "with_conditional"))
    return candidate if is_whole else _Completed(candidate)


def _check_description(model: Model, source: str) -> None:
    """What no model can be is refused here, where it can still be named."""
    shape, clip = tuple(model.shape), model.clip
    for name, is_right, expected in (
        ("name", isinstance(model.name, str) and not CONTROL.search(model.name), "a text without control characters"),
        ("shape", shape and all(isinstance(n, int) and n > 0 for n in shape), "that of a sample, such as (3, 32, 32)"),
        ("calls", isinstance(model.calls, int) and model.calls > 0, "network calls per sample, 1 or more"),
        ("clip", clip is None or (isinstance(clip, int | float) and clip > 0), "a positive number or None"),
        ("noise", isinstance(model.noise, NoiseSchedule), "a noise schedule, such as geosprint.Flow()"),
    ):
        if not is_right:
            raise ModelError(f"the {name} of {source} must be {expected}, got {getattr(model, name)!r}")


def require_repeatable(model: Model, batch: int) -> None:
    """Refuse a model that answers the same question in two ways: dropout left on, or samples that see one another."""
    if batch < 1:
        raise ScheduleError(f"the batch size must be at least 1, got {batch}")
    while isinstance(model, Wrapped) and not isinstance(model, _Completed):
        model = model.inner  # a trial is not counted, shown or kept
    count = min(batch, 2)
    x = torch.randn(count, *model.shape, generator=torch.Generator().manual_seed(0)).to(model.device)
    with torch.no_grad():
        once, again = (ask(model.for_samples(range(count)), x, model.noise.first) for _ in range(2))
        alone = ask(model.for_samples([0]), x[:1], model.noise.first) if count > 1 else once
    for other, when, way_out in (
        (again, "when it is asked twice", "is dropout on? call eval() on it"),
        (alone[:1], "alone and beside another", "call eval() on it, or use a batch of 1 (--batch 1)"),
    ):
        apart = float((other - once[: len(other)]).norm() / once[: len(other)].norm().clamp_min(1e-30))
        if apart > SAME_ANSWER:
            raise ModelError(f"model {model.name!r} answers the same sample {apart:.0%} differently {when}; {way_out}")


@dataclass(frozen=True, eq=False)
class Shown(Wrapped):
    """A model that moves a progress bar with every network call."""

    bar: Progress

    def __call__(self, x: Tensor, t: float) -> Tensor:
        answer = self.inner(x, t)
        self.bar.update(len(x) * self.calls)
        return answer
