"""The fewest steps that are as good as today's: which numbers of steps to try, and which of them is proved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from geosprint.baselines import closed_forms
from geosprint.estimates import SMALLEST
from geosprint.fitting.fit import forms_of
from geosprint.noise import Array
from geosprint.runs.progress import Progress
from geosprint.tuned import FITTED
from geosprint.tuning.candidates import contenders, plain_predictor
from geosprint.tuning.config import TuneConfig
from geosprint.tuning.deciding import Decision, Yardstick, decided
from geosprint.tuning.problem import Contender, TuningProblem, walk_price
from geosprint.tuning.wish import Wish

FEWEST = 2  # what a schedule has at least


def tuned_for_each(problem: TuningProblem, wish: Wish, yardstick: Yardstick, bar: Progress) -> list[Decision]:
    """Each number of steps that was asked for; more steps get more of the calls, because their walks cost more."""
    left, found = list(wish.steps), []
    while left:
        steps = left.pop(0)
        bar.say(f"{steps} steps")
        calls = int(steps / (steps + sum(left)) * (wish.budget_nfe - problem.model.nfe))
        found.append(tuned_steps(problem, wish, steps, calls, yardstick))
    return found


def fewest_steps(problem: TuningProblem, wish: Wish, yardstick: Yardstick, bar: Progress) -> list[Decision]:
    """The number of steps that is expected to be proved, tuned in full; then fewer, or more where it was not."""
    config, most = problem.config, wish.today.today.steps
    steps: int | None = _expected_number(problem, wish, yardstick, most, bar)
    found: dict[int, Decision] = {}
    for share in config.full_shares:
        left = wish.budget_nfe - problem.model.nfe
        if found:
            steps = affordable_number(steps, sorted(found), most_affordable(problem, wish, left))
        if steps is None:
            break
        bar.say(f"{steps} steps")
        is_last = (1 - share) * left < least_calls(problem, wish, steps)
        found[steps] = tuned_steps(problem, wish, steps, left if is_last else int(share * left), yardstick)
        proved = proved_number(list(found.values()), yardstick)
        last = found[steps]
        bound = expected_bound(problem, yardstick, last.choosing) if proved else yardstick.bound(last)
        steps = following_number(sorted(found), proved, bound, most, config)
    return list(found.values())


def _expected_number(problem: TuningProblem, wish: Wish, yardstick: Yardstick, most: int, bar: Progress) -> int:
    """The fewest steps that would be proved, by a cheap look at some: schedules of the surrogate, and a fit."""
    config, seen = problem.config, dict[int, float]()
    affordable = most_affordable(problem, wish, (wish.budget_nfe - problem.model.nfe) // 3)  # a look, and two in full
    first = min(first_number(problem, wish, yardstick.goal, most), max(affordable, FEWEST + 1))
    steps: int | None = first
    for _ in range(config.probes):
        if steps is None or problem.model.nfe + 3 * least_calls(problem, wish, steps) > wish.budget_nfe:
            break
        bar.say(f"a look at {steps} steps")
        enough = len(problem.undecided) * steps * problem.model.calls
        (quick, *_), _ = contenders(problem, wish, steps, enough)
        errors = quick.learnt if len(quick.learnt) else problem.errors_of(quick, problem.selecting)
        # In full, refinement lowers it: the margin of a proof by other noise.
        seen[steps] = max(expected_bound(problem, yardstick, errors), SMALLEST)
        steps = next_number(seen, 1.0, most, config.first_slope)
    reaching = [k for k in seen if seen[k] <= 1]
    return min(reaching, default=steps or max(seen, default=first))


def expected_bound(problem: TuningProblem, yardstick: Yardstick, errors: Array) -> float:
    """Of errors like these on all trajectories, in parts of today's or of the target."""
    return yardstick.expected_bound(errors, len(problem.teacher.for_search) + len(problem.teacher.for_validation))


def following_number(
    tried: Sequence[int], proved: int | None, bound: float, most: int, config: TuneConfig
) -> int | None:
    """More steps than the most tried where none are proved, else fewer than are; as many as the last bound suggests.

    None: nothing is left to be tried.
    """
    if proved is None:
        more = max(bound ** (1 / config.first_slope), config.next_factor)
        return min(math.ceil(more * tried[-1]), most) if tried[-1] < most else None
    refused = max((steps for steps in tried if steps < proved), default=FEWEST - 1)
    if proved - refused <= 1:
        return None
    wanted = math.ceil(proved * bound ** (1 / config.careful_slope))
    return min(max(wanted, refused + 1), proved - 1)


def affordable_number(wanted: int | None, tried: Sequence[int], most: int) -> int | None:
    """As many of the wanted steps as calls are left for; None where fewer were refused already, or are not wanted."""
    if wanted is None or wanted <= most:
        return wanted
    return most if tried[-1] < most else None


def tuned_steps(problem: TuningProblem, wish: Wish, steps: int, calls: int, yardstick: Yardstick | None) -> Decision:
    """One number of steps with so many calls."""
    searching = max(calls - judging_calls(problem, wish, steps), 0)
    ours, known = contenders(problem, wish, steps, searching)
    yours = wish.yours(steps)
    named = Contender("yours", yours, wish.solver) if yours else None
    return decided(problem, ours, known, named, yardstick)


def judging_calls(problem: TuningProblem, wish: Wish, steps: int) -> int:
    """Of choosing among candidates and of deciding."""
    choosing = problem.config.finalists * len(problem.selecting) + len(problem.teacher.for_search)
    deciding = (2 + (wish.against is not None)) * len(problem.deciding)
    walks = deciding if wish.solver == FITTED else choosing + deciding
    return walks * walk_price(problem.model, steps, wish.solver)


def least_calls(problem: TuningProblem, wish: Wish, steps: int) -> int:
    """That pay for one number of steps found in the cheapest way."""
    fitting = len(problem.undecided) * len(forms_of(problem.model)) if wish.solver == FITTED else 0
    return judging_calls(problem, wish, steps) + fitting * walk_price(problem.model, steps, wish.solver)


def most_affordable(problem: TuningProblem, wish: Wish, calls: int) -> int:
    """The most steps that so many calls pay for in the cheapest way."""
    first, second = (least_calls(problem, wish, steps) for steps in (1, 2))
    return (calls - first) // (second - first) + 1


def first_number(problem: TuningProblem, wish: Wish, goal: float, most: int) -> int:
    """The fewest steps with which a closed form is predicted to reach the goal, or what a fit makes up for."""
    config = problem.config
    predictor = plain_predictor(problem, config.joint_solver if wish.solver == FITTED else wish.solver)
    enough = goal * (config.fitted_gain if wish.solver == FITTED else 1.0)

    def reaches(steps: int) -> bool:
        return min(predictor.tempered_each(list(closed_forms(problem.model.noise, steps).values()))) <= enough

    return next((steps for steps in range(FEWEST, most) if reaches(steps)), most)


def next_number(tried: Mapping[int, float], goal: float, most: int, slope: float) -> int | None:
    """The number of steps at which a power law through what was tried reaches the goal; None: it is known already.

    `slope` is how fast errors fall until two numbers of steps have shown it.
    """
    failed = [steps for steps in tried if tried[steps] > goal]
    passed = [steps for steps in tried if tried[steps] <= goal]
    low, high = max(failed, default=FEWEST - 1), min(passed, default=most + 1)
    if high - low <= 1:
        return None
    nearest = sorted(tried, key=lambda steps: abs(math.log(tried[steps] / goal)))
    here = nearest[0]
    if len(nearest) > 1:
        there = nearest[1]
        slope = min(max(math.log(tried[here] / tried[there]) / math.log(there / here), SLOPES[0]), SLOPES[1])
    wanted = math.ceil(here * (tried[here] / goal) ** (1 / slope) - 1e-9)
    return min(max(wanted, low + 1), high - 1)


SLOPES = (1.0, 4.0)  # the order of a solver: from Euler's to that of four predictions


def proved_number(decisions: Sequence[Decision], yardstick: Yardstick) -> int | None:
    """The fewest steps down to which, from the most on, all are proved.

    Taken in this order, each at 95 %, tests of several numbers of steps are wrong together no more often than one.
    """
    proved = None
    for one in sorted(decisions, key=lambda one: -one.result.steps):
        if not yardstick.is_proved(one):
            break
        proved = one.result.steps
    return proved
