"""All experiments by name, in the order of the paper: run them, and keep what they found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from geosprint.errors import FileError, GeoSprintError, ScheduleError, TeamError
from geosprint.files import as_csv, read_json, refusing_damage, write_json, write_text
from geosprint.paper.base import PaperFinding, Setting
from geosprint.paper.blend import BLEND
from geosprint.paper.budget import BUDGET
from geosprint.paper.claims import PaperExperiment
from geosprint.paper.convergence import CONVERGENCE
from geosprint.paper.fid_vs_nfe import FID_VS_NFE
from geosprint.paper.guidance import GUIDANCE
from geosprint.paper.leading import LEADING
from geosprint.paper.overhead import OVERHEAD
from geosprint.paper.per_sample import PER_SAMPLE
from geosprint.paper.reflow import REFLOW
from geosprint.paper.solver_order import SOLVER_ORDER
from geosprint.paper.straightness import STRAIGHTNESS
from geosprint.paper.where import WHERE
from geosprint.paper.window import WINDOW
from geosprint.report.machine import machine
from geosprint.report.plots import saved
from geosprint.runs.team import this_team

EXPERIMENTS: dict[str, PaperExperiment] = {
    experiment.name: experiment
    for experiment in (
        *(FID_VS_NFE, LEADING, SOLVER_ORDER, BUDGET, BLEND, WINDOW, STRAIGHTNESS),
        *(REFLOW, WHERE, CONVERGENCE, PER_SAMPLE, GUIDANCE, OVERHEAD),
    )
}
CLAIMS = {text: (one.name, claim) for one in EXPERIMENTS.values() for text, claim in one.claims.items()}
"""Every claim, and the experiment that tests it."""
FORMAT = "geosprint-finding"


def named_experiments(name: str) -> list[PaperExperiment]:
    """One experiment, or all of them."""
    if name != "all" and name not in EXPERIMENTS:
        raise ScheduleError(f"the experiment must be all or one of {', '.join(EXPERIMENTS)}, got {name!r}")
    return list(EXPERIMENTS.values()) if name == "all" else [EXPERIMENTS[name]]


def reproduce(
    name: str, setting: Setting, out: Path, command: str, quick: bool = False
) -> Iterator[PaperFinding | str]:
    """Run one experiment or all; of all, one that the model is not made for is named and left out."""
    for experiment in named_experiments(name):
        asked = replace(setting, **experiment.quick) if quick else setting
        try:
            finding = experiment.run(asked)
        except GeoSprintError as wrong:
            if name != "all" or isinstance(wrong, TeamError):
                raise
            yield f"{experiment.name}: left out, {wrong}"
            continue
        if this_team().leads:
            keep(finding, out / experiment.name, command)
        yield finding


def keep(finding: PaperFinding, directory: Path, command: str) -> list[Path]:
    """rows.csv, finding.json and figure.png."""
    setting = {name: value for name, value in asdict(finding.setting).items() if name != "progress"}
    content = {
        "name": finding.name,
        "command": command,
        "machine": machine(),
        "setting": setting,
        "verdict": finding.verdict,
        "numbers": finding.numbers,
        "rows": finding.rows,
    }
    return [
        write_text(directory / "rows.csv", as_csv(finding.rows)),
        write_json(directory / "finding.json", FORMAT, content),
        saved(EXPERIMENTS[finding.name].draw(finding), directory / "figure.png"),
    ]


def recall(directory: Path) -> PaperFinding:
    """What `keep` wrote, without running anything."""
    content = read_json(directory / "finding.json", FORMAT)
    with refusing_damage(directory / "finding.json"):
        known = {part.name for part in fields(Setting)}
        given: dict[str, Any] = {name: value for name, value in content["setting"].items() if name in known}
        setting = Setting(**{**given, "steps": tuple(given["steps"]), "prompts": tuple(given["prompts"])})
        return PaperFinding(content["name"], setting, content["rows"], content["numbers"], content["verdict"])


def read_findings(directory: Path) -> dict[str, dict[str, PaperFinding]]:
    """All findings under a directory, by experiment and model."""
    found: dict[str, dict[str, PaperFinding]] = {}
    for path in sorted(Path(directory).rglob("finding.json")):
        finding = recall(path.parent)
        found.setdefault(finding.name, {})[finding.setting.model] = finding
    if not found:
        raise FileError(f"expected finding.json files under {directory}, found none; run `geosprint reproduce` first")
    return found
