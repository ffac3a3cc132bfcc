"""The training loop: every random number is derived from (seed, step), so a killed run resumes bit for bit."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from geosprint.errors import FileError
from geosprint.files import write_text, write_whole
from geosprint.paper.learning import DataOrder, Learner, TrainingPlan, generator_of
from geosprint.runs.progress import Progress
from recipes.networks.loss import Objective

CHECKPOINT = "checkpoint.safetensors"
PROGRESS = "progress.json"


class TrainingRun(Learner):
    """A learner with its history: all of it is in the checkpoint, and nothing else is needed to go on."""

    def __init__(self, network: nn.Module, plan: TrainingPlan) -> None:
        super().__init__(network, plan)
        self.seconds = 0.0  # spent on steps, over all restarts
        self.losses = torch.zeros(plan.steps)  # zero where still to come

    def learn(self, loss: Tensor) -> None:
        """One step, and a note of its loss."""
        super().learn(loss)
        self.losses[self.step - 1] = loss.detach()

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds, once a step was made."""
        parts: dict[str, dict[str, Any]] = {"weights": self.weights, "average": self.average}
        for part, moment in _MOMENTS.items():
            parts[part] = {name: self.adamw.state[weight][moment] for name, weight in self.weights.items()}
        held = {f"{part}/{name}": value for part in parts for name, value in parts[part].items()}
        return {name: value.detach().contiguous() for name, value in held.items()} | {"losses": self.losses}

    @torch.no_grad()
    def restore(self, step: int, seconds: float, tensor: Callable[[str], Tensor]) -> None:
        """Go on after this many steps, from the tensors of a checkpoint by name."""
        self.step, self.seconds, self.losses = step, seconds, tensor("losses")
        for name, weight in self.weights.items():
            held = {part: tensor(f"{part}/{name}") for part in ("weights", "average", *_MOMENTS)}
            if any(value.shape != weight.shape for value in held.values()):  # copy_ would broadcast
                raise ValueError(f"{name} is {tuple(held['weights'].shape)} there and {tuple(weight.shape)} here")
            weight.copy_(held["weights"])
            self.average[name].copy_(held["average"])
            moments = {moment: torch.empty_like(weight).copy_(held[part]) for part, moment in _MOMENTS.items()}
            self.adamw.state[weight] = {"step": torch.tensor(float(step)), **moments}


_MOMENTS = {"first_moment": "exp_avg", "second_moment": "exp_avg_sq"}  # the checkpoint's names, and those of torch


def fit(
    network: nn.Module,
    objective: Objective,
    examples: Sequence[Tensor],
    plan: TrainingPlan,
    directory: Path,
    seed: int = 0,
    checkpoint_seconds: float = 180.0,
) -> TrainingRun:
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
        Progress(directory.name, plan.steps - run.step, "step", shown=True) as bar,
    ):
        while run.step < plan.steps:
            begun = time.monotonic()
            rows = order.rows(run.step)
            loss = objective(network, [part[rows] for part in examples], generator_of(seed, "noise", run.step))
            run.learn(loss)
            run.seconds += time.monotonic() - begun
            bar.say(f"loss {recent_loss(run):.4f}")
            bar.update(1)
            if time.monotonic() - saved >= checkpoint_seconds or run.step == plan.steps or interrupted():
                save_checkpoint(run, directory, seed)
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
    plan: TrainingPlan,
    trials: int = 10,
) -> int:
    """How many steps fit into a time, from the speed of a few on a copy of the network."""
    copy = deepcopy(network).train()
    run = TrainingRun(copy, replace(plan, steps=trials + 2))
    order = DataOrder(len(examples[0]), plan.batch, 0)
    begun = 0.0
    for step in range(trials + 2):
        if step == 2:  # the first steps also warm up caches
            begun = time.monotonic()
        batch = [part[order.rows(step)] for part in examples]
        run.learn(objective(copy, batch, generator_of(0, "trial", step)))
    return max(1, int(minutes * 60 * trials / (time.monotonic() - begun)))


def recent_loss(run: TrainingRun, window: int = 100) -> float:
    """The mean loss of the last steps."""
    return float(run.losses[max(0, run.step - window) : run.step].mean())


def made_directory(directory: Path) -> Path:
    """The directory of a run, made if need be: better to fail now than at the first checkpoint."""
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as wrong:
        raise FileError(
            f"cannot keep a run in {directory}: {wrong.strerror or wrong}; name another directory"
        ) from wrong
    return Path(directory)


def resume(network: nn.Module, plan: TrainingPlan, directory: Path, seed: int) -> TrainingRun:
    """The run where its checkpoint left it, or at step 0."""
    run = TrainingRun(network, plan)
    path = Path(directory) / CHECKPOINT
    if path.exists():
        with opened(path) as file:
            noted = file.metadata()
            _check_same_run(path, json.loads(noted["identity"]), json.loads(_identity(plan, seed)))
            run.restore(int(noted["step"]), float(noted["seconds"]), file.get_tensor)
    return run


def steps_done(directory: Path) -> tuple[int, int]:
    """How many steps a run's checkpoint holds, and how many were planned; (0, 0) before the first checkpoint."""
    path = Path(directory) / CHECKPOINT
    if not path.exists():
        return 0, 0
    with opened(path) as file:
        noted = file.metadata()
        return int(noted["step"]), int(json.loads(noted["identity"])["steps"])


def save_checkpoint(run: TrainingRun, directory: Path, seed: int) -> None:
    """One file, written under a temporary name and renamed: a kill leaves the old or the new, never half."""
    noted = {"identity": _identity(run.plan, seed), "step": str(run.step), "seconds": repr(run.seconds)}
    write_whole(Path(directory) / CHECKPOINT, lambda unfinished: save_file(run.tensors(), unfinished, metadata=noted))
    progress = {
        "step": run.step,
        "steps": run.plan.steps,
        "seconds": round(run.seconds, 1),
        "loss": recent_loss(run),
    }
    write_text(Path(directory) / PROGRESS, json.dumps(progress) + "\n")


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


def _identity(plan: TrainingPlan, seed: int) -> str:
    return json.dumps({**asdict(plan), "seed": seed}, sort_keys=True)
