"""Processes that share one job, as `torchrun`, `accelerate launch` and `srun` start them."""

from __future__ import annotations

import _thread
import io
import os
import pickle
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from geosprint.errors import TeamError
from geosprint.runs.signals import handling_signals

T = TypeVar("T")

TO_START = timedelta(minutes=10)  # for the last process
TO_ANSWER = timedelta(days=30)  # any shard on any device: who ends or freezes is noticed by its heartbeat
TIMEOUT = "GEOSPRINT_TIMEOUT"  # of the environment: seconds without a heartbeat after which a process is lost; else 60
BEAT, SILENT = 0.25, 1.5  # seconds between heartbeats; and without one, by which who has ended is told from who has not


@dataclass
class Team:
    """One process of a team. All run the same program; what is divided among them are its network calls."""

    rank: int = 0
    size: int = 1
    leads: bool = True  # whether this is the process that writes and speaks
    is_at_a_job: bool = False  # one of several, so that nothing within it is divided
    lost: Callable[[], TeamError | None] = lambda: None  # what is to be said of a process that has ended, if one has
    room: int = 0  # words of the longest of what was gathered last

    def each(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """What every job gives, in order, at every process; each is done by one of them, which is alone meanwhile."""
        with _joined(Team(leads=self.leads, is_at_a_job=True)):
            mine = [job() for job in jobs[self.rank :: self.size]]
        made = self.gather(mine)
        return [made[i % self.size][i // self.size] for i in range(len(jobs))]

    def gather(self, mine: T) -> list[T]:
        """What every process gave, in order of rank, at every process."""
        if self.size == 1:
            return [mine]
        content = io.BytesIO()
        _Pickler(content, protocol=5).dump(mine)
        content.write(bytes(-content.tell() % 8))  # for whole words
        words = torch.frombuffer(content.getbuffer(), dtype=torch.int64)
        room = self.room  # what was enough before may be enough again, and saves an exchange
        parts = self.gathered(_after_its_length(words, room))
        self.room = int(parts[:, 0].max())
        if self.room > room:
            parts = self.gathered(_after_its_length(words, self.room))
        return [pickle.loads(part[1:].numpy()) for part in parts]  # which does not read what follows a pickle

    def told(self, say: Callable[[], T]) -> T:
        """What the first process says; the others are not asked."""
        return self.gather(say() if self.leads else None)[0]  # type: ignore[return-value]

    def gathered(self, mine: Tensor) -> Tensor:
        """A tensor (numbers,) of every process, by rank (size, numbers); all are of one length."""
        sent = mine if mine.is_cuda else mine.cpu()  # nccl sends those of a GPU, gloo all others
        found = sent.new_empty(self.size, len(sent))
        try:
            work, begun = dist.all_gather(list(found), sent, async_op=True), time.monotonic()
            while not work.is_completed():  # `wait` would hear no signal until the others answer
                time.sleep(min(1e-4 + (time.monotonic() - begun) / 20, 0.02))
            work.wait()
        except RuntimeError as wrong:
            raise self.lost() or TeamError(f"the processes lost one another: {wrong}") from wrong
        return found.to(mine.device)


def _after_its_length(words: Tensor, room: int) -> Tensor:
    """As many of the words as there is room for, or all of them and zeros."""
    return torch.cat([torch.tensor([len(words)]), torch.nn.functional.pad(words, (0, room - len(words)))])


class _Pickler(pickle.Pickler):
    """Writes tensors as arrays: as themselves each takes ten times as long to read."""

    def reducer_override(self, one: Any) -> Any:
        if type(one) is not Tensor or one.requires_grad or not one.is_cpu or one.dtype == torch.bfloat16:
            return NotImplemented
        return torch.from_numpy, (one.numpy(),)


ALONE = _team = Team()  # of a process that was started by itself


def this_team() -> Team:
    """The team that `joined_team` has joined."""
    return _team


@contextmanager
def _joined(team: Team) -> Iterator[None]:
    global _team
    before, _team = _team, team
    try:
        yield
    finally:
        _team = before


@contextmanager
def repeating(every: float, work: Callable[..., object], *given: Any) -> Iterator[None]:
    """Meanwhile, a thread of its own does this so many seconds apart, until it gives True."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(every) and not work(*given):
            pass

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(SILENT)  # Python aborts where it ends while a thread is asking a store


class Heart:
    """Tells the others that this process lives, and notices which of them do not."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self._store, self._rank, self._keys = store, rank, [f"beat {one}" for one in range(size)]
        store.add(self._keys[rank], 0)
        store.wait(self._keys, TO_START)  # so that nobody is missed who is only late
        self._last = [(b"", time.monotonic())] * size  # what each said last, and when

    def beat(self) -> bool:
        """Speak and listen; whether the keeper of the store has ended, who will be missed."""
        try:
            self._store.add(self._keys[self._rank], 1)
            said, now = self._store.multi_get(self._keys), time.monotonic()
        except RuntimeError:
            return True
        self._last = [(new, when if new == old else now) for new, (old, when) in zip(said, self._last, strict=True)]
        return False

    def watch(self, most: float, act: Callable[[], object]) -> bool:
        """Act if anybody has been silent for so many seconds; a frozen keeper keeps `beat` waiting, but not this."""
        is_late = self._late(most) is not None
        if is_late:
            act()
        return is_late

    def lost(self) -> TeamError | None:
        """What is to be said of the process that has ended, if any; time is given for it to be missed."""
        time.sleep(SILENT + 2 * BEAT)
        who, last = self._late(SILENT), len(self._keys) - 1
        said = f"process {who} of 0..{last} ended or does not answer (noticed by process {self._rank})"
        return None if who is None else TeamError(f"{said}; what it printed last may say why")

    def _late(self, most: float) -> int | None:
        """Who has not been heard of for longest; whoever does not even hear itself has lost the keeper of the store."""
        ages = [time.monotonic() - when for _, when in self._last]
        if ages[self._rank] > most:
            return 0
        return ages.index(max(ages)) if max(ages) > most else None


@contextmanager
def joined_team(environment: Mapping[str, str] = os.environ) -> Iterator[Team]:
    """The team that the environment speaks of, or `ALONE`; its devices are shared out too."""
    rank, size, local = _place(environment)
    if size < 2:
        yield ALONE
        return
    if torch.cuda.is_available():  # so that "cuda" means another device in each process of a machine
        torch.cuda.set_device(local % torch.cuda.device_count())
    timeout, heart = _number(environment, TIMEOUT) or 60, None
    with ExitStack() as until_the_end:
        try:
            store, *_ = next(dist.rendezvous("env://", rank, size, timeout=TO_START))
            heart = Heart(dist.PrefixStore("geosprint", store), rank, size)
            until_the_end.enter_context(repeating(BEAT, heart.beat))
            kind = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            soon = timedelta(seconds=timeout)  # all have begun: who does not connect now has ended or is frozen
            with repeating(BEAT, heart.watch, 2 * timeout, _give_up):
                dist.init_process_group(kind, store=store, rank=rank, world_size=size, timeout=soon)
            dist.distributed_c10d._set_pg_timeout(TO_ANSWER)
        except (RuntimeError, ValueError) as wrong:
            told = f"the {size} processes did not find one another: {str(wrong).splitlines()[0]}"
            raise (heart and heart.lost()) or TeamError(told) from wrong
        team = Team(rank, size, rank == 0, lost=heart.lost)
        interruptible = handling_signals(signal.default_int_handler, signal.SIGINT)  # whatever it did before
        try:  # the interrupt ends a long network call, too: nothing that it computes can be used
            with _joined(team), interruptible, repeating(BEAT, heart.watch, timeout, _thread.interrupt_main):
                yield team
                team.gather(None)  # who ends while others still work would be missed
            dist.destroy_process_group()  # after a failure it would wait for who does not answer
        except KeyboardInterrupt as stopped:
            raise heart.lost() or stopped from None


def _give_up() -> None:
    """Who asks a frozen keeper of the store hears neither time limits nor signals; nothing has been computed yet."""
    os.write(2, b"geosprint: process 0 does not answer; start again\n")
    os._exit(1)


def _place(environment: Mapping[str, str]) -> tuple[int, ...]:
    """Rank, size and rank on this machine, as torchrun says them or srun in its own words; 0 where nobody does."""
    if "RANK" in environment or _number(environment, "SLURM_STEP_NUM_TASKS") < 2:
        return tuple(_number(environment, name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    nodes = environment.get("SLURM_STEP_NODELIST", "")
    node = re.fullmatch(r"([^\[\],]+)(?:\[(\d+)[^\[\]]*\])?(?:,.*)?", nodes)
    if node is None:
        raise TeamError(f"srun does not say which node of {nodes!r} is the first; start with torchrun instead")
    job, step = (_number(environment, name) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    os.environ.setdefault("MASTER_ADDR", node[1] + (node[2] or ""))
    os.environ.setdefault("MASTER_PORT", str(20_000 + (100 * job + step) % 10_000))
    return tuple(_number(environment, name) for name in ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"))


def _number(environment: Mapping[str, str], name: str) -> int:
    said = environment.get(name, "")
    if said and not said.isdecimal():
        raise TeamError(f"the environment variable {name} must be a whole number, got {said!r}")
    return int(said or 0)
