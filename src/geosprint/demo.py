"""The main job from end to end on a model in the box: record, profile, build, sample, compare."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from geosprint.baselines import applicable_baselines, baseline_schedule, reference_timesteps
from geosprint.errors import ScheduleError
from geosprint.extraction import extract
from geosprint.metrics.endpoint import Estimate, bootstrap_mean, endpoint_errors
from geosprint.metrics.frechet import frechet_distance
from geosprint.models.base import Model
from geosprint.profile import CurvatureProfile
from geosprint.report.plots import plot_profile, plot_samples, plot_steps
from geosprint.sampling import CountedModel, sample
from geosprint.schedule import StepSchedule, build_schedule, check_steps

FINE_STEPS = 1000
FRESH_SEED = 1_000_000  # far from the seeds that profiles are recorded with


@dataclass(frozen=True)
class Row:
    """One schedule against the fine solve, on noise that nothing was made from."""

    method: str
    start: float
    nfe: float  # network calls per sample
    errors: NDArray[np.float64] = field(repr=False)  # (samples,) root mean square distance to the fine solve
    frechet: float  # squared, to the fine solve's samples

    @cached_property
    def rmse(self) -> Estimate:
        """The mean error."""
        return bootstrap_mean(self.errors)


@dataclass(frozen=True)
class Demo:
    """What the demo found and where it lies."""

    rows: list[Row]
    profile: CurvatureProfile
    schedule: StepSchedule
    files: list[Path]

    @property
    def headline(self) -> str:
        """The result in one sentence, also when it is not in our favour or not beyond chance."""
        ours = next(row for row in self.rows if row.method == "geosprint")
        others = (row for row in self.rows if not row.method.startswith("geosprint"))
        rival = min(others, key=lambda row: row.rmse.value)
        gap = bootstrap_mean(ours.errors - rival.errors)
        by = f"(difference of RMSE {gap.value:+.4f}, 95 % interval {gap.low:+.4f} to {gap.high:+.4f})"
        if gap.low <= 0 <= gap.high:
            return f"geosprint and the best other schedule, {rival.method}, differ by no more than chance {by}."
        closer, farther = sorted((ours.rmse.value, rival.rmse.value))
        times = f"{farther / closer:.2f} times " if closer > 0 else ""
        how = f"{times}closer to" if gap.value < 0 else f"{times}farther from"
        return f"geosprint is {how} the fine solve than the best other schedule, {rival.method} {by}."


def run_demo(
    model: Model, out: Path, steps: int = 10, samples: int = 256, seed: int = 0, progress: bool = False
) -> Demo:
    """Everything the tool does, once, with the files it leaves."""
    check_steps(steps, model.noise)
    if samples < 2:
        raise ScheduleError(f"the comparison needs at least 2 samples, got {samples}")
    profile = extract(model, seed=seed, progress=progress)
    ours = build_schedule(profile, steps)
    schedules = {name: baseline_schedule(name, model.noise, steps) for name in applicable_baselines(model.noise)}
    schedules["geosprint (literal)"] = build_schedule(profile, steps, literal=True)
    schedules["geosprint"] = ours
    seeds = range(FRESH_SEED + seed, FRESH_SEED + seed + samples)
    fine_steps = FINE_STEPS if model.noise.continuous else min(FINE_STEPS, int(model.noise.first) + 1)
    fine = sample(model, reference_timesteps(model.noise, fine_steps), seeds, batch=samples, progress=progress)
    images, rows = {}, []
    for name, schedule in schedules.items():
        counted = CountedModel(model)
        images[name] = sample(counted, schedule.timesteps, seeds, batch=samples, progress=progress)
        rows.append(
            Row(
                name,
                float(schedule.timesteps[0]),
                counted.nfe / samples,
                endpoint_errors(images[name], fine),
                frechet_distance(images[name].flatten(1), fine.flatten(1)),
            )
        )
    best_uniform = min((row for row in rows if row.method.startswith("uniform")), key=lambda row: row.rmse.value)
    shown = {best_uniform.method: images[best_uniform.method], "geosprint": images["geosprint"]}
    files = [
        profile.save(out / "profile.json"),
        ours.save(out / "schedule.json"),
        plot_profile(profile, out / "profile.png"),
        plot_steps(schedules, out / "steps.png"),
        plot_samples(
            {**shown, f"{fine_steps}-step reference": fine},
            out / "samples.png",
            f"{model.name}: {steps} steps from the same noise",
        ),
    ]
    return Demo(rows, profile, ours, files)
