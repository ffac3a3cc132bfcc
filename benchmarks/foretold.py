"""How well fine walks foretell the error of schedules that were never tried, and how fine the fine walks are.

python -m benchmarks.foretold fashion --steps 20 --solver ddim
"""

from __future__ import annotations

import argparse

import torch

from geosprint import load_model
from geosprint.baselines import BASELINES, applicable_baselines
from geosprint.metrics.estimates import endpoint_errors
from geosprint.sampling import Counted, sample
from geosprint.solvers import solver_named
from geosprint.teacher import STEPS, fine_timesteps, record_teacher
from geosprint.tuning.descent import Foretold
from geosprint.tuning.evaluation import Course
from geosprint.tuning.measures import Yardstick
from geosprint.tuning.surrogate import Shadow

WALKS = 48
CHECKED = 12  # walks that are compared with a much finer solve


@torch.no_grad()
def main() -> None:
    """A line for every closed form: foretold without a call, and real."""
    asked = argparse.ArgumentParser()
    asked.add_argument("model")
    asked.add_argument("--steps", type=int, default=20)
    asked.add_argument("--solver", default="ddim")
    asked = asked.parse_args()
    model = load_model(asked.model)
    counted, solver, yardstick = Counted(model), solver_named(asked.solver), Yardstick(model.shape)
    walks = record_teacher(counted, range(WALKS))
    finer = sample(model, fine_timesteps(model.noise, 300), range(CHECKED), "heun")
    heun = sample(model, fine_timesteps(model.noise, 100), range(CHECKED), "heun")
    off, heun_off = (endpoint_errors(ends[:CHECKED], finer).mean() for ends in (walks.ends, heun))
    print(
        f"{asked.model}: {STEPS} steps of a fine walk end {off:.5f} from 300 Heun steps, 100 Heun steps {heun_off:.5f}"
    )
    telling = yardstick.told(walks)
    law = Foretold(Shadow(telling.walks, telling.response, solver), telling.measure)
    course = Course(counted, solver, walks, yardstick, batch=WALKS)
    print(f"{asked.steps} steps of {asked.solver}: schedule, foretold, real")
    for name in applicable_baselines(model.noise):
        times = BASELINES[name](model.noise, asked.steps)
        foretold, real = law.error(times), course.tried(times).error
        print(f"  {name:<17} {foretold:.4f}  {real:.4f}  {foretold / real - 1:+.0%}", flush=True)


if __name__ == "__main__":
    main()
