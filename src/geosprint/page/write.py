"""The report as one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import gzip
import json
import warnings
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from geosprint import __version__
from geosprint.files import write_text
from geosprint.page.content import page_of
from geosprint.page.findings import Findings, found_among, found_in


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
    return (files("geosprint.page") / name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    """The plotting library, packed: browsers unpack it, and the page is less than half as large."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode("ascii")
