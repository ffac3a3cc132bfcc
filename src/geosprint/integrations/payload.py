"""The payload of a scheduler's config: a profile, which gives any number of steps, or the steps of some numbers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from geosprint.errors import ScheduleError
from geosprint.fitted_solver import Coefficients, FittedSolver
from geosprint.noise import NoiseSchedule
from geosprint.profile import CurvatureProfile
from geosprint.schedule import BLEND, blended_density, check_times_mean, quantile_times
from geosprint.tuned import FITTED, Tuned, TunedSteps


@dataclass(frozen=True)
class Steps:
    """One list of times, noise first, and their sigmas; of a fitted solver, its coefficients too."""

    timesteps: tuple[float, ...]
    sigmas: tuple[float, ...]
    coefficients: Coefficients = ()
    guided: Coefficients = ()

    @classmethod
    def of(cls, one: TunedSteps) -> Steps:
        """What a pipeline needs of a schedule or a fitted solver."""
        rows = (one.made.coefficients, one.made.guided) if isinstance(one.made, FittedSolver) else ()
        return cls(tuple(one.schedule.timesteps.tolist()), tuple(one.schedule.sigmas.tolist()), *rows)

    def to_dict(self) -> dict[str, Any]:
        """For a config; the inverse of `from_dict`."""
        rows = {"coefficients": self.coefficients, "guided": self.guided}
        known = {name: [list(own) for own in of] for name, of in rows.items() if of}
        return {"timesteps": list(self.timesteps), "sigmas": list(self.sigmas), **known}

    @classmethod
    def from_dict(cls, described: dict[str, Any]) -> Steps:
        """What `to_dict` described."""
        rows = (tuple(tuple(own) for own in described.get(name, ())) for name in ("coefficients", "guided"))
        return cls(tuple(described["timesteps"]), tuple(described["sigmas"]), *rows)


_PLAIN = ("blend", "shift", "solver", "replaced")  # what a config holds of a payload as it is


@dataclass(frozen=True)
class Payload:
    """What a scheduler steps by; `retention` and `blend` turn the one grid of a profile into any number of steps."""

    grids: tuple[Steps, ...]  # one for each number of steps; of a profile, its reference grid
    retention: tuple[float, ...] = ()  # at each time of a profile's grid; nothing for schedules
    blend: float = BLEND
    shape: tuple[int, ...] | None = None  # of the samples that it was recorded on
    shift: float | None = None  # of the flow that it was recorded on
    solver: str | None = None  # that the steps were tuned for
    replaced: dict[str, Any] | None = None  # the scheduler that stood there before: its class and its settings

    @classmethod
    def of(cls, made: CurvatureProfile | Tuned, blend: float = BLEND, literal: bool = False) -> Payload:
        """All that a pipeline needs of this, small enough for a scheduler's config."""
        if not 0 <= blend <= 1:
            raise ScheduleError(f"blend must be in 0..1, got {blend}")
        origin = origin_of(made)
        about = {
            "shape": tuple(origin["shape"]) if "shape" in origin else None,
            "shift": origin.get("noise", {}).get("shift"),
        }
        if isinstance(made, CurvatureProfile):
            times, retention = made.timesteps[:-1], made.retention if literal else made.free_retention
            grid = Steps(tuple(times.tolist()), tuple(made.noise.sigma(times).tolist()))
            return cls((grid,), tuple(retention.tolist()), blend, **about)
        return cls(tuple(Steps.of(one) for one in made.results), solver=_known_solver(made), **about)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; with one list of steps or a profile, as all versions wrote it."""
        shape = self.shape and list(self.shape)
        about = {"shape": shape, "shift": self.shift, "solver": self.solver, "replaced": self.replaced}
        known = {name: value for name, value in about.items() if value is not None}
        if len(self.grids) > 1:
            return {"several": [grid.to_dict() for grid in self.grids], **known}
        placed = {"retention": list(self.retention), "blend": self.blend} if self.retention else {}
        return {**self.grids[0].to_dict(), **placed, **known}

    @classmethod
    def from_dict(cls, described: dict[str, Any]) -> Payload:
        """What `to_dict` of this or an earlier version described."""
        grids = tuple(Steps.from_dict(grid) for grid in described.get("several", [described]))
        known: dict[str, Any] = {name: described[name] for name in _PLAIN if name in described}
        known |= {name: tuple(described[name]) for name in ("retention", "shape") if described.get(name) is not None}
        return cls(grids, **known)

    @property
    def is_fitted(self) -> bool:
        """Whether it says how to step, too."""
        return bool(self.grids[0].coefficients)

    @property
    def is_guided(self) -> bool:
        """Whether some of its steps want to be told the conditional prediction."""
        return any(grid.guided for grid in self.grids)

    def check_noise(self, noise: NoiseSchedule) -> None:
        """Refuse another noise schedule than it was made for, naming both values."""
        for grid in self.grids:
            times = np.array(grid.timesteps)
            check_times_mean(times, np.array(grid.sigmas)[: len(times)], noise, "the pipeline's scheduler")

    def steps_for(self, number: int | None, noise: NoiseSchedule) -> Steps:
        """So many steps: placed by the profile, or those that were made for this number."""
        if not self.retention:
            return self._made_for(number)
        if number is None:
            raise ScheduleError("the scheduler's payload is a profile: say how many steps it should make of it")
        times = np.array([noise.first])
        if number != 1:
            grid = np.array(self.grids[0].timesteps)
            times = quantile_times(blended_density(np.array(self.retention), grid, noise, self.blend), number, noise)
        return Steps(tuple(times.tolist()), tuple(noise.sigma(times).tolist()))

    def _made_for(self, number: int | None) -> Steps:
        known = {len(grid.timesteps): grid for grid in self.grids}
        if number is None and len(known) == 1:
            return self.grids[0]
        if number not in known:
            there = ", ".join(map(str, known))
            raise ScheduleError(
                f"the scheduler's payload has steps for K = {there}, but {number} were asked for; "
                f"ask for {'one of these' if len(known) > 1 else there}, or tune for that number too"
            )
        return known[number]

    def warn_of_another_shift(self, now: float) -> None:
        """A flow's profile belongs to its shift, which follows from the resolution where it is dynamic."""
        if self.shift is not None and not math.isclose(self.shift, now, rel_tol=1e-3):
            warnings.warn(
                f"the scheduler's payload was recorded with shift {self.shift:.4g}, this run has {now:.4g} "
                "(another resolution?); its steps are used as they are",
                stacklevel=5,
            )

    def warn_of_another_size(self, shape: Sequence[int]) -> None:
        """A profile belongs to its resolution."""
        if self.shape is not None and tuple(shape) != self.shape:
            recorded, now = ("×".join(map(str, sides)) for sides in (self.shape, shape))
            warnings.warn(
                f"the scheduler's payload was recorded at size {recorded}, this run has {now}; "
                "steps that suit one may suit the other less",
                stacklevel=4,
            )


def origin_of(made: CurvatureProfile | Tuned) -> dict[str, Any]:
    """What was recorded to make this; nothing for a schedule in closed form."""
    return made.origin.to_dict() if isinstance(made, CurvatureProfile) else made.made_for


def _known_solver(made: Tuned) -> str | None:
    """The one solver that all of these steps were tuned for; None if they are fitted or were tuned for none."""
    solvers = {one.solver for one in made.results}
    if len(solvers - {None}) > 1 or {FITTED, None} <= solvers:
        said = ", ".join(f"{one.steps} for {one.solver or 'any'}" for one in made.results)
        raise ScheduleError(
            f"one scheduler takes one solver, and these numbers of steps were tuned for several ({said}); "
            f"apply one of them, such as tuned[{made.steps[0]}]"
        )
    return next(iter(solvers - {None, FITTED}), None)
