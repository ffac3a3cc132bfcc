"""Schedules in the words of other tools, to be copied."""

from __future__ import annotations

from dataclasses import dataclass

from geosprint.errors import ScheduleError
from geosprint.integrations.export import export
from geosprint.page.columns import Column, Entry
from geosprint.page.findings import Findings
from geosprint.schedule import StepSchedule

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
