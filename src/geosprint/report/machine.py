"""Where and when something was measured, without naming anybody's machine."""

from __future__ import annotations

import datetime
import os
import platform

import torch

from geosprint import __version__


def machine() -> str:
    """Date, processor, cores and versions."""
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, geosprint {__version__}"
    return f"{datetime.date.today().isoformat()}, {platform.machine()}, {os.cpu_count()} cores, {versions}"
