"""The table of docs/pipelines.md, which `make pipelines` writes."""

from __future__ import annotations

import re
from pathlib import Path

import tiny_families as families

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
TABLE = PAGE.split("<!-- made by `make pipelines` -->")[1].split("<!-- end -->")[0]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TABLE.splitlines() if line.startswith("| ")]


def test_the_table_has_all_families_that_can_be_built_here():
    header, *rows = ROWS
    assert header == ["pipeline", "extract", "apply", "tune", "fit", "save and reload", "strength"]
    assert len(rows) >= 30
    assert [name for name, *_ in rows] == list(families.FAMILIES)  # the whole table, made in one run


def test_every_cell_is_a_yes_or_names_its_reason():
    reasons = re.findall(r"^(\d+)\. .+\.$", TABLE, re.MULTILINE)
    for name, *cells in ROWS[1:]:
        for cell in cells:
            assert cell in ("yes", "–") or cell.removeprefix("no (").removesuffix(")") in reasons, name


def test_the_table_says_when_and_with_which_versions_it_was_made():
    assert re.search(r"on \d{4}-\d\d-\d\d with diffusers [\d.]+, transformers [\d.]+, torch [\d.]+", TABLE)


def test_the_page_names_the_oldest_versions_that_are_allowed():
    allowed = re.findall(r'^  "(\w+)>=([\d.]+)",$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    (oldest,) = re.findall(r"^\| oldest \|(.*)\|$", PAGE, re.MULTILINE)
    named = [cell.strip() for cell in oldest.split("|")]
    packages = re.search(r"^\| versions \|(.*)\|$", PAGE, re.MULTILINE)[1].split("|")
    for package, version in zip(map(str.strip, packages), named, strict=True):
        if package in dict(allowed):
            assert version.startswith(dict(allowed)[package]), package
    assert {"torch", "diffusers", "transformers"} <= {package.strip() for package in packages}
