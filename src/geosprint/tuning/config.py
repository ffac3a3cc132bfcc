"""Every constant of tuning with its reason: an ablation is a `replace()` (python -m benchmarks.tune_ablation)."""

from __future__ import annotations

from dataclasses import dataclass, field

from geosprint.teacher import TeacherConfig


@dataclass(frozen=True)
class TuneConfig:
    """How the calls of a tuning are divided, and how the surrogate, the search and the validation work.

    "Gap" numbers are natural logarithms of the gaps between steps; "trajectories" are teacher trajectories.
    """

    teacher: TeacherConfig = field(default_factory=TeacherConfig)

    # The surrogate
    coordinates: int = 256  # that a sample is projected to: tell a root mean square over 48 samples to a hundredth
    feature_numbers: int = 4096  # of a sample whose features are tuned for: all coordinates are kept then
    response_nodes: int = 65  # of the clock's square root, at which the factors of the response are known
    response_reach: float = 0.05  # how far an observation is felt, in the clock's square root
    response_trust: float = 0.05  # the Gaussian response counts as much as so many observations
    response_floor: float = 0.1  # of a displacement: a smaller Gaussian response, as at the start, tells no factor
    largest_factor: float = 10.0  # beyond it, and below 0, there is noise alone
    smallest_displacement: float = 1e-6  # mean square, from which the response can be observed above rounding
    time_nudge: float = 1e-3  # share of all time by which a step is moved for a slope
    learns_response: bool = True  # from every evaluation (stage)

    # Levenberg and Marquardt's descent
    descent_rounds: int = 8  # most descents stand still before
    least_gain: float = 2e-3  # share of the error that a round must gain to be followed by another
    dampings: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)  # of the mean curvature
    smoothness: float = 0.1  # of the error for a mean squared bend of 1: free steps fit noise (tune-choices.md, 34)
    gap_nudge: float = 1e-2  # over which the slope of a measure is taken
    secant_reach: float = 1.0  # evaluations farther away give no secant; 0: no secants (stage)
    secant_trust: float = 0.03  # share of a move's square by which its secant is drawn to nothing

    # Which starts become candidates of successive halving
    published_starts: bool = True  # beside closed forms: blends and published schedules on the surrogate (stage)
    ranks_by_prediction: bool = True  # False: drawn at random, and rungs see evaluations alone (stage)
    fewest_starts: int = 3
    most_starts: int = 12  # the predicted order is right to about that many places
    early_share: float = 0.5  # of them at least begin at the first time: the cost of late ones is predicted less well
    early_clock: float = 0.95  # of the clock, from which on a start counts as early
    late_factor: float = 2.0  # times the least predicted error, up to which a late start is let in
    radii: tuple[float, ...] = (0.4, 1.5)  # of descents before the first rung, gap numbers; (): none (stage)

    # Successive halving, corrected descents, full-range variant, neighbours
    rungs: tuple[float, ...] = (0.125, 0.25, 0.5, 1.0)  # share of the trajectories that a candidate has seen
    candidate_cost: float = 0.25  # of an evaluation on all trajectories, in the mean over rungs
    halving_share: float = 0.5  # of the search's calls
    descent_share: float = 0.5  # of what halving leaves, for corrected descents; 0: none (stage)
    variant_share: float = 0.5  # of what these leave, for the full-range variant
    full_range_variant: bool = True  # tune-choices.md, 41; python -m benchmarks.late_starts (stage)
    fewest_finalists: int = 2
    most_finalists: int = 5
    first_radius: float = 0.3  # of a corrected descent; doubled where it keeps its word, halved where it fails
    least_radius: float = 0.02
    largest_radius: float = 1.5
    fewest_neighbours: int = 4  # fewer are not worth a round
    most_neighbours: int = 16  # 0: none (stage)
    neighbours_kept: tuple[float, ...] = (1 / 3, 1 / 8, 1 / 8)  # share that goes on to each further rung
    spread: float = 0.1  # of neighbours, gap numbers; halved where none is better
    least_spread: float = 0.02
    neighbour_factor: float = 1.01  # times the predicted error of the best, up to which one is worth an evaluation
    neighbour_draws: int = 20  # for each neighbour wanted

    # How calls are divided, and the decision
    evaluations: int = 12  # on all trajectories that a search can pay for (tune-choices.md, 39)
    selection_share: float = 1 / 3  # of the validation trajectories choose among candidates, the others decide
    confidence: float = 0.8  # share of resamples in which a surely better schedule is better (tune-choices.md, 32)
    resamples: int = 2000

    # Schedule and solver together
    joint_solver: str = "dpmpp-2m"  # the known solver that a fitted one is most like
    joint_from: int = 7  # steps from which on what suits that solver is tried for a fit, too: of fewer it does not
    fit_starts: int = 8  # of those that a fit is tried on, best predicted for it first
    moved_starts: int = 2  # of them, from which descents begin
    always_tried: tuple[str, ...] = ("weighted-path",)  # among the three best on four networks, predicted eighth or so

    # The fewest steps that are as good as today's
    probes: int = 2  # numbers of steps that are looked at before one is tuned in full
    full_shares: tuple[float, ...] = (0.5, 0.65, 1.0)  # of the calls left, for one number of steps after another
    fitted_gain: float = 1.2  # by which a fit is expected to be better than the best closed form of the joint solver
    first_slope: float = 2.0  # errors fall with this power of the steps, until two numbers of steps have shown it
    careful_slope: float = 3.0  # and with this one when fewer are tried after a proof: what is refused gains nothing
    next_factor: float = 1.25  # times the steps at least, where what was chosen by some noise is refused by other

    def fewer_of(self, steps: int) -> int:
        """So many of today's steps show how their error falls."""
        return max(steps // 4, 2)


DEFAULT = TuneConfig()
