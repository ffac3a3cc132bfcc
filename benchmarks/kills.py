"""Kills every long verb at random moments, runs the same command again, and compares what it leaves byte for byte.

`python -m benchmarks.kills` sends SIGKILL, SIGTERM and SIGINT, ten times each, to each command below, at moments from
the first line of ours that Python reads up to the end of the run. Whoever gets SIGTERM or SIGINT must end with one line
that says how it goes on, without a traceback. Times of day and durations are left out of the comparison. Linux only.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

SMALL = "-n 10 --trajectories 8 --reference-steps 40 --fine-steps 30 --ruler 3"
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")


@dataclass(frozen=True)
class Command:
    """What is killed, and the file whose bytes must be the same."""

    words: str
    left: str
    timed: tuple[str, ...] = ()  # columns that hold a duration


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
    "reproduce": Command("reproduce budget --quick --model mixture -o out", "out/budget/rows.csv"),
}


def started(command, directory):
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    child = subprocess.Popen(
        [sys.executable, "-m", "geosprint", *command.words.split()],
        **{"cwd": directory, "env": environment, "text": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE},
    )
    while child.poll() is None and not _handles_signals(child.pid):
        time.sleep(0.002)
    return child


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
        child, begun = started(command, directory), time.monotonic()
        said = child.communicate()[1]
        assert child.returncode == 0, said
        return result(command, Path(directory)), time.monotonic() - begun


def kill(command, number, after, expected):
    """How the killed one ended, and what is wrong with that or with the run after it; nothing, if nothing is."""
    with tempfile.TemporaryDirectory() as directory:
        child = started(command, directory)
        try:
            said = child.communicate(timeout=after)[1]
        except subprocess.TimeoutExpired:
            child.send_signal(number)
            said = child.communicate()[1]
        ended = child.returncode
        again = started(command, directory)
        later = again.communicate()[1]
        if "Traceback" in said + later:
            return ended, f"a traceback: {said + later}"
        if ended not in (0, -number if number == signal.SIGKILL else 130):
            return ended, f"it ended with {ended}: {said}"
        if ended == 130 and not said.rstrip().rpartition("\n")[2].startswith("geosprint: stopped; "):
            return ended, f"it did not say how it goes on: {said}"
        if again.returncode != 0:
            return ended, f"the same command did not go on: {later}"
        return ended, "" if result(command, Path(directory)) == expected else "other bytes"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=10, help="of each verb and signal")
    parser.add_argument("--verbs", nargs="*", default=list(COMMANDS))
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    wrong = 0
    for verb in asked.verbs:
        expected, seconds = whole_run(COMMANDS[verb])
        for name in SIGNALS:
            moments = random.Random(f"{asked.seed}/{verb}/{name}")
            found = [
                kill(COMMANDS[verb], getattr(signal, name), moments.uniform(0, seconds), expected)
                for _ in range(asked.moments)
            ]
            faults = [fault for _, fault in found if fault]
            wrong += len(faults)
            stopped = sum(ended != 0 for ended, _ in found)
            print(
                f"{verb}, {name}: {stopped} of {asked.moments} stopped before their end; "
                f"{asked.moments - len(faults)} ended with the same bytes",
                *faults,
                sep="\n  ",
                flush=True,
            )
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
