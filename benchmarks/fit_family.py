"""What fitted solvers could gain, each by itself: `python -m benchmarks.fit_family fashion --steps 5 10`.

Weighing: stepwise fits in which an error counts by what the end will still have of it, beside fits in which all errors
count alike, to 48 trajectories and to 8, on the closed form that suits the former best. Errors are on fresh noise,
against 100 Heun steps, as below.

Bands: stepwise fits with coefficients of their own for bands of fine detail, beside those of `geosprint fit`, on the
same schedule and trajectories, with as many network calls. Band 0 is what smoothing takes away, the next what smoothing
of twice the reach takes from the rest.

Predicted: over all starts of a search, the rank correlation of the errors of stepwise fits on the network with what the
surrogate predicts for DPM++ 2M, for fits to its own predictions, and for such fits refined on the end.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

import geosprint
from benchmarks.tune_runs import APART, FINE_STEPS, FRESH
from geosprint.baselines import closed_form_schedules
from geosprint.estimates import Estimate, bootstrapped, tempered_mean
from geosprint.fitted_solver import features, known_coefficients, stepped
from geosprint.fitting.config import FitConfig
from geosprint.fitting.fit import Lesson, best_suited
from geosprint.fitting.stepwise import Ask, asking, distances, fit_by_distance, stepwise_fit
from geosprint.models.spread import Spread
from geosprint.noise import CLEAN
from geosprint.principal_axes import PrincipalAxes
from geosprint.sampling import sample, seeded_walk
from geosprint.solvers import ddim, solver_named
from geosprint.teacher import FINE_SOLVER, TeacherSets, TeacherTrajectories, fine_timesteps, record_teacher
from geosprint.tuning.descent import PredictedError
from geosprint.tuning.problem import TuningProblem
from geosprint.tuning.starts import starts_of
from geosprint.tuning.surrogate import Surrogate
from geosprint.tuning.surrogate_fits import SurrogateFits

CONFIG = FitConfig()
ORDER = CONFIG.order
MANY, FEW = 48, 8  # trajectories of a fit
SOME = 16  # trajectories that every start of a search is fitted to on the network


def smoothed(x: Tensor, apart: int) -> Tensor:
    """Every pixel's mean with its neighbours so far apart, weighted 1, 2, 1 along rows and columns; edges mirror."""
    for axis in (-2, -1):
        last, there = x.shape[axis] - 1, torch.arange(x.shape[axis])
        around = (there - apart).abs(), last - (last - there - apart).abs()
        x = (2 * x + sum(x.index_select(axis, index) for index in around)) / 4
    return x


def detail_in(x: Tensor, bands: int) -> list[Tensor]:
    """What each band holds of this, finest first."""
    found = []
    for band in range(bands):
        smooth = smoothed(x, 2**band)
        found.append(x - smooth)
        x = smooth
    return found


@torch.no_grad()
def banded_ends(
    ask: Ask,
    teacher: TeacherTrajectories,
    ask_fresh: Ask,
    fresh: Tensor,
    times: Sequence[float],
    bands: int = 0,
    weighs: bool = True,
) -> Tensor:
    """Where fresh noise ends with a stepwise fit to the teacher that has numbers of its own in each band."""
    data = PrincipalAxes.of(teacher.ends.flatten(1))
    known = known_coefficients("dpmpp-2m", teacher.noise, times, ORDER)
    states, pasts = [teacher.starts, fresh], [[], []]
    for i, (t, t_next) in enumerate(pairwise([*times, CLEAN])):
        predicted = [one(x, t) for one, x in zip((ask, ask_fresh), states, strict=True)]
        plain, directions = [], []
        for x, now, past in zip(states, predicted, pasts, strict=True):
            parts = features(x, now, past, ORDER)
            plain.append(stepped(x, now, past, known[i]))
            directions.append(torch.stack([one for part in parts for one in (part, *detail_in(part, bands))]))
        target = teacher.ends if t_next == CLEAN else teacher.state_at(t_next)
        seen = directions[0].flatten(2), (target - plain[0]).flatten(1)
        if weighs:
            seen = [data.at_end(one, *teacher.noise.signal_and_sigma(t_next)) for one in seen]
        numbers = fit_by_distance(*seen, CONFIG.ridge, CONFIG.reweightings)
        weights = torch.from_numpy(numbers).float()
        states = [base + torch.einsum("n,n...->...", weights, own) for base, own in zip(plain, directions, strict=True)]
        pasts = [[now, *past][: ORDER - 1] for now, past in zip(predicted, pasts, strict=True)]
    return states[1]


def print_fits(name: str, all_steps: Sequence[int], seeds: int, number: int) -> None:
    model = Spread(geosprint.load_model(name), batch=32)
    fresh = range(FRESH, FRESH + number)
    fine = sample(model, fine_timesteps(model.noise, FINE_STEPS), fresh, FINE_SOLVER, batch=32)
    first = next(iter(seeded_walk(model, np.array([model.noise.first]), fresh, ddim))).x
    teachers = [record_teacher(model, range(seed, seed + MANY)) for seed in range(0, seeds * APART, APART)]
    for steps in all_steps:
        rows = []
        for teacher in teachers:
            schedule, *_ = best_suited(Lesson(model, teacher), closed_form_schedules(model.noise, steps), 16)
            ask_fresh, times = asking(model, range(number)), schedule.timesteps.tolist()

            def errors(count: int, bands: int = 0, weighs: bool = True, times=times, teacher=teacher, ask=ask_fresh):
                some = teacher.at(slice(0, count))
                return distances(banded_ends(asking(model, some.rows), some, ask, first, times, bands, weighs), fine)

            alike = [errors(count, weighs=False) for count in (MANY, FEW)]
            rows.append([*alike, errors(FEW), *(errors(MANY, bands) for bands in range(4))])
        alike, alike_few, few, plain, *banded = np.mean(rows, axis=0)  # (samples,) each
        numbers = [f"{alike.mean():.4f}", _ratio(plain, alike), f"{alike_few.mean():.4f}", _ratio(few, alike_few)]
        others = [_ratio(few, plain), *(_ratio(own, plain) for own in banded)]
        print(f"| {name} | {steps} | {' | '.join(map(str, [*numbers, *others]))} |", flush=True)


def _ratio(errors: np.ndarray, others: np.ndarray) -> Estimate:
    """Of the mean errors, samples paired."""
    return bootstrapped(lambda some: errors[some].mean() / others[some].mean(), len(errors))


def print_predicted(name: str, all_steps: Sequence[int]) -> None:
    model = Spread(geosprint.load_model(name), batch=32)
    problem = TuningProblem.of(model, TeacherSets.recorded(model))
    some, parts = problem.teacher.for_search.at(slice(0, SOME)), problem.projection
    ask = asking(model, some.rows)
    given = (parts.trajectories, parts.response, solver_named("dpmpp-2m"), problem.config)
    surrogates = (Surrogate(*given), SurrogateFits(*given), SurrogateFits(*given, refined=True))
    predictors = [PredictedError(one, parts.measure, config=problem.config) for one in surrogates]
    for steps in all_steps:
        starts = list(starts_of(problem.evidence, steps).values())
        real = [tempered_mean(stepwise_fit(ask, some, times, CONFIG).errors(some)) for times in starts]
        found = (spearmanr(one.tempered_each(starts), real).statistic for one in predictors)
        print(f"| {name} | {steps} | {len(starts)} | {' | '.join(f'{one:.2f}' for one in found)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="+")
    parser.add_argument("--steps", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--seeds", type=int, default=3, help="fits, each to trajectories of its own")
    parser.add_argument("-n", "--number", type=int, default=64, help="of fresh samples")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    heads = ["all alike", "weighed", "all alike, 8", "weighed, 8", "8 to 48, weighed", "1 band", "2 bands", "3 bands"]
    print(f"| model | K | {' | '.join(heads)} |\n|---|{'---:|' * (len(heads) + 1)}")
    for name in asked.model:
        print_fits(name, asked.steps, asked.seeds, asked.number)
    print("\n| model | K | starts | for dpmpp-2m | for fits | for refined fits |\n|---|---:|---:|---:|---:|---:|")
    for name in asked.model:
        print_predicted(name, asked.steps)


if __name__ == "__main__":
    main()
