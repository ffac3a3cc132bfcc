"""A cell of the comparison, its key, and the directory that keeps cells so that none is measured twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from geosprint import __version__
from geosprint.comparison.plan import Plan, is_uniform
from geosprint.errors import FileError, GeoSprintError
from geosprint.files import finite
from geosprint.fitted_solver import Coefficients
from geosprint.models.base import Model
from geosprint.models.fingerprint import PROBE_STEPS, begun_store, network_of
from geosprint.noise import Array
from geosprint.rivals.base import Method
from geosprint.runs.store import MANIFEST, Store, digest_of
from geosprint.runs.team import this_team
from geosprint.sampling import record
from geosprint.trajectory import Origin

Kept = TypeVar("Kept")
Key = dict[str, Any]
"""Everything that a file depends on, by name."""


def wanted_cells(plan: Plan, methods: Iterable[Method]) -> list[tuple[str, Method, int]]:
    """Solver, method and number of steps of every cell that a plan asks for."""
    methods = list(methods)
    uniform = [method for method in methods if is_uniform(method.name)]
    return [
        (solver, method, k)
        for some, numbers in ((methods, plan.steps), (uniform, plan.ruler))
        for solver in plan.solvers
        for method in some
        for k in numbers
    ]


def cell_key(plan: Plan, solver: str, method: Method, steps: int) -> Key:
    """Of one method at one number of steps with one solver."""
    key = {"solver": solver, "method": method.name, "steps": steps, **plan.judged_by}
    return key | plan.made_from if method.from_recording or method.from_teacher else key


def reference_key(plan: Plan) -> Key:
    """Of the samples that all others are compared with."""
    return {"model": "fine", **plan.judged_by}


@dataclass(frozen=True, eq=False)
class Cell:
    """One method at one number of steps with one solver: where and how it steps, its cost and its samples."""

    solver: str
    method: str
    steps: int
    timesteps: Array  # (K,)
    nfe: float  # network calls per sample
    build_nfe: int
    build_seconds: float
    errors: Array  # (samples,) root mean square distance to the reference solve
    features: Tensor  # (samples, features)
    pictures: Tensor  # the first few samples
    coefficients: Coefficients | None = None  # of each step, where the method stepped in its own way
    guided: Coefficients = ()  # of what guidance adds, too; see `FittedSolver`
    linear: Coefficients = ()  # of each state, where the way it stepped is not of the fitted form; see `LinearSolver`
    build_backprops: int = 0

    @property
    def own_solver(self) -> bool:
        """Whether the method stepped in its own way, with as many calls, instead of the solver's."""
        return self.coefficients is not None or bool(self.linear)

    @property
    def start(self) -> float:
        """Where the schedule begins."""
        return float(self.timesteps[0])

    @property
    def error(self) -> float:
        """The mean error."""
        return float(self.errors.mean())


@dataclass(frozen=True, eq=False)
class ReferenceSolve:
    """What all samples are compared with: many small steps from the same noise."""

    samples: Tensor  # (samples, *shape)
    features: Tensor  # (samples, features)


@dataclass(frozen=True)
class Memory:
    """Files of one comparison of one model: a file per cell, named by what it depends on."""

    directory: Path

    def recall_cell(self, key: Key) -> Cell | None:
        """The cell that was measured under this key, if any; None also where it is damaged: it is measured again."""
        return self._recall(key, _cell)

    def recall_reference(self, key: Key) -> ReferenceSolve | None:
        """The reference solve under this key, if any."""
        return self._recall(key, _reference)

    def _recall(self, key: Key, made: Callable[[dict[str, Any]], Kept]) -> Kept | None:
        held = this_team().told(lambda: Store(self.directory, {}).read(_file_name(key)))  # all measure, or none
        try:
            return made({**held[0], **held[1]}) if held else None
        except (TypeError, ValueError, AttributeError, KeyError):
            return None

    def keep(self, key: Key, part: Cell | ReferenceSolve) -> None:
        """Write it down, once for all processes."""
        if not this_team().leads:
            return
        parts = {one.name: getattr(part, one.name) for one in fields(part)}
        arrays = {name: torch.from_numpy(one.copy()) for name, one in parts.items() if isinstance(one, np.ndarray)}
        tensors = {name: one for name, one in parts.items() if isinstance(one, Tensor)} | arrays
        about = {name: one for name, one in parts.items() if name not in tensors}
        Store(self.directory, {}).keep(_file_name(key), tensors, about)

    @contextmanager
    def claimed(self, key: Key, waiting: bool = False) -> Iterator[bool]:
        """Whether nobody else is at work on this; a process that dies lets go of it."""
        team = this_team()
        with Store(self.directory, {}).claimed(_file_name(key), waiting) if team.leads else nullcontext(True) as mine:
            yield team.told(lambda: mine)

    def refuse_another_model(self, model: Model) -> None:
        """Results of one directory are of one model, as it describes itself and by its fingerprint."""
        if not (self.directory / MANIFEST).exists() and any(self.directory.glob("probe-*.safetensors")):
            raise FileError(
                f"{self.directory} holds results of an earlier version of geosprint; "
                "name another directory with -o or delete it"
            )
        begun_store(self.directory, {}, record(model, [0], PROBE_STEPS), network_of(model))

    def origin(self) -> Origin | None:
        """The model that these results are of, as it described itself."""
        try:
            return Origin.from_dict(Store.found(self.directory).job["model"])
        except (GeoSprintError, KeyError, TypeError, ValueError, AttributeError):
            return None  # missing, or damaged: the next comparison refuses it


def _file_name(key: Key) -> str:
    words = [str(key[part]) for part in ("model", "solver", "method", "steps") if part in key]
    return "-".join([*words, digest_of({**key, "version": __version__})[:12]])


def _cell(held: dict[str, Any]) -> Cell:
    """The cell of a file, if all of it has the right kind and length."""
    of_steps = ("coefficients", "guided", "linear")
    rows = {name: tuple(tuple(finite(own)) for own in held.get(name) or ()) for name in of_steps}
    coefficients = None if held["coefficients"] is None else rows["coefficients"]
    arrays = {name: held[name].numpy() for name in ("timesteps", "errors")}
    cell = Cell(**{**held, **arrays, **rows, "coefficients": coefficients})
    words = (cell.solver, cell.method)
    numbers = (cell.steps, cell.nfe, cell.build_nfe, cell.build_seconds, cell.build_backprops)
    if not all(isinstance(part, str) for part in words) or not all(isinstance(part, int | float) for part in numbers):
        raise ValueError("a cell names a solver and a method, and counts")
    has_times = cell.timesteps.shape == (cell.steps,) and _as_many(held["timesteps"])
    if not has_times or len(coefficients or cell.timesteps) != cell.steps:
        raise ValueError("a cell has a time for each step, and coefficients if it has any")
    if [len(row) for row in cell.linear] not in ([], [*range(1, cell.steps + 2)]):
        raise ValueError("a cell has a row for each state, if it has any")
    if cell.errors.ndim != 1 or not _as_many(held["errors"], cell.features) or not _as_many(cell.pictures):
        raise ValueError("a cell has an error and features of each sample, and pictures")
    return cell


def _reference(held: dict[str, Any]) -> ReferenceSolve:
    if not _as_many(held["samples"], held["features"]):
        raise ValueError("a reference solve has features of each sample")
    return ReferenceSolve(**held)


def _as_many(*parts: Tensor) -> bool:
    """Finite numbers of as many samples."""
    return all(
        part.shape[:1] == parts[0].shape[:1] != () and part.is_floating_point() and bool(torch.isfinite(part).all())
        for part in parts
    )
