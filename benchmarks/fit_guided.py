"""Fits of guided models with and without coefficients of what guidance adds: `python -m benchmarks.fit_guided`.

Both fits get the same teacher trajectories, schedule and network calls, and refine as far as those last. `not told`:
the second, in a program that knows the guided prediction alone. Errors are on held-out noise.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

import numpy as np
import torch

import geosprint
from geosprint.baselines import closed_form_schedules
from geosprint.comparison.plan import FRESH_SEED
from geosprint.estimates import bootstrapped
from geosprint.fitting.config import FitConfig
from geosprint.fitting.fit import Lesson, best_fits, best_suited
from geosprint.fitting.stepwise import asking, student_trajectories
from geosprint.models.base import Model
from geosprint.models.spread import Spread
from geosprint.models.wrappers import Wrapped
from geosprint.teacher import record_teacher

KEPT = FitConfig(moved_times=0)  # the schedule


def guided(name: str) -> Model:
    """`scenes` at guidance 7.5, or another model in the box that draws all its classes at guidance 3."""
    model = geosprint.load_model(name)
    return model if model.calls > 1 else replace(model, labels=torch.arange(10**6) % model.card.classes, guidance=3.0)


@dataclass(frozen=True, eq=False)
class Silent(Wrapped):
    """Does not tell the conditional prediction."""

    def with_conditional(self) -> Silent:
        return self


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="+")
    parser.add_argument("--steps", type=int, nargs="+", default=[6, 10, 15])
    parser.add_argument("--seeds", type=int, default=3, help="fits, each to noise of its own")
    parser.add_argument("--trajectories", type=int, default=48, help="of the teacher, for each fit")
    parser.add_argument("--held-out", type=int, default=48)
    parser.add_argument("--calls", type=int, default=20_000, help="network calls of a fit, its teacher not counted")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| model | K | joint | split | over joint | not told, over joint |\n|---|---:|---:|---:|---:|---:|")
    for name in options.model:
        inside = guided(name)
        model, silent = Spread(inside, batch=32), Spread(Silent(inside), batch=32)
        exam = record_teacher(model, range(FRESH_SEED, FRESH_SEED + options.held_out))
        teachers = [
            record_teacher(model, range(s, s + options.trajectories)) for s in range(0, 1000 * options.seeds, 1000)
        ]
        for steps in options.steps:
            schedules = closed_form_schedules(model.noise, steps)
            (chosen, *_) = best_suited(Lesson(model, teachers[0]), schedules, KEPT.screened_on)

            def errors(asked: Spread, numbers, times=chosen.timesteps, exam=exam):
                return student_trajectories(asking(asked, exam.rows), exam.starts, times, numbers).errors(exam)

            rows = []
            for teacher in teachers:
                joint, split = (
                    best_fits(Lesson(asked, teacher, KEPT), [chosen], asked.nfe + options.calls)[0].solver
                    for asked in (silent, model)
                )
                told = split.guided or split.coefficients
                asked = model.with_conditional() if split.guided else model
                rows.append([errors(model, joint.coefficients), errors(asked, told), errors(model, split.coefficients)])
            joint, split, not_told = np.mean(rows, axis=0)
            over = [
                bootstrapped(lambda some, e=found, j=joint: e[some].mean() / j[some].mean(), len(joint))
                for found in (split, not_told)
            ]
            print(f"| {name} | {steps} | {joint.mean():.4f} | {split.mean():.4f} | {over[0]} | {over[1]} |", flush=True)


if __name__ == "__main__":
    with torch.no_grad():
        main()
