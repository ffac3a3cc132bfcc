"""The public names as an editor sees them: mypy checks this file (`make lint`), nothing here runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from typing_extensions import assert_type

import geosprint
from geosprint import (
    EDM,
    Budget,
    Comparison,
    ContinuousVP,
    CurvatureProfile,
    DiscreteVP,
    FittedSolver,
    Flow,
    GeoSprintError,
    Model,
    Network,
    NoiseSchedule,
    PipelineInputs,
    StepSchedule,
    Trajectories,
    Tuned,
)


def a_pipeline_is_tuned_and_applied(pipe: Any, prompts: Sequence[str]) -> None:
    inputs = PipelineInputs(tuple(prompts), guidance_scale=7.5)
    tuned = geosprint.tune(pipe, (6, 8, 12), solver="dpmpp-2m", budget_nfe=20_000, inputs=inputs)
    geosprint.apply(pipe, geosprint.tune(pipe, prompts=prompts, today="dpmpp-2m:25"))
    assert_type(tuned, Tuned)
    assert_type(tuned.steps, tuple[int, ...])
    assert_type(tuned[8], StepSchedule | FittedSolver)
    tuned.save(Path("tuned.json"))
    geosprint.apply(pipe, tuned)
    geosprint.apply(pipe, geosprint.tune(pipe, 12))
    geosprint.apply(pipe, geosprint.fit(pipe, 12, inputs=inputs))
    geosprint.apply(pipe, geosprint.build_schedule(geosprint.extract(pipe, inputs=inputs), steps=12))


def what_one_returns_the_next_accepts(model: Model) -> None:
    profile = geosprint.extract(model, trajectories=100, reference_steps=200)
    assert_type(profile, CurvatureProfile)
    schedule = geosprint.build_schedule(profile, steps=10)
    assert_type(schedule, StepSchedule)
    assert_type(geosprint.find_budget(profile, target_score=1e-3), Budget)
    fitted = geosprint.fit(model, 10, schedule, budget_nfe=20_000)
    assert_type(fitted, Tuned)
    assert_type(geosprint.sample(model, schedule.timesteps, seeds=range(16)), Tensor)
    assert_type(geosprint.sample(model, fitted, range(16)), Tensor)
    assert_type(geosprint.record(model, seeds=range(8), steps=50), Trajectories)
    assert_type(geosprint.export(schedule, "comfyui"), str)
    assert_type(geosprint.compare(model, steps=(5, 10), methods=("karras", "tuned")), Comparison)


def models_are_made(pipe: Any, module: torch.nn.Module, path: str) -> list[Model]:
    noises: list[NoiseSchedule] = [DiscreteVP.named(), ContinuousVP(), EDM(), Flow()]
    own = [Network(module, (3, 32, 32), noise, prediction="eps") for noise in noises]
    return [
        geosprint.load_model("fashion", label=3, guidance=2.0),
        geosprint.as_model(pipe, PipelineInputs(("a lighthouse at dusk",))),
        geosprint.as_model(geosprint.load_pipeline(path, device="cuda")),
        geosprint.as_model(geosprint.load_pipeline(geosprint.path_of("scenes"))),
        geosprint.load_model("scenes", inputs=PipelineInputs(guidance_scale=5.0)),
        *own,
    ]


def errors_are_of_one_kind(path: Path) -> StepSchedule | None:
    try:
        return StepSchedule.load(path)
    except GeoSprintError:
        return None
