"""Measure every method on one model, remembering each cell as soon as it is done."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from geosprint.comparison.cells import Cell, Memory, ReferenceSolve, cell_key, reference_key, wanted_cells
from geosprint.comparison.measures import Judge
from geosprint.comparison.methods import HERE, chosen_methods
from geosprint.comparison.plan import Plan
from geosprint.comparison.results import Comparison
from geosprint.estimates import endpoint_errors
from geosprint.fitted_solver import FittedSolver
from geosprint.integrations.adapter import as_model
from geosprint.linear_solver import LinearSolver
from geosprint.metrics.features import Features, default_features, features_for
from geosprint.models.base import Model
from geosprint.models.networks import FeatureStatistics
from geosprint.models.spread import Spread
from geosprint.models.wrappers import Shown, require_repeatable
from geosprint.rivals.base import Built, Method, Recording, Task, build
from geosprint.runs.progress import Progress
from geosprint.runs.team import this_team
from geosprint.sampling import sample
from geosprint.schedule import StepSchedule
from geosprint.solvers import SOLVERS
from geosprint.teacher import BUDGET, FINE_SOLVER, fine_timesteps
from geosprint.trajectory import Origin
from geosprint.tuning.problem import walk_price

if TYPE_CHECKING:
    from geosprint.integrations.pipelines import PipelineInputs

LOOK_AGAIN = 1.0  # seconds, for what other runs have measured

SHOWN = 10
"""Samples of every cell that are kept to be looked at."""


def compare(
    model: Model | Any,
    out: Path | str | None = None,
    plan: Plan | None = None,
    *,
    steps: int | Sequence[int] | None = None,
    solvers: str | Sequence[str] | None = None,
    methods: str | Sequence[str] | None = None,
    leave_out: str | Sequence[str] | None = None,
    samples: int | None = None,
    trajectories: int | None = None,
    reference_steps: int | None = None,
    fine_steps: int | None = None,
    ruler: int | Sequence[int] | None = None,
    features: str | None = None,
    seed: int | None = None,
    batch: int | None = None,
    statistics: FeatureStatistics | None = None,
    inputs: PipelineInputs | None = None,
    progress: bool = False,
) -> Comparison:
    """Every method at every number of steps with every solver, on held-out noise.

    What is left out is as in the plan, whose fields say what each option means; the default plan takes 5, 10 and 20
    steps of DDIM and all methods that apply, on 256 samples. `out` keeps finished cells: a second run measures only
    what is new. `statistics` are those of the data set in the plan's features, where the package does not know them
    itself. `inputs` are what a pipeline draws.
    """
    options = {
        "steps": steps, "solvers": solvers, "methods": methods, "leave_out": leave_out, "samples": samples,
        "trajectories": trajectories, "reference_steps": reference_steps, "fine_steps": fine_steps, "ruler": ruler,
        "features": features, "seed": seed, "batch": batch,
    }  # fmt: skip
    asked = as_model(model, inputs)
    plan = (plan or Plan()).changed(options).checked(asked)
    plan = replace(plan, features=plan.features or default_features(asked.name, asked.shape))
    with nullcontext(out) if out is not None else TemporaryDirectory() as directory:
        return _compared(asked, Memory(Path(directory) / "cells"), plan, statistics, progress)


def _compared(
    model: Model, memory: Memory, plan: Plan, statistics: FeatureStatistics | None, progress: bool
) -> Comparison:
    features = features_for(model, plan.features or "")
    wanted = wanted_cells(plan, chosen_methods(plan.methods, plan.leave_out, Task.of(model, plan.solvers[0])))
    require_repeatable(model, plan.batch)
    memory.refuse_another_model(model)  # the first to write a file: what can be refused was refused before
    calls = _expected_calls(model, memory, plan, wanted) // this_team().size
    with Progress("compare, about", calls, "call", progress) as bar:
        counted = Spread(Shown(model, bar), batch=plan.batch)
        recorded = (plan.trajectories, plan.reference_steps, plan.seed)
        recording = Recording(counted, *recorded, directory=memory.directory)
        bar.say("the reference solve")
        reference = _reference_solve(counted, plan, features, memory)
        workshop = _Workshop(plan, features, reference, memory, bar)
        cells = _measured_by_all(
            workshop, [(Task(counted, solver, recording), method, k) for solver, method, k in wanted]
        )
        bar.update(max(calls - bar.done, 0))  # what was not needed
    judge = Judge(model, reference, plan.fine_steps, statistics or features.statistics)
    found = Comparison(model.name, plan, [], cells, reference, Origin.of(model, "ddim", 0.0), recording)
    rows = [row for cell in cells for row in judge.rows_of(cell, found.best_uniform(cell.solver, cell.steps))]
    return replace(found, rows=rows)


def _measured_by_all(workshop: _Workshop, wanted: Sequence[tuple[Task, Method, int]]) -> list[Cell]:
    """Every cell, by whoever is free: other runs may share the directory, and what they are at is waited for."""
    found: dict[int, Cell] = {}
    while len(found) < len(wanted):
        before = len(found)
        for i, one in enumerate(wanted):
            if i not in found and (cell := workshop.cell(*one)):
                found[i] = cell
        if len(found) == before:
            workshop.bar.say("waiting for what other runs measure")
            time.sleep(LOOK_AGAIN)
    return [found[i] for i in range(len(wanted))]


def _expected_calls(model: Model, memory: Memory, plan: Plan, wanted: Sequence[tuple[str, Method, int]]) -> int:
    """About what is to come: walks and recordings are known, and a search, a fit or a descent may cost a budget."""
    new = [one for one in wanted if memory.recall_cell(cell_key(plan, *one)) is None]
    searching = [one for one in new if one[1].source == HERE or one[1].from_teacher]
    searches = {(method, k, method.for_solver and solver) for solver, method, k in searching}
    walks = [(plan.fine_steps, FINE_SOLVER)] * (memory.recall_reference(reference_key(plan)) is None)
    walks += [(k, solver) for solver, _, k in new]
    recorded = plan.trajectories * plan.reference_steps * model.calls * any(one.from_recording for _, one, _ in new)
    return plan.samples * sum(walk_price(model, *one) for one in walks) + recorded + BUDGET * len(searches)


@dataclass(frozen=True)
class _Workshop:
    """Makes cells, and builds a schedule once for all solvers where the solver does not matter."""

    plan: Plan
    features: Features
    reference: ReferenceSolve
    memory: Memory
    bar: Progress

    def cell(self, task: Task, method: Method, steps: int) -> Cell | None:
        """The cell of this task, measured now or remembered; None while another run is at it."""
        self.bar.say(f"{task.solver} {method.name} {steps}")
        if found := self.remembered(task.solver, method, steps):
            return found
        solver = task.solver if method.for_solver else "any"  # what serves all solvers is built once
        with self.memory.claimed(cell_key(self.plan, solver, method, steps)) as ours:
            # Another run may just have measured it.
            return (self.remembered(task.solver, method, steps) or self._made(task, method, steps)) if ours else None

    def _made(self, task: Task, method: Method, steps: int) -> Cell:
        """Measured now, and kept."""
        same = self._made_for_another_solver(method, steps)
        if same and same.own_solver:
            found = replace(same, solver=task.solver)  # whatever the solver beside it, it steps in its own way
        else:
            found = self._measured(task, method, _rebuilt(same, task) if same else build(method, task, steps))
        self.memory.keep(cell_key(self.plan, task.solver, method, steps), found)
        return found

    def remembered(self, solver: str, method: Method, steps: int) -> Cell | None:
        """The cell of these three, if it was measured before."""
        return self.memory.recall_cell(cell_key(self.plan, solver, method, steps))

    def _made_for_another_solver(self, method: Method, steps: int) -> Cell | None:
        """A cell with the same schedule, if one was measured before."""
        others = (self.remembered(solver, method, steps) for solver in SOLVERS)
        return None if method.for_solver else next((cell for cell in others if cell), None)

    def _measured(self, task: Task, method: Method, built: Built) -> Cell:
        times, plan = built.schedule.timesteps, self.plan
        before = task.model.nfe
        samples = sample(task.model, times, plan.fresh_seeds, built.solver or task.solver, batch=plan.batch)
        return Cell(
            solver=task.solver,
            method=method.name,
            steps=len(times),
            timesteps=times,
            nfe=(task.model.nfe - before) / plan.samples,
            build_nfe=built.nfe,
            build_seconds=built.seconds,
            build_backprops=built.backprops,
            errors=endpoint_errors(samples, self.reference.samples),
            features=self.features(samples),
            pictures=samples[:SHOWN].clone(),
            coefficients=built.solver.coefficients if isinstance(built.solver, FittedSolver) else None,
            guided=built.solver.guided if isinstance(built.solver, FittedSolver) else (),
            linear=built.solver.rows if isinstance(built.solver, LinearSolver) else (),
        )


def _rebuilt(cell: Cell, task: Task) -> Built:
    """The schedule of a cell, and what it cost then."""
    schedule = StepSchedule.at(cell.timesteps, task.model.noise, {"method": cell.method})
    return Built(schedule, cell.build_nfe, cell.build_seconds, cell.build_backprops)


def _reference_solve(model: Model, plan: Plan, features: Features, memory: Memory) -> ReferenceSolve:
    key = reference_key(plan)
    with memory.claimed(key, waiting=True):
        reference = memory.recall_reference(key)
        if reference is None:
            times = fine_timesteps(model.noise, plan.fine_steps)
            samples = sample(model, times, plan.fresh_seeds, FINE_SOLVER, batch=plan.batch)
            reference = ReferenceSolve(samples, features(samples))
            memory.keep(key, reference)
    return reference
