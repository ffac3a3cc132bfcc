"""Processes that share one job, as `torchrun` and `accelerate launch` start them, and what they tell one another."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from geosprint.errors import TeamError

TO_START = timedelta(minutes=10)
"""How long the processes of a team wait for the last of them to start."""

TO_ANSWER = timedelta(days=1)
"""How long for an answer: the largest shard on the slowest device. A process that ends is noticed at once."""


@dataclass(frozen=True)
class Team:
    """One process of a team; what is exchanged are bytes on the CPU, so that one kind of team serves all devices."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    def gather(self, mine: bytes) -> list[bytes]:
        """What every process gave, in order of rank, at every process."""
        if not self.leads:
            self._send(mine, 0)
            return [self._receive(0) for _ in range(self.size)]
        given = [mine, *(self._receive(rank) for rank in range(1, self.size))]
        for rank in range(1, self.size):
            for part in given:
                self._send(part, rank)
        return given

    def told(self, said: bytes) -> bytes:
        """What the first process says; the others' own words do not matter."""
        if not self.leads:
            return self._receive(0)
        for rank in range(1, self.size):
            self._send(said, rank)
        return said

    def total(self, number: int) -> int:
        """The sum of every process's number."""
        return sum(int(given) for given in self.gather(str(number).encode()))

    def _send(self, content: bytes, rank: int) -> None:
        with self._naming(rank):
            dist.send(torch.tensor([len(content)]), rank)
            if content:
                dist.send(torch.frombuffer(bytearray(content), dtype=torch.uint8), rank)

    def _receive(self, rank: int) -> bytes:
        with self._naming(rank):
            length = torch.zeros(1, dtype=torch.int64)
            dist.recv(length, rank)
            content: Tensor = torch.empty(int(length), dtype=torch.uint8)
            if len(content):
                dist.recv(content, rank)
            return content.numpy().tobytes()

    @contextmanager
    def _naming(self, rank: int) -> Iterator[None]:
        try:
            yield
        except RuntimeError as wrong:
            raise TeamError(
                f"process {rank} of 0..{self.size - 1} ended or does not answer "
                f"(noticed by process {self.rank}); what it printed last may say why"
            ) from wrong


ALONE = Team()
"""The team of a process that was started by itself."""


@contextmanager
def joined_team() -> Iterator[Team]:
    """The team that the environment speaks of (RANK and WORLD_SIZE), or `ALONE`; its devices are shared out too."""
    size = _number("WORLD_SIZE", 1)
    if size < 2:
        yield ALONE
        return
    if torch.cuda.is_available():  # so that "cuda" means another device in each process of a machine
        torch.cuda.set_device(_number("LOCAL_RANK", 0) % torch.cuda.device_count())
    try:
        store, rank, size = next(dist.rendezvous("env://", timeout=TO_START))
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=TO_ANSWER)
    except (RuntimeError, ValueError) as wrong:
        reason = str(wrong).split("\n")[0]
        raise TeamError(f"the {size} processes of WORLD_SIZE did not find one another: {reason}") from wrong
    try:
        yield Team(rank, size)
    finally:
        dist.destroy_process_group()


def _number(name: str, otherwise: int) -> int:
    said = os.environ.get(name, "")
    if said and not said.isdecimal():
        raise TeamError(f"the environment variable {name} must be a whole number, got {said!r}")
    return int(said or otherwise)
