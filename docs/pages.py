"""Writes the sources of the site: the pages of docs/, and pages made from the code, the README and findings.

`python docs/pages.py DIRECTORY` fills DIRECTORY; Sphinx builds the site from it (`make docs`).
"""

from __future__ import annotations

import json
import posixpath
import re
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import click
import typer

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
COPIED = (".md", ".png", ".svg", ".csv", "measure.py", "schema.json")
"""What the names of files end with that the site shows or links to."""
CONTENTS = {
    "Get started": ("tutorial", "which-schedule"),
    "Guides": ("pipelines", "comfyui", "serving", "own-model", "tune", "fit", "compare", "big-models"),
    "Reference": ("commands", "api", "method", "choices", "tune-choices"),
    "Results": (
        "results/README",
        "results/tune/README",
        "results/tune/fits",
        "results/tune/*",
        "results/gaussian/README",
        "results/digits/README",
        "results/fashion/README",
        "results/fashion-flow/README",
        "results/cifar10/README",
        "results/scenes/README",
        "claims",
    ),
    "Bundled networks": (
        "models/fashion",
        "models/fashion-flow",
        "models/fashion-reflow",
        "models/cifar10",
        "models/scenes",
        "models/fashion-classifier",
    ),
    "Project": ("changelog", "contributing", "licence"),
}
"""The sidebar: sections and their pages. Sphinx warns of a page that is in none."""
UNLISTED = ("results/tune/*/*", "results/reproduce/*/*")
"""Pages that others link to and that the sidebar leaves out."""
API = {
    "Find a schedule": ("tune", "fit", "extract", "build_schedule", "find_budget", "compare"),
    "Use it": ("apply", "export", "sample", "record", "load_pipeline"),
    "Models": ("load_model", "path_of", "as_model", "Model", "Network", "PipelineInputs"),
    "Noise schedules": ("NoiseSchedule", "DiscreteVP", "ContinuousVP", "Flow"),
    "What they return": (
        "Tuned",
        "FittedSolver",
        "StepSchedule",
        "CurvatureProfile",
        "Comparison",
        "Budget",
        "Trajectories",
    ),
}
"""The public names, by what a reader looks for; what is in no group comes last."""
WIDE = 7  # columns of a table that needs the whole width
LINK = re.compile(r"(\]\()([^)\s#]+)")


def write_sources(destination: Path) -> None:
    """Every page of the site, as Markdown, with the files that pages show or link to."""
    shutil.rmtree(destination, ignore_errors=True)
    shutil.copytree(DOCS, destination, ignore=_left_out)
    for path in (ROOT / "CITATION.cff", *(ROOT / "examples").glob("*.*")):
        target = destination / path.relative_to(ROOT)
        target.parent.mkdir(exist_ok=True)
        shutil.copy(path, target)
    for name, text in made_pages().items():
        (destination / name).write_text(text, encoding="utf-8")
    for page in destination.rglob("*.md"):
        name = page.relative_to(destination)
        text = page.read_text(encoding="utf-8")
        page.write_text(_front_matter(name, text) + _with_links_of_the_site(text, name), encoding="utf-8")


def _left_out(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not ((Path(folder) / name).is_dir() or name.endswith(COPIED))]


def made_pages() -> dict[str, str]:
    """The pages that no file in docs/ holds."""
    pages = {name: borrowed(source) for source, name in BORROWED.items()}
    pages["index.md"] += contents()
    pages |= {"commands.md": commands(), "api.md": api()}
    for folder in sorted((DOCS / "results" / "reproduce").iterdir()):
        pages[f"results/reproduce/{folder.name}/index.md"] = findings(folder)
    return pages


def _front_matter(name: Path, text: str) -> str:
    settings = ["orphan: true"] if any(name.match(pattern) for pattern in UNLISTED) else []
    is_wide = re.search(rf"^\|([^|\n]*\|){{{WIDE},}}$", text, re.MULTILINE)
    if is_wide or not re.search(r"^## ", text, re.MULTILINE):
        settings.append("hide-toc: true")
    return "\n".join(["---", *settings, "---", "", ""]) if settings else ""


def _with_links_of_the_site(text: str, name: Path) -> str:
    """A link to a directory becomes one to its page, and one to a file beside docs/ one to its page here."""
    here = name.parent.as_posix()
    return LINK.sub(lambda link: link[1] + _target(link[2], here), text)


def _target(link: str, here: str) -> str:
    if "://" in link:
        return link
    path = posixpath.normpath(posixpath.join(here, link))
    if path.startswith("../") and path[3:] in BORROWED:
        return posixpath.relpath(BORROWED[path[3:]], here)
    if (DOCS / path).is_dir():
        return f"{link.rstrip('/')}/{'README.md' if (DOCS / path / 'README.md').exists() else 'index.md'}"
    return link


def borrowed(source: str) -> str:
    """A file from beside docs/, with its links as they are from inside."""
    text = (ROOT / source).read_text(encoding="utf-8")
    if source == "LICENSE":
        return f"# Licence\n\n```text\n{text}```\n"
    return LINK.sub(lambda link: link[1] + BORROWED.get(link[2], link[2].removeprefix("docs/")), text)


def contents() -> str:
    """The sidebar, as Sphinx takes it: hidden trees at the end of the front page."""
    trees = [
        "\n".join(["", "```{toctree}", ":hidden:", ":glob:", f":caption: {title}", "", *pages, "```", ""])
        for title, pages in CONTENTS.items()
    ]
    return "".join(trees)


def commands() -> str:
    """Every verb with its arguments and options, as `--help` tells them."""
    group = typer.main.get_command(app)
    context = click.Context(group, info_name="geosprint")
    parts = [
        "# Commands",
        _plain(group.help),
        "Every command explains itself with `--help`. This page is generated from the code.",
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
        head = "| option | what it does | default |\n|---|---|---|\n"
        tables.append((f"**{title}**\n\n" if title else "") + head + "\n".join(rows))
    return tables


def _row(parameter: Any, context: click.Context) -> str:
    is_argument = parameter.param_type_name == "argument"
    names = [parameter.metavar or parameter.name.upper()] if is_argument else parameter.opts
    default = parameter.get_default(context, call=False)
    without = "required" if parameter.required else "" if default is None or default is False else f"`{default}`"
    words = ", ".join(f"`{name}`" for name in names)
    return f"| {words} | {_plain(getattr(parameter, 'help', '') or '')} | {without} |"


def _plain(text: str | None) -> str:
    """One line that a cell of a table can hold; what looks like markup stays as it is written."""
    return re.sub(r"([|<*_])", r"\\\1", " ".join((text or "").split()))


def api() -> str:
    """The public names, by what a reader looks for."""
    public = set(geosprint.__all__)
    named = {name for names in API.values() for name in names}
    groups = {**API, "More": sorted(public - named)}
    parts = ["# Python", "Import every name on this page from `geosprint`. This page is generated from the code."]
    for title, names in groups.items():
        entries = [_entry(name) for name in names if name in public]
        parts += [f"## {title}", *entries] if entries else []
    return "\n\n".join(parts) + "\n"


def _entry(name: str) -> str:
    """What autodoc is asked to say of a name; of a table or a number, its keys or its value."""
    value = getattr(geosprint, name)
    if isinstance(value, type):
        directive, options = "autoclass", [":members:", ":undoc-members:"]
    elif callable(value):
        directive, options = "autofunction", []
    else:
        return f"### {name}\n\n" + (", ".join(f"`{key}`" for key in value) if isinstance(value, dict) else f"`{value}`")
    lines = [f".. {directive}:: geosprint.{name}", *(f"   {option}" for option in options)]
    return "\n".join([f"### {name}", "", "```{eval-rst}", *lines, "```"])


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


if __name__ == "__main__":
    write_sources(Path(sys.argv[1]))
