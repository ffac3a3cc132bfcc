"""Every method of a comparison by name: closed forms, published rivals and ours."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from geosprint.baselines import BASELINES, applicable_baselines, closed_form_schedules
from geosprint.errors import ScheduleError
from geosprint.fitted_solver import FittedSolver
from geosprint.rivals.base import Array, Method, Task
from geosprint.rivals.bns import bns_l2
from geosprint.rivals.registry import RIVALS
from geosprint.schedule import StepSchedule
from geosprint.tuning.fewest import tuned_steps
from geosprint.tuning.problem import TuningProblem
from geosprint.tuning.today import todays_run
from geosprint.tuning.wish import Wish

HERE = "this package"


def fitted(task: Task, steps: int) -> FittedSolver:
    """Fitted to the teacher trajectories on the closed form that suits it best, whatever the task's solver."""
    forms = tuple(closed_form_schedules(task.model.noise, steps))
    return _made(task, Wish((steps,), todays_run(task.model, None), schedules=forms))  # type: ignore[return-value]


def tuned(task: Task, steps: int) -> Array:
    """The tuned schedule for the task's solver, unless a closed form is surely better."""
    made = _made(task, Wish((steps,), todays_run(task.model, None), task.solver))
    assert isinstance(made, StepSchedule), "a solver that is kept has a schedule alone"
    return made.timesteps


def tuned_and_fitted(task: Task, steps: int) -> FittedSolver:
    """Fitted to the teacher trajectories, on the best of the schedules that the surrogate proposes for fits."""
    return _made(task, Wish((steps,), todays_run(task.model, None)))  # type: ignore[return-value]


def bns(task: Task, steps: int) -> FittedSolver:
    """The limit of `tuned+fitted`: from there, by gradient descent."""
    return bns_l2(task, tuned_and_fitted(task, steps))


def _made(task: Task, wish: Wish) -> StepSchedule | FittedSolver:
    """With the calls that one number of steps may cost, the teacher's counted in full."""
    teacher = task.recording.teacher
    problem = TuningProblem.of(task.model, teacher)
    return tuned_steps(problem, wish, wish.steps[0], wish.budget_nfe - teacher.nfe, None).result.made


def _closed_form(name: str) -> Method:
    def times(task: Task, steps: int) -> Array:
        return BASELINES[name](task.model.noise, steps)

    def applies(task: Task) -> bool:
        return name in applicable_baselines(task.model.noise)

    return Method(name, times, source="closed form", applies=applies)


def _can_be_tuned(task: Task) -> bool:
    return task.solver != "ddpm"


FITTED = Method("fitted", fitted, source=HERE, from_teacher=True)
TUNED = Method("tuned", tuned, source=HERE, from_teacher=True, for_solver=True, applies=_can_be_tuned)
TUNED_AND_FITTED = Method("tuned+fitted", tuned_and_fitted, source=HERE, from_teacher=True)

BNS = Method("bns-l2", bns, "Shaul et al. (2024)", from_teacher=True, is_limit=True)

_ALL = [*map(_closed_form, BASELINES), *RIVALS.values(), FITTED, TUNED, TUNED_AND_FITTED, BNS]

METHODS = {method.name: method for method in sorted(_ALL, key=lambda method: method.is_limit)}
"""By name, in the order of tables: limits come last."""

LIMITS = frozenset(name for name, method in METHODS.items() if method.is_limit)
"""Bounds on what schedules can reach; they never compete."""

OURS = frozenset(name for name, method in METHODS.items() if method.source in (HERE, "the paper"))
"""This package's and the paper's; all others are what people had before."""


def chosen_methods(names: Sequence[str] | None, leave_out: Sequence[str], task: Task) -> list[Method]:
    """The methods of these names, or all that apply to the model but some, in the order of METHODS."""
    for name in names or ():
        if name not in METHODS:
            near = "".join(f"; did you mean {one}?" for one in get_close_matches(name, METHODS, 1))
            raise ScheduleError(f"methods must be among {', '.join(METHODS)}, got {name!r}{near}")
        if not METHODS[name].applies(task):
            raise ScheduleError(f"{name} was not made for models like {task.model.name!r}; leave it out")
    if names:
        return [method for method in METHODS.values() if method.name in names]
    return [method for method in METHODS.values() if method.name not in leave_out and method.applies(task)]
