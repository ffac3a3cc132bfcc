"""What the choices of a fit are worth on exact models: `python -m benchmarks.fit_choices` prints the table."""

from __future__ import annotations

import geosprint
from geosprint.baselines import baseline_schedule
from geosprint.comparison.plan import FRESH_SEED
from geosprint.estimates import endpoint_errors
from geosprint.fitting.config import FitConfig
from geosprint.fitting.fit import Lesson, fit_to_teacher
from geosprint.models.spread import Spread
from geosprint.sampling import sample
from geosprint.teacher import BUDGET, FINE_SOLVER, fine_timesteps, record_teacher

SEEDS = range(FRESH_SEED, FRESH_SEED + 128)
CELLS = [("gaussian", 5), ("gaussian", 10), ("digits", 5), ("digits", 10), ("digits", 20)]
CALLS = BUDGET // 2  # about what the teacher, today's error and the decision leave of the default budget
WAYS = {
    "the default: order 4, 48 trajectories": {},
    "order 1": {"order": 1},
    "order 2": {"order": 2},
    "order 3": {"order": 3},
    "16 trajectories": {"trajectories": 16},
    "32 trajectories": {"trajectories": 32},
    "64 trajectories": {"trajectories": 64},
    "step by step alone, not refined on the end": {"rounds": 0},
    "step by step alone, squares instead of distances": {"rounds": 0, "reweightings": 1},
}


def fitted(model, schedule, teacher, trajectories=48, **changed):
    """A fit on a schedule that is given and kept, so that nothing but the fit differs."""
    lesson = Lesson(model, teacher.at(slice(0, trajectories)), FitConfig(moved_times=0, **changed))
    return fit_to_teacher(lesson, [schedule], CALLS)[0].solver


def main():
    models = {name: Spread(geosprint.load_model(name)) for name, _ in CELLS}
    teachers = {name: record_teacher(model, range(64)) for name, model in models.items()}
    truths = {
        name: sample(model, fine_timesteps(model.noise, 100), SEEDS, FINE_SOLVER) for name, model in models.items()
    }
    print("| RMSE on fresh noise | " + " | ".join(f"{name}, K = {steps}" for name, steps in CELLS) + " |")
    print("|---|" + "---:|" * len(CELLS))
    for about, asked in WAYS.items():
        errors = []
        for name, steps in CELLS:
            schedule = baseline_schedule("quadratic", models[name].noise, steps)
            found = fitted(models[name], schedule, teachers[name], **asked)
            errors.append(endpoint_errors(sample(models[name], found, SEEDS), truths[name]).mean())
        print(f"| {about} | " + " | ".join(f"{one:.4f}" for one in errors) + " |", flush=True)


if __name__ == "__main__":
    main()
