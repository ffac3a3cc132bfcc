"""Measure every method on one model, remembering each cell as soon as it is done."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from geosprint.comparison.cells import Cell, Memory, ReferenceSolve, cell_key, places_of, reference_key
from geosprint.comparison.measures import Judge
from geosprint.comparison.methods import chosen_methods
from geosprint.comparison.plan import Plan
from geosprint.comparison.results import Comparison
from geosprint.estimates import endpoint_errors
from geosprint.integrations.adapter import as_model
from geosprint.metrics.features import Features, default_features, load_features
from geosprint.models.base import Model
from geosprint.models.networks import FeatureStatistics
from geosprint.rivals.base import Built, Method, Recording, Task, build
from geosprint.runs.progress import Progress
from geosprint.runs.team import ALONE, Team
from geosprint.sampling import Counted, sample
from geosprint.schedule import StepSchedule
from geosprint.solvers import SOLVERS
from geosprint.teacher import FINE_SOLVER, fine_timesteps
from geosprint.trajectory import Origin

if TYPE_CHECKING:
    from geosprint.integrations.pipelines import PipelineInputs

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
    team: Team = ALONE,
) -> Comparison:
    """Every method at every number of steps with every solver, on held-out noise.

    What is left out is as in the plan, whose fields say what each option means; the default plan takes 5, 10 and 20
    steps of DDIM and all methods that apply, on 256 samples. `out` keeps finished cells: a second run measures only
    what is new. `statistics` are those of the data set in the plan's features, where the package does not know them
    itself. `inputs` are what a pipeline draws. The processes of a team that see one `out` measure different cells.
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
        return _compared(asked, Memory(Path(directory) / "cells"), plan, statistics, progress and team.leads, team)


def _compared(
    model: Model, memory: Memory, plan: Plan, statistics: FeatureStatistics | None, progress: bool, team: Team
) -> Comparison:
    features = load_features(plan.features or "")
    memory.refuse_another_model(model)
    counted = Counted(model)
    recording = Recording(counted, plan.trajectories, plan.reference_steps, plan.seed, plan.batch, progress)
    tasks = {solver: Task(counted, solver, recording) for solver in plan.solvers}
    methods = chosen_methods(plan.methods, plan.leave_out, tasks[plan.solvers[0]])
    reference = _reference_solve(model, plan, features, memory, progress, team)
    workshop = _Workshop(plan, features, reference, memory)
    places = [(tasks[solver], method, k) for solver, method, k in places_of(plan, methods)]
    if team.size > 1:
        _share_out(places, workshop, recording, team)
    cells = []
    with Progress("compare", sum(k for _, _, k in places), "step", progress) as bar:
        for task, method, k in places:
            bar.say(f"{task.solver} {method.name} {k}")
            cells.append(workshop.cell(task, method, k))
            bar.update(k)
    judge = Judge(model, reference, plan.fine_steps, statistics or features.statistics)
    found = Comparison(model.name, plan, [], cells, reference, Origin.of(model, "ddim", 0.0), recording)
    rows = [row for cell in cells for row in judge.rows_of(cell, found.best_uniform(cell.solver, cell.steps))]
    return replace(found, rows=rows)


@dataclass(frozen=True)
class _Workshop:
    """Makes cells, and builds a schedule once for all solvers where the solver does not matter."""

    plan: Plan
    features: Features
    reference: ReferenceSolve
    memory: Memory

    def cell(self, task: Task, method: Method, steps: int) -> Cell:
        """The cell of this task, measured now or remembered."""
        found = self.remembered(task.solver, method, steps)
        if found is None:
            same = self._made_for_another_solver(method, steps)
            if same and same.own_solver:
                found = replace(same, solver=task.solver)  # whatever the solver beside it, it steps in its own way
            else:
                built = _rebuilt(same, task) if same else build(method, task, steps)
                found = self._measured(task, method, built)
            self.memory.keep_cell(cell_key(self.plan, task.solver, method, steps), found)
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
            errors=endpoint_errors(samples, self.reference.samples),
            features=self.features(samples),
            pictures=samples[:SHOWN].clone(),
            own_solver=built.solver is not None,
        )


def _rebuilt(cell: Cell, task: Task) -> Built:
    """The schedule of a cell, and what it cost then."""
    schedule = StepSchedule.at(cell.timesteps, task.model.noise, {"method": cell.method})
    return Built(schedule, cell.build_nfe, cell.build_seconds)


def _share_out(
    places: Sequence[tuple[Task, Method, int]], workshop: _Workshop, recording: Recording, team: Team
) -> None:
    """Let each process measure some cells into the directory that all see; a schedule is built by one of them."""
    looks = any(method.from_recording and not workshop.remembered(task.solver, method, k) for task, method, k in places)
    if team.told(b"record" if looks else b""):
        recording.record_with(team)
    schedules = list(dict.fromkeys((method.name, k) for _, method, k in places))
    for task, method, k in places:
        if schedules.index((method.name, k)) % team.size == team.rank:
            workshop.cell(task, method, k)
    team.total(0)  # wait until every process is here


def _reference_solve(
    model: Model, plan: Plan, features: Features, memory: Memory, progress: bool, team: Team
) -> ReferenceSolve:
    key = reference_key(plan)
    reference = memory.recall_reference(key)
    known = team.told(b"known" if reference else b"")  # to all, if the first process says so: all solve, or none
    if reference is None or not known:
        times = fine_timesteps(model.noise, plan.fine_steps)
        solvers = ALONE if known else team
        samples = sample(model, times, plan.fresh_seeds, FINE_SOLVER, 0.0, plan.batch, progress, solvers)
        reference = ReferenceSolve(samples, features(samples))
        memory.keep_reference(key, reference)
    return reference
