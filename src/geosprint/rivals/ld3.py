"""LD3 with a plain L2 loss: gradient descent on the K times through the solver itself.

Tong et al. (2024) learn the discretisation of the ODE by back-propagation. Here the loss is the yardstick
itself, the distance to the fine solve, so that the result is the limit of what a schedule can reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from geosprint.baselines import closed_forms, closed_forms_begun_late
from geosprint.models.base import CPU, Prediction, ask, predict, x0_and_eps
from geosprint.noise import CLEAN, Array, Flow, NoiseSchedule
from geosprint.rivals.base import Task
from geosprint.rivals.gits import gits
from geosprint.rivals.local_errors import sdm, sharp_euler
from geosprint.runs.progress import Progress
from geosprint.sampling import Counted, walk
from geosprint.schedule import gaps_of, whole_steps
from geosprint.solvers import Step, refuse_to_draw, solver_named
from geosprint.teacher import TeacherTrajectories

BATCH = 8  # samples behind one gradient: the K graphs of a walk are in memory at once
UPDATES = 120  # enough to travel from any start; each one costs 3K network calls a sample and K backward passes
RATE = 0.07  # of Adam: with 0.05 far optima stay out of reach, with 0.1 the descent overshoots on fashion
LOOKS = 12  # times that the held-out walks judge where the descent stands
HELD_OUT = 3  # one walk in this many is held out
NUDGE = 0.01  # share of time to either side that the network's slope is taken over: trained ones jitter on less
FACTOR_NUDGE = 1e-6  # and that of the factors a and s, which are smooth, in continuous time


@dataclass(frozen=True, eq=False)
class EndPairs:
    """Where walks start, and where the fine solve ends from there."""

    rows: Tensor  # (pairs,) which samples these are: a model may hold a label of each
    noise: Tensor  # (pairs, *shape)
    ends: Tensor  # (pairs, *shape)

    @classmethod
    def of(cls, walks: TeacherTrajectories) -> EndPairs:
        """The two ends of teacher trajectories."""
        return cls(torch.tensor(walks.rows), walks.starts, walks.ends)

    def __len__(self) -> int:
        return len(self.noise)

    def joined_with(self, other: EndPairs) -> EndPairs:
        """These and others."""
        both = ((self.rows, other.rows), (self.noise, other.noise), (self.ends, other.ends))
        return EndPairs(*map(torch.cat, both))

    def at(self, rows: Tensor | slice) -> EndPairs:
        """Some of them."""
        return EndPairs(self.rows[rows], self.noise[rows], self.ends[rows])

    def errors(self, found: Tensor) -> Tensor:
        """Root mean square distance of each found end: the mean of these is what schedules are judged by."""
        difference = (found - self.ends.to(found)).flatten(1)
        return torch.linalg.vector_norm(difference, dim=1) / difference.shape[1] ** 0.5


def ld3_l2(task: Task, steps: int) -> Array:
    """The times at which the held-out error is least along a descent from the best start."""
    training, held_out = training_and_held_out(task)

    def judged(times: Array) -> tuple[float, Array]:
        return mean_error(task, times, held_out), times

    best = min(map(judged, starts(task, steps)), key=itemgetter(0))
    best = min([best, *map(judged, descent(task, best[1], training))], key=itemgetter(0))
    return best[1]


def training_and_held_out(task: Task) -> tuple[EndPairs, EndPairs]:
    """The pairs of a descent: twice as many as ours learns from."""
    pairs = EndPairs.of(task.recording.teacher.for_validation)
    is_held_out = torch.arange(len(pairs)) % HELD_OUT == 0
    return pairs.at(~is_held_out), pairs.at(is_held_out)


def starts(task: Task, steps: int) -> list[Array]:
    """Closed forms, also begun late, and what others make of a recording: a limit must not lie above them."""
    forms = {**closed_forms(task.model.noise, steps), **closed_forms_begun_late(task.model.noise, steps)}
    return [*forms.values(), gits(task, steps, decay=1.0), sdm(task, steps), sharp_euler(task, steps)]


def mean_error(task: Task, times: Array, pairs: EndPairs) -> float:
    """The mean over pairs of the distance between this schedule's end and the fine one."""
    model = task.model.for_samples(pairs.rows.tolist())
    with torch.no_grad():
        *_, last = walk(model, pairs.noise.to(model.device), times, solver_named(task.solver), refuse_to_draw)
        return float(pairs.errors(last.x).cpu().double().mean())


def descent(task: Task, start: Array, training: EndPairs) -> Iterator[Array]:
    """Of the error over the times; yields times to be judged."""
    noise = task.model.noise

    def end(free: Sequence[Tensor], some: EndPairs) -> Tensor:
        return end_of_walk(task, known_times(free[0], noise), some)

    begun = [(torch.from_numpy(gaps_of(start, noise)), RATE)]
    for (logits,) in adam_descent(task, "ld3-l2", begun, end, training, UPDATES):
        yield known_times(logits, noise).numpy()


def adam_descent(
    task: Task,
    name: str,
    begun: Sequence[tuple[Tensor, float]],
    end: Callable[[Sequence[Tensor], EndPairs], Tensor],
    training: EndPairs,
    updates: int,
    looks: int = LOOKS,
) -> Iterator[list[Tensor]]:
    """Adam on the mean error of batches; rates fall to 0 as a cosine, and a part whose rate is 0 stays as it is.

    Yields the numbers that are to be judged.
    """
    free = [part.clone().requires_grad_(rate > 0) for part, rate in begun]
    moving = [(part, rate) for part, (_, rate) in zip(free, begun, strict=True) if rate > 0]
    adam = torch.optim.Adam([{"params": [part], "lr": rate} for part, rate in moving])
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(adam, updates)
    batches = shuffled(len(training), torch.Generator().manual_seed(task.recording.seed))
    with Progress(name, updates, "update", task.recording.progress) as bar:
        for update in range(1, updates + 1):
            some = training.at(next(batches))
            with torch.enable_grad():
                loss = some.errors(end(free, some)).mean()
            found = torch.autograd.grad(loss, [part for part, _ in moving])
            if not all(bool(torch.isfinite(one).all()) for one in found):  # a walk that blew up says nothing
                return
            for (part, _), gradient in zip(moving, found, strict=True):
                part.grad = gradient
            adam.step()
            falling.step()
            if update % (updates // looks) == 0:
                yield [part.detach() for part in free]
            bar.update(1)


def known_times(logits: Tensor, noise: NoiseSchedule) -> Tensor:
    """As `schedule.times_of` (K,) float64, rounded to whole ones where the model knows no others.

    Rounding lets gradients pass as if it were not there: the loss is that of times which can be returned.
    """
    gone = torch.softmax(logits, dim=0).cumsum(dim=0)[:-1]
    times = noise.first - (noise.first - noise.last) * gone
    if noise.continuous:
        return times
    whole = whole_steps(times.detach().numpy(), int(noise.first)).copy()
    return leaning(torch.from_numpy(whole), 1.0, times)


def end_of_walk(task: Task, times: Tensor, pairs: EndPairs) -> Tensor:
    """As the last state of `sampling.walk`, with gradients to the times (K,)."""
    lever = TimeLever(task.model.for_samples(pairs.rows.tolist()))
    solver, memory, x = solver_named(task.solver), None, pairs.noise.to(task.model.device)
    is_flow = isinstance(task.model.noise, Flow)
    for t, t_next in pairwise([*times, torch.tensor(CLEAN, dtype=times.dtype)]):
        factors = (*lever.factors(t), *lever.factors(t_next))
        step = Step(t, t_next, *factors, is_flow, lever.predict, refuse_to_draw)
        x, memory = solver(x, lever.predict(x, t), step, memory)
    return x


@dataclass(frozen=True)
class TimeLever:
    """A model whose answers carry a gradient to time, by differences: its time embedding need not have one."""

    model: Counted

    def predict(self, x: Tensor, t: Tensor) -> Prediction:
        """As `models.base.predict`; the slope in time, where one is wanted, costs two more network calls."""
        noise, now = self.model.noise, t.item()
        if not t.requires_grad:
            return predict(self.model, x, now)
        nudge = NUDGE * noise.first if noise.continuous else max(1.0, round(NUDGE * noise.first))
        room = (now - noise.last) / 2 if noise.continuous else now  # a flow does not know its last time itself
        below, above = now - min(nudge, room), min(now + nudge, noise.first)
        with torch.no_grad():
            slope = (ask(self.model, x, above) - ask(self.model, x, below)) / (above - below)
        answer = ask(self.model, x, now)
        a, s = self.factors(t)
        return Prediction(
            *x0_and_eps(self.model.prediction, x, leaning(answer, slope, t.to(x.device)), a, s, self.model.clip)
        )

    def factors(self, t: Tensor) -> tuple[Any, Any]:
        """a and s of a time, 0-dimensional; the clean end is where it is."""
        return factors_at(t, self.model.noise, self.model.device)


def factors_at(t: Tensor, noise: NoiseSchedule, device: torch.device = CPU) -> tuple[Any, Any]:
    """a and s of a time, with gradients to it; the clean end is where it is."""
    now = t.item()
    if now == CLEAN:
        return noise.signal_and_sigma(CLEAN)
    nudge = FACTOR_NUDGE * noise.first if noise.continuous else 1.0
    below, above = max(now - nudge, noise.last), min(now + nudge, noise.first)
    ends = zip(noise.signal_and_sigma(below), noise.signal_and_sigma(above), strict=True)
    slopes = [(high - low) / (above - below) for low, high in ends]
    here = t.to(device)
    a, s = (leaning(value, slope, here) for value, slope in zip(noise.signal_and_sigma(now), slopes, strict=True))
    return a, s


def leaning(value: Any, slope: Any, t: Tensor) -> Any:
    """This value, with this slope as its gradient to t."""
    return value + (t - t.detach()) * slope


def shuffled(count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Rows of one batch after another, every row once before any comes again."""
    left = torch.empty(0, dtype=torch.int64)
    while True:
        while len(left) < min(BATCH, count):
            left = torch.cat([left, torch.randperm(count, generator=generator)])
        yield left[:BATCH]
        left = left[BATCH:]
