"""Where a fitted solver should step: `python -m benchmarks.fit_places digits fashion` prints the table.

A fit on the closed form that suits it best (what `geosprint fit` does) beside fits on schedules that were tuned for
DDIM and for DPM++ 2M (as `geosprint tune --solver` does), and under the fitted solver itself: every schedule that the
search tries is fitted anew to some trajectories and judged on others.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np

import geosprint
from geosprint.baselines import closed_form_schedules
from geosprint.comparison.plan import FRESH_SEED
from geosprint.estimates import bootstrap_mean, endpoint_errors
from geosprint.fitting.config import FitConfig
from geosprint.fitting.fit import Lesson, best_suited
from geosprint.fitting.stepwise import asking, stepwise_fit, student_trajectories
from geosprint.models.spread import Spread
from geosprint.sampling import sample
from geosprint.schedule import StepSchedule, gaps_of, known_times, times_of
from geosprint.teacher import FINE_SOLVER, fine_timesteps, record_teacher

FRESH = 64
SCREENED = 48  # trajectories that a schedule is fitted to, and as many that judge it
STEPS = (5, 10)
WAVES = 4  # smooth warps of the gaps that are searched: the first gap, and cosines of one to three half periods
FIRST_MOVE, LEAST_MOVE = 0.4, 0.1  # of a gap's logarithm


def tuned_under_the_fit(model, steps):
    """A pattern search over smooth warps of the gaps, each fitted anew."""
    counted = Spread(model)
    walks = record_teacher(counted, range(2 * SCREENED))
    learning, judging = walks.at(slice(0, SCREENED)), walks.at(slice(SCREENED, None))
    ask, ask_judges = asking(counted, learning.rows), asking(counted, judging.rows)

    def error(times):
        numbers = stepwise_fit(ask, learning, times, FitConfig()).coefficients
        return float(student_trajectories(ask_judges, judging.starts, times, numbers).errors(judging).mean())

    forms = closed_form_schedules(model.noise, steps)
    place = best_suited(Lesson(counted, walks), forms, SCREENED)[0].timesteps
    along = np.linspace(0, np.pi, steps + 1)
    waves = [np.eye(steps + 1)[0], *(np.cos(k * along) for k in range(1, WAVES))]
    best, move = error(place), FIRST_MOVE
    while move >= LEAST_MOVE:
        tried = [
            known_times(times_of(gaps_of(place, model.noise) + sign * move * wave, model.noise), model.noise)
            for wave in waves
            for sign in (-1, 1)
        ]
        errors = [error(times) for times in tried]
        if min(errors) < best:
            best, place = min(errors), tried[int(np.argmin(errors))]
        else:
            move /= 2
    return StepSchedule.at(place, model.noise, {"method": "tuned under the fit"}), counted.nfe


def main():
    """One table for each model."""
    warnings.simplefilter("ignore", UserWarning)
    for name in sys.argv[1:] or ["digits"]:
        model = geosprint.load_model(name)
        seeds = range(FRESH_SEED, FRESH_SEED + FRESH)
        truth = sample(model, fine_timesteps(model.noise, 100), seeds, FINE_SOLVER)
        for steps in STEPS:
            under, calls = tuned_under_the_fit(model, steps)
            places = {
                "the best closed form": None,
                "tuned for ddim": geosprint.tune(model, steps, solver="ddim")[steps],
                "tuned for dpmpp-2m": geosprint.tune(model, steps, solver="dpmpp-2m")[steps],
                f"tuned under the fit ({calls:,} calls)": under,
            }
            for label, place in places.items():
                drawn = sample(model, geosprint.fit(model, steps, place), seeds)
                error = bootstrap_mean(endpoint_errors(drawn, truth))
                print(
                    f"{name} {steps:2d} {label:40s} {error.value:.4f} ({error.low:.4f} to {error.high:.4f})", flush=True
                )


if __name__ == "__main__":
    main()
