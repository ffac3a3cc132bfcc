"""Forked processes for the tests of long runs: they start at once, where a new interpreter takes seconds."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable

import torch
from torch import Tensor
from tqdm import tqdm

from geosprint.runs.team import Team

LIMIT = 60.0


def forked(work: Callable[[], object], environment: dict[str, str] | None = None) -> int:
    """Let a child do this work and end with 0, or with 1 and a traceback, or with whatever it exits with."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.environ.update(environment or {})
        torch.set_num_threads(1)  # threads do not survive a fork
        tqdm.set_lock(threading.RLock())  # its own is shared with other children: a killed one may never give it back
        work()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def ended(child: int) -> int:
    """How the child ended: its exit code, or minus the signal that killed it."""
    begun = time.monotonic()
    while time.monotonic() < begun + LIMIT:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError(f"the child did not end within {LIMIT:g} seconds")


def team_of(size: int, work: Callable[[], object]) -> list[int]:
    """Children that find themselves in the environment `torchrun` would give them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [forked(work, {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(size)]


def noting_what_is_sent(team: Team) -> list[int]:
    """The bytes that this process gives to each of the others from now on, exchange by exchange."""
    sent, exchange = [], team.gathered

    def gathered(mine: Tensor) -> Tensor:
        sent.append(mine.nbytes)
        return exchange(mine)

    team.gathered = gathered
    return sent


def slurm_team_of(size: int, work: Callable[[], object]) -> list[int]:
    """Children that find themselves in the environment `srun` would give them."""
    shared = {"SLURM_STEP_NUM_TASKS": str(size), "SLURM_STEP_NODELIST": "localhost", "SLURM_JOB_ID": str(os.getpid())}
    return [forked(work, {**shared, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)}) for rank in range(size)]
