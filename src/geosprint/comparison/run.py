"""Measure every method on one model, remembering each cell as soon as it is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from geosprint.comparison.cells import Cell, Fine, Memory, cell_key, fine_key
from geosprint.comparison.methods import METHODS, chosen_methods
from geosprint.comparison.plan import Plan
from geosprint.comparison.results import Comparison
from geosprint.metrics.estimates import endpoint_errors
from geosprint.metrics.features import Features, default_features, load_features
from geosprint.models.base import Model
from geosprint.models.networks import FeatureStatistics
from geosprint.rivals.base import Built, Method, Recording, Task, build
from geosprint.runs.progress import Bar
from geosprint.runs.team import ALONE, Team
from geosprint.sampling import Counted, sample
from geosprint.schedule import StepSchedule
from geosprint.solvers import SOLVERS
from geosprint.teacher import FINE_SOLVER, fine_timesteps

Place = tuple[Task, Method, int]

SHOWN = 10
"""Samples of every cell that are kept to be looked at."""


def compare(
    model: Model,
    out: Path,
    plan: Plan | None = None,
    statistics: FeatureStatistics | None = None,
    progress: bool = False,
    team: Team = ALONE,
) -> Comparison:
    """Every method at every number of steps with every solver, on noise that none of them has seen.

    `out` keeps finished cells: a second run measures only what is new. `statistics` are those of the
    data set in the plan's features, where the package does not know them itself. The processes of a
    team that see one `out` measure different cells.
    """
    plan = (plan or Plan()).checked(model)
    plan = replace(plan, features=plan.features or default_features(model.name, model.shape))
    features = load_features(plan.features or "")
    memory = Memory(Path(out) / "cells")
    memory.refuse_another_model(model)
    counted = Counted(model)
    recording = Recording(
        counted, plan.trajectories, plan.reference_steps, plan.seed, plan.batch, progress and team.leads
    )
    tasks = {solver: Task(counted, solver, recording) for solver in plan.solvers}
    methods = chosen_methods(plan.methods, plan.leave_out, tasks[plan.solvers[0]])
    fine = _fine_solve(model, plan, features, memory, progress, team)
    workshop = _Workshop(plan, features, fine, memory)
    places = [(tasks[solver], method, k) for solver in plan.solvers for method in methods for k in plan.steps]
    rulers = [method for method in methods if method.name.startswith("uniform")]
    places += [(tasks[solver], method, k) for solver in plan.solvers for method in rulers for k in plan.ruler]
    if team.size > 1:
        _share_out(places, workshop, recording, team)
    cells = []
    with Bar("compare", sum(k for _, _, k in places), "step", progress and team.leads) as bar:
        for task, method, k in places:
            bar.say(f"{task.solver} {method.name} {k}")
            cells.append(workshop.cell(task, method, k))
            bar.update(k)
    limits = frozenset(name for name, method in METHODS.items() if method.is_limit)
    return Comparison(model, plan, fine, cells, recording, statistics or features.statistics, limits)


class _Workshop:
    """Makes cells, and builds a schedule once for all solvers where the solver does not matter."""

    def __init__(self, plan: Plan, features: Features, fine: Fine, memory: Memory) -> None:
        self._plan, self._features, self._fine, self._memory = plan, features, fine, memory

    def cell(self, task: Task, method: Method, steps: int) -> Cell:
        """The cell of this place, measured now or remembered."""
        found = self.remembered(task, method, steps)
        if found is None:
            twin = self._made_for_another_solver(method, steps)
            if twin and twin.own_solver:
                found = replace(twin, solver=task.solver)  # whatever the solver beside it, it steps in its own way
            else:
                built = _rebuilt(twin, task) if twin else build(method, task, steps)
                found = self._measured(task, method, built)
            self._memory.keep_cell(cell_key(self._plan, task.solver, method, steps), found)
        return found

    def remembered(self, task: Task, method: Method, steps: int) -> Cell | None:
        """The cell of this place, if it was measured before."""
        return self._memory.recall_cell(cell_key(self._plan, task.solver, method, steps))

    def _made_for_another_solver(self, method: Method, steps: int) -> Cell | None:
        """A cell with the same schedule, if one was measured before."""
        others = (self._memory.recall_cell(cell_key(self._plan, solver, method, steps)) for solver in SOLVERS)
        return None if method.for_solver else next((cell for cell in others if cell), None)

    def _measured(self, task: Task, method: Method, built: Built) -> Cell:
        times, plan = built.schedule.timesteps, self._plan
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
            errors=endpoint_errors(samples, self._fine.samples),
            features=self._features(samples),
            pictures=samples[:SHOWN].clone(),
            own_solver=built.solver is not None,
        )


def _rebuilt(cell: Cell, task: Task) -> Built:
    """The schedule of a cell, and what it cost then."""
    schedule = StepSchedule.at(cell.timesteps, task.model.noise, {"method": cell.method})
    return Built(schedule, cell.build_nfe, cell.build_seconds)


def _share_out(places: Sequence[Place], workshop: _Workshop, recording: Recording, team: Team) -> None:
    """Let each process measure some cells into the directory that all see; a schedule is built by one of them."""
    looks = any(method.from_recording and not workshop.remembered(task, method, k) for task, method, k in places)
    if team.told(b"record" if looks else b""):
        recording.share_out(team)
    schedules = list(dict.fromkeys((method.name, k) for _, method, k in places))
    for task, method, k in places:
        if schedules.index((method.name, k)) % team.size == team.rank:
            workshop.cell(task, method, k)
    team.total(0)  # wait until every process is here


def _fine_solve(model: Model, plan: Plan, features: Features, memory: Memory, progress: bool, team: Team) -> Fine:
    key = fine_key(plan)
    fine = memory.recall_fine(key)
    known = team.told(b"known" if fine else b"")  # to all, if the first process says so: all solve, or none
    if fine is None or not known:
        times = fine_timesteps(model.noise, plan.fine_steps)
        solvers = ALONE if known else team
        shown = progress and team.leads
        samples = sample(model, times, plan.fresh_seeds, FINE_SOLVER, 0.0, plan.batch, shown, solvers)
        fine = Fine(samples, features(samples))
        memory.keep_fine(key, fine)
    return fine


def schedules_of(comparison: Comparison, solver: str, steps: int) -> dict[str, StepSchedule]:
    """Every method's schedule at one number of steps."""
    return {
        cell.method: StepSchedule.at(cell.timesteps, comparison.model.noise, {"method": cell.method})
        for cell in comparison.column(solver, steps)
    }
