"""The report: one HTML page of everything that a directory holds, needing nothing else."""

from __future__ import annotations

import base64
import gzip
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from geosprint import __version__
from geosprint.files import write_text
from geosprint.profile import CurvatureProfile
from geosprint.report import curves, side_by_side
from geosprint.report.charts import bends_of, looks, stability_of, tables_of
from geosprint.report.columns import Column, columns_of
from geosprint.report.facts import TOOLS, Copyable, Run, copyables, facts_of, measured_name, runs_of
from geosprint.report.findings import Findings, found_among, found_in
from geosprint.report.headline import Headline, headline
from geosprint.report.side_by_side import figure
from geosprint.report.tables import Table, number


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
        page = page_of(findings, directory)
    text = _template().render(
        page=page,
        data=_for_script(page.data),
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


@dataclass(frozen=True)
class Shown:
    """What one experiment of the paper found."""

    name: str
    verdict: str
    figure: str | None  # a data URI


@dataclass(frozen=True)
class Page:
    """Everything that the template and the script need."""

    title: str
    headline: Headline
    facts: dict[str, str]
    runs: list[Run]
    data: dict[str, Any]  # for the script
    columns: list[Column]
    column_tables: list[Table]
    curve_tables: list[Table]
    bend_tables: dict[str, Table]
    stability: str
    fitted: list[Table]
    experiments: list[Shown]
    tools: dict[str, str]
    left_out: list[str]


def page_of(findings: Findings, directory: Path) -> Page:
    """The page of these findings."""
    columns = columns_of(findings)
    told = headline(findings, columns)
    all_curves = curves.curves_of(findings.comparisons.values())
    side = side_by_side.series_of(columns)
    profile = next(iter(findings.profiles.values()), None)
    bends = bends_of(profile) if profile else None
    texts = copyables(findings, columns)
    return Page(
        title=_title(findings),
        headline=told,
        facts=facts_of(findings),
        runs=runs_of(findings),
        data={
            "columns": side,
            "column": told.column,
            "curves": all_curves,
            "metrics": curves.METRICS,
            "match": curves.match_in(all_curves, columns[told.column]) if all_curves and columns else None,
            "looks": looks(list(dict.fromkeys((one.name, one.kind) for column in columns for one in column.entries))),
            "bends": bends,
            "copyables": [vars(one) for one in texts],
            "copyable": _told_of(told, columns, texts),
        },
        columns=columns,
        column_tables=[side_by_side.table_of(column) for column in columns],
        curve_tables=[curves.table_of(one) for one in all_curves],
        bend_tables=tables_of(bends) if bends else {},
        stability=stability_of(profile) if profile else "",
        fitted=_fitted(findings),
        experiments=_experiments(findings, directory),
        tools=TOOLS,
        left_out=[*findings.left_out, *_other_profiles(findings.profiles), *side_by_side.missing_parts(columns, side)],
    )


def _title(findings: Findings) -> str:
    """The model, or what else the page is about."""
    models = [
        *(one.model for one in findings.comparisons.values()),
        *(one.origin.model for one in findings.tunings.values()),
        *(one.origin.model for one in findings.profiles.values()),
        *(one.finding.setting.model for one in findings.experiments.values()),
    ]
    return models[0] if models else "schedules"


def _told_of(told: Headline, columns: list[Column], texts: list[Copyable]) -> int:
    """Which text is that of the schedule in the headline; the first one, if it is not among them."""
    column = columns[told.column] if columns else None
    name = measured_name(column, column.rivals[0]) if column and column.rivals else None
    return next((i for i, one in enumerate(texts) if one.name == name), 0)


def _other_profiles(profiles: dict[str, CurvatureProfile]) -> list[str]:
    shown, *others = profiles or [""]
    return [f"One profile is shown, {shown}; not shown: {', '.join(others)}."] if others else []


def _fitted(findings: Findings) -> list[Table]:
    tables = []
    for name, fitted in findings.solvers.items():
        errors = fitted.validation.get("rmse")
        lines = [[str(solver), number(error)] for solver, error in errors.items()] if isinstance(errors, dict) else []
        tables.append(Table(["solver", "RMSE"], lines, f"{name}: {len(fitted)} steps, on held-out trajectories."))
    return tables


def _experiments(findings: Findings, directory: Path) -> list[Shown]:
    return [
        Shown(one.finding.name, one.finding.verdict, figure((directory / file).parent / "figure.png"))
        for file, one in findings.experiments.items()
    ]
