from __future__ import annotations

import ast
from pathlib import Path

import geosprint

SURFACE = Path(__file__).parent / "typed_surface.py"


def names_used(tree: ast.AST) -> set[str]:
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    attributes = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "geosprint"
    }
    return imported | attributes


def test_mypy_checks_how_every_public_name_is_used():
    config = (SURFACE.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    files = next(line for line in config.splitlines() if line.startswith("files = "))
    assert '"tests/typed_surface.py"' in files
    assert set(geosprint.__all__) <= names_used(ast.parse(SURFACE.read_text(encoding="utf-8")))


def test_there_are_few_public_names():
    assert 20 <= len(geosprint.__all__) <= 30
