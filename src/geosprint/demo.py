"""The main job from end to end on a model in the box: record, profile, build, sample, compare."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
    rmse: Estimate
    frechet: float


@dataclass(frozen=True)
class Demo:
    """What the demo found and where it lies."""

    rows: list[Row]
    profile: CurvatureProfile
    schedule: StepSchedule
    files: list[Path]

    @property
    def headline(self) -> str:
        """The result in one sentence, also when it is not in our favour."""
        ours = next(row for row in self.rows if row.method == "geosprint")
        rival = min(
            (row for row in self.rows if not row.method.startswith("geosprint")), key=lambda row: row.rmse.value
        )
        closer, farther = sorted((ours.rmse.value, rival.rmse.value))
        if farther <= 1.005 * closer:
            return f"geosprint is as close to the fine solve as the best other schedule, {rival.method}."
        times = f"{farther / closer:.2f} times " if closer > 0 else ""
        how = f"{times}closer to" if ours.rmse.value == closer else f"{times}farther from"
        return f"geosprint is {how} the fine solve than the best other schedule, {rival.method}."


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
                bootstrap_mean(endpoint_errors(images[name], fine)),
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
