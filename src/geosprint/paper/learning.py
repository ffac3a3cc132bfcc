"""Training a small network: every random number is derived from (seed, step), so that a run repeats bit for bit."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from geosprint.errors import ModelError
from geosprint.runs.progress import Progress


@dataclass(frozen=True)
class TrainingPlan:
    """How long and how fast to learn, in steps decided at the start."""

    steps: int
    batch: int = 64
    learning_rate: float = 1e-3  # the peak, after the warm-up and before the cosine decay to 0
    warmup: int = 200
    ema_decay: float = 0.999
    weight_decay: float = 0.0
    clip_gradient: float = 1.0

    def learning_rate_at(self, step: int) -> float:
        """Linear warm-up, then half a cosine down to 0 at the last step."""
        warm = min(1.0, (step + 1) / self.warmup)
        done = max(0, step - self.warmup) / max(1, self.steps - self.warmup)
        return self.learning_rate * warm * (1 + math.cos(math.pi * done)) / 2

    def ema_decay_at(self, step: int) -> float:
        """A young average forgets faster, so that it does not remember the random start."""
        return min(self.ema_decay, (1 + step) / (10 + step))


class Learner:
    """A network in training: AdamW with warm-up and cosine decay, and the moving average of the weights."""

    def __init__(self, network: nn.Module, plan: TrainingPlan) -> None:
        self.plan = plan
        self.step = 0
        self.weights = dict(network.named_parameters())  # trained in place
        self.average = {name: weight.detach().clone() for name, weight in self.weights.items()}
        self.adamw = torch.optim.AdamW(
            self.weights.values(), betas=(0.9, 0.99), weight_decay=plan.weight_decay, foreach=True
        )

    def learn(self, loss: Tensor) -> None:
        """One AdamW step on the weights, then one step of their average."""
        if not torch.isfinite(loss):
            raise ModelError(f"the loss became {float(loss.detach())} at step {self.step}; lower the learning rate")
        self.adamw.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.weights.values(), self.plan.clip_gradient)
        for group in self.adamw.param_groups:
            group["lr"] = self.plan.learning_rate_at(self.step)
        self.adamw.step()
        self.step += 1
        with torch.no_grad():
            for name, weight in self.weights.items():
                self.average[name].lerp_(weight, 1 - self.plan.ema_decay_at(self.step))


def generator_of(seed: int, purpose: str, index: int) -> torch.Generator:
    """A random generator that depends on these three and nothing else."""
    digest = hashlib.sha256(f"{seed}/{purpose}/{index}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


@dataclass(frozen=True)
class DataOrder:
    """Which rows each step sees: every epoch is one shuffle, a function of the seed alone."""

    count: int
    batch: int
    seed: int

    def rows(self, step: int) -> Tensor:
        """The rows of one step; a batch larger than what is left of an epoch runs on into the next."""
        wanted = torch.arange(step * self.batch, (step + 1) * self.batch)
        epochs = {int(epoch): self._shuffle(int(epoch)) for epoch in (wanted // self.count).unique()}
        return torch.stack([epochs[int(row) // self.count][int(row) % self.count] for row in wanted])

    def _shuffle(self, epoch: int) -> Tensor:
        return torch.randperm(self.count, generator=generator_of(self.seed, "order", epoch))


def stratified_times(count: int, generator: torch.Generator) -> Tensor:
    """Uniform in (0, 1], one in each of `count` equal strata: less noise in the loss than free draws."""
    offsets = torch.rand(count, generator=generator)
    return (torch.randperm(count, generator=generator) + 1 - offsets) / count


Velocity = Callable[[Tensor, float, Tensor], Tensor]
"""(x, t, labels) to eps - x0."""


@torch.no_grad()
def transport(velocity: Velocity, noise: Tensor, labels: Tensor, steps: int, first: float = 1000.0) -> Tensor:
    """Follow a flow from noise (t = first) to samples (t = 0) with Heun steps, the last one Euler."""
    x = noise
    width = 1 / steps
    for step in range(steps):
        t = first * (1 - step * width)
        slope = velocity(x, t, labels)
        ahead = x - width * slope
        if step < steps - 1:
            slope = (slope + velocity(ahead, t - first * width, labels)) / 2
        x = x - width * slope
    return x


def draw_couplings(
    velocity: Velocity, shape: tuple[int, ...], labels: Tensor, steps: int, seed: int = 0, batch: int = 250
) -> tuple[Tensor, Tensor]:
    """Samples of a flow, one per label, and the noise each began with: what reflow (Liu et al. 2023) learns from.

    The noise of a batch depends on the seed and the batch's number only.
    """
    samples, noises = [], []
    with Progress("couplings", len(labels), "sample", shown=True) as bar:
        for number, part in enumerate(labels.split(batch)):
            noises.append(torch.randn(len(part), *shape, generator=generator_of(seed, "pairs", number)))
            samples.append(transport(velocity, noises[-1], part, steps))
            bar.update(len(part))
    return torch.cat(samples), torch.cat(noises)
