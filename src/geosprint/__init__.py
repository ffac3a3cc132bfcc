"""GeoSPRINT: fewer network calls for the same samples, from the geometry of denoising trajectories."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geosprint.comparison.results import Comparison
    from geosprint.comparison.run import compare
    from geosprint.errors import GeoSprintError
    from geosprint.extraction import Budget, extract, find_budget
    from geosprint.fitted_solver import FittedSolver
    from geosprint.integrations.adapter import as_model, load_model
    from geosprint.integrations.apply import apply
    from geosprint.integrations.export import export
    from geosprint.integrations.pipelines import PipelineInputs, load_pipeline
    from geosprint.models.base import Model, Network
    from geosprint.models.registry import path_of
    from geosprint.noise import EDM, ContinuousVP, DiscreteVP, Flow, NoiseSchedule
    from geosprint.profile import CurvatureProfile
    from geosprint.sampling import record, sample
    from geosprint.schedule import StepSchedule, build_schedule
    from geosprint.trajectory import Trajectories
    from geosprint.tuned import Tuned
    from geosprint.tuning.run import fit, tune

__version__ = "0.1.0"

__all__ = [
    "EDM",
    "Budget",
    "Comparison",
    "ContinuousVP",
    "CurvatureProfile",
    "DiscreteVP",
    "FittedSolver",
    "Flow",
    "GeoSprintError",
    "Model",
    "Network",
    "NoiseSchedule",
    "PipelineInputs",
    "StepSchedule",
    "Trajectories",
    "Tuned",
    "apply",
    "as_model",
    "build_schedule",
    "compare",
    "export",
    "extract",
    "find_budget",
    "fit",
    "load_model",
    "load_pipeline",
    "path_of",
    "record",
    "sample",
    "tune",
]

# Imported when first used, so that `geosprint --help` does not wait for torch.
_NAMES = {
    "geosprint.comparison.results": ("Comparison",),
    "geosprint.comparison.run": ("compare",),
    "geosprint.errors": ("GeoSprintError",),
    "geosprint.extraction": ("Budget", "extract", "find_budget"),
    "geosprint.fitted_solver": ("FittedSolver",),
    "geosprint.integrations.adapter": ("as_model", "load_model"),
    "geosprint.integrations.apply": ("apply",),
    "geosprint.integrations.export": ("export",),
    "geosprint.integrations.pipelines": ("PipelineInputs", "load_pipeline"),
    "geosprint.models.base": ("Model", "Network"),
    "geosprint.models.registry": ("path_of",),
    "geosprint.noise": ("ContinuousVP", "DiscreteVP", "EDM", "Flow", "NoiseSchedule"),
    "geosprint.profile": ("CurvatureProfile",),
    "geosprint.sampling": ("record", "sample"),
    "geosprint.schedule": ("StepSchedule", "build_schedule"),
    "geosprint.trajectory": ("Trajectories",),
    "geosprint.tuned": ("Tuned",),
    "geosprint.tuning.run": ("fit", "tune"),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'geosprint' has no attribute {name!r}")
    found = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = found  # a submodule of the same name must not win later
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
