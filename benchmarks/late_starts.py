"""What a search finds and its twin that begins at the first time, on the walks of the search and on many others.

python -m benchmarks.late_starts fashion --steps 10,15,20 --solver ddim
"""

from __future__ import annotations

import argparse

import torch

from geosprint import load_model
from geosprint.metrics.estimates import bootstrapped
from geosprint.sampling import BATCH, Counted
from geosprint.solvers import solver_named
from geosprint.teacher import record_teacher
from geosprint.tuning.evaluation import Course, Trial
from geosprint.tuning.run import BUDGET, VALIDATION_SHARE, TeacherSets, prepared, searched

FRESH = range(7_000_000, 7_000_192)  # neither tuned on nor judged by anywhere else


@torch.no_grad()
def main() -> None:
    """A line for each number of steps: errors of the late one, and the twin's in parts of them."""
    asked = argparse.ArgumentParser()
    asked.add_argument("model")
    asked.add_argument("--steps", default="10,15,20")
    asked.add_argument("--solver", default="ddim")
    asked = asked.parse_args()
    model = Counted(load_model(asked.model))
    fine = TeacherSets.recorded(model)
    ground = prepared(model, fine, asked.solver)
    unseen = record_teacher(model, FRESH)
    course = Course(model, solver_named(asked.solver), unseen, ground.yardstick, BATCH)
    for steps in map(int, asked.steps.split(",")):
        _, found = searched(ground, steps, int((1 - VALIDATION_SHARE) * (BUDGET - fine.nfe)))
        early, late = sorted((found.twin, found.trial), key=lambda trial: -trial.times[0])
        seen, fresh = _ratio(early, late), _ratio(course.tried(early.times), course.tried(late.times))
        print(f"{asked.model} {asked.solver} {steps:>2}, begun at {early.times[0]:.0f} instead of {late.times[0]:.0f}:")
        print(f"  {seen} of the error on {len(late.errors)} walks of the search,")
        print(f"  {fresh} on {len(FRESH)} others", flush=True)


def _ratio(early: Trial, late: Trial) -> str:
    ratio = bootstrapped(lambda rows: float(early.errors[rows].mean() / late.errors[rows].mean()), len(late.errors))
    return f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"


if __name__ == "__main__":
    main()
