"""Whether all is there that runs need: versions, devices, models in the box, and what optional features lack."""

from __future__ import annotations

import importlib
import os
import platform
import shlex
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, version

from packaging.requirements import Requirement

from geosprint import __version__
from geosprint.integrations.adapter import load_model
from geosprint.models.registry import models_in_the_box

PACKAGE = "geosprint"
PURPOSES = {"inception": "compare --features inception"}
"""What the extras are for that a user may want; the Makefile installs the others by itself."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; without a remedy it is fine."""

    kind: str  # version, device, model or feature
    name: str
    found: str
    remedy: str = ""

    @property
    def is_broken(self) -> bool:
        """Something that runs need is not as it must be; a feature can do without."""
        return bool(self.remedy) and self.kind != "feature"


def examine() -> list[Finding]:
    """Look at everything once."""
    here = f"{platform.python_version()}, {platform.system()} {platform.machine()}"
    try:
        asked, package = _asked(), Finding("version", PACKAGE, __version__)
    except PackageNotFoundError:
        missing = f"{__version__}, but not installed as a package"
        asked, package = [], Finding("version", PACKAGE, missing, "pip install .")
    found = [Finding("version", "python", here), package]
    found += [_required(requirement) for requirement in asked if requirement.marker is None]
    found += [*_devices(), *map(_model, models_in_the_box())]
    return found + [_feature(asked, extra, purpose) for extra, purpose in PURPOSES.items() if asked]


def _asked() -> list[Requirement]:
    """Everything that the package asks for, extras included."""
    return [Requirement(text) for text in metadata(PACKAGE).get_all("Requires-Dist") or []]


def _required(requirement: Requirement) -> Finding:
    """A dependency must be new enough, and its import must not fail."""
    if lacking := _lacking(requirement):
        return Finding("version", requirement.name, lacking, _install(requirement))
    try:
        importlib.import_module(requirement.name)
    except Exception as wrong:  # a broken package may fail in any way
        told = f"{version(requirement.name)}, but importing it failed: {type(wrong).__name__}: {wrong}"
        return Finding("version", requirement.name, told, f"{_install(requirement)} --force-reinstall")
    return Finding("version", requirement.name, version(requirement.name))


def _lacking(requirement: Requirement) -> str:
    """Why the installed package is not what is asked for; empty, if it is."""
    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        return "not installed"
    if requirement.specifier.contains(installed, prereleases=True):
        return ""
    return f"{installed}, but it must be {requirement.specifier}"


def _install(*requirements: Requirement) -> str:
    wanted = (str(one).partition(";")[0] for one in requirements)  # without the marker
    return shlex.join(["pip", "install", *wanted])


def _devices() -> list[Finding]:
    if "torch" not in sys.modules:  # its own line says why
        return []
    import torch

    count = torch.cuda.device_count()
    cards = ", ".join(torch.cuda.get_device_name(i) for i in range(count)) or "none"
    return [
        Finding("device", "cpu", f"{os.cpu_count()} cores, {torch.get_num_threads()} threads in use"),
        Finding("device", "cuda", cards),
        Finding("device", "mps", "there" if torch.backends.mps.is_available() else "none"),
    ]


def _model(name: str) -> Finding:
    """A model in the box must load."""
    try:
        model = load_model(name)
    except Exception as wrong:  # whatever torch or a damaged file brings
        return Finding("model", name, f"{type(wrong).__name__}: {wrong}", f"pip install --force-reinstall {PACKAGE}")
    return Finding("model", name, f"loads, draws {'×'.join(map(str, model.shape))}")


def _feature(asked: list[Requirement], extra: str, purpose: str) -> Finding:
    """An extra is there if all of its packages are."""
    needed = [one for one in asked if one.marker and one.marker.evaluate({"extra": extra})]
    if missing := [one for one in needed if _lacking(one)]:
        return Finding("feature", purpose, f"needs {', '.join(one.name for one in missing)}", _install(*missing))
    return Finding("feature", purpose, ", ".join(f"{one.name} {version(one.name)}" for one in needed))
