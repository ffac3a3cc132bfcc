"""What lies in a directory that a report can show; what cannot be read is left out with a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from geosprint import fitted_solver as solvers
from geosprint.comparison import results as comparisons
from geosprint.comparison.results import Comparison
from geosprint.errors import FileError, GeoSprintError
from geosprint.files import kind_of, read_json
from geosprint.fitted_solver import FittedSolver
from geosprint.paper.base import Finding
from geosprint.paper.registry import FORMAT as FINDING
from geosprint.paper.registry import recall
from geosprint.profile import FORMAT as PROFILE
from geosprint.profile import CurvatureProfile
from geosprint.schedule import FORMAT as SCHEDULE
from geosprint.schedule import StepSchedule
from geosprint.tuning import result as tunings
from geosprint.tuning.result import TuningRecord


@dataclass(frozen=True)
class Experiment:
    """What an experiment of the paper found, and the command that ran it."""

    finding: Finding
    command: str
    machine: str


@dataclass(frozen=True, eq=False)
class Findings:
    """Everything that was found, by the name of its file."""

    profiles: dict[str, CurvatureProfile] = field(default_factory=dict)
    schedules: dict[str, StepSchedule] = field(default_factory=dict)
    solvers: dict[str, FittedSolver] = field(default_factory=dict)
    comparisons: dict[str, Comparison] = field(default_factory=dict)
    tunings: dict[str, TuningRecord] = field(default_factory=dict)
    experiments: dict[str, Experiment] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)  # sentences

    @property
    def is_empty(self) -> bool:
        """Nothing to show."""
        parts: tuple[dict[str, Any], ...] = (
            self.profiles, self.schedules, self.solvers, self.comparisons, self.tunings, self.experiments,
        )  # fmt: skip
        return not any(parts)


def found_in(directory: Path) -> Findings:
    """Everything in this directory, or a refusal if there is nothing."""
    if not directory.is_dir():
        raise FileError(f"a report is made of a directory, and {directory} is none; name one that a verb has left")
    findings = found_among(sorted([*directory.glob("*.json"), *directory.glob("*/finding.json")]), directory)
    if findings.is_empty:
        why = " ".join(findings.left_out)
        raise FileError(
            f"{directory} holds nothing that a report can show; name a directory that compare, demo, tune, extract or "
            f"reproduce has left{f'. {why}' if why else ''}"
        )
    return findings


def found_among(files: Iterable[Path], directory: Path) -> Findings:
    """What these files hold; each is read by the loader of its own kind."""
    findings = Findings()
    for file in files:
        name = str(file.relative_to(directory))
        try:
            kind = kind_of(file)
            if kind in READERS:
                part, read = READERS[kind]
                getattr(findings, part)[name] = read(file)
        except GeoSprintError as wrong:
            findings.left_out.append(f"{wrong}.")
    return findings


def _experiment(file: Path) -> Experiment:
    content = read_json(file, FINDING)
    return Experiment(recall(file.parent), str(content.get("command", "")), str(content.get("machine", "")))


READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    PROFILE: ("profiles", CurvatureProfile.load),
    SCHEDULE: ("schedules", StepSchedule.load),
    solvers.FORMAT: ("solvers", FittedSolver.load),
    comparisons.FORMAT: ("comparisons", Comparison.load),
    tunings.FORMAT: ("tunings", tunings.load_record),
    FINDING: ("experiments", _experiment),
}
