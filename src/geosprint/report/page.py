"""The report: one HTML page of everything that a directory holds, needing nothing else."""

from __future__ import annotations

import base64
import gzip
import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from geosprint import __version__
from geosprint.errors import ScheduleError
from geosprint.files import write_text
from geosprint.integrations.export import export
from geosprint.report import columns as side_by_side
from geosprint.report.charts import METRICS, Bends, Curves, looks, short, stability_of
from geosprint.report.columns import Column, columns_of
from geosprint.report.findings import Findings, found_among, found_in
from geosprint.report.headline import Headline, headline
from geosprint.report.pictures import figure
from geosprint.report.tables import Table, number
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


def write_report(directory: Path, destination: Path) -> Path:
    """The report of everything in a directory."""
    directory = Path(directory)
    return _write(found_in(directory), directory, Path(destination))


def write_report_of(sources: Sequence[Path], destination: Path) -> Path:
    """The report of these files alone, which lie in one directory."""
    directory = Path(sources[0]).parent
    return _write(found_among(sources, directory), directory, Path(destination))


def _write(findings: Findings, directory: Path, destination: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whoever made these files was warned then
        parts = parts_of(findings, directory)
    text = _template().render(
        **parts,
        json=_for_script(parts["data"]),
        css=Markup(_room("report.css")),
        js=Markup(_room("report.js")),
        plotly=_plotly(),
        version=__version__,
    )
    return write_text(destination, text)


def _for_script(content: Any) -> Markup:
    """JSON inside a script element: `</script>` and `<!--` can neither end nor open anything there."""
    text = json.dumps(content, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_room("report.html"))


def _room(name: str) -> str:
    return (files("geosprint.report") / name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    """The plotting library, packed: browsers unpack it, and the page is less than half as large."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode("ascii")


def parts_of(findings: Findings, directory: Path) -> dict[str, Any]:
    """Everything that the template shows, by name; `data` is for the script."""
    columns, curves = columns_of(findings), Curves.of(findings.comparisons.values())
    first = headline(findings, columns)
    shown, texts = side_by_side.for_script(columns), copyables(findings, columns)
    profile = next(iter(findings.profiles.values()), None)
    bends = Bends.of(profile) if profile else None
    return {
        "findings": findings,
        "headline": first,
        "columns": columns,
        "curves": curves,
        "bend_tables": bends.tables if bends else {},
        "stability": stability_of(profile) if profile else "",
        "fitted": _fitted(findings),
        "figures": {file: figure((directory / file).parent / "figure.png") for file in findings.experiments},
        "tools": TOOLS,
        "left_out": [*findings.left_out, *_other_profiles(findings), *side_by_side.missing_parts(columns, shown)],
        "data": {
            "columns": shown,
            "column": first.column,
            "curves": [asdict(one) for one in curves],
            "metrics": METRICS,
            "match": match_in(curves, columns[first.column]) if curves and columns else None,
            "looks": looks(list(dict.fromkeys((one.name, one.kind) for column in columns for one in column.entries))),
            "bends": asdict(bends) if bends else None,
            "copyables": [{"name": name, "texts": of_tools} for name, of_tools in texts.items()],
            "copyable": _of_headline(first, columns, list(texts)),
        },
    }


def match_in(curves: list[Curves], column: Column) -> dict[str, Any] | None:
    """The headline as something to draw: from the best schedule across to the calls of uniform steps that match it."""
    best = column.rivals[0]
    matched, error = best.uniform_steps, best.error
    if not best.is_matched or matched is None or error is None:
        return None
    for i, one in enumerate(curves):
        if (one.solver, one.metric) == (column.solver, "rmse") and (uniform := one.uniform_calls):
            ends = [column.steps, matched.value, matched.low, matched.high]
            calls = short(np.interp(ends, list(uniform), list(uniform.values())))
            return {"curve": i, "name": best.name, "error": error.value, "calls": calls, "matches": best.matches}
    return None


def copyables(findings: Findings, columns: list[Column]) -> dict[str, dict[str, str]]:
    """By the name of a schedule, its text for each tool: files first, then what was measured, lowest error first."""
    found = dict(findings.schedules)
    for column in columns:
        for entry in column.entries:
            if entry.schedule is not None and column.steps and not entry.own_solver:
                found[f"{column.label}: {entry.name}"] = entry.schedule
    return {name: {tool: _text(schedule, tool) for tool in TOOLS} for name, schedule in found.items()}


def _text(schedule: StepSchedule, tool: str) -> str:
    try:
        return export(schedule, tool)
    except (ScheduleError, AttributeError, KeyError, TypeError, ValueError) as wrong:
        return f"# not for this schedule: {wrong}\n"


def _of_headline(first: Headline, columns: list[Column], names: list[str]) -> int:
    """Which text is that of the schedule in the headline; the first one, if it is not among them."""
    column = columns[first.column] if columns else None
    name = f"{column.label}: {column.rivals[0].name}" if column and column.rivals else None
    return names.index(name) if name in names else 0


def _other_profiles(findings: Findings) -> list[str]:
    shown, *others = findings.profiles or [""]
    return [f"One profile is shown, {shown}; not shown: {', '.join(others)}."] if others else []


def _fitted(findings: Findings) -> list[Table]:
    tables = []
    for name, fitted in findings.solvers.items():
        errors = fitted.validation.get("rmse")
        lines = [[str(solver), number(error)] for solver, error in errors.items()] if isinstance(errors, dict) else []
        tables.append(Table(["solver", "RMSE"], lines, f"{name}: {len(fitted)} steps, on held-out noise."))
    return tables
