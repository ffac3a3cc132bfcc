"""What a search finds and its variant over the full range, on the trajectories of the search and on many others.

python -m benchmarks.late_starts fashion --steps 10,15,20 --solver ddim
"""

from __future__ import annotations

import argparse

import torch

from geosprint import load_model
from geosprint.estimates import bootstrapped
from geosprint.models.spread import Spread
from geosprint.teacher import BUDGET, TeacherSets, record_teacher
from geosprint.tuning.candidates import search
from geosprint.tuning.evaluation import Evaluation
from geosprint.tuning.problem import TuningProblem

CALLS = BUDGET // 2  # about what the teacher, today's error and the decision leave of the default budget
FRESH = range(7_000_000, 7_000_192)  # neither tuned on nor judged by anywhere else


@torch.no_grad()
def main() -> None:
    """For each number of steps: the error of the full-range variant in parts of the late one's."""
    asked = argparse.ArgumentParser()
    asked.add_argument("model")
    asked.add_argument("--steps", default="10,15,20")
    asked.add_argument("--solver", default="ddim")
    asked = asked.parse_args()
    model = Spread(load_model(asked.model))
    problem = TuningProblem.of(model, TeacherSets.recorded(model))
    fresh = problem.evaluator(asked.solver, record_teacher(model, FRESH))
    for steps in map(int, asked.steps.split(",")):
        found = search(problem, asked.solver, steps, CALLS)
        early, late = sorted((found.variant, found.best), key=lambda one: -one.times[0])
        seen, held_out = _ratio(early, late), _ratio(fresh.evaluate(early.times), fresh.evaluate(late.times))
        print(f"{asked.model} {asked.solver} {steps:>2}, begun at {early.times[0]:.0f} instead of {late.times[0]:.0f}:")
        print(f"  {seen} of the error on {len(late.errors)} trajectories of the search,")
        print(f"  {held_out} on {len(FRESH)} others", flush=True)


def _ratio(early: Evaluation, late: Evaluation) -> str:
    ratio = bootstrapped(lambda rows: float(early.errors[rows].mean() / late.errors[rows].mean()), len(late.errors))
    return f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"


if __name__ == "__main__":
    main()
