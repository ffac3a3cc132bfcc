"""The last word: trajectories that no search has seen, some to choose a candidate by and others to decide by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from geosprint.estimates import SMALLEST, Estimate, bootstrapped_from_means, power_law_steps, tempered_mean
from geosprint.noise import Array
from geosprint.tuned import OURS, TODAY, Today, TunedSteps
from geosprint.tuning.config import DEFAULT, TuneConfig
from geosprint.tuning.problem import Contender, TuningProblem
from geosprint.tuning.today import TodaysRun


@dataclass(frozen=True, eq=False)
class Decision:
    """What is returned for one number of steps, and its errors where they do not decide."""

    result: TunedSteps
    choosing: Array  # (walks,) on the trajectories that choose: of a fit, all that do not decide
    everywhere: Array  # (walks,) on all


@dataclass(frozen=True, eq=False)
class Yardstick:
    """What is run today and its errors, and the error that is to be reached, if it is not today's."""

    today: Today
    selecting: Array  # of today, on the trajectories that choose
    deciding: Array  # and on those that decide
    fewer_steps: int
    fewer: Array  # of so few of today's steps, on the first of those that decide
    target: float | None = None
    config: TuneConfig = DEFAULT

    @classmethod
    def measured(cls, problem: TuningProblem, run: TodaysRun, target: float | None = None) -> Yardstick:
        """Walk today's steps, and a quarter of them, which shows how their error falls."""
        steps, config = run.today.steps, problem.config
        few = config.fewer_of(steps)
        some = problem.deciding.at(slice(0, max(len(problem.deciding) // 2, 2)))
        both = problem.errors_of_today(run, steps, problem.teacher.for_validation)
        selecting, deciding = np.split(both, [len(problem.selecting)])
        return cls(run.today, selecting, deciding, few, problem.errors_of_today(run, few, some), target, config)

    @property
    def goal(self) -> float:
        """The error to be reached, as the trajectories that choose see it and a search counts it."""
        return tempered_mean(self.selecting) if self.target is None else self.target

    def is_proved(self, decision: Decision) -> bool:
        """Whether its errors are not above today's, or not above the target, with 95 % confidence."""
        return self.bound(decision) <= 1

    def bound(self, decision: Decision) -> float:
        """Below which its error lies with 95 % confidence, in parts of today's, or of the target.

        Few samples rarely show those that land in another mode, so that held-out noise is not enough: errors on all
        trajectories, also those learnt from, count as well (docs/tune.md).
        """
        errors = decision.result.errors[OURS]
        than = self.deciding if self.target is None else np.full(len(errors), self.target)
        level = max(float(than.mean()), SMALLEST)
        on_held_out = (upper_bound(errors - than, self.config.proof) + level) / level
        return max(on_held_out, self._doubting_bound(decision.everywhere, self.selecting, self.deciding))

    def expected_bound(self, errors: Array, count: int) -> float:
        """The bound that errors like these, where nothing is decided, would have if there were so many."""
        return self._doubting_bound(np.resize(errors, count), self.selecting)

    def _doubting_bound(self, errors: Array, *today: Array) -> float:
        """As if one more error were as large as the largest that these or today's steps show, in the same parts."""
        todays = np.concatenate(today)
        level = max(float(todays.mean()) if self.target is None else self.target, SMALLEST)
        largest = max(float(errors.max()), float(todays.max()))
        return upper_bound(np.append(errors, largest), self.config.proof) / level

    def steps_of_today(self, errors: Array) -> Estimate | None:
        """So many of today's steps have these errors, if that lies within a factor of what was measured."""
        many, ours, reach = self.deciding[: len(self.fewer)], errors[: len(self.fewer)], self.config.worth_reach

        def interpolated(few: float, many: float, goal: float) -> float:
            return power_law_steps((self.fewer_steps, few), (self.today.steps, many), goal, reach)

        found = bootstrapped_from_means(interpolated, self.fewer, many, ours)
        most = self.fewer_steps * (self.today.steps / self.fewer_steps) ** reach
        return found if self.fewer_steps < found.value < most else None


def decided(
    problem: TuningProblem,
    ours: Sequence[Contender],
    known: Sequence[Contender],
    yours: Contender | None,
    yardstick: Yardstick | None,
) -> Decision:
    """The best candidate on the trajectories that choose, unless those that decide are surely against it.

    Fits are chosen by all trajectories that do not decide, also those learnt from: all of them flatter alike, and more
    samples show more of those that land in another mode.

    A known solver displaces it by being surely better; yours, unless it is surely beaten. The burden of proof is not
    the candidate's elsewhere, because few trajectories mislead far more often than searches fail (tune-choices.md, 32).
    """
    config = problem.config
    walked = [one for one in ours if not len(one.learnt)]
    seen = {one.name: one.learnt for one in ours} | problem.errors_of_each(walked, problem.selecting)
    best = min(ours, key=lambda one: tempered_mean(seen[one.name]))
    others = [known[0], *([yours] if yours else [])]
    errors = problem.errors_of_each([best, *others], problem.deciding)
    found = errors[best.name]
    displaced = any(is_surely_less(errors[one.name], found, config) for one in others) or (
        yours is not None and not is_surely_less(found, errors[yours.name], config)
    )
    if displaced:
        best = min(others, key=lambda one: float(errors[one.name].mean()))
    proof = {OURS: errors.pop(best.name), **({TODAY: yardstick.deciding} if yardstick else {}), **errors}
    worth = yardstick.steps_of_today(proof[OURS]) if yardstick else None
    result = TunedSteps(best.made, best.solver, proof, worth)
    if displaced:  # nothing was learnt or chosen elsewhere
        return Decision(result, proof[OURS], proof[OURS])
    undecided = choosing = seen[best.name]
    if yardstick and not len(best.learnt):
        undecided = np.concatenate([problem.errors_of(best, problem.teacher.for_search), choosing])
    return Decision(result, choosing, np.concatenate([undecided, proof[OURS]]))


def is_surely_less(errors: Array, others: Array, config: TuneConfig = DEFAULT) -> bool:
    """Whether paired errors are lower in the mean, and in most resamples in the mean root, which few samples sway."""
    if errors.mean() >= others.mean():
        return False
    difference = np.sqrt(errors) - np.sqrt(others)
    rows = np.random.default_rng(0).integers(0, len(difference), (config.resamples, len(difference)))
    return float((difference[rows].mean(axis=1) < 0).mean()) >= config.confidence


def upper_bound(values: Array, confidence: float) -> float:
    """Below which the mean lies with this confidence, one-sided, by Student's t."""
    count = len(values)
    if count < 2:
        return math.inf
    return float(values.mean() + student_quantile(confidence, count - 1) * values.std(ddof=1) / math.sqrt(count))


def student_quantile(share: float, freedom: int) -> float:
    """Of Student's distribution, by the expansion of Cornish and Fisher (Abramowitz and Stegun 26.7.5)."""
    z = NormalDist().inv_cdf(share)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + first / freedom + second / freedom**2 + third / freedom**3 + fourth / freedom**4
