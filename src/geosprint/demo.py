"""The main job from end to end on a model in the box: record, profile, build, tune, sample, compare."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from geosprint.comparison.methods import LIMITS, OURS, TUNED
from geosprint.comparison.plan import QUICK
from geosprint.comparison.results import Comparison
from geosprint.comparison.run import compare
from geosprint.estimates import bootstrap_mean
from geosprint.models.base import Model
from geosprint.profile import CurvatureProfile
from geosprint.report.comparison import leave_files
from geosprint.schedule import StepSchedule, build_schedule

SLOW = ("oss", "sdm", "dm-nonuniform", "fitted", "tuned+fitted", "ld3-l2")
"""Left out of the demo: they take calls and minutes; `geosprint compare` has them."""

SHOWN = ("geosprint", TUNED.name)


@dataclass(frozen=True)
class Demo:
    """What the demo found and where it lies."""

    comparison: Comparison
    profile: CurvatureProfile
    schedule: StepSchedule
    files: list[Path]

    @property
    def headline(self) -> str:
        """Where our schedules stand, also when that is not in our favour or not beyond chance."""
        plan = self.comparison.plan
        return "\n".join(standing(self.comparison, plan.solvers[0], plan.steps[0], ours) for ours in SHOWN)


def run_demo(
    model: Model, out: Path, steps: int = 10, samples: int = 64, seed: int = 0, progress: bool = False
) -> Demo:
    """Everything the tool does, once, with the files it leaves."""
    longer = 2 * steps if model.noise.continuous else min(2 * steps, int(model.noise.first) + 1)
    plan = replace(QUICK, steps=(steps,), ruler=(longer,), leave_out=SLOW, samples=samples, seed=seed)
    done = compare(model, out, plan, progress=progress)
    assert done.recording, "a comparison that was run has its recording"
    profile = done.recording.profile
    ours = build_schedule(profile, steps)
    files = [
        ours.save(out / "schedule.json"),
        done.tuned(done.cell(plan.solvers[0], TUNED.name, steps)).save(out / "tuned.json"),
        *leave_files(done, out, f"geosprint demo {model.name} --steps {steps} -n {samples} --seed {seed} -o {out}"),
    ]
    return Demo(done, profile, ours, files)


def standing(comparison: Comparison, solver: str, steps: int, name: str = "geosprint") -> str:
    """A method of ours against the best of the others at one number of steps, in one sentence."""
    ours = comparison.cell(solver, name, steps)
    others = [cell for cell in comparison.column(solver, steps) if cell.method not in OURS | LIMITS]
    rival = min(others, key=lambda cell: cell.error)
    gap = bootstrap_mean(ours.errors - rival.errors)
    by = f"(difference of RMSE {gap.value:+.4f}, 95 % interval {gap.low:+.4f} to {gap.high:+.4f})"
    if gap.low <= 0 <= gap.high:
        return f"{name} and the best other schedule, {rival.method}, differ by no more than chance {by}."
    lower, higher = sorted((ours.error, rival.error))
    times = f"{higher / lower:.2f}× " if lower > 0 else ""
    how = "lower" if gap.value < 0 else "higher"
    return f"{name} has a {times}{how} error than the best other schedule, {rival.method} {by}."
