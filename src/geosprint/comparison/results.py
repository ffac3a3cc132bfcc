"""From measured cells to rows: every metric with its interval, the best of each K, and what is no worse."""

from __future__ import annotations

import csv
import math
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from geosprint.comparison.cells import Cell, Fine
from geosprint.comparison.plan import Plan
from geosprint.errors import FileError
from geosprint.files import as_csv, refusing_damage, write_text
from geosprint.metrics.distances import (
    frechet_distance,
    frechet_to_statistics,
    gaussian_frechet_distance,
    gaussian_responses,
    kernel_distance,
    sliced_wasserstein,
)
from geosprint.metrics.estimates import Estimate, bootstrap_mean, decibels, jackknifed
from geosprint.models.base import Model
from geosprint.models.exact import Gaussian
from geosprint.models.networks import FeatureStatistics
from geosprint.models.wrappers import innermost
from geosprint.rivals.base import Recording
from geosprint.solvers import solver_named
from geosprint.teacher import FINE_SOLVER, fine_timesteps

Array = NDArray[np.float64]


def closed_forms(model: Model, timesteps: ArrayLike, solver: str, fine_steps: int) -> dict[str, float]:
    """The exact values of what sampling estimates; nothing for a model that is not Gaussian."""
    gaussian = innermost(model)
    if not isinstance(gaussian, Gaussian) or gaussian.clip is not None:
        return {}
    step = solver_named(solver)
    fine = gaussian_responses(gaussian, fine_timesteps(model.noise, fine_steps), solver_named(FINE_SOLVER))
    off = gaussian_responses(gaussian, timesteps, step) - fine
    return {
        "rmse-exact": mean_root((off.flatten() ** 2 / off.numel()).numpy()),
        "frechet-data": gaussian_frechet_distance(gaussian, timesteps, step),
    }


def mean_root(weights: Array) -> float:
    """E sqrt(sum of w·z²) for standard normal z, from E sqrt(Q) = ∫ (1 - E exp(-sQ)) s^(-3/2) ds / (2 sqrt(pi))."""
    weights, counts = np.unique(np.asarray(weights, dtype=np.float64), return_counts=True)
    total = float((weights * counts).sum())
    if total == 0:
        return 0.0
    # s = exp(u) / total turns the integrand into a smooth bump that decays like exp(-|u| / 2) on both sides.
    u = np.linspace(-80, 80, 8001)
    s = np.exp(u)
    log_laplace = -0.5 * (counts * np.log1p(2 * s[:, None] * weights / total)).sum(axis=1)
    return float(np.sqrt(total) * np.trapezoid(-np.expm1(log_laplace) / np.sqrt(s), u) / (2 * np.sqrt(np.pi)))


MOST_STATISTICS_BYTES = 2**29
"""Of one array: features of 8192 dimensions have a covariance of this size."""

_NAMES = ("mu", "sigma", "mean", "covariance", "count")


def read_statistics(path: Path) -> FeatureStatistics:
    """`mu` and `sigma`, as other FID tools write them, or `mean` and `covariance`, as ours are."""
    try:
        with zipfile.ZipFile(path) as archive:
            held = {name: _array(archive, f"{name}.npy") for name in _NAMES if f"{name}.npy" in archive.namelist()}
    except OSError as wrong:
        raise FileError(f"cannot read {path}: {wrong.strerror or wrong}") from wrong
    except Exception as wrong:  # zip and npy are parsed by libraries that fail in a dozen ways on damaged ones
        raise FileError(f"{path} must be an npz file with mu and sigma ({wrong})") from wrong
    mean, covariance = held.get("mu", held.get("mean")), held.get("sigma", held.get("covariance"))
    if mean is None or covariance is None or mean.ndim != 1 or covariance.shape != (len(mean), len(mean)):
        shapes = {name: array.shape for name, array in held.items()}
        raise FileError(f"{path} must hold mu (features) and sigma (features, features), it holds {shapes}")
    if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
        raise FileError(f"{path} must hold finite numbers, it holds nan or infinity")
    count = held.get("count", np.array(0.0))
    return FeatureStatistics(mean, covariance, int(count) if count.size == 1 and np.isfinite(count).all() else 0)


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[np.float64]:
    """An array whose header agrees with the size of what follows; NumPy would make room for whatever it claims."""
    size = archive.getinfo(name).file_size
    if size > MOST_STATISTICS_BYTES:
        raise ValueError(f"{name} must have up to {MOST_STATISTICS_BYTES} bytes, it has {size}")
    with archive.open(name) as member:
        read_header = npy.read_array_header_1_0 if npy.read_magic(member) == (1, 0) else npy.read_array_header_2_0
        shape, by_columns, kind = read_header(member)
        if kind.kind not in "fiu" or math.prod(shape) * kind.itemsize != size - member.tell():
            raise ValueError(f"{name} says that it holds {shape} of {kind}, and does not")
        numbers = np.frombuffer(member.read(), kind).reshape(shape, order="F" if by_columns else "C")
    return numbers.astype(np.float64)


FEW_DIMENSIONS = 64  # up to here the sliced Wasserstein distance says something


@dataclass(frozen=True)
class Row:
    """One number of the comparison, as results.csv holds it."""

    model: str
    solver: str
    method: str
    steps: int
    nfe: float
    metric: str
    value: float
    low: float | None
    high: float | None
    build_nfe: int
    build_seconds: float
    start: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """Everything measured on one model."""

    model: Model
    plan: Plan
    fine: Fine
    cells: list[Cell]
    recording: Recording
    statistics: FeatureStatistics | None  # of the data set, in the features that were used
    limits: frozenset[str] = frozenset()  # methods that bound what schedules can reach

    def cell(self, solver: str, method: str, steps: int) -> Cell:
        """The cell of these three."""
        return next(c for c in self.cells if (c.solver, c.method, c.steps) == (solver, method, steps))

    def column(self, solver: str, steps: int) -> list[Cell]:
        """All methods at one number of steps."""
        return [cell for cell in self.cells if (cell.solver, cell.steps) == (solver, steps)]

    def best_uniform(self, solver: str, steps: int) -> Cell | None:
        """The uniform spacing nearest to the fine solve: what a user has without any of this."""
        uniform = [cell for cell in self.column(solver, steps) if cell.method.startswith("uniform")]
        return min(uniform, key=_mean_error, default=None)

    def best(self, solver: str, steps: int) -> Cell:
        """The method nearest to the fine solve; limits do not compete."""
        column = self.column(solver, steps)
        return min([cell for cell in column if cell.method not in self.limits] or column, key=_mean_error)

    def ties_with_best(self, cell: Cell) -> bool:
        """Whether chance alone could have put this method behind the best one."""
        return (cell.solver, cell.method, cell.steps) in self._ties

    @cached_property
    def _ties(self) -> set[tuple[str, str, int]]:
        return {(c.solver, c.method, c.steps) for c in self.cells if self._is_behind_by_chance(c)}

    def _is_behind_by_chance(self, cell: Cell) -> bool:
        best = self.best(cell.solver, cell.steps)
        return cell is not best and bootstrap_mean(cell.errors - best.errors).low <= 0

    @cached_property
    def rows(self) -> list[Row]:
        """All numbers."""
        return [row for cell in self.cells for row in self._rows_of(cell)]

    def value(self, cell: Cell, metric: str) -> Row | None:
        """One number of a cell, if it was measured."""
        return self._by_place.get((cell.solver, cell.method, cell.steps, metric))

    @cached_property
    def _by_place(self) -> dict[tuple[str, str, int, str], Row]:
        return {(row.solver, row.method, row.steps, row.metric): row for row in self.rows}

    def _rows_of(self, cell: Cell) -> list[Row]:
        cost = (cell.build_nfe, cell.build_seconds, cell.start)
        place = (self.model.name, cell.solver, cell.method, cell.steps, cell.nfe)
        return [
            Row(*place, metric, found, None, None, *cost)
            if isinstance(found, float)
            else Row(*place, metric, found.value, found.low, found.high, *cost)
            for metric, found in self._measured(cell).items()
        ]

    def _measured(self, cell: Cell) -> dict[str, Estimate | float]:
        """By metric; a number alone where no interval is known."""
        found: dict[str, Estimate | float] = {"rmse": bootstrap_mean(cell.errors)}
        if uniform := self.best_uniform(cell.solver, cell.steps):
            found["rmse-gap"] = bootstrap_mean(cell.errors - uniform.errors)
        if self.fine.samples.ndim == 4:
            found["psnr"] = bootstrap_mean(decibels(cell.errors))
        features, fine = cell.features, self.fine.features
        found["frechet-fine"] = jackknifed(lambda rows: frechet_distance(features[rows], fine[rows]), len(fine))
        if (data := self.statistics) is not None:
            found["frechet-data"] = jackknifed(lambda rows: frechet_to_statistics(features[rows], data), len(fine))
        found["kid-fine"] = _kernel_distance_of_halves(features, fine)
        if self.fine.samples[0].numel() <= FEW_DIMENSIONS and features.shape[1] == self.fine.samples[0].numel():
            found["sliced-fine"] = sliced_wasserstein(features, fine)
        if not cell.own_solver:
            for metric, value in closed_forms(self.model, cell.timesteps, cell.solver, self.plan.fine_steps).items():
                found[metric] = Estimate(value, value, value)
        return found


def write_csv(rows: Sequence[Row], path: Path) -> Path:
    """results.csv: a row per number; an empty cell where no interval is known."""
    return write_text(path, as_csv([asdict(row) for row in rows]))


def read_csv(path: Path) -> list[Row]:
    """The inverse of `write_csv`."""
    try:
        if Path(path).stat().st_size > MOST_STATISTICS_BYTES:
            raise FileError(f"{path} must have up to {MOST_STATISTICS_BYTES} bytes, it has {Path(path).stat().st_size}")
        lines = list(csv.DictReader(Path(path).read_text(encoding="utf-8").splitlines()))
    except OSError as wrong:
        raise FileError(f"cannot read {path}: {wrong.strerror or wrong}") from wrong
    except (UnicodeDecodeError, csv.Error) as wrong:
        raise FileError(f"{path} is not a CSV file ({wrong}); make it again") from wrong
    with refusing_damage(Path(path)):
        return [_row(line) for line in lines]


def _row(line: dict[str, Any]) -> Row:
    read: dict[str, Any] = {name: line[name] for name in ("model", "solver", "method", "metric")}
    if not all(isinstance(word, str) for word in read.values()):
        raise ValueError("a line is shorter than the first one")
    read |= {name: int(line[name]) for name in ("steps", "build_nfe")}
    numbers = {name: float(line[name]) for name in ("nfe", "value", "build_seconds", "start")}
    ends = {name: float(line[name]) for name in ("low", "high") if line[name]}
    if not all(map(math.isfinite, (*numbers.values(), *ends.values()))):
        raise ValueError("it must hold finite numbers")
    return Row(**{"low": None, "high": None, **read, **numbers, **ends})


def summary(comparison: Comparison) -> dict[str, Any]:
    """What won where, for machines."""
    columns = []
    for solver in comparison.plan.solvers:
        for steps in comparison.plan.steps:
            if not comparison.column(solver, steps):
                continue
            best, uniform = comparison.best(solver, steps), comparison.best_uniform(solver, steps)
            ties = [cell.method for cell in comparison.column(solver, steps) if comparison.ties_with_best(cell)]
            columns.append(
                {
                    "solver": solver,
                    "steps": steps,
                    "best": best.method,
                    "rmse": _mean_error(best),
                    "ties": [method for method in ties if method not in comparison.limits],
                    "best_uniform": uniform.method if uniform else None,
                    "uniform_rmse": _mean_error(uniform) if uniform else None,
                    "timesteps": best.timesteps.tolist(),
                }
            )
    return {"model": comparison.model.name, "columns": columns}


def _mean_error(cell: Cell) -> float:
    return float(cell.errors.mean())


def _kernel_distance_of_halves(features: Tensor, fine: Tensor) -> Estimate:
    """KID between samples of one half of the noises and fine samples of the other: it needs independent sets."""
    half = len(features) // 2
    found = kernel_distance(features[:half], fine[half:])
    return Estimate.normal(found.value, found.standard_error)
