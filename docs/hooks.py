"""Pages of the site that are made when it is built: from the code, from README and from findings."""

from __future__ import annotations

import json
import posixpath
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import click
import typer
from mkdocs.structure.files import File, Files

import geosprint
from geosprint.cli import app

DOCS = Path(__file__).parent
ROOT = DOCS.parent
BORROWED = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "LICENSE": "licence.md",
}
"""Files beside docs/ that are pages of the site, and their names there."""
FIRST = (
    "geosprint.models.registry",
    "geosprint.extraction",
    "geosprint.schedule",
    "geosprint.sampling",
    "geosprint.tuning.run",
    "geosprint.fitting.fit",
    "geosprint.comparison.run",
    "geosprint.integrations.apply",
)
"""Modules that a reader looks for first."""
WIDE = 7  # columns of a table that needs all the room there is
LINK = re.compile(r"(\]\()([^)\s#]+)")


def on_files(files: Files, config: Any) -> Files:
    """Add every page that no file in docs/ holds."""
    pages = {name: borrowed(source) for source, name in BORROWED.items()}
    pages |= {"commands.md": commands(), "api.md": api()}
    for folder in sorted((DOCS / "results" / "reproduce").iterdir()):
        pages[f"results/reproduce/{folder.name}/index.md"] = findings(folder)
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    for path in (ROOT / "CITATION.cff", *sorted((ROOT / "examples").glob("*.*"))):
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """A link to a directory is one to its page, and one to a file beside docs/ is one to its page here."""
    is_wide = re.search(rf"^\|([^|\n]*\|){{{WIDE},}}$", markdown, re.MULTILINE)
    if is_wide or not re.search(r"^## ", markdown, re.MULTILINE):
        page.meta["hide"] = ["toc"]  # leaves its room to the page
    here = posixpath.dirname(page.file.src_uri)
    return LINK.sub(lambda link: link[1] + _target(link[2], here), markdown)


def _target(link: str, here: str) -> str:
    if "://" in link:
        return link
    place = posixpath.normpath(posixpath.join(here, link))
    if place.startswith("../") and place[3:] in BORROWED:
        return posixpath.relpath(BORROWED[place[3:]], here or ".")
    if (DOCS / place).is_dir():
        return f"{link.rstrip('/')}/{'README.md' if (DOCS / place / 'README.md').exists() else 'index.md'}"
    return link


def borrowed(source: str) -> str:
    """A file from beside docs/, with its links as they are from inside."""
    text = (ROOT / source).read_text(encoding="utf-8")
    if source == "LICENSE":
        return f"# Licence\n\n```text\n{text}```\n"
    return LINK.sub(lambda link: link[1] + BORROWED.get(link[2], link[2].removeprefix("docs/")), text)


def commands() -> str:
    """Every verb with its arguments and options, as `--help` tells them."""
    group = typer.main.get_command(app)
    context = click.Context(group, info_name="geosprint")
    parts = [
        "# Commands",
        _plain(group.help),
        "Every verb explains itself with `--help`. This page is made from the code.",
    ]
    for name in group.list_commands(context):
        verb = group.get_command(context, name)
        parts += [f"## geosprint {name}", _plain(verb.help), *_panels(verb, context)]
    return "\n\n".join(parts) + "\n"


def _panels(verb: Any, context: click.Context) -> list[str]:
    panels: dict[str, list[str]] = defaultdict(list)
    for parameter in verb.params:
        if parameter.name != "help":
            panels[getattr(parameter, "rich_help_panel", None) or ""].append(_row(parameter, context))
    tables = []
    for title, rows in panels.items():
        head = "| | | if left out |\n|---|---|---|\n"
        tables.append((f"**{title}**\n\n" if title else "") + head + "\n".join(rows))
    return tables


def _row(parameter: Any, context: click.Context) -> str:
    is_argument = parameter.param_type_name == "argument"
    names = [parameter.metavar or parameter.name.upper()] if is_argument else parameter.opts
    default = parameter.get_default(context, call=False)
    without = (
        "it must be given" if parameter.required else "" if default is None or default is False else f"`{default}`"
    )
    words = ", ".join(f"`{name}`" for name in names)
    return f"| {words} | {_plain(getattr(parameter, 'help', '') or '')} | {without} |"


def _plain(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def api() -> str:
    """The public names, by the module they live in."""
    homes: dict[str, list[str]] = {home: [] for home in FIRST}
    for name in geosprint.__all__:
        homes.setdefault(geosprint._HOMES[name], []).append(name)
    parts = [
        "# Python",
        "Every name here is had from the package itself: `geosprint.NAME`. This page is made from the code.",
    ]
    for home, names in homes.items():
        parts.append(f"## {home.removeprefix('geosprint.')}")
        parts += [_entry(home, name) for name in names]
    return "\n\n".join(parts) + "\n"


def _entry(home: str, name: str) -> str:
    """A name's place in the code, which mkdocstrings reads; of a registry, what it holds."""
    value = getattr(geosprint, name)
    if isinstance(value, dict):
        return f"### {name}\n\nBy name: {', '.join(f'`{key}`' for key in value)}."
    return f"::: {home}.{name}"


def findings(folder: Path) -> str:
    """What the paper's experiments found on one model, with their figures."""
    parts = [f"# The paper's experiments on {folder.name}"]
    for path in sorted(folder.glob("*/finding.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        name = path.parent.name
        parts += [f"## {name}", found["verdict"], f"`{found['command']}` ({found['machine']}), [rows]({name}/rows.csv)"]
        if (path.parent / "figure.png").exists():
            parts.append(f"![Figure of {name} on {folder.name}]({name}/figure.png)")
    return "\n\n".join(parts) + "\n"
