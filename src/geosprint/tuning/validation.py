"""The last word: teacher trajectories that no search has seen, some to choose a candidate and others to decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from geosprint.baselines import BASELINES
from geosprint.estimates import Estimate, bootstrap_mean, bootstrapped, power_law_steps
from geosprint.tuning.config import DEFAULT, TuneConfig
from geosprint.tuning.descent import PredictedError
from geosprint.tuning.evaluation import Evaluation, Evaluator

Array = NDArray[np.float64]

TUNED = "tuned"


@dataclass(frozen=True, eq=False)
class Validation:
    """Which schedule is returned, and why: all errors are on trajectories that chose nothing."""

    chosen: str  # "tuned", or what displaced it
    old: str  # what users have: the best uniform spacing, or the schedule they named
    evaluations: dict[str, Evaluation]  # of every schedule that was decided among
    teacher_ends: Tensor  # (walks, *shape) of the trajectories they were evaluated on
    uniform: str  # the best uniform spacing
    uniform_steps: Estimate | None  # how many of its steps have the same error; None: more than were looked at

    @property
    def errors(self) -> dict[str, Array]:
        """Of every schedule on each trajectory."""
        return {name: one.errors for name, one in self.evaluations.items()}

    def error(self, name: str) -> Estimate:
        """Mean over the trajectories, with its interval."""
        return bootstrap_mean(self.evaluations[name].errors)

    @property
    def gain(self) -> Estimate:
        """How many times lower the error of the chosen schedule is than that of the old one."""
        old, new = self.errors[self.old], self.errors[self.chosen]
        return bootstrapped(lambda rows: float(old[rows].mean() / max(new[rows].mean(), 1e-12)), len(old))


def validate(
    selecting: Evaluator,
    deciding: Evaluator,
    candidates: Sequence[Array],
    closed_forms: dict[str, Array],
    named: dict[str, Array],
    predictor: PredictedError,
    looks: int,
) -> Validation:
    """The best candidate on the trajectories of `selecting`, unless those of `deciding` are surely against it.

    A closed form displaces it by being surely better; a named schedule, unless it is surely beaten. The burden of proof
    is not the candidate's elsewhere, because searches fail far less often than few trajectories mislead
    (docs/tune.md). `looks` trajectories of `selecting` put the closed forms in order.
    """
    config = predictor.config
    seen = {name: selecting.evaluate(times, slice(0, looks)).error for name, times in closed_forms.items()}
    order = sorted(seen, key=lambda name: (seen[name], name))
    uniform = next(name for name in order if name.startswith("uniform"))
    others = {**{name: closed_forms[name] for name in dict.fromkeys([*order[: config.opponents], uniform])}, **named}
    tuned = min(candidates, key=lambda times: selecting.evaluate(times).tempered) if candidates[1:] else candidates[0]
    found = {name: deciding.evaluate(times) for name, times in {TUNED: tuned, **others}.items()}
    errors = {name: one.errors for name, one in found.items()}
    displaced = any(is_surely_less(errors[name], errors[TUNED], config) for name in others) or not all(
        is_surely_less(errors[TUNED], errors[name], config) for name in named
    )
    chosen = min(others, key=lambda name: found[name].error) if displaced else TUNED
    uniform = min((name for name in others if name.startswith("uniform")), key=lambda name: found[name].error)
    steps = uniform_steps(deciding, found[chosen], found[uniform], uniform, predictor)
    return Validation(chosen, next(iter(named), uniform), found, deciding.trajectories.ends, uniform, steps)


def is_surely_less(errors: Array, others: Array, config: TuneConfig = DEFAULT) -> bool:
    """Whether paired errors are lower in the mean, and in most resamples in the mean root, which few samples sway."""
    if errors.mean() >= others.mean():
        return False
    difference = np.sqrt(errors) - np.sqrt(others)
    rows = np.random.default_rng(0).integers(0, len(difference), (config.resamples, len(difference)))
    return float((difference[rows].mean(axis=1) < 0).mean()) >= config.confidence


def uniform_steps(
    evaluator: Evaluator, chosen: Evaluation, at_k: Evaluation, spacing: str, predictor: PredictedError
) -> Estimate | None:
    """Steps of a uniform spacing with the chosen schedule's error: predicted, evaluated there, and interpolated.

    Between two numbers of steps the logarithm of the error is taken to be linear in that of the steps.
    """
    steps, noise, longest = len(chosen.times), evaluator.trajectories.noise, predictor.config.longest
    if chosen.error >= at_k.error:
        return Estimate(steps, steps, steps)
    most = longest * steps if noise.continuous else min(longest * steps, int(noise.first) + 1)
    ratio = at_k.error / predictor.error(at_k.times)
    numbers = np.unique(np.round(np.geomspace(steps + 1, most, 12)).astype(int)).tolist()
    predicted = {k: ratio * predictor.error(BASELINES[spacing](noise, k)) for k in numbers}
    enough = next((k for k, error in predicted.items() if error <= chosen.error), numbers[-1])
    count = max(len(evaluator.trajectories) // 2, 2)  # these steps are the dearest
    there = evaluator.evaluate(BASELINES[spacing](noise, enough), slice(0, count))
    far, near, goal = (one.errors[:count] for one in (at_k, there, chosen))
    if enough == numbers[-1] and near.mean() > goal.mean():
        return None

    def interpolated(rows: NDArray[np.intp]) -> float:
        here, further, wanted = (float(errors[rows].mean()) for errors in (far, near, goal))
        return power_law_steps((steps, here), (enough, further), wanted, reach=2)

    return bootstrapped(interpolated, len(there.errors))
