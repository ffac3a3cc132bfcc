"""What `tune` and `fit` make: where and how to step for some numbers of steps, with the proof; and its file."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from geosprint.errors import FileError, ScheduleError
from geosprint.estimates import Estimate, bootstrap_mean
from geosprint.files import finite, kind_of, read_json, refusing_damage, write_json
from geosprint.fitted_solver import FittedSolver
from geosprint.noise import Array
from geosprint.profile import FORMAT as PROFILE
from geosprint.profile import CurvatureProfile
from geosprint.schedule import FORMAT as SCHEDULE
from geosprint.schedule import StepSchedule
from geosprint.trajectory import check_origin

FORMAT = "geosprint-tuned"
SOLVER = "geosprint-solver"  # of a fitted solver, by earlier versions
FORMULA = "x_next = c[0]*x + c[1]*x0 + sum over k >= 1 of c[1+k]*(x0 of k steps ago - x0)"
GUIDED = (
    "x_next = c[0]*x + c[1]*x0 + c[2]*g + sum over k >= 1 of (c[1+2k]*(x0 of k steps ago - x0) "
    "+ c[2+2k]*(g of k steps ago - g)), where g = x0 - conditional x0"
)
FITTED = "fitted"
OURS = "this"  # the name of these steps among the errors
TODAY = "today"  # and of what they are to replace

SPELLED = {
    "ddim": "DDIM",
    "euler": "Euler",
    "heun": "Heun",
    "dpmpp-2m": "DPM++ 2M",
    "dpmpp-2m-kdiffusion": "DPM++ 2M (k-diffusion)",
    "unipc": "UniPC",
    "deis": "DEIS",
    "ipndm": "iPNDM",
}
"""Solvers as sentences name them."""


@dataclass(frozen=True)
class Today:
    """What is run today: so many steps of a solver on a spacing."""

    solver: str
    steps: int
    spacing: str

    def __str__(self) -> str:
        return f"{self.steps} {SPELLED.get(self.solver, self.solver)} steps"


@dataclass(frozen=True, eq=False, repr=False)
class TunedSteps:
    """Where and how to step for one number of steps, and the errors on held-out noise."""

    made: StepSchedule | FittedSolver
    solver: str | None  # the known solver that they were tuned for, or "fitted"; None: for none in particular
    errors: dict[str, Array] = field(default_factory=dict)  # (samples,) paired: of OURS, of TODAY, of others by name
    today_steps: Estimate | None = None  # so many of today's steps have the same error; None: not known

    @property
    def steps(self) -> int:
        """K."""
        return len(self.made)

    @property
    def schedule(self) -> StepSchedule:
        """Where to step."""
        return self.made if isinstance(self.made, StepSchedule) else self.made.schedule

    def error(self, name: str = OURS) -> Estimate:
        """The mean over held-out samples, with its interval."""
        return bootstrap_mean(self.errors[name])

    def __repr__(self) -> str:
        error = f", error {self.errors[OURS].mean():.4g}" if OURS in self.errors else ""
        return f"TunedSteps({self.steps} steps, {self.solver or 'any solver'}{error})"


@dataclass(frozen=True, eq=False, repr=False)
class Tuned:
    """Where and how to step for each of some numbers of steps, ascending; `apply`, `sample` and `export` take it."""

    results: tuple[TunedSteps, ...]
    today: Today | None = None
    proved: int | None = None  # the fewest steps that are not worse than today's, with 95 % confidence
    measure: str = "rmse"
    made_for: dict[str, Any] = field(default_factory=dict)  # the model: an origin, its fingerprint, dtype, versions
    seed: int = 0
    nfe: int = 0  # network calls that all of it took
    target_error: float | None = None  # that was asked for in the place of today's

    def __post_init__(self) -> None:
        numbers = [one.steps for one in self.results]
        if not numbers or numbers != sorted(set(numbers)) or self.proved not in (None, *numbers):
            raise ScheduleError(
                f"the numbers of steps must rise, and a proved one be among them, got {numbers} and {self.proved}"
            )
        object.__setattr__(self, "results", tuple(_with_origin(one, self.made_for) for one in self.results))

    @property
    def steps(self) -> tuple[int, ...]:
        """The numbers of steps: the proved one, if there is one, then the others as they rise."""
        return tuple(sorted((one.steps for one in self.results), key=lambda k: (k != self.proved, k)))

    def __getitem__(self, steps: int) -> StepSchedule | FittedSolver:
        return self.result(steps).made

    def __repr__(self) -> str:
        numbers = ", ".join(str(one.steps) for one in self.results)
        solvers = " or ".join(dict.fromkeys(one.solver or "any solver" for one in self.results))
        proved = f"; proved {self.proved}" if self.proved else ""
        return f"Tuned(K = {numbers}; {solvers}{proved})"

    def result(self, steps: int | None = None) -> TunedSteps:
        """That of this number of steps; of the only one, or of the proved one, if none is named."""
        if steps is None and (self.proved or len(self.results) == 1):
            steps = self.steps[0]
        found = next((one for one in self.results if one.steps == steps), None)
        if found is None:
            there = ", ".join(str(one.steps) for one in self.results)
            asked = "say which one" if steps is None else f"{steps} were asked for"
            raise ScheduleError(f"there are steps for K = {there}: {asked}")
        return found

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain JSON; docs/tuned.schema.json describes it."""
        return {
            "measure": self.measure,
            "proved": self.proved,
            "target_error": self.target_error,
            "today": None if self.today is None else self.today.__dict__,
            "made_for": self.made_for,
            "seed": self.seed,
            "nfe": self.nfe,
            "formula": FORMULA,
            "guided_formula": GUIDED,
            "results": [_content(one) for one in self.results],
        }

    def save(self, path: str | Path) -> Path:
        """The JSON file that travels."""
        return write_json(Path(path), FORMAT, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> Tuned:
        """The inverse of `save`; a schedule.json or solver.json of an earlier version is a file of one K."""
        path = Path(path)
        kind = kind_of(path)
        if kind == SCHEDULE:
            return as_tuned(StepSchedule.load(path))
        if kind not in (FORMAT, SOLVER):
            raise FileError(f"{path} must be a {FORMAT}, {SCHEDULE} or {SOLVER} file, but its format is {kind!r}")
        content = read_json(path, kind)
        with refusing_damage(path):
            content = _as_of_today(content) if kind == SOLVER else content
            return cls(
                tuple(_result(one) for one in _checked(content, "results", list)),
                _today(_checked(content, "today", dict, or_null=True)),
                _checked(content, "proved", int, or_null=True),
                _checked(content, "measure", str),
                _made_for(_checked(content, "made_for", dict)),
                _checked(content, "seed", int),
                _checked(content, "nfe", int),
                None if content["target_error"] is None else finite([content["target_error"]])[0],
            )


def _with_origin(one: TunedSteps, made_for: dict[str, Any]) -> TunedSteps:
    """The same, with a schedule that says what it was made for where it is taken along alone."""
    known: dict[str, Any] = {"origin": made_for} if made_for else {}
    if one.solver not in (None, FITTED):
        known["solver"] = one.solver
    schedule = replace(one.schedule, provenance={**one.schedule.provenance, **known})
    made = schedule if isinstance(one.made, StepSchedule) else replace(one.made, schedule=schedule)
    return replace(one, made=made)


def as_tuned(made: StepSchedule | FittedSolver | Tuned) -> Tuned:
    """A schedule or a fitted solver as what `tune` returns for one K."""
    if isinstance(made, Tuned):
        return made
    schedule = made.schedule if isinstance(made, FittedSolver) else made
    solver, origin = schedule.provenance.get("solver"), schedule.provenance.get("origin")
    known = str(solver) if solver else None
    one = TunedSteps(made, FITTED if isinstance(made, FittedSolver) else known)
    return Tuned((one,), made_for=origin if isinstance(origin, dict) else {})


def load_made(path: str | Path) -> CurvatureProfile | Tuned:
    """Whatever can be stepped by: a profile, or what `Tuned.load` reads."""
    kind = kind_of(Path(path))
    if kind not in (PROFILE, FORMAT, SCHEDULE, SOLVER):
        raise FileError(
            f"{path} must be a {FORMAT}, {SCHEDULE}, {SOLVER} or {PROFILE} file, but its format is {kind!r}"
        )
    return CurvatureProfile.load(Path(path)) if kind == PROFILE else Tuned.load(path)


_SAME_STEP = {"euler": "ddim"}
"""Euler along the straight line to x0 is DDIM, step by step."""


def warn_of_another_solver(tuned_for: str | None, here: str, who: str, way_out: str) -> None:
    """The best steps for one solver are not the best for another: say so, naming both."""
    if tuned_for is not None and _SAME_STEP.get(tuned_for, tuned_for) != _SAME_STEP.get(here, here):
        how = "fitted with coefficients of their own" if tuned_for == FITTED else f"tuned for the solver {tuned_for}"
        warnings.warn(f"these steps were {how}, and {who}; tune for that solver, or {way_out}", stacklevel=4)


def _content(one: TunedSteps) -> dict[str, Any]:
    schedule, worth = one.schedule, one.today_steps
    fitted = one.made if isinstance(one.made, FittedSolver) else None
    return {
        "steps": one.steps,
        "solver": one.solver,
        "method": schedule.provenance.get("method", ""),
        "timesteps": schedule.timesteps.tolist(),
        "sigmas": schedule.sigmas.tolist(),
        "log_snr": schedule.log_snr.tolist(),
        "coefficients": fitted and [list(own) for own in fitted.coefficients],
        "guided": fitted and [list(own) for own in fitted.guided],
        "errors": {name: _summary(errors) for name, errors in one.errors.items()},
        "today_steps": None if worth is None else {part: getattr(worth, part) for part in ("value", "low", "high")},
    }


def _summary(errors: Array) -> dict[str, Any]:
    """Errors for a file: the mean and its interval for people, every sample for programs."""
    samples = _six_digits(*errors)
    mean = bootstrap_mean(np.array(samples))
    value, low, high = _six_digits(mean.value, mean.low, mean.high)
    return {"mean": value, "low": low, "high": high, "samples": samples}


def _six_digits(*numbers: float) -> list[float]:
    return [float(f"{number:.6g}") for number in numbers]


def _as_of_today(solver: dict[str, Any]) -> dict[str, Any]:
    """The content of an earlier version's solver.json as that of a file of one K."""
    provenance = _checked(solver, "provenance", dict)
    about = {"solver": FITTED, "method": provenance.get("method", ""), "errors": {}, "today_steps": None}
    made = {"measure": "rmse", "made_for": provenance.get("origin") or {}, "nfe": provenance.get("calls", 0)}
    none = dict.fromkeys(("today", "proved", "target_error"))
    return {**none, "seed": 0, **made, "results": [{**solver, **about}]}


def _made_for(content: dict[str, Any]) -> dict[str, Any]:
    """The model, if its weights can be compared with others."""
    if (weights := content.get("weights")) is not None:
        _checked(weights, "names_sha256", str)
        finite(weights["values"])
    return check_origin(content)


def _result(content: dict[str, Any]) -> TunedSteps:
    _checked(content, "steps", int)
    solver = _checked(content, "solver", str, or_null=True)
    schedule = StepSchedule.of_content(content, {"method": _checked(content, "method", str)})
    coefficients = _checked(content, "coefficients", list, or_null=True)
    if (coefficients is not None) != (solver == FITTED):
        raise ValueError(f"fitted steps have coefficients and others have none, these are for {solver}")
    guided = content.get("guided") or []  # earlier versions had none
    rows = [tuple(tuple(finite(own)) for own in some) for some in (coefficients or [], guided)]
    made = schedule if coefficients is None else FittedSolver(schedule, *rows)
    samples = {name: np.array(finite(of["samples"])) for name, of in _checked(content, "errors", dict).items()}
    if samples and {len(errors) for errors in samples.values()} != {len(next(iter(samples.values()))) or 1}:
        raise ValueError("all of its errors must be of the same samples, at least one")
    worth = _checked(content, "today_steps", dict, or_null=True)
    estimate = None if worth is None else Estimate(*finite([worth[part] for part in ("value", "low", "high")]))
    return TunedSteps(made, solver, samples, estimate)


def _today(content: dict[str, Any] | None) -> Today | None:
    if content is None:
        return None
    return Today(_checked(content, "solver", str), _checked(content, "steps", int), _checked(content, "spacing", str))


_WORDS = {str: "a text", int: "a whole number", dict: "an object", list: "a list"}


def _checked(content: dict[str, Any], name: str, kind: type, or_null: bool = False) -> Any:
    """A field of a file, if it has this type; True is no whole number here."""
    value = content[name]
    if (isinstance(value, kind) and not isinstance(value, bool)) or (or_null and value is None):
        return value
    raise ValueError(f"its {name} must be {_WORDS[kind]}{' or null' if or_null else ''}, got {value!r:.60}")
