"""The training loop: every random number is derived from (seed, step), so a killed run resumes bit for bit."""

from __future__ import annotations

import hashlib
import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from tqdm import tqdm

from geosprint.errors import FileError, ModelError
from geosprint.files import write_text, write_whole
from geosprint.training.ema import decay_at, update_average
from geosprint.training.loss import Objective
from geosprint.training.recipe import Plan

CHECKPOINT = "checkpoint.safetensors"
PROGRESS = "progress.json"
BETAS = 0.9, 0.99  # of AdamW: memory of the gradient and of its square
EPSILON = 1e-8


@dataclass
class Run:
    """The state of a training run: all of it is in the checkpoint, and nothing else is needed to go on."""

    step: int
    seconds: float  # spent on steps, over all restarts
    weights: dict[str, Tensor]  # the network's own parameters, trained in place
    average: dict[str, Tensor]
    first_moment: dict[str, Tensor]
    second_moment: dict[str, Tensor]
    losses: Tensor  # (steps,) zero where still to come


def fit(
    network: nn.Module,
    objective: Objective,
    examples: Sequence[Tensor],
    plan: Plan,
    directory: Path,
    seed: int = 0,
    checkpoint_seconds: float = 180.0,
) -> Run:
    """Train `network` on `examples` to the end of the plan, from the checkpoint in `directory` if there is one.

    Ctrl-C ends the step in hand, saves a checkpoint and then interrupts.
    """
    directory = made_directory(directory)
    run = resume(network, plan, directory, seed)
    order = DataOrder(len(examples[0]), plan.batch, seed)
    saved = time.monotonic()
    network.train()
    with (
        interrupts_between_steps() as interrupted,
        tqdm(total=plan.steps, initial=run.step, desc=directory.name, mininterval=5) as bar,
    ):
        while run.step < plan.steps:
            begun = time.monotonic()
            rows = order.rows(run.step)
            loss = objective(network, [part[rows] for part in examples], generator_of(seed, "noise", run.step))
            learn(run, loss, plan)
            run.seconds += time.monotonic() - begun
            bar.update()
            bar.set_postfix(loss=f"{recent_loss(run):.4f}", refresh=False)
            if time.monotonic() - saved >= checkpoint_seconds or run.step == plan.steps or interrupted():
                save_checkpoint(run, plan, directory, seed)
                saved = time.monotonic()
            if interrupted():
                raise KeyboardInterrupt
    network.eval()
    return run


@contextmanager
def interrupts_between_steps() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed: a half-made step must not be saved. A second Ctrl-C does not wait."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # Ctrl-C never reaches other threads
        yield pressed.is_set
        return
    before = signal.getsignal(signal.SIGINT)

    def note(*_: Any) -> None:
        pressed.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def steps_within(
    minutes: float,
    network: nn.Module,
    objective: Objective,
    examples: Sequence[Tensor],
    plan: Plan,
    trials: int = 10,
) -> int:
    """How many steps fit into a time, from the speed of a few on a copy of the network."""
    copy = deepcopy(network).train()
    run = _fresh_run(copy, replace(plan, steps=trials + 2))
    order = DataOrder(len(examples[0]), plan.batch, 0)
    begun = 0.0
    for step in range(trials + 2):
        if step == 2:  # the first steps also warm up caches
            begun = time.monotonic()
        batch = [part[order.rows(step)] for part in examples]
        learn(run, objective(copy, batch, generator_of(0, "trial", step)), plan)
    return max(1, int(minutes * 60 * trials / (time.monotonic() - begun)))


def learn(run: Run, loss: Tensor, plan: Plan) -> None:
    """One AdamW step on the weights, then one step of their average."""
    if not torch.isfinite(loss):
        raise ModelError(f"the loss became {float(loss.detach())} at step {run.step}; lower the learning rate")
    names = list(run.weights)
    weights = [run.weights[name] for name in names]
    gradients = list(torch.autograd.grad(loss, weights))
    rate = learning_rate_at(run.step, plan)
    run.losses[run.step] = loss.detach()
    run.step += 1
    slow, slower = BETAS
    with torch.no_grad():
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        torch._foreach_mul_(gradients, torch.clamp(plan.clip_gradient / (norm + 1e-6), max=1.0))
        first = [run.first_moment[name] for name in names]
        second = [run.second_moment[name] for name in names]
        torch._foreach_lerp_(first, gradients, 1 - slow)
        torch._foreach_mul_(second, slower)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - slower)
        scale = torch._foreach_sqrt(second)
        torch._foreach_div_(scale, math.sqrt(1 - slower**run.step))
        torch._foreach_add_(scale, EPSILON)
        torch._foreach_mul_(weights, 1 - rate * plan.weight_decay)
        torch._foreach_addcdiv_(weights, first, scale, -rate / (1 - slow**run.step))
    update_average([run.average[name] for name in names], weights, decay_at(run.step, plan.ema_decay))


def learning_rate_at(step: int, plan: Plan) -> float:
    """Linear warm-up, then half a cosine down to 0 at the last step."""
    warm = min(1.0, (step + 1) / plan.warmup)
    done = max(0, step - plan.warmup) / max(1, plan.steps - plan.warmup)
    return plan.learning_rate * warm * (1 + math.cos(math.pi * done)) / 2


def recent_loss(run: Run, window: int = 100) -> float:
    """The mean loss of the last steps."""
    return float(run.losses[max(0, run.step - window) : run.step].mean())


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


def generator_of(seed: int, purpose: str, index: int) -> torch.Generator:
    """A random generator that depends on these three and nothing else."""
    digest = hashlib.sha256(f"{seed}/{purpose}/{index}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def made_directory(directory: Path) -> Path:
    """The directory of a run, made if need be: better to fail now than at the first checkpoint."""
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as wrong:
        raise FileError(
            f"cannot keep a run in {directory}: {wrong.strerror or wrong}; name another directory"
        ) from wrong
    return Path(directory)


_PARTS = ("weights", "average", "first_moment", "second_moment")


def resume(network: nn.Module, plan: Plan, directory: Path, seed: int) -> Run:
    """The run where its checkpoint left it, or at step 0."""
    run = _fresh_run(network, plan)
    path = Path(directory) / CHECKPOINT
    if not path.exists():
        return run
    with opened(path) as file:
        noted = file.metadata()
        _check_same_run(path, json.loads(noted["identity"]), json.loads(_identity(plan, seed)))
        run.step, run.seconds = int(noted["step"]), float(noted["seconds"])
        run.losses = file.get_tensor("losses")
        with torch.no_grad():
            for part in _PARTS:
                for name, value in getattr(run, part).items():
                    held = file.get_tensor(f"{part}/{name}")
                    if held.shape != value.shape:  # copy_ would broadcast
                        raise ValueError(f"{name} is {tuple(held.shape)} there and {tuple(value.shape)} here")
                    value.copy_(held)
    return run


def steps_done(directory: Path) -> tuple[int, int]:
    """How many steps a run's checkpoint holds, and how many were planned; (0, 0) before the first checkpoint."""
    path = Path(directory) / CHECKPOINT
    if not path.exists():
        return 0, 0
    with opened(path) as file:
        noted = file.metadata()
        return int(noted["step"]), int(json.loads(noted["identity"])["steps"])


def save_checkpoint(run: Run, plan: Plan, directory: Path, seed: int) -> None:
    """One file, written under a temporary name and renamed: a kill leaves the old or the new, never half."""
    tensors = {
        f"{part}/{name}": value.detach().contiguous() for part in _PARTS for name, value in getattr(run, part).items()
    }
    noted = {"identity": _identity(plan, seed), "step": str(run.step), "seconds": repr(run.seconds)}
    tensors["losses"] = run.losses
    write_whole(Path(directory) / CHECKPOINT, lambda unfinished: save_file(tensors, unfinished, metadata=noted))
    progress = {
        "step": run.step,
        "steps": plan.steps,
        "seconds": round(run.seconds, 1),
        "loss": recent_loss(run),
    }
    write_text(Path(directory) / PROGRESS, json.dumps(progress) + "\n")


def _fresh_run(network: nn.Module, plan: Plan) -> Run:
    weights: dict[str, Tensor] = dict(network.named_parameters())
    average = {name: value.detach().clone() for name, value in weights.items()}
    first, second = ({name: torch.zeros_like(value) for name, value in average.items()} for _ in range(2))
    return Run(0, 0.0, weights, average, first, second, losses=torch.zeros(plan.steps))


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """A checkpoint to read from; one that is damaged or of another network is named."""
    try:
        with safe_open(path, "pt") as file:
            yield file
    except (SafetensorError, OSError, RuntimeError, KeyError, TypeError, ValueError) as wrong:
        raise FileError(
            f"{path} is damaged or of another network ({wrong}); remove it, or name another directory of runs"
        ) from wrong


def _check_same_run(path: Path, noted: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Steps of two plans do not make one run: name what differs."""
    other = sorted(key for key in noted.keys() | wanted if noted.get(key) != wanted.get(key))
    if other:
        begun, asked = (", ".join(f"{key} {one.get(key)}" for key in other) for one in (noted, wanted))
        raise FileError(f"{path} was begun with {begun}, asked for {asked}; ask for the same or name another directory")


def _identity(plan: Plan, seed: int) -> str:
    return json.dumps({**asdict(plan), "seed": seed}, sort_keys=True)
