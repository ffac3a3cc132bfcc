"""Every constant of fitting with its reason: an ablation is a `replace()` (python -m benchmarks.tune_ablation)."""

from __future__ import annotations

from dataclasses import dataclass

from geosprint.fitted_solver import MOST_PREDICTIONS


@dataclass(frozen=True)
class FitConfig:
    """How schedules to fit on are chosen, how each step is fitted, and how all of them are refined together.

    "Trajectories" are teacher trajectories that are learnt from; a ridge is relative to the squared length of what a
    coefficient multiplies.
    """

    order: int = MOST_PREDICTIONS  # predictions that a step looks at: many steps gain by each of them (docs/fit.md)

    # Which schedules are fitted, and which fits are refined
    screened_on: int = 8  # trajectories: errors are up to 6 % above those with 48 (docs/fit.md); 16 cost a refinement
    fewest_screened: int = 6  # schedules, rather than a refinement: a choice among fewer is none; no benchmark
    finalists: int = 8  # fitted to all trajectories: eight rank schedules with a correlation of 0.76 (docs/fit.md)
    fewest_finalists: int = (
        4  # of many steps, rather than slopes of all trajectories: flips decide (docs/fit.md) (stage)
    )
    many_steps: int = 15  # of which that holds; of fewer, no benchmark
    refined_first: int = 3  # fits, a little, before the best is in full: some schedules gain more (docs/fit.md) (stage)
    first_slopes: int = 16  # trajectories behind their slopes: hardly more than the fewest; no benchmark
    flattery: float = 0.04  # of a stepwise error, lower on what it was fitted to than on other noise; no benchmark

    # The stepwise fit
    reweightings: int = 6  # from squares to distances: nothing moves from the fifth on
    weighs_errors: bool = True  # by what the end will have of them (docs/fit.md, which errors count) (stage)
    ridge: float = 1e-4  # settles what data leave open, and is too weak to be seen elsewhere; no benchmark
    bound: float = 2.0  # on a coefficient's distance from DPM++ 2M's: useful ones are up to 1.7; see docs/tune.md
    stronger: float = 10.0  # times the ridge beyond the bound: its order of magnitude is all that matters

    # Refinement on the end
    rounds: int = 4  # at most, of which each costs as much as the first; 0: none (stage)
    least_gain: float = 0.01  # of a round, relative, that is followed by another: else the next fit gets the calls
    nudge: float = 1e-2  # root mean square by which a state is moved: trained networks are not smooth on less
    time_nudge: float = 0.1  # share of the gap to the next time by which one is moved, for the same reason
    moved_times: int = 6  # steps up to which times move, too: ten have 1.00 to 1.03 (docs/fit.md); 0: never (stage)
    directions: int = 12  # along which the network is asked at a step: forty are no better (docs/fit.md)
    fewest_directions: int = 5  # rather than fewer, fewer trajectories: three are worse than six (docs/fit.md)
    fewest_slopes: int = 12  # trajectories: six are learnt by heart, and make four steps of digits half as bad again
    folds: int = 6  # of trajectories left out in turn: the other five sixths are nearly all; costs no call
    end_reweightings: int = 3  # as `reweightings`, half of them: every fold and ridge repeats them; no benchmark
    ridges: tuple[tuple[float, float], ...] = ((1e-3, 1.0), (1e-1, 1.0))  # coefficients', times': slopes hold so far
    time_ridges: tuple[tuple[float, float], ...] = ((1e-1, 1e-1), (1e-1, 1e-2))  # as well, where times are moved
    end_bound: float = 4.0  # as `bound`: slopes tell more of a coefficient than a step does
