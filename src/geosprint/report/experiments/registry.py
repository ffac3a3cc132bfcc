"""Which figure belongs to which experiment."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

from geosprint.experiments.base import Finding


def plot_of(name: str) -> Callable[[Finding, Path], list[Path]]:
    """The function that draws this experiment's finding; figures live in modules named like experiments."""
    return importlib.import_module(f"geosprint.report.experiments.{name.replace('-', '_')}").plot
