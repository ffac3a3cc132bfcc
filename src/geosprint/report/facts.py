"""What was run on what, how to run it again, and schedules in the words of other tools."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from geosprint.errors import ScheduleError
from geosprint.integrations.export import export
from geosprint.profile import CurvatureProfile
from geosprint.report.columns import Column, Entry
from geosprint.report.findings import Findings
from geosprint.schedule import StepSchedule


@dataclass(frozen=True)
class Run:
    """A command, and where it ran."""

    command: str
    where: str


def facts_of(findings: Findings) -> dict[str, str]:
    """Model, solver, seeds and sizes, each under its name."""
    facts: dict[str, str] = {}
    for comparison in findings.comparisons.values():
        plan = comparison.plan
        facts |= {
            "Model": comparison.model,
            "Solver": ", ".join(plan.solvers),
            "Steps": ", ".join(map(str, plan.steps)),
            "Judged on": f"{plan.samples} samples, seeds {plan.fresh_seeds[0]:,} to {plan.fresh_seeds[-1]:,}",
            "The truth": f"{plan.fine_steps} Heun steps from the same noise",
            "Recorded": f"{plan.trajectories} trajectories of {plan.reference_steps} steps, seeds from {plan.seed}",
        }
    for tuned in findings.tunings.values():
        facts |= {
            "Model": tuned.origin.model,
            "Solver": _listed(one.solver for one in tuned.judged),
            "Steps": _listed(one.steps for one in tuned.judged),
            "Judged on": _listed(len(one.errors[one.chosen]) for one in tuned.judged) + " unseen samples",
            "Network calls": ", ".join(f"{one.nfe:,}" for one in tuned.judged),
            "Seeds": f"from {tuned.seed}",
        }
    for profile in findings.profiles.values():
        facts |= {
            "Model": profile.origin.model,
            "Recorded": f"{len(profile.kept)} trajectories of {len(profile.timesteps) - 1} {profile.origin.solver} "
            f"steps, seeds {profile.seeds[0]} to {profile.seeds[-1]}, {profile.nfe:,} network calls",
        }
        if profile.origin.conditions:
            facts["Asked to draw"] = json.dumps(profile.origin.conditions)
        break
    return facts


def _listed(parts: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(map(str, parts)))


def runs_of(findings: Findings) -> list[Run]:
    """Every command that the files name."""
    found = [Run(one.command, one.machine) for one in findings.comparisons.values()]
    found += [Run(one.command, one.machine) for one in findings.tunings.values()]
    found += [Run(one.command, one.machine) for one in findings.experiments.values()]
    if not found:
        found = [_extraction(profile) for profile in findings.profiles.values()]
    return list(dict.fromkeys(found))


def _extraction(profile: CurvatureProfile) -> Run:
    """The command that records such a profile; the profile itself does not keep the one that was typed."""
    settings, origin = profile.settings, profile.origin
    command = (
        f"geosprint extract {origin.model} --trajectories {len(profile.kept)} "
        f"--reference-steps {len(profile.timesteps) - 1} --solver {origin.solver} --eta {origin.eta:g} "
        f"--window {settings.window} --levels {settings.levels} --target-score {settings.target_score:g} "
        f"--search {settings.search} --space {settings.space} --normalisation {settings.normalisation} "
        f"--seed {profile.seeds[0]}"
    )
    return Run(command, ", ".join(f"{name} {version}" for name, version in profile.versions.items()))


TOOLS = {
    "diffusers": "diffusers: Python, beside your pipeline",
    "comfyui": "ComfyUI: into the ManualSigmas node",
    "a1111": "A1111 and Forge: a scheduler in Python",
    "sdcpp": "stable-diffusion.cpp: an option",
    "kdiffusion": "k-diffusion: Python",
    "json": "JSON: timesteps and sigmas",
}
"""All but comfyui-node, which is the same for all schedules and long: `geosprint export` writes it."""


@dataclass(frozen=True)
class Copyable:
    """One schedule and its text for each tool."""

    name: str
    texts: dict[str, str]


def copyables(findings: Findings, columns: list[Column]) -> list[Copyable]:
    """Schedules of files first, then those that were measured, nearest first."""
    found = dict(findings.schedules)
    for column in columns:
        for entry in column.entries:
            if entry.schedule is not None and column.steps and not entry.own_solver:
                found[measured_name(column, entry)] = entry.schedule
    return [Copyable(name, {tool: _text(schedule, tool) for tool in TOOLS}) for name, schedule in found.items()]


def measured_name(column: Column, entry: Entry) -> str:
    """Under which a schedule that was measured stands in the list."""
    return f"{column.label}: {entry.name}"


def _text(schedule: StepSchedule, tool: str) -> str:
    try:
        return export(schedule, tool)
    except (ScheduleError, AttributeError, KeyError, TypeError, ValueError) as wrong:
        return f"# not for this schedule: {wrong}\n"
