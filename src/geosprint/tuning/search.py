"""The search for one number of steps: predict many, evaluate a few, and follow the best downhill."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import islice, pairwise

import numpy as np

from geosprint.noise import Array
from geosprint.runs.team import this_team
from geosprint.schedule import gaps_of, known_times
from geosprint.tuning.descent import Correction, PredictedError, descended
from geosprint.tuning.evaluation import Evaluation, Evaluator
from geosprint.tuning.surrogate import Projection, Surrogate


@dataclass(frozen=True, eq=False)
class Candidate:
    """A schedule in successive halving, and how it did on the trajectories it has seen so far."""

    name: str  # the start it grew from
    predicted: Array  # (walks,) errors on all trajectories, as predicted before the first rung
    evaluation: Evaluation

    @property
    def mean_root(self) -> float:
        """Of the error on all trajectories: the predicted one, set right by what it was off by so far."""
        predicted, real = np.sqrt(self.predicted), np.sqrt(self.evaluation.errors)
        return float(predicted.mean() + (real - predicted[: len(real)]).mean())


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The best schedule of a search, and how it came about."""

    best: Evaluation  # on all trajectories
    variant: Evaluation  # over the full range where the best begins late, or the other way; else the best itself
    best_start: Candidate  # as it was: where a few samples land in another mode, it may carry over better to others
    predicted: dict[str, float]  # error of every start
    candidates: list[Candidate]  # of successive halving, best first
    predictor: PredictedError  # with all that was learnt


class ScheduleSearch:
    """Finds times for one number of steps within an allowance of calls."""

    def __init__(self, evaluator: Evaluator, projection: Projection, price: int, allowance: int) -> None:
        self._evaluator, self._price, self._allowance = evaluator, price, allowance  # price: calls of one walk
        self._last_call = evaluator.model.nfe + allowance
        self._projection, self._config = projection, projection.config
        self._teacher = projection.trajectories.at(slice(0, len(evaluator.trajectories)))
        self._response = projection.response  # learns from every evaluation

    def best_of(self, starts: dict[str, Array]) -> SearchResult:
        """Predict all starts, halve the best of them and what grows from them, follow the finalists downhill."""
        config, predictor = self._config, self._predictor()
        predicted = dict(zip(starts, predictor.tempered_each(list(starts.values())), strict=True))
        chosen = {name: starts[name] for name in self._chosen_starts(predicted, starts)}
        begun = [(radius, name) for radius in config.radii for name in chosen]
        grown = this_team().each([partial(descended, predictor, chosen[name], radius) for radius, name in begun])
        named = [(name, self._known(times)) for (_, name), times in zip(begun, grown, strict=True)]
        candidates = self._halved(predictor, _distinct([*chosen.items(), *named]))
        finalists = [one for one in candidates if len(one.evaluation.errors) == len(self._teacher)]
        last = self._calls + int(config.descent_share * (self._last_call - self._calls))
        ends = [self._followed(one.evaluation, last) for one in finalists[: config.most_finalists]]
        best = min(ends, key=lambda end: end.tempered)
        best, variant = sorted((best, self._over_full_range(best)), key=lambda one: one.tempered)
        as_they_were = [one for one in candidates if np.array_equal(one.evaluation.times, starts[one.name])]
        best_start = min(as_they_were, key=_mean_root)
        return SearchResult(best, variant, best_start, predicted, candidates, self._predictor())

    def _chosen_starts(self, predicted: dict[str, float], starts: dict[str, Array]) -> list[str]:
        """The starts predicted to be best, of those that begin at the first time and of the others."""
        config = self._config
        if not config.ranks_by_prediction:
            predicted = dict(zip(predicted, np.random.default_rng(0).uniform(1, 2, len(predicted)), strict=True))
        order = sorted(predicted, key=lambda name: (predicted[name], name))
        early = [name for name in order if self._teacher.noise.clock(starts[name][0]) > config.early_clock]
        cost = config.candidate_cost * self._price * len(self._teacher) * (1 + len(config.radii))
        count = min(max(int(config.halving_share * self._allowance / cost), config.fewest_starts), config.most_starts)
        limit = config.late_factor * predicted[order[0]]
        near = [name for name in order if name not in early and predicted[name] < limit]
        late = near[: count - round(config.early_share * count)]
        return early[: count - len(late)] + late

    def _halved(self, predictor: PredictedError, named: list[tuple[str, Array]]) -> list[Candidate]:
        """Rungs on more and more trajectories for fewer and fewer candidates; those that finished first, best first.

        After the first rung what is best of each start goes on alone, so that finalists differ.
        """
        first, *others = sorted(set(self._rungs))
        staying = self._candidates(predictor, named, first)
        left_behind: list[Candidate] = []
        while others:
            kept = best_of_each_start(staying)[: max(self._config.fewest_finalists, len(staying) // 2)]
            left_behind += [one for one in staying if one not in kept]
            together = len(others) if len(kept) <= self._config.fewest_finalists else 1  # all of these go on
            staying = self._on_further_rungs(kept, others[:together])
            others = others[together:]
        return sorted(staying, key=_mean_root) + sorted(left_behind, key=_mean_root)

    def _candidates(self, predictor: PredictedError, named: list[tuple[str, Array]], upto: int) -> list[Candidate]:
        """On the first rung."""
        schedules, unknown = [times for _, times in named], np.zeros(len(self._teacher))
        predicted = predictor.errors_each(schedules) if self._config.ranks_by_prediction else [unknown] * len(named)
        found = self._evaluate_each([(times, slice(0, upto)) for _, times in named])
        return [Candidate(name, errors, one) for (name, _), errors, one in zip(named, predicted, found, strict=True)]

    def _on_further_rungs(self, candidates: list[Candidate], rungs: list[int]) -> list[Candidate]:
        """Which all of them climb, so that nothing is waited for between two."""
        between = [slice(*ends) for ends in pairwise([len(candidates[0].evaluation.errors), *rungs])]
        found = iter(self._evaluate_each([(one.evaluation.times, rows) for one in candidates for rows in between]))
        return [
            replace(one, evaluation=reduce(Evaluation.joined_with, islice(found, len(between)), one.evaluation))
            for one in candidates
        ]

    def _followed(self, best: Evaluation, last: int) -> Evaluation:
        """Downhill, each step predicted with what the last ones were off by, up to the last call."""
        config, seen = self._config, [best]
        radius = config.first_radius
        while radius > config.least_radius and self._calls + self._price * len(self._teacher) <= last:
            corrected = self._corrected_predictor(best, seen)
            times = self._begun_alike(best, descended(corrected, best.times, radius))
            if any(np.array_equal(times, one.times) for one in seen):
                return best
            found, hoped_for = self._evaluate(times), best.tempered - corrected.tempered(times)
            seen.append(found)
            if found.tempered >= best.tempered:
                radius /= 2
                continue
            keeps_its_word = best.tempered - found.tempered > hoped_for / 2
            radius = min(2 * radius, config.largest_radius) if keeps_its_word else radius
            best = found
        return best

    def _over_full_range(self, best: Evaluation) -> Evaluation:
        """The same from the first time on, and downhill: what a late start costs shows only on many trajectories."""
        early = self._known(np.array([self._first, *best.times[1:]]))
        cannot_pay = self._calls + self._price * len(self._teacher) > self._last_call
        if not self._config.full_range_variant or np.array_equal(early, best.times) or cannot_pay:
            return best
        variant = self._evaluate(early)
        share = self._config.variant_share
        return self._followed(variant, self._calls + int(share * (self._last_call - self._calls)))

    @property
    def _rungs(self) -> list[int]:
        """Trajectories that a candidate has seen after each rung."""
        return [max(round(share * len(self._teacher)), 1) for share in self._config.rungs]

    def _predictor(self) -> PredictedError:
        """With all that was learnt so far; what is learnt later does not change it."""
        surrogate = Surrogate(self._teacher, self._response, self._evaluator.solver, self._config)
        return PredictedError(surrogate, self._projection.measure, config=self._config)

    def _corrected_predictor(self, best: Evaluation, seen: list[Evaluation]) -> PredictedError:
        """Right at the best evaluation, and with how that correction changes toward the others."""
        plain, noise = self._predictor(), self._teacher.noise
        off = [(one, one.end - plain.surrogate.end(one.times.tolist())) for one in seen]
        others = [(gaps_of(one.times, noise), by) for one, by in off if one is not best]
        here = next(by for one, by in off if one is best)
        correction = Correction.of(gaps_of(best.times, noise), here, others, self._config)
        return replace(plain, correction=correction)

    @property
    def _calls(self) -> int:
        return self._evaluator.model.nfe

    def _evaluate(self, times: Array) -> Evaluation:
        return self._evaluate_each([(times, slice(None))])[0]

    def _evaluate_each(self, asked: list[tuple[Array, slice]]) -> list[Evaluation]:
        """On the network; the response learns from them."""
        found = self._evaluator.evaluate_each(asked)
        if self._config.learns_response:
            for one, (times, rows) in zip(found, asked, strict=True):
                self._response = self._response.updated(self._teacher.at(rows), times.tolist(), one.states, one.x0)
        return found

    def _begun_alike(self, best: Evaluation, times: Array) -> Array:
        """Times near the best: where that begins at the first time, they do."""
        return self._known(np.array([self._first, *times[1:]]) if best.times[0] == self._first else times)

    @property
    def _first(self) -> float:
        return self._teacher.noise.first

    def _known(self, times: Array) -> Array:
        return known_times(times, self._teacher.noise)


def _distinct(named: list[tuple[str, Array]]) -> list[tuple[str, Array]]:
    """Each schedule once, under the first name that led to it."""
    return list({times.tobytes(): (name, times) for name, times in reversed(named)}.values())


def best_of_each_start(candidates: list[Candidate]) -> list[Candidate]:
    """One candidate of each start, best first."""
    best: dict[str, Candidate] = {}
    for one in sorted(candidates, key=_mean_root):
        best.setdefault(one.name, one)
    return list(best.values())


def _mean_root(candidate: Candidate) -> float:
    return candidate.mean_root
