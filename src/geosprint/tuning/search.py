"""The search for one number of steps: foretell many, try a few, follow the best downhill, look around there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from geosprint.schedule import gaps_of, known_times, times_of
from geosprint.tuning.descent import Correction, Foretold, descended
from geosprint.tuning.evaluation import Course, Trial
from geosprint.tuning.measures import Telling
from geosprint.tuning.surrogate import Shadow

Array = NDArray[np.float64]

FEWEST_ENTRANTS, MOST_ENTRANTS = 3, 12  # starts that race
EARLY = 0.5  # share of them at least that begin at the first time: what late starts cost is foretold less well
HOPEFUL = 2.0  # times the least foretold error up to which a late start races
EARLIEST = 0.95  # of the clock
RADII = (0.4, 1.5)  # of descents without correction, in the logarithm of a gap; the start itself races too
HEATS = (0.125, 0.25, 0.5, 1.0)  # share of the walks that a racer has done after each heat
RACER = 0.25  # walks through the whole course that a racer costs in the mean
RACE_SHARE = 0.5  # of the allowance
DESCENT_SHARE = 0.5  # of what the race leaves
TWIN_SHARE = 0.5  # of what the descents leave
FEWEST_FINALISTS, MOST_FINALISTS = 2, 5
FIRST_RADIUS, LEAST_RADIUS, LARGEST_RADIUS = 0.3, 0.02, 1.5  # of a corrected one
FEWEST_NEIGHBOURS, MOST_NEIGHBOURS = 4, 16  # that race in one round
STAYING = (1 / 3, 1 / 8, 1 / 8)  # share of them that goes on to each further heat, but always one
SPREAD, LEAST_SPREAD = 0.1, 0.02  # of neighbours, in the logarithm of a gap
ALLOWED = 1.01  # times the foretold error of the best, up to which a neighbour is worth a walk
DRAWS = 20  # for each neighbour wanted


@dataclass(frozen=True, eq=False)
class Racer:
    """A schedule that was foretold to be good, and how it did on the walks it has done so far."""

    name: str  # the start it grew from
    foretold: Array  # (walks,) errors, as foretold from fine walks alone
    trial: Trial

    @property
    def real(self) -> float:
        """The mean root of the error on all walks: the foretold one, set right by what it was off by so far."""
        foretold, real = np.sqrt(self.foretold), np.sqrt(self.trial.errors)
        return float(foretold.mean() + (real - foretold[: len(real)]).mean())


@dataclass(frozen=True, eq=False)
class Found:
    """The best schedule of a search, and how it came about."""

    trial: Trial  # on all walks
    twin: Trial  # its like that begins the other way, at the first time or late; else what it was before it settled
    grown_from: str
    best_starter: Racer  # a start that raced as it was: where a few walks tip over, it may carry over better to others
    foretold: dict[str, float]  # error of every start
    racers: list[Racer]  # best first
    rounds: list[float]  # error of every real trial, in order

    @property
    def candidates(self) -> list[Array]:
        """What is worth being judged."""
        three = (self.trial, self.twin, self.best_starter.trial)
        return list({trial.times.tobytes(): trial.times for trial in three}.values())

    def origin_of(self, candidate: Array) -> str:
        """The start that a candidate grew from, or is."""
        grew = any(np.array_equal(candidate, trial.times) for trial in (self.trial, self.twin))
        return self.grown_from if grew else self.best_starter.name


class Search:
    """Finds times for one number of steps within an allowance of calls."""

    def __init__(self, course: Course, telling: Telling, price: int, allowance: int) -> None:
        self._course, self._price, self._allowance = course, price, allowance  # price: calls of one walk
        self._last_call = course.model.nfe + allowance
        self._coordinates, self._measure = telling.coordinates, telling.measure
        self._told = telling.walks.at(slice(0, len(course.walks)))
        self._response = telling.response
        self._rounds: list[float] = []

    def best_of(self, starts: dict[str, Array]) -> Found:
        """Foretell all starts, race the best of them and what grows from them, follow the finalists downhill."""
        law = self.law
        foretold = {name: law.tempered(times) for name, times in starts.items()}
        entrants = {name: starts[name] for name in self._entrants(foretold, starts)}
        grown = [
            (name, self._known(descended(law, times, radius))) for radius in RADII for name, times in entrants.items()
        ]
        racers = self._raced(law, _distinct([*entrants.items(), *grown]))
        finalists = [racer for racer in racers if len(racer.trial.errors) == len(self._told)][:MOST_FINALISTS]
        last = self._calls + int(DESCENT_SHARE * (self._last_call - self._calls))
        ends = [(self._followed(racer.trial, last), racer.name) for racer in finalists]
        best, name = min(ends, key=lambda one: one[0].tempered)
        best, twin = sorted((best, self._begun_at_the_first_time(best)), key=lambda trial: trial.tempered)
        best = self._settled(best)
        starters = [racer for racer in racers if np.array_equal(racer.trial.times, starts[racer.name])]
        return Found(best, twin, name, min(starters, key=_real), foretold, racers, self._rounds)

    def _entrants(self, foretold: dict[str, float], starts: dict[str, Array]) -> list[str]:
        """The starts foretold to be best, of those that begin at the first time and of the others."""
        order = sorted(foretold, key=lambda name: (foretold[name], name))
        early = [name for name in order if self._told.noise.clock(starts[name][0]) > EARLIEST]
        affordable = int(RACE_SHARE * self._allowance / (RACER * self._price * len(self._told) * (1 + len(RADII))))
        count = min(max(affordable, FEWEST_ENTRANTS), MOST_ENTRANTS)
        hopeful = [name for name in order if name not in early and foretold[name] < HOPEFUL * foretold[order[0]]]
        late = hopeful[: count - round(EARLY * count)]
        return early[: count - len(late)] + late

    def _raced(self, law: Foretold, grown: list[tuple[str, Array]]) -> list[Racer]:
        """Heats on more and more walks for fewer and fewer racers; those that finished come first, best first.

        After the first heat what is best of each start goes on alone, so that finalists differ.
        """
        first, *others = sorted(set(self._heats))
        racing = [Racer(name, law.errors(times), self._tried(times, slice(0, first))) for name, times in grown]
        left_behind: list[Racer] = []
        for upto in others:
            staying = best_of_each_start(racing)[: max(FEWEST_FINALISTS, len(racing) // 2)]
            left_behind += [racer for racer in racing if racer not in staying]
            racing = [self._carried_on(racer, upto) for racer in staying]
        return sorted(racing, key=_real) + sorted(left_behind, key=_real)

    def _carried_on(self, racer: Racer, upto: int) -> Racer:
        if len(racer.trial.errors) == upto:  # of few walks, two heats are the same
            return racer
        further = self._tried(racer.trial.times, slice(len(racer.trial.errors), upto))
        return replace(racer, trial=racer.trial.joined_with(further))

    def _followed(self, best: Trial, last: int) -> Trial:
        """Downhill from a trial, each step foretold with what the last ones were off by, up to the last call."""
        radius, trials = FIRST_RADIUS, [best]
        while radius > LEAST_RADIUS and self._calls + self._price * len(self._told) <= last:
            corrected = Foretold(self._shadow, self._measure, self._correction(best, trials))
            times = self._begun_alike(best, descended(corrected, best.times, radius))
            if any(np.array_equal(times, trial.times) for trial in trials):
                return best
            trial, hoped_for = self._tried(times), best.tempered - corrected.tempered(times)
            trials.append(trial)
            if trial.tempered >= best.tempered:
                radius /= 2
                continue
            radius = min(2 * radius, LARGEST_RADIUS) if best.tempered - trial.tempered > hoped_for / 2 else radius
            best = trial
        return best

    def _begun_at_the_first_time(self, best: Trial) -> Trial:
        """The same from the first time on, and downhill: that a late start tips walks over shows only in many walks."""
        early = self._known(np.array([self._first, *best.times[1:]]))
        one_trial = self._price * len(self._told)
        if np.array_equal(early, best.times) or self._calls + one_trial > self._last_call:
            return best
        twin = self._tried(early)
        return self._followed(twin, self._calls + int(TWIN_SHARE * (self._last_call - self._calls)))

    def _settled(self, best: Trial) -> Trial:
        """The best of many neighbours, while calls are left: networks jitter in time, which no shadow foretells."""
        random, spread = np.random.default_rng(0), SPREAD
        while spread > LEAST_SPREAD and (count := self._affordable_neighbours) >= FEWEST_NEIGHBOURS:
            found = self._best_neighbour(best, self._neighbours(best, spread, count, random))
            best, spread = (found, spread) if found.tempered < best.tempered else (best, spread / 2)
        return best

    def _neighbours(self, best: Trial, spread: float, count: int, random: np.random.Generator) -> list[Array]:
        """At most so many schedules near the best that are foretold to be about as good."""
        law, noise = self.law, self._told.noise
        gaps, most = gaps_of(best.times, noise), ALLOWED * law.tempered(best.times)
        found = {best.times.tobytes(): best.times}
        for draw in random.normal(size=(DRAWS * count, len(gaps))):
            times = self._begun_alike(best, times_of(gaps + spread * draw, noise))
            if law.tempered(times) < most:
                found[times.tobytes()] = times
            if len(found) > count:
                break
        return list(found.values())[1:]

    def _best_neighbour(self, best: Trial, neighbours: list[Array]) -> Trial:
        """The one that wins heats on more and more walks, or the best itself where there is none."""
        law, (first, *others) = self.law, self._heats
        racing = [Racer("", law.errors(times), self._tried(times, slice(0, first))) for times in neighbours]
        for upto, count in zip(others, _staying(len(neighbours)), strict=True):
            racing = [self._carried_on(racer, upto) for racer in sorted(racing, key=_real)[:count]]
        return min((racer.trial for racer in racing), key=lambda trial: trial.tempered, default=best)

    @property
    def _heats(self) -> list[int]:
        """Walks that a racer has done after each heat."""
        return [max(round(share * len(self._told)), 1) for share in HEATS]

    @property
    def _affordable_neighbours(self) -> int:
        """As many as the calls left let race through all heats."""
        walks = np.diff([0, *self._heats])
        left = (self._last_call - self._calls) / self._price
        counts = range(MOST_NEIGHBOURS, 0, -1)
        return next((count for count in counts if (walks * (count, *_staying(count))).sum() <= left), 0)

    def _correction(self, best: Trial, trials: list[Trial]) -> Correction:
        """What the shadow is off by at the best trial, and how that changes toward the others."""
        shadow, noise = self._shadow, self._told.noise
        off = {
            id(trial): self._coordinates.of_samples(trial.end) - shadow.end(trial.times.tolist()) for trial in trials
        }
        others = [(gaps_of(trial.times, noise), off[id(trial)]) for trial in trials if trial is not best]
        return Correction.of(gaps_of(best.times, noise), off[id(best)], others)

    @property
    def law(self) -> Foretold:
        """What is foretold with all that was learnt."""
        return Foretold(self._shadow, self._measure)

    @property
    def _calls(self) -> int:
        return self._course.model.nfe

    @property
    def _shadow(self) -> Shadow:
        return Shadow(self._told, self._response, self._course.solver)

    def _tried(self, times: Array, rows: slice | None = None) -> Trial:
        """A real trial, from which the response learns."""
        trial = self._course.tried(times, rows)
        told = [[self._coordinates.of_samples(x) for x in along] for along in (trial.states, trial.x0)]
        self._response = self._response.taught(self._told.at(rows or slice(None)), times.tolist(), *told)
        self._rounds.append(trial.error)
        return trial

    def _begun_alike(self, best: Trial, times: Array) -> Array:
        """Times near the best: where that begins at the first time, they do."""
        return self._known(np.array([self._first, *times[1:]]) if best.times[0] == self._first else times)

    @property
    def _first(self) -> float:
        return self._told.noise.first

    def _known(self, times: Array) -> Array:
        return known_times(times, self._course.walks.noise)


def _distinct(named: list[tuple[str, Array]]) -> list[tuple[str, Array]]:
    """Each schedule once, under the first name that led to it."""
    return list({times.tobytes(): (name, times) for name, times in reversed(named)}.values())


def _staying(count: int) -> list[int]:
    """How many of so many neighbours go on to each further heat."""
    return [max(int(share * count), 1) for share in STAYING]


def best_of_each_start(racing: list[Racer]) -> list[Racer]:
    """One racer of each start, best first."""
    best: dict[str, Racer] = {}
    for racer in sorted(racing, key=_real):
        best.setdefault(racer.name, racer)
    return list(best.values())


def _real(racer: Racer) -> float:
    return racer.real
