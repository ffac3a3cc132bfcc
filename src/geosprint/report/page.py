"""The report: one HTML page of everything that a directory holds, needing nothing else."""

from __future__ import annotations

import base64
import gzip
import json
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from geosprint import __version__
from geosprint.errors import ScheduleError
from geosprint.files import write_text
from geosprint.fitted_solver import FittedSolver
from geosprint.integrations.export import EXPORTS, export
from geosprint.report.charts import charts_of, stability_of
from geosprint.report.columns import (
    UNIFORM,
    UNIFORM_STEPS,
    Column,
    Curves,
    columns_of,
    for_script,
    looks,
    missing_parts,
)
from geosprint.report.comparison import best_file
from geosprint.report.findings import Findings, found_among, found_in
from geosprint.report.headline import headline
from geosprint.report.pictures import figure
from geosprint.report.tables import short
from geosprint.report.tuned import table_of
from geosprint.schedule import StepSchedule

TOOLS = {
    "geosprint": "geosprint: Python, beside your pipeline",
    "diffusers": "diffusers alone: Python, beside your pipeline",
    "comfyui": "ComfyUI: into the ManualSigmas node",
    "a1111": "A1111 and Forge: a scheduler in Python",
    "sdcpp": "stable-diffusion.cpp: options",
    "kdiffusion": "k-diffusion: Python",
    "vllm": "vLLM-Omni: Python",
    "sglang": "SGLang: options",
    "json": "JSON: timesteps and sigmas",
}

SIDE_BY_SIDE = "side-by-side.png"
"""Shown on top where it lies in the directory."""


def write_report(directory: Path, destination: Path, files: Sequence[Path] = ()) -> Path:
    """The report of everything in a directory, or of these files in it alone."""
    findings = found_among(files, directory) if files else found_in(directory)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whoever made these files was warned then
        parts = parts_of(findings, directory)
    text = _template().render(
        **parts,
        css=Markup(_room("report.css")),
        js=Markup(_room("report.js")),
        plotly=_plotly(),
        version=__version__,
    )
    return write_text(destination, text)


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return environment.from_string(_room("report.html"))


def _room(name: str) -> str:
    return (resources.files("geosprint.report") / name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    """The plotting library, packed: browsers unpack it, and the page is less than half as large."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode("ascii")


def parts_of(findings: Findings, directory: Path) -> dict[str, Any]:
    """Everything that the template shows, by name; `data` is for the script."""
    measured = columns_of(findings)
    curves, columns = Curves.of(measured), [column for column in measured if not column.is_longer]
    first, shown, texts = headline(findings, columns), for_script(columns), copyables(findings, columns, directory)
    profile = next(iter(findings.profiles.values()), None)
    bends = charts_of(profile) if profile else {}
    told = columns[first.column] if columns else None
    match = match_in(curves, told) if told else None
    of_headline = (i for i, one in enumerate(curves) if told and one.solver == told.solver)
    of_best = f"{told.label}: {told.rivals[0].name}" if told and told.rivals else None  # among the texts
    return {
        "findings": findings,
        "headline": first,
        "columns": columns,
        "curves": curves,
        "tuned": {name: table_of(tuned) for name, tuned in findings.tuned.items() if tuned.results[0].errors},
        "bends": bends,
        "stability": stability_of(profile) if profile else "",
        "side_by_side": figure(directory / SIDE_BY_SIDE),
        "figures": {file: figure((directory / file).parent / "figure.png") for file in findings.experiments},
        "tools": TOOLS,
        "left_out": [*findings.left_out, *_other_profiles(findings), *missing_parts(columns, shown)],
        "data": {
            "columns": shown,
            "column": first.column,
            "curves": [asdict(one) for one in curves],
            "curve": match["curve"] if match else next(of_headline, 0),
            "match": match,
            "looks": looks(list(dict.fromkeys((one.name, one.kind) for column in columns for one in column.entries))),
            "bends": {name: asdict(chart) for name, chart in bends.items()},
            "copyables": [{"name": name, "texts": of_tools} for name, of_tools in texts.items()],
            "copyable": list(texts).index(of_best) if of_best in texts else 0,
        },
    }


def match_in(curves: list[Curves], column: Column) -> dict[str, Any] | None:
    """The headline as something to draw: from the best schedule across to the calls of uniform steps that match it."""
    best = column.rivals[0] if column.rivals else None
    if not best or best.kind == UNIFORM or not best.is_matched or column.ruler != UNIFORM_STEPS:
        return None
    matched, error = best.matched, best.error
    for i, one in enumerate(curves):
        if matched and error and (one.solver, one.metric) == (column.solver, "rmse") and (uniform := one.uniform_calls):
            ends = [column.steps, matched.value, matched.low, matched.high]
            calls = short(np.interp(ends, list(uniform), list(uniform.values())))
            return {"curve": i, "name": best.name, "error": error.value, "calls": calls, "matches": str(matched)}
    return None


def copyables(findings: Findings, columns: list[Column], directory: Path) -> dict[str, dict[str, str]]:
    """By name, the text for each tool that can take it: files first, then what was measured, lowest error first."""
    found = {}
    for name, tuned in findings.tuned.items():
        for k in tuned.steps:
            label = name if len(tuned.results) == 1 else f"{name}: {k} steps"
            found[label] = _applied(name, k) | _texts(tuned[k])
    for column in columns:
        file = best_file(column.solver, column.steps)
        best = next((one for one in column.rivals if one.of_files), None)
        for one in column.entries if column.ruler == UNIFORM_STEPS and column.steps else []:
            is_filed = one is best and (directory / file).exists()
            by_us = _applied(file, column.steps) if is_filed else {}
            found |= {f"{column.label}: {one.name}": by_us | _texts(one.of_files)} if one.of_files else {}
    return found


def _applied(file: str, steps: int) -> dict[str, str]:
    lines = f"geosprint.apply(pipe, {json.dumps(file)})\nimages = pipe(prompt, num_inference_steps={steps}).images\n"
    return {"geosprint": f"import geosprint\n\n{lines}"}


def _texts(made: StepSchedule | FittedSolver) -> dict[str, str]:
    """Of the tools that take these steps as they are: many take sigmas, and would lose the coefficients."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for tool in EXPORTS:
            with suppress(UserWarning, ScheduleError, AttributeError, KeyError, TypeError, ValueError):
                found[tool] = export(made, tool)
    return found


def _other_profiles(findings: Findings) -> list[str]:
    shown, *others = findings.profiles or [""]
    return [f"One profile is shown, {shown}; not shown: {', '.join(others)}."] if others else []
