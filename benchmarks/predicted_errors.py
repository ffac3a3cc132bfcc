"""How well teacher trajectories predict the error of schedules that were never evaluated, and how fine they are.

python -m benchmarks.predicted_errors fashion --steps 20 --solver ddim
"""

from __future__ import annotations

import argparse

import torch

from geosprint import load_model
from geosprint.baselines import BASELINES, applicable_baselines
from geosprint.estimates import endpoint_errors
from geosprint.models.spread import Spread
from geosprint.sampling import sample
from geosprint.solvers import solver_named
from geosprint.teacher import STEPS, fine_timesteps, record_teacher
from geosprint.tuning.descent import PredictedError
from geosprint.tuning.evaluation import ErrorMeasure, Evaluator
from geosprint.tuning.surrogate import Surrogate

WALKS = 48
CHECKED = 12  # trajectories that are compared with a much finer solve


@torch.no_grad()
def main() -> None:
    """A line for every closed form: predicted without a call, and real."""
    asked = argparse.ArgumentParser()
    asked.add_argument("model")
    asked.add_argument("--steps", type=int, default=20)
    asked.add_argument("--solver", default="ddim")
    asked = asked.parse_args()
    model = load_model(asked.model)
    counted, solver, measure = Spread(model), solver_named(asked.solver), ErrorMeasure(model.shape)
    walks = record_teacher(counted, range(WALKS))
    finer = sample(model, fine_timesteps(model.noise, 300), range(CHECKED), "heun")
    heun = sample(model, fine_timesteps(model.noise, 100), range(CHECKED), "heun")
    off, heun_off = (endpoint_errors(ends[:CHECKED], finer).mean() for ends in (walks.ends, heun))
    print(f"{asked.model}: {STEPS} steps of a teacher end {off:.5f} from 300 Heun steps, 100 Heun steps {heun_off:.5f}")
    projection = measure.projection(walks)
    predictor = PredictedError(Surrogate(projection.trajectories, projection.response, solver), projection.measure)
    evaluator = Evaluator(counted, solver, walks, measure, projection.coordinates)
    print(f"{asked.steps} steps of {asked.solver}: schedule, predicted, real")
    for name in applicable_baselines(model.noise):
        times = BASELINES[name](model.noise, asked.steps)
        predicted, real = predictor.error(times), evaluator.evaluate(times).error
        print(f"  {name:<17} {predicted:.4f}  {real:.4f}  {predicted / real - 1:+.0%}", flush=True)


if __name__ == "__main__":
    main()
