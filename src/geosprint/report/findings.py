"""What lies in a directory that a report can show; what cannot be read is left out with a sentence."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from geosprint.comparison.results import FORMAT as COMPARISON
from geosprint.comparison.results import Comparison
from geosprint.errors import FileError, GeoSprintError
from geosprint.files import kind_of, read_json
from geosprint.paper.base import PaperFinding
from geosprint.paper.registry import FORMAT as FINDING
from geosprint.paper.registry import recall
from geosprint.profile import FORMAT as PROFILE
from geosprint.profile import CurvatureProfile
from geosprint.schedule import FORMAT as SCHEDULE
from geosprint.tuned import FORMAT as TUNED
from geosprint.tuned import SOLVER, Tuned

CommandRun = tuple[str, str]
"""A command, and where it ran."""


@dataclass(frozen=True, eq=False)
class Findings:
    """Everything that was found, by the name of its file."""

    profiles: dict[str, CurvatureProfile] = field(default_factory=dict)
    tuned: dict[str, Tuned] = field(default_factory=dict)  # schedules and fitted solvers are files of one K
    comparisons: dict[str, Comparison] = field(default_factory=dict)
    experiments: dict[str, PaperFinding] = field(default_factory=dict)
    named_runs: list[CommandRun] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # sentences

    @property
    def model(self) -> str | None:
        """The model that most of this is about."""
        models = [
            *(one.model for one in self.comparisons.values()),
            *(str(one.made_for["model"]) for one in self.tuned.values() if "model" in one.made_for),
            *(one.origin.model for one in self.profiles.values()),
            *(one.setting.model for one in self.experiments.values()),
        ]
        return models[0] if models else None

    @property
    def runs(self) -> list[CommandRun]:
        """Every command that the files name, or those that record such profiles."""
        return list(dict.fromkeys(self.named_runs or map(_extraction, self.profiles.values())))

    @property
    def facts(self) -> dict[str, str]:
        """Model, solver, seeds and sizes, each under its name."""
        facts: dict[str, str] = {}
        for comparison in self.comparisons.values():
            plan = comparison.plan
            facts |= {
                "Model": comparison.model,
                "Solver": ", ".join(plan.solvers),
                "Steps": ", ".join(map(str, plan.steps)),
                "Measured on": f"{plan.samples} samples, seeds {plan.fresh_seeds[0]:,} to {plan.fresh_seeds[-1]:,}",
                "Reference solve": f"{plan.fine_steps} Heun steps from the same noise",
                "Recorded": f"{plan.trajectories} trajectories of {plan.reference_steps} steps, seeds from {plan.seed}",
            }
        for tuned in self.tuned.values():
            if samples := _listed(len(errors) for one in tuned.results for errors in one.errors.values()):
                facts |= {
                    "Model": str(tuned.made_for.get("model", "unknown")),
                    "Steps": _listed(one.steps for one in tuned.results),
                    "Measured on": f"{samples} samples of held-out noise",
                    "Tuning": f"{tuned.nfe:,} network calls, seed {tuned.seed}",
                }
                facts |= {"Today": f"{tuned.today}, {tuned.today.spacing}"} if tuned.today else {}
        for profile in list(self.profiles.values())[:1]:
            facts |= {
                "Model": profile.origin.model,
                "Recorded": f"{len(profile.kept)} trajectories of {len(profile.timesteps) - 1} {profile.origin.solver} "
                f"steps, seeds {profile.seeds[0]} to {profile.seeds[-1]}, {profile.nfe:,} network calls",
            }
            if profile.origin.conditions:
                facts["Asked to draw"] = json.dumps(profile.origin.conditions)
        return facts


def found_in(directory: Path) -> Findings:
    """Everything in this directory, or a refusal if there is nothing."""
    if not directory.is_dir():
        raise FileError(f"a report is made of a directory, and {directory} is none; name one that a verb has left")
    findings = found_among(sorted([*directory.glob("*.json"), *directory.glob("*/finding.json")]), directory)
    if not any(getattr(findings, part) for part, _ in READERS.values()):
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
        try:
            kind = kind_of(file)
            if kind == OLD_RECORD:
                findings.left_out.append(f"{file.name} is the record of an earlier version of tune; tune again.")
            if kind in READERS:
                part, read = READERS[kind]
                getattr(findings, part)[str(file.relative_to(directory))] = read(file)
                content = read_json(file, kind)
                if command := _to_copy(content.get("command")):
                    findings.named_runs.append((command, str(content.get("machine", ""))))
        except GeoSprintError as wrong:
            findings.left_out.append(f"{wrong}.")
    return findings


def _to_copy(said: object) -> str | None:
    """The command that a file names as a shell would have to be given it, if it is one of ours: it may be copied."""
    try:
        words = shlex.split(str(said))
    except ValueError:  # a quotation that does not end
        return None
    return shlex.join(words) if words[:1] == ["geosprint"] else None


def _extraction(profile: CurvatureProfile) -> CommandRun:
    """The command that records such a profile; the profile itself does not keep the one that was typed."""
    origin = profile.origin
    command = (
        f"geosprint extract {shlex.quote(origin.model)} --trajectories {len(profile.kept)} "
        f"--reference-steps {len(profile.timesteps) - 1} --solver {shlex.quote(origin.solver)} --eta {origin.eta:g} "
        f"--target-score {profile.settings.target_score:g} --seed {profile.seeds[0]}"
    )
    return command, ", ".join(f"{name} {version}" for name, version in profile.versions.items())


def _listed(parts: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(map(str, parts)))


READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    PROFILE: ("profiles", CurvatureProfile.load),
    **dict.fromkeys((TUNED, SCHEDULE, SOLVER), ("tuned", Tuned.load)),
    COMPARISON: ("comparisons", Comparison.load),
    FINDING: ("experiments", lambda file: recall(file.parent)),
}
"""By the kind of a file: which part of the findings it belongs to, and its loader."""

OLD_RECORD = "geosprint-tuning"
