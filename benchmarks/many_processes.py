"""How much faster more processes are, with a network whose calls take as long as you say.

`python -m benchmarks.many_processes` runs `tune`, `fit` or `extract` on a small model in 1, 2, 4 and 8 processes. Its
clocks are simulated, as a machine may have fewer cores than that: a network call puts its duration on the clock of the
process that makes it, everything else the processor time that it takes; and where processes exchange something, all
clocks go on from the latest of them, and by as long as gloo takes for as many bytes here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from geosprint import teacher
from geosprint.extraction import extract
from geosprint.models.base import Model
from geosprint.models.exact import ring
from geosprint.models.spread import Spread, batches_of
from geosprint.models.wrappers import Wrapped
from geosprint.runs import BATCH
from geosprint.runs.team import ALONE, Team, joined_team
from geosprint.tuning.run import fit, tune


@dataclass
class Clock:
    """Simulated seconds of this process."""

    network: float = 0.0
    waiting: float = 0.0
    exchange: float = 0.0
    exchanges: int = 0
    sent: int = 0  # bytes, to all others
    idle: float = 0.0

    def __post_init__(self) -> None:
        self._begun = time.process_time()

    @property
    def ours(self) -> float:
        """Processor time so far."""
        return time.process_time() - self._begun - self.idle

    @property
    def now(self) -> float:
        """All that has passed."""
        return self.ours + self.network + self.waiting + self.exchange


@dataclass(frozen=True, eq=False)
class Slow(Wrapped):
    """A model whose call of a batch takes so long: `fixed` and `each` for every sample of it."""

    clock: Clock
    fixed: float
    each: float

    def __call__(self, x: Tensor, t: float) -> Tensor:
        self.clock.network += self.fixed + self.each * len(x)
        return self.inner(x, t)


def keep_time(team: Team, clock: Clock, numbers: float = 1.0) -> None:
    """Let the clocks of all processes meet at every exchange, as if a sample had so many times the numbers it has."""
    exchange = type(team).gathered
    latency, rate = _measured_exchange(team)

    def gathered(mine: Tensor) -> Tensor:
        here, spent = clock.now, time.process_time()
        times = exchange(team, torch.tensor([here], dtype=torch.float64))
        found = exchange(team, mine)
        clock.idle += time.process_time() - spent  # looking whether the others are there
        clock.waiting += float(times.max()) - here
        clock.sent += (team.size - 1) * mine.nbytes
        clock.exchange += latency + numbers * (team.size - 1) * mine.nbytes / rate
        clock.exchanges += 1
        return found

    team.gathered = gathered  # type: ignore[method-assign]


def _measured_exchange(team: Team) -> tuple[float, float]:
    """Seconds of the smallest exchange, and bytes a second of a large one; the best of many on busy cores."""
    spent = []
    for size, count in ((1, 50), (4_000_000, 10)):
        mine, best = torch.zeros(size, dtype=torch.uint8), float("inf")
        for _ in range(count):
            begun = time.perf_counter()
            team.gathered(mine)
            best = min(best, time.perf_counter() - begun)
        spent.append(best)
    return spent[0], (team.size - 1) * 4_000_000 / max(spent[1] - spent[0], 1e-9)


def run(verb: str, fixed: float, each: float, batch: int, budget: int) -> dict[str, Any] | None:
    """One process of a run: what its clock says at the end, if it is the first."""
    with joined_team() as team:
        clock = Clock()
        model: Model = Slow(ring(), clock, fixed, each)
        if team.size > 1:
            keep_time(team, clock)
        clock.__init__()  # type: ignore[misc]
        begun = time.perf_counter()
        if verb == "tune":
            nfe = tune(model, budget_nfe=budget, batch=batch, progress=False).nfe
        elif verb == "fit":
            nfe = fit(model, 8, budget_nfe=budget, batch=batch, progress=False).nfe
        else:
            nfe = extract(model, budget // 200, 200, batch=batch).nfe
        found = {
            "processes": team.size,
            "batch": batch,
            "nfe": nfe,
            "seconds": clock.now,
            "network": clock.network,
            "waiting": clock.waiting,
            "ours": clock.ours,
            "exchange": clock.exchange,
            "exchanges": clock.exchanges,
            "sent": clock.sent,
            "wall": time.perf_counter() - begun,
        }
    return found if team.leads else None


TEAM_EACH = Team.each  # before `planned` puts another in its place


@dataclass
class Trace:
    """Network calls of a run by one process, and what they would take by many: seconds until the last has answered."""

    processes: Sequence[int]
    each: float  # seconds of a call for each sample of it

    def __post_init__(self) -> None:
        self.seconds = dict.fromkeys(self.processes, 0.0)
        self._job: list[float] | None = None  # of the job that is being done

    def ask(self, size: int) -> None:
        """A batch of this size."""
        if self._job is not None:  # else: a look at the model before the run
            self._job.append(self.each * size)

    def run(self, jobs: Sequence[Callable[[], Any]]) -> list[Any]:
        """In place of `Team.each`."""
        made, costs = [], []
        outer = self._job
        for job in jobs:
            self._job = []
            made += TEAM_EACH(ALONE, [job])
            costs.append(sum(self._job))
        self._job = outer
        if outer is None:
            self._deal(costs)
        else:
            outer.extend(costs)
        return made

    def together(self, call: Callable[[], Tensor]) -> Tensor:
        """A call whose batches are divided, each a job of its own."""
        self._job = []
        answer = call()
        self._job, costs = None, self._job
        self._deal(costs)
        return answer

    def _deal(self, costs: Sequence[float]) -> None:
        for processes in self.processes:
            self.seconds[processes] += max(sum(costs[rank::processes]) for rank in range(processes))


@dataclass(frozen=True, eq=False)
class Traced(Wrapped):
    """A model that notes the size of every batch."""

    trace: Trace

    def __call__(self, x: Tensor, t: float) -> Tensor:
        self.trace.ask(len(x))
        return self.inner(x, t)


LARGE = {  # seconds of one prediction of one sample on an A100, network calls in it, numbers of a sample
    "SDXL, 1024×1024, guided": (0.13, 2, 4 * 128 * 128),
    "FLUX.1-dev, 1024×1024": (0.5, 1, 16 * 128 * 128),
    "Wan2.1 14B, 81 frames of 832×480, guided": (20.0, 2, 16 * 21 * 60 * 104),
}
"""Round numbers that users of diffusers report; none of them was measured here."""


def print_plan(processes: Sequence[int], batch: int) -> None:
    """Hours of `extract` and `tune` at their defaults, from the calls that one process makes."""
    print(f"| model | verb | {' | '.join(f'{count} devices' for count in processes)} | GB to each |")
    print(f"|---|---|{'---|' * (len(processes) + 1)}")
    for name, (seconds, calls, numbers) in LARGE.items():
        for verb in ("extract", "tune"):
            hours, gigabytes = planned(verb, processes, batch, seconds, calls, numbers)
            shown = " | ".join(f"{hours[count]:.2f} h" for count in processes)
            print(f"| {name} | {verb} | {shown} | {gigabytes:.2f} |", flush=True)


def planned(
    verb: str, processes: Sequence[int], batch: int, seconds: float, calls: int, numbers: int
) -> tuple[dict[int, float], float]:
    """Hours by the number of processes, and gigabytes that each of many is sent."""
    trace = Trace(processes, seconds)
    if verb == "extract":
        trace._deal([200 * seconds * len(rows) for rows in batches_of(100, batch)])
        return {count: spent / 3600 for count, spent in trace.seconds.items()}, 100 * 201**2 * 8 / 1e9
    exchanged = []
    whole = Spread.__call__

    def spread_call(model: Spread, x: Tensor, t: float) -> Tensor:
        if trace._job is not None:
            return whole(model, x, t)
        exchanged.append(len(x))
        return trace.together(lambda: whole(model, x, t))

    Spread.__call__, Team.each = spread_call, lambda _, jobs: trace.run(jobs)  # type: ignore[method-assign]
    teacher.EXCHANGED = 0  # trajectories of these models are too large
    try:
        tune(Traced(replace(ring(), calls=calls), trace), batch=batch, progress=False)
    finally:
        Spread.__call__, Team.each = whole, TEAM_EACH  # type: ignore[method-assign]
    return {count: spent / 3600 for count, spent in trace.seconds.items()}, sum(exchanged) * 4 * numbers / 1e9


def started(processes: int, options: list[str]) -> dict[str, Any]:
    """The same in so many processes."""
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}"]
    inside = [*command, "-m", "benchmarks.many_processes", "--inside", *options]
    done = subprocess.run(
        inside, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--verb", default="tune", choices=("tune", "fit", "extract"))
    parser.add_argument("--processes", default="1,2,4,8")
    parser.add_argument("--fixed", type=float, default=0.02, help="seconds of a call, whatever its batch")
    parser.add_argument("--each", type=float, default=0.0, help="and for each sample of the batch")
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--budget", type=int, default=20_000)
    parser.add_argument("--plan", action="store_true", help="hours of large models instead, for --processes devices")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        found = run(asked.verb, asked.fixed, asked.each, asked.batch, asked.budget)
        if found:
            print(json.dumps(found))
        return
    if asked.plan:
        print_plan([int(count) for count in asked.processes.split(",")], asked.batch)
        return
    shared = ("verb", "fixed", "each", "batch", "budget")
    options = [f"--{name}={getattr(asked, name)}" for name in shared]
    print("| processes | seconds | times faster | network | waiting | ours | exchange | exchanges | MB sent |")
    print("|---|---|---|---|---|---|---|---|---|")
    alone = None
    for processes in map(int, asked.processes.split(",")):
        one = started(processes, options)
        alone = alone or one["seconds"]
        parts = " | ".join(f"{one[name]:.1f}" for name in ("network", "waiting", "ours", "exchange"))
        print(
            f"| {processes} | {one['seconds']:.1f} | {alone / one['seconds']:.2f} | {parts} | {one['exchanges']} "
            f"| {one['sent'] / 1e6:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
