"""GeoSPRINT: sampling schedules from the geometry of denoising trajectories."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

__all__ = [
    "BASELINES",
    "CLEAN",
    "METHODS",
    "SOLVERS",
    "Budget",
    "ContinuousVP",
    "CurvatureProfile",
    "DiscreteVP",
    "FittedSolver",
    "Flow",
    "GeoSprintDDIMScheduler",
    "GeoSprintError",
    "GeoSprintFittedFlowMatchScheduler",
    "GeoSprintFittedScheduler",
    "GeoSprintFlowMatchEulerScheduler",
    "Model",
    "Network",
    "NoiseSchedule",
    "PipelineInputs",
    "Plan",
    "Settings",
    "StepSchedule",
    "Trajectories",
    "apply",
    "as_model",
    "baseline_schedule",
    "build_schedule",
    "compare",
    "export",
    "extract",
    "find_budget",
    "fit",
    "joined_team",
    "load_model",
    "load_pipeline",
    "merge",
    "profile_trajectories",
    "projection_score",
    "prune",
    "prune_levels",
    "record",
    "sample",
    "top_k_schedule",
    "tune",
    "walk",
    "write_report",
]

# Imported when first used, so that `geosprint --help` does not wait for torch.
_HOMES = {
    "BASELINES": "geosprint.baselines",
    "CLEAN": "geosprint.noise",
    "METHODS": "geosprint.comparison.methods",
    "SOLVERS": "geosprint.solvers",
    "Budget": "geosprint.extraction",
    "ContinuousVP": "geosprint.noise",
    "CurvatureProfile": "geosprint.profile",
    "DiscreteVP": "geosprint.noise",
    "FittedSolver": "geosprint.fitted_solver",
    "Flow": "geosprint.noise",
    "GeoSprintDDIMScheduler": "geosprint.integrations.schedulers",
    "GeoSprintError": "geosprint.errors",
    "GeoSprintFittedFlowMatchScheduler": "geosprint.integrations.fitted_schedulers",
    "GeoSprintFittedScheduler": "geosprint.integrations.fitted_schedulers",
    "GeoSprintFlowMatchEulerScheduler": "geosprint.integrations.schedulers",
    "Model": "geosprint.models.base",
    "Network": "geosprint.models.base",
    "NoiseSchedule": "geosprint.noise",
    "PipelineInputs": "geosprint.integrations.pipelines",
    "Plan": "geosprint.comparison.plan",
    "Settings": "geosprint.profile",
    "StepSchedule": "geosprint.schedule",
    "Trajectories": "geosprint.trajectory",
    "apply": "geosprint.integrations.apply",
    "baseline_schedule": "geosprint.baselines",
    "build_schedule": "geosprint.schedule",
    "compare": "geosprint.comparison.run",
    "export": "geosprint.integrations.export",
    "extract": "geosprint.extraction",
    "find_budget": "geosprint.extraction",
    "fit": "geosprint.fitting.fit",
    "joined_team": "geosprint.runs.team",
    "load_model": "geosprint.models.registry",
    "load_pipeline": "geosprint.integrations.pipelines",
    "merge": "geosprint.extraction",
    "as_model": "geosprint.integrations.adapter",
    "profile_trajectories": "geosprint.extraction",
    "projection_score": "geosprint.geometry",
    "prune": "geosprint.geometry",
    "prune_levels": "geosprint.geometry",
    "record": "geosprint.sampling",
    "sample": "geosprint.sampling",
    "top_k_schedule": "geosprint.schedule",
    "tune": "geosprint.tuning.run",
    "walk": "geosprint.sampling",
    "write_report": "geosprint.report.page",
}

if TYPE_CHECKING:
    from geosprint.baselines import BASELINES, baseline_schedule
    from geosprint.comparison.methods import METHODS
    from geosprint.comparison.plan import Plan
    from geosprint.comparison.run import compare
    from geosprint.errors import GeoSprintError
    from geosprint.extraction import Budget, extract, find_budget, merge, profile_trajectories
    from geosprint.fitted_solver import FittedSolver
    from geosprint.fitting.fit import fit
    from geosprint.geometry import projection_score, prune, prune_levels
    from geosprint.integrations.adapter import as_model
    from geosprint.integrations.apply import apply
    from geosprint.integrations.export import export
    from geosprint.integrations.fitted_schedulers import GeoSprintFittedFlowMatchScheduler, GeoSprintFittedScheduler
    from geosprint.integrations.pipelines import PipelineInputs, load_pipeline
    from geosprint.integrations.schedulers import GeoSprintDDIMScheduler, GeoSprintFlowMatchEulerScheduler
    from geosprint.models.base import Model, Network
    from geosprint.models.registry import load_model
    from geosprint.noise import CLEAN, ContinuousVP, DiscreteVP, Flow, NoiseSchedule
    from geosprint.profile import CurvatureProfile, Settings
    from geosprint.report.page import write_report
    from geosprint.runs.team import joined_team
    from geosprint.sampling import record, sample, walk
    from geosprint.schedule import StepSchedule, build_schedule, top_k_schedule
    from geosprint.solvers import SOLVERS
    from geosprint.trajectory import Trajectories
    from geosprint.tuning.run import tune


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'geosprint' has no attribute {name!r}")
    found = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = found  # a submodule of the same name must not win later
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
