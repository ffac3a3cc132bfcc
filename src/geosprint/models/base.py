"""The interface of a model, and the one place where its output becomes x0 and eps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, Self

import torch
from torch import Tensor

from geosprint.errors import GeoSprintError, ModelError, ModelFailed
from geosprint.noise import NoiseSchedule

CPU = torch.device("cpu")


class Model(Protocol):
    """What can be recorded, sampled and measured; derive from it, or bring the same names.

    The properties are for type checkers and readers: at run time a dataclass field would take them for its default.
    """

    if TYPE_CHECKING:

        @property
        def name(self) -> str:
            """What files and tables call it."""

        @property
        def shape(self) -> tuple[int, ...]:
            """The shape of one sample, without the batch."""

        @property
        def noise(self) -> NoiseSchedule:
            """How it was trained to be noised."""

        @property
        def prediction(self) -> str:
            """What a call returns: "eps", "v", "x0" or "flow" (the velocity eps - x0)."""

        @property
        def clip(self) -> float | None:
            """Predicted clean samples are clamped to -clip..clip; None leaves them alone."""

        @property
        def calls(self) -> int:
            """Network calls that one prediction of one sample costs: 2 with guidance."""

        @property
        def device(self) -> torch.device:
            """Where its states live."""

    def __call__(self, x: Tensor, t: float) -> Tensor:
        """The prediction for a batch (batch, *shape) at one time."""
        raise NotImplementedError

    @property
    def conditions(self) -> dict[str, Any]:
        """What it is asked to draw, as files store it: a label, a guidance scale, prompts."""
        return {}

    @property
    def boundary(self) -> float | None:
        """The time below which another network answers, as the second expert of Wan 2.2 does; None: there is one."""
        return None

    def for_samples(self, rows: Sequence[int]) -> Self:
        """The model of one batch: one that holds something of each sample, such as its label, picks those of `rows`."""
        return self

    def with_conditional(self) -> Self:
        """One that answers (batch, 2, *shape), guided and conditional, if it can tell the two apart; else itself."""
        return self


def forwarded(path: str) -> Any:
    """A property that is the same of something inside: `forwarded("inner.name")` is `self.inner.name`."""
    return property(attrgetter(path))


@dataclass(frozen=True)
class Network(Model):
    """A plain function or torch module of (x, t) as a model."""

    function: Callable[[Tensor, float], Tensor]
    shape: tuple[int, ...]
    noise: NoiseSchedule
    prediction: str = "eps"
    clip: float | None = None
    calls: int = 1
    name: str = "network"
    device: torch.device = CPU

    def __call__(self, x: Tensor, t: float) -> Tensor:
        return self.function(x, t)


@dataclass(frozen=True)
class Prediction:
    """What the model believes of one batch of states: x = a·x0 + s·eps, also after clipping."""

    x0: Tensor  # (batch, *shape) clipped to the model's range
    eps: Tensor  # (batch, *shape) what is left of x: with that of the unclipped x0, steps would not vanish as N grows
    added: Tensor | None = None  # (batch, *shape) by guidance to the conditional x0; None: the model does not tell


Predict = Callable[[Tensor, Any], Prediction]
"""What a model, or whatever stands for it, says at a state and a time."""


def predict(model: Model, x: Tensor, t: float) -> Prediction:
    """Ask the model at time t and put its answer in terms of x0 and eps."""
    answer = ask(model, x, t)
    guided, *conditional = [answer] if answer.shape == x.shape else answer.unbind(1)
    factors = (*model.noise.signal_and_sigma(t), model.clip)
    x0, eps = x0_and_eps(model.prediction, x, guided, *factors)
    added = [x0 - x0_and_eps(model.prediction, x, one, *factors)[0] for one in conditional]
    return Prediction(x0, eps, *added)


def ask(model: Model, x: Tensor, t: float) -> Tensor:
    """The model's answer, in the precision of x.

    It is a copy, and so is what the model sees: compiled networks answer in one buffer every time, which solvers would
    remember, and others write into what they are given.
    """
    with naming_failure(f"model {model.name!r}", len(x), t):
        answer = model(x.clone(), t)
    if not isinstance(answer, Tensor) or not answer.is_floating_point():
        kind = answer.dtype if isinstance(answer, Tensor) else type(answer).__name__
        raise ModelError(
            f"model {model.name!r} must return a tensor of floats, got {kind} at t = {t:g}; "
            "if it is an output object, return its sample"
        )
    if answer.shape not in (x.shape, (len(x), 2, *x.shape[1:])):
        raise ModelError(
            f"model {model.name!r} was given {tuple(x.shape)} at t = {t:g} and must return the same shape, "
            f"got {tuple(answer.shape)}"
        )
    return answer.to(x, copy=True)


@contextmanager
def naming_failure(who: str, count: int, t: float | None = None) -> Iterator[None]:
    """Whatever the code of a model raises, as one sentence that names it and how many samples it was asked about."""
    try:
        yield
    except GeoSprintError:
        raise
    except Exception as wrong:
        reason = str(wrong).strip().split("\n")[0]
        when = "" if t is None else f" at t = {t:g}"
        smaller = " (fewer at once: --batch, in Python batch)" if count > 1 else ""
        raise ModelFailed(
            f"{who} failed on a batch of {count}{when}{smaller}: {type(wrong).__name__}: {reason}"
        ) from wrong


def x0_and_eps(
    prediction: str, x: Tensor, answer: Tensor, a: float, s: float, clip: float | None = None
) -> tuple[Tensor, Tensor]:
    """What an answer of this kind says of x0, clipped, and of eps, where x = a·x0 + s·eps."""
    if prediction not in _MEANINGS:
        raise ModelError(f"a model's prediction must be one of {', '.join(_MEANINGS)}, got {prediction!r}")
    x0, eps = _MEANINGS[prediction](x, answer, a, s)
    return (x0, eps) if clip is None else _from_x0(x, x0.clamp(-clip, clip), a, s)


def _from_eps(x: Tensor, eps: Tensor, a: float, s: float) -> tuple[Tensor, Tensor]:
    if a == 0:
        raise ModelError(
            "a model that predicts eps says nothing of x0 where no signal is left (zero terminal SNR); "
            "start at a later step or use one that predicts v"
        )
    return (x - s * eps) / a, eps


def _from_x0(x: Tensor, x0: Tensor, a: float, s: float) -> tuple[Tensor, Tensor]:
    return x0, (x - a * x0) / s if s else torch.zeros_like(x)  # a state without noise holds no eps


def _from_v(x: Tensor, v: Tensor, a: float, s: float) -> tuple[Tensor, Tensor]:
    return a * x - s * v, s * x + a * v


def _from_flow(x: Tensor, v: Tensor, a: float, s: float) -> tuple[Tensor, Tensor]:
    return x - s * v, x + a * v


_MEANINGS = {"eps": _from_eps, "x0": _from_x0, "v": _from_v, "flow": _from_flow}
