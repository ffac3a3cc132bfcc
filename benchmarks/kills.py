"""Kills every long verb at random moments, runs the same command again, and compares what it leaves byte for byte.

`python -m benchmarks.kills` sends SIGKILL, SIGTERM and SIGINT, ten times each, to each command below, at moments from
its beginning to its end. The commands are forked from a process that has imported everything, so that moments fall into
the work; the verb `cold sample` starts Python anew, and most of its moments fall into imports. Whoever gets SIGTERM
or SIGINT must end with one line that says how it goes on, without a traceback. Durations are not compared.
Linux only.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import io
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads do not survive a fork

import torch
from tqdm import tqdm

from geosprint.__main__ import main as geosprint_main

SMALL = "-n 10 --trajectories 8 --reference-steps 40 --fine-steps 30 --ruler 3"
WARM = (
    "geosprint.comparison.run",
    "geosprint.tuning.run",
    "geosprint.extraction",
    "geosprint.report.page",
    "geosprint.paper.registry",
)
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")


@dataclass(frozen=True)
class Command:
    """What is killed, and the file whose bytes must be the same."""

    words: str
    left: str
    timed: tuple[str, ...] = ()  # columns that hold a duration
    cold: bool = False  # in a Python of its own


COMMANDS = {
    "extract": Command(
        "extract digits --trajectories 9 --reference-steps 40 --batch 1 --work w -o out.json", "out.json"
    ),
    "tune": Command("tune digits --steps 4 --solver ddim --budget-nfe 1500 --work w -o out.json", "out.json"),
    "fit": Command("fit digits --steps 3 --budget-nfe 1500 --work w -o out.json", "out.json"),
    "tune with fitting": Command("tune digits --steps 4 --budget-nfe 1500 --work w -o out.json", "out.json"),
    "compare": Command(
        f"compare digits --methods quadratic,uniform-trailing,geosprint,gits --steps 3,5 {SMALL} -o out",
        "out/results.csv",
        ("build_seconds",),
    ),
    "sample": Command("sample digits --steps 50 -n 64 -o out.safetensors", "out.safetensors"),
    "cold sample": Command("sample digits --steps 50 -n 64 -o out.safetensors", "out.safetensors", cold=True),
    "reproduce": Command("reproduce budget --quick --model mixture -o out", "out/budget/rows.csv"),
}


class Run:
    """A command that runs in a child, and what it says."""

    def __init__(self, command, directory):
        self.said, self.code = Path(directory) / "said", None
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _become(command, directory, self.said)
        while self.ended(0) is None and not _handles_signals(self.pid):
            time.sleep(0.001)

    def ended(self, seconds=600.0):
        """The exit code, or minus the signal; None if it still runs after so long."""
        end = time.monotonic() + seconds
        while self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() >= end:
                return None
            else:
                time.sleep(0.001)
        return self.code


def _become(command, directory, said):
    """The command itself; never returns."""
    code = 1
    try:
        os.chdir(directory)
        sys.argv = ["geosprint", *command.words.split()]
        to = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(to, stream)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if command.cold:
            os.execv(sys.executable, [sys.executable, "-m", "geosprint", *sys.argv[1:]])
        tqdm.set_lock(threading.RLock())  # its own is shared with other children: a killed one may never give it back
        geosprint_main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _handles_signals(pid):
    """Whether Python has read the first line of ours, as the kernel tells."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("SigCgt")).split()[1], 16) & 1 << (signal.SIGTERM - 1)


def result(command, directory):
    """What the command left, without durations."""
    text = (directory / command.left).read_bytes()
    if not command.timed:
        return text
    rows = csv.DictReader(io.StringIO(text.decode()))
    return [{name: value for name, value in row.items() if name not in command.timed} for row in rows]


def whole_run(command):
    """What an uninterrupted run leaves, and how long it takes."""
    with tempfile.TemporaryDirectory() as directory:
        begun, run = time.monotonic(), Run(command, directory)
        assert run.ended() == 0, run.said.read_text()
        return result(command, Path(directory)), time.monotonic() - begun


def kill(command, number, after, expected):
    """How the killed one ended, and what is wrong with that or with the run after it; nothing, if nothing is."""
    with tempfile.TemporaryDirectory() as directory:
        run = Run(command, directory)
        if run.ended(after) is None:
            os.kill(run.pid, number)
        ended, said = run.ended(), run.said.read_text()
        again = Run(command, directory)
        code, later = again.ended(), again.said.read_text()
        if "Traceback" in said + later:
            return ended, f"a traceback: {said + later}"
        if ended not in (0, -number if number == signal.SIGKILL else 130):
            return ended, f"it ended with {ended}: {said}"
        if ended == 130 and not said.rstrip().rpartition("\n")[2].startswith("geosprint: stopped; "):
            return ended, f"it did not say how it goes on: {said}"
        if code != 0:
            return ended, f"the same command did not go on: {later}"
        return ended, "" if result(command, Path(directory)) == expected else "other bytes"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=10, help="of each verb and signal")
    parser.add_argument("--verbs", nargs="*", default=list(COMMANDS))
    parser.add_argument("--signals", nargs="*", default=SIGNALS)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    wrong = 0
    for module in WARM:
        importlib.import_module(module)
    torch.set_num_threads(1)
    for verb in asked.verbs:
        (expected, slow), (again, fast) = (whole_run(COMMANDS[verb]) for _ in range(2))
        assert again == expected
        for name in asked.signals:
            moments = random.Random(f"{asked.seed}/{verb}/{name}")
            found = []
            while sum(ended != 0 for ended, _ in found) < asked.moments and len(found) < 5 * asked.moments:
                after = moments.uniform(0, 0.9 * min(slow, fast))  # some are faster than that, and end by themselves
                found.append(kill(COMMANDS[verb], getattr(signal, name), after, expected))
            faults = [fault for _, fault in found if fault]
            wrong += len(faults)
            print(
                f"{verb}, {name}: {sum(ended != 0 for ended, _ in found)} stopped, {len(found)} run again, "
                f"{len(found) - len(faults)} with the same bytes",
                *faults,
                sep="\n  ",
                flush=True,
            )
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
