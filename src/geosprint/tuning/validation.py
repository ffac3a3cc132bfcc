"""The last word: fine walks that no search has seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geosprint.baselines import BASELINES
from geosprint.metrics.estimates import Estimate, bootstrap_mean, bootstrapped, power_law_steps
from geosprint.tuning.descent import Foretold
from geosprint.tuning.evaluation import Course, Trial

Array = NDArray[np.float64]

TUNED = "tuned"
OPPONENTS = 2  # closed forms that are then walked in full
RESAMPLES = 2000
SURE = 0.8  # share of resamples in which the tuned schedule must be nearer
LONGEST = 3  # times the steps, up to which a uniform spacing is looked for that errs as little


@dataclass(frozen=True, eq=False)
class Verdict:
    """Which schedule is returned, and why."""

    chosen: str  # "tuned", or the closed form that it did not beat
    old: str  # what users have: the best uniform spacing, or the schedule they named
    errors: dict[str, Array]  # of every schedule that was walked in full, on each walk
    trials: dict[str, Trial]
    uniform: str  # the best uniform spacing
    uniform_steps: Estimate | None  # how many of its steps err as little; None: more than LONGEST times as many

    def error(self, name: str) -> Estimate:
        """Mean over the walks, with its interval."""
        return bootstrap_mean(self.errors[name])

    @property
    def gain(self) -> Estimate:
        """How many times less the chosen schedule errs than the old one."""
        old, new = self.errors[self.old], self.errors[self.chosen]
        return bootstrapped(lambda rows: float(old[rows].mean() / max(new[rows].mean(), 1e-12)), len(old))


def validated(
    course: Course,
    found: Sequence[Array],
    closed_forms: dict[str, Array],
    named: dict[str, Array],
    law: Foretold,
    looks: int,
) -> Verdict:
    """The better of what was found, if it beats all others here; else the best of them.

    `looks` walks sort the closed forms.
    """
    seen = {name: course.tried(times, slice(0, looks)).error for name, times in closed_forms.items()}
    order = sorted(seen, key=lambda name: (seen[name], name))
    uniform = next(name for name in order if name.startswith("uniform"))
    walked = {**{name: closed_forms[name] for name in dict.fromkeys([*order[:OPPONENTS], uniform])}, **named}
    tuned = min((course.tried(times) for times in found), key=lambda trial: trial.tempered)
    trials = {TUNED: tuned, **{name: course.tried(times) for name, times in walked.items()}}
    errors = {name: trial.errors for name, trial in trials.items()}
    best = min(walked, key=lambda name: errors[name].mean())
    is_beaten = all(is_surely_less(errors[TUNED], errors[name]) for name in walked)
    chosen = TUNED if is_beaten else best
    uniform = min((name for name in walked if name.startswith("uniform")), key=lambda name: errors[name].mean())
    old = next(iter(named), uniform)
    steps = uniform_steps(course, trials[chosen], trials[uniform], uniform, law)
    return Verdict(chosen, old, errors, trials, uniform, steps)


def is_surely_less(errors: Array, others: Array) -> bool:
    """Whether paired errors are lower in the mean, and in most resamples in the mean root, which few samples sway."""
    if errors.mean() >= others.mean():
        return False
    difference = np.sqrt(errors) - np.sqrt(others)
    random = np.random.default_rng(0)
    means = [difference[random.integers(0, len(difference), len(difference))].mean() for _ in range(RESAMPLES)]
    return float(np.mean(np.array(means) < 0)) >= SURE


def uniform_steps(course: Course, chosen: Trial, at_k: Trial, spacing: str, law: Foretold) -> Estimate | None:
    """Steps of a uniform spacing with the chosen schedule's error: foretold, walked there, and interpolated.

    Between two numbers of steps the logarithm of the error is taken to be linear in that of the steps.
    """
    steps, noise = len(chosen.times), course.walks.noise
    if chosen.error >= at_k.error:
        return Estimate(steps, steps, steps)
    most = LONGEST * steps if noise.continuous else min(LONGEST * steps, int(noise.first) + 1)
    ratio = at_k.error / law.error(at_k.times)
    numbers = np.unique(np.round(np.geomspace(steps + 1, most, 12)).astype(int)).tolist()
    foretold = {k: ratio * law.error(BASELINES[spacing](noise, k)) for k in numbers}
    enough = next((k for k, error in foretold.items() if error <= chosen.error), numbers[-1])
    count = max(len(course.walks) // 2, 2)  # these steps are the dearest
    there = course.tried(BASELINES[spacing](noise, enough), slice(0, count))
    far, near, goal = (trial.errors[:count] for trial in (at_k, there, chosen))
    if enough == numbers[-1] and near.mean() > goal.mean():
        return None

    def interpolated(rows: NDArray[np.intp]) -> float:
        here, further, wanted = (float(errors[rows].mean()) for errors in (far, near, goal))
        return power_law_steps((steps, here), (enough, further), wanted, reach=2)

    return bootstrapped(interpolated, len(there.errors))
