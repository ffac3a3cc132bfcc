"""Every constant of tuning with its reason: an ablation is a `replace()` (python -m benchmarks.tune_ablation)."""

from __future__ import annotations

from dataclasses import dataclass, field

from geosprint.fitting.config import FitConfig
from geosprint.teacher import TeacherConfig


@dataclass(frozen=True)
class TuneConfig:
    """How the calls of a tuning are divided, and how the surrogate, the search and the validation work.

    "Gap" numbers are natural logarithms of the gaps between steps; "trajectories" are teacher trajectories.
    """

    teacher: TeacherConfig = field(default_factory=TeacherConfig)
    fit: FitConfig = field(default_factory=FitConfig)

    # The surrogate
    coordinates: int = 256  # that a sample is projected to: tell a root mean square over 48 samples to a hundredth
    feature_numbers: int = 4096  # of a sample whose features are tuned for: all coordinates are kept, a matrix of 64 MB
    response_nodes: int = 65  # of the clock's square root, where factors of the response are known: three to a reach
    response_reach: float = 0.05  # of an observation, in the clock's square root: to the next of some twenty steps
    response_trust: float = 0.05  # the Gaussian response counts as so many observations: a single one outweighs it
    response_floor: float = 0.1  # of a displacement: a smaller Gaussian response, as at the start, tells no factor
    largest_factor: float = 10.0  # beyond it, and below 0, there is noise alone
    smallest_displacement: float = 1e-6  # mean square, from which the response can be observed above rounding
    time_nudge: float = 1e-3  # share of all time by which a step is moved for a slope: one timestep of a thousand
    learns_response: bool = True  # from every evaluation (stage)

    # The surrogate's fits
    surrogate_ridge: float = 1e-6  # of a stepwise one: predictions have no noise, only the rounding of float32
    surrogate_end_ridge: float = 1e-3  # of a refined one: as weak as that of `fit.ridges` which trusts slopes most
    surrogate_rounds: int = 2  # of refinement: enough to rank schedules (docs/fit.md, what predicts a fit)

    # Levenberg and Marquardt's descent
    descent_rounds: int = 8  # most descents stand still before
    least_gain: float = 2e-3  # of a round, relative, that is followed by another: predictions are off by far more
    dampings: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)  # of the mean curvature: from Newton to downhill
    smoothness: float = 0.1  # of the error for a mean squared bend of 1: free steps fit noise (tune-choices.md, 34)
    gap_nudge: float = 1e-2  # over which the slope of a measure is taken: nearly straight, and far above rounding
    secant_reach: float = 1.0  # gap numbers: evaluations farther away bend too much to give one; 0: no secants (stage)
    secant_trust: float = 0.03  # share of a move's square by which its secant is drawn to nothing: ends are not linear

    # Where a search begins, and which starts become candidates of successive halving
    blends: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 1.0)  # of the paper's schedule: evenly; 0 is a closed form
    grid: int = 100  # times that published schedules read trajectories at: more than the 60 of a teacher
    published_starts: bool = True  # beside closed forms: blends and published schedules on the surrogate (stage)
    ranks_by_prediction: bool = True  # False: drawn at random, and rungs see evaluations alone (stage)
    fewest_starts: int = 3  # even where calls are few: one wrong prediction should not decide
    most_starts: int = 12  # the predicted order is right to about that many places
    early_share: float = 0.5  # of them at least begin at the first time: the cost of late ones is predicted less well
    early_clock: float = 0.95  # of the clock, from which on a start is early: `leading` spacings begin a little below 1
    late_factor: float = 2.0  # times the least predicted error, of late starts: off by 1/3 on digits (tune-choices.md)
    radii: tuple[float, ...] = (0.4, 1.5)  # gap numbers, of free descents: long for few steps (docs/tune.md) (stage)

    # Successive halving, corrected descents, full-range variant
    rungs: tuple[float, ...] = (0.125, 0.25, 0.5, 1.0)  # share of the trajectories that a candidate has seen: doubled
    candidate_cost: float = 0.25  # of an evaluation on all: 1/8 on the first rung, then a third, halved: 1/24 on each
    halving_share: float = 0.5  # of the search's calls: half of what there is, as both shares below; no benchmark
    descent_share: float = 0.5  # of what halving leaves, for corrected descents; 0: none (stage)
    variant_share: float = 0.5  # of what these leave, for the full-range variant
    full_range_variant: bool = True  # tune-choices.md, 41; python -m benchmarks.late_starts (stage)
    fewest_finalists: int = 2  # the second best may descend farther
    most_finalists: int = 5  # they share the calls of descents: more would hardly move; no benchmark
    first_radius: float = 0.3  # of a corrected descent, a third of a gap: doubled or halved as it keeps its word
    least_radius: float = 0.02  # a timestep in a gap of fifty: whole timesteps hardly change below
    largest_radius: float = 1.5  # as that of the longest descents before
    finalists: int = 2  # schedules that other noise chooses among: the best and its variant (tune-choices.md, 41)

    # How calls are divided, and the decision
    evaluations: int = 12  # on all trajectories that a search can pay for (tune-choices.md, 39)
    unknown_steps: int = 10  # that a budget must pay for where none were asked for: about what is proved (docs/tune.md)
    selection_share: float = 1 / 3  # of the validation trajectories choose among a few; a proof needs more than that
    confidence: float = 0.8  # share of resamples in which a surely better schedule is better (tune-choices.md, 32)
    resamples: int = 2000  # tell that share to a hundredth
    proof: float = 0.95  # confidence, one-sided, of what is called proved: what the pages and the report say
    worth_reach: float = 1.5  # of the way from a quarter of today's steps to all, in logarithms: up to twice as many

    # Schedule and solver together
    joint_solver: str = "dpmpp-2m"  # the known solver that a fitted one is most like
    joint_from: int = 7  # steps from which its best are tried for a fit: of five, they predict fits less (docs/fit.md)
    fit_starts: int = 8  # best predicted for a fit, that it is tried on: correlations are 0.93 and more (docs/fit.md)
    other_starts: int = 2  # likewise for a refined fit and for the joint solver: none predicts enough (docs/fit.md)
    moved_starts: int = 2  # of them from which descents begin: all should not end alike; 0: no descents (stage)
    always_tried: tuple[str, ...] = ("weighted-path",)  # among the three best on four networks, predicted eighth or so

    # The fewest steps that are as good as today's
    probes: int = 2  # numbers of steps that are looked at before one is tuned in full: two tell a slope
    full_shares: tuple[float, ...] = (0.5, 0.65, 1.0)  # of the calls left, for one number after another; no benchmark
    fitted_gain: float = 1.2  # of a fit over the joint solver, where looks begin: less than 1.7, the mean (docs/fit.md)
    first_slope: float = 2.0  # errors fall with this power of the steps until two have shown it: as of the second order
    careful_slope: float = 3.0  # and with this one when fewer are tried after a proof: what is refused gains nothing
    next_factor: float = 1.25  # times the steps at least, if other noise refuses what some had chosen; no benchmark

    def fewer_of(self, steps: int) -> int:
        """So many of today's steps show how their error falls."""
        return max(steps // 4, 2)


DEFAULT = TuneConfig()
