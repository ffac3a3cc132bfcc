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
from contextlib import contextmanager, nullcontext
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


class Team:
    """One process of a team. All run the same program; what is divided among them are its network calls."""

    def __init__(self, rank: int = 0, size: int = 1, heart: Heart | None = None, leads: bool | None = None) -> None:
        self.rank, self.size, self._heart = rank, size, heart
        self.is_at_a_job = False  # one of several, so that nothing within it is divided
        self.leads = rank == 0 if leads is None else leads  # whether this is the process that writes and speaks
        self._room = 0  # bytes of the longest of what was gathered last
        self.sent = 0  # bytes that this process has given to the others

    def each(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """What every job gives, in order, at every process; each is done by one of them, which is alone meanwhile."""
        alone = Team(leads=self.leads)
        alone.is_at_a_job = True
        with _joined(alone):
            mine = [job() for job in jobs[self.rank :: self.size]]
        made = self.gather(mine)
        return [made[i % self.size][i // self.size] for i in range(len(jobs))]

    def gather(self, mine: T) -> list[T]:
        """What every process gave, in order of rank, at every process."""
        if self.size == 1:
            return [mine]
        content = torch.frombuffer(bytearray(_pickled(mine)), dtype=torch.uint8)
        room = self._room  # what was enough before may be enough again, and saves an exchange
        parts = self.gathered(_padded(torch.cat([_as_bytes(len(content)), content[:room]]), HEAD + room))
        lengths = parts[:, :HEAD].contiguous().view(torch.int64).flatten().tolist()
        self._room, parts = max(lengths), parts[:, HEAD:]
        if max(lengths) > room:
            parts = torch.cat([parts, self.gathered(_padded(content[room:], max(lengths) - room))], dim=1)
        return [pickle.loads(part[:length].numpy().tobytes()) for part, length in zip(parts, lengths, strict=True)]

    def told(self, said: T) -> T:
        """What the first process says; the others' own words do not matter."""
        return self.gather(said if self.leads else None)[0]  # type: ignore[return-value]

    def gathered(self, mine: Tensor) -> Tensor:
        """A tensor (numbers,) of every process, by rank (size, numbers); all are of one length."""
        carried = mine if mine.is_cuda else mine.cpu()  # nccl carries those of a GPU, gloo all others
        found = carried.new_empty(self.size, len(carried))
        self.sent += (self.size - 1) * carried.nbytes
        try:
            work, begun = dist.all_gather(list(found), carried, async_op=True), time.monotonic()
            while not work.is_completed():  # `wait` would hear no signal until the others answer
                time.sleep(min(1e-4 + (time.monotonic() - begun) / 20, 0.02))
            work.wait()
        except RuntimeError as wrong:
            raise self.lost() or TeamError(f"the processes lost one another: {wrong}") from wrong
        return found.to(mine.device)

    def lost(self) -> TeamError | None:
        """What is to be said of a process that has ended, if one has."""
        who = self._heart.silent() if self._heart else None
        said = f"process {who} of 0..{self.size - 1} ended or does not answer (noticed by process {self.rank})"
        return None if who is None else TeamError(f"{said}; what it printed last may say why")


HEAD = 8  # bytes before a pickle, which say how long it is


def _as_bytes(number: int) -> Tensor:
    return torch.tensor([number]).view(torch.uint8)


def _padded(content: Tensor, length: int) -> Tensor:
    return torch.nn.functional.pad(content, (0, length - len(content)))


def _pickled(made: Any) -> bytes:
    content = io.BytesIO()
    _Pickler(content, protocol=5).dump(made)
    return content.getvalue()


class _Pickler(pickle.Pickler):
    """Writes tensors as arrays: as themselves each takes a millisecond to read."""

    def reducer_override(self, one: Any) -> Any:
        if type(one) is not Tensor or one.requires_grad or not one.is_cpu or one.dtype == torch.bfloat16:
            return NotImplemented
        return torch.from_numpy, (one.numpy(),)


ALONE = _team = Team()  # of a process that was started by itself


def this_team() -> Team:
    """The team that `joined_team` has joined."""
    return _team


@contextmanager
def _joined(team: Team) -> Iterator[Team]:
    global _team
    before, _team = _team, team
    try:
        yield team
    finally:
        _team = before


class Heart:
    """Tells the others that this process lives, and notices which of them do not."""

    def __init__(self, store: Any, rank: int, size: int, timeout: float) -> None:
        self._store, self._rank, self._timeout = store, rank, timeout
        self._keys = [f"beat {one}" for one in range(size)]
        self.ended, self._threads = threading.Event(), list[threading.Thread]()
        store.set(self._keys[rank], "0")

    def start(self) -> None:
        """Once all have begun, so that nobody is missed who is only late."""
        self._last = [(b"", time.monotonic())] * len(self._keys)  # what each said last, and when
        for work in (self._beat, self._watch):  # two, because a store whose keeper is frozen does not answer
            self._threads.append(threading.Thread(target=work, daemon=True))
            self._threads[-1].start()

    def stop(self) -> None:
        """Python aborts where it ends while a thread is asking the store."""
        self.ended.set()
        for thread in self._threads:
            thread.join(SILENT)

    def silent(self) -> int | None:
        """The process that has ended, if any; time is given for it to be missed."""
        until = time.monotonic() + SILENT + 2 * BEAT
        while (late := self._late(SILENT)) is None and time.monotonic() < until:
            time.sleep(BEAT / 5)
        return late

    def _late(self, most: float) -> int | None:
        """Who has not been heard of for longest; whoever does not even hear itself has lost the keeper of the store."""
        ages = [time.monotonic() - when for _, when in self._last]
        if ages[self._rank] > most:
            return 0
        return ages.index(max(ages)) if max(ages) > most else None

    def _beat(self) -> None:
        beats = 0
        while not self.ended.wait(BEAT):
            beats += 1
            try:
                self._store.set(self._keys[self._rank], str(beats))
                said = self._store.multi_get(self._keys)
            except RuntimeError:  # its keeper has ended; `_watch` will miss it
                return
            now = time.monotonic()
            self._last = [(new, when if new == old else now) for new, (old, when) in zip(said, self._last, strict=True)]

    def _watch(self) -> None:
        while not self.ended.wait(BEAT):
            if self._late(self._timeout) is not None:
                _thread.interrupt_main()  # also out of a long network call: nothing that it computes can be used
                return


@contextmanager
def joined_team(environment: Mapping[str, str] = os.environ) -> Iterator[Team]:
    """The team that the environment speaks of, or `ALONE`; its devices are shared out too."""
    rank, size, local = _place(environment)
    if size < 2:
        yield ALONE
        return
    if torch.cuda.is_available():  # so that "cuda" means another device in each process of a machine
        torch.cuda.set_device(local % torch.cuda.device_count())
    timeout, team = _number(environment, TIMEOUT) or 60, ALONE
    try:
        store, *_ = next(dist.rendezvous("env://", rank, size, timeout=TO_START))
        heart = Heart(dist.PrefixStore("geosprint", store), rank, size, timeout)
        store.wait([f"geosprint/beat {one}" for one in range(size)], TO_START)
        team = Team(rank, size, heart)  # all are here: who does not connect now has ended or is frozen
        kind = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        with _given_up_after(2 * timeout, size):
            dist.init_process_group(kind, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=timeout))
        dist.distributed_c10d._set_pg_timeout(TO_ANSWER)
    except (RuntimeError, ValueError) as wrong:
        if team.size == size:
            heart.start()  # to see who does not
        told = f"the {size} processes did not find one another: {str(wrong).splitlines()[0]}"
        raise team.lost() or TeamError(told) from wrong
    heart.start()
    try:
        with _joined(team), _interruptible():
            yield team
            team.gather(None)  # who ends while others still work would be missed
        dist.destroy_process_group()  # after a failure it would wait for who does not answer
    except KeyboardInterrupt as stopped:
        raise team.lost() or stopped from None
    finally:
        heart.stop()


@contextmanager
def _given_up_after(seconds: float, size: int) -> Iterator[None]:
    """Who asks a frozen keeper of the store hears neither time limits nor signals; nothing has been computed yet."""

    def give_up() -> None:
        os.write(2, f"geosprint: process 0 of 0..{size - 1} does not answer; start again\n".encode())
        os._exit(1)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let the heart interrupt, also where SIGINT is ignored, as it is in what shells start in the background."""
    ignored = not callable(signal.getsignal(signal.SIGINT))
    with handling_signals(signal.default_int_handler, signal.SIGINT) if ignored else nullcontext():
        yield


def _place(environment: Mapping[str, str]) -> tuple[int, ...]:
    """Rank, size and rank on this machine, as torchrun says them or srun in its own words; 0 where nobody does."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    if "RANK" not in environment and _number(environment, "SLURM_STEP_NUM_TASKS") > 1:
        nodes = environment.get("SLURM_STEP_NODELIST", "")
        node = re.fullmatch(r"([^\[\],]+)(?:\[(\d+)[^\[\]]*\])?(?:,.*)?", nodes)
        if node is None:
            raise TeamError(f"srun does not say which node of {nodes!r} is the first; start with torchrun instead")
        job, step = (_number(environment, name) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
        os.environ.setdefault("MASTER_ADDR", node[1] + (node[2] or ""))
        os.environ.setdefault("MASTER_PORT", str(20_000 + (100 * job + step) % 10_000))
        names = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")
    return tuple(_number(environment, name) for name in names)


def _number(environment: Mapping[str, str], name: str) -> int:
    said = environment.get(name, "")
    if said and not said.isdecimal():
        raise TeamError(f"the environment variable {name} must be a whole number, got {said!r}")
    return int(said or 0)
