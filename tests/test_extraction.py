from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from geosprint.errors import GeometryError, GeoSprintError, ModelError, ScheduleError
from geosprint.extraction import Budget, extract, find_budget, profile_trajectories
from geosprint.models.base import Network
from geosprint.models.exact import Gaussian
from geosprint.noise import CLEAN, DiscreteVP, Flow
from geosprint.profile import Settings
from geosprint.sampling import record
from geosprint.schedule import StepSchedule, build_schedule
from problems import centred_gram, drifting_walk, profile_of_kept, random_kept, random_walk, smooth_curve
from references import geometry, search
from references import schedule as reference

STEPS = 11
COUNT = 6
VARIANCES = np.array([4.0, 1.0, 0.3, 0.05, 0.01])
NOISE = DiscreteVP.named(timesteps=100, last_rate=0.05)
MODEL = Gaussian(torch.from_numpy(VARIANCES), NOISE, in_cosine_basis=False)
CURVES = [smooth_curve, random_walk, drifting_walk]


def walked_by_hand(seed):
    """DDIM states (N+1, 5) and predicted x0 of the Gaussian from a seed's noise, in NumPy and double precision."""
    alphas = np.append(np.cumprod(1 - np.linspace(1e-4, 0.05, 100)), 1.0)  # the last one, at index -1, is clean
    times = [*np.round(np.linspace(99, 0, STEPS)).astype(int), -1]
    x = torch.randn(5, generator=torch.Generator().manual_seed(seed)).double().numpy()
    states, predicted = [x], []
    for t, t_next in pairwise(times):
        a, s = np.sqrt(alphas[t]), np.sqrt(1 - alphas[t])
        x0 = a * VARIANCES / (a**2 * VARIANCES + s**2) * x
        eps = (x - a * x0) / s
        x = np.sqrt(alphas[t_next]) * x0 + np.sqrt(1 - alphas[t_next]) * eps
        states.append(x)
        predicted.append(x0)
    return np.array(states), np.array(predicted)


def normalised(points):
    return (points - points.mean(axis=0)) / points.std(axis=0)


# Algorithm 1 from end to end


@pytest.mark.parametrize(
    "chosen",
    [Settings(), Settings(target_score=0.02), Settings(window=3), Settings(levels=2), Settings(normalisation="none")],
    ids=["default", "loose", "window 3", "two levels", "raw"],
)
def test_extraction_equals_algorithm_1_written_plainly(chosen):
    profile = extract(MODEL, COUNT, STEPS, settings=chosen, seed=40)
    for row, seed in enumerate(range(40, 40 + COUNT)):
        states, _ = walked_by_hand(seed)
        points = states if chosen.normalisation == "none" else normalised(states)
        best = search.most_pruned_below(search.every_outcome(points, chosen.window, chosen.levels), chosen.target_score)
        assert profile.kept[row].tolist() == best.kept.tolist()
        assert profile.scores[row] == pytest.approx(best.score, rel=1e-2)  # recorded in single precision
    assert profile.retention == pytest.approx(reference.retention(profile.kept.tolist()))
    assert profile.timesteps.tolist() == [*np.round(np.linspace(99, 0, STEPS)), CLEAN]


def test_extraction_by_bisection_equals_algorithm_1_to_the_letter():
    profile = extract(MODEL, COUNT, STEPS, settings=Settings(search="bisection", target_score=0.01))
    for seed in range(COUNT):
        literal = search.bisected(normalised(walked_by_hand(seed)[0]), 0.01)
        assert profile.kept[seed].tolist() == literal.kept.tolist()


def test_extraction_in_the_x0_space_prunes_the_predictions():
    profile = extract(MODEL, COUNT, STEPS, settings=Settings(space="x0", target_score=0.01))
    for seed in range(COUNT):
        states, predicted = walked_by_hand(seed)
        points = normalised(np.concatenate([predicted, states[-1:]]))
        best = search.most_pruned_below(search.every_outcome(points), 0.01)
        assert profile.kept[seed].tolist() == best.kept.tolist()


def test_extraction_in_the_ve_space_prunes_states_over_their_signal():
    profile = extract(MODEL, COUNT, STEPS, settings=Settings(space="ve", target_score=0.01))
    alphas = np.cumprod(1 - np.linspace(1e-4, 0.05, 100))
    signal = np.sqrt(np.append(alphas[np.round(np.linspace(99, 0, STEPS)).astype(int)], 1.0))
    for seed in range(COUNT):
        points = normalised(walked_by_hand(seed)[0] / signal[:, None])
        best = search.most_pruned_below(search.every_outcome(points), 0.01)
        assert profile.kept[seed].tolist() == best.kept.tolist()


def test_a_model_of_straight_flows_keeps_two_states_and_falls_back_to_log_snr():
    target = torch.tensor([1.0, -2.0, 0.5])
    straight = Network(lambda x, t: target.expand_as(x), (3,), Flow(), prediction="x0")
    profile = extract(straight, 4, 20, solver="euler")
    assert profile.retained_counts.tolist() == [2, 2, 2, 2]
    assert profile.scores.max() < 1e-6  # single precision, stretched by the normalisation
    with pytest.warns(UserWarning, match="log-SNR density alone"):
        ours = build_schedule(profile, 5, blend=1.0)
    assert ours.timesteps == pytest.approx(build_schedule(profile, 5, blend=0.0, literal=True).timesteps, rel=1e-9)


def test_the_batch_size_changes_nothing():
    whole, ones = extract(MODEL, COUNT, STEPS, batch=COUNT), extract(MODEL, COUNT, STEPS, batch=1)
    uneven = extract(MODEL, COUNT, STEPS, batch=4)
    assert whole.kept.tolist() == ones.kept.tolist() == uneven.kept.tolist()
    assert whole.seeds == ones.seeds == uneven.seeds == tuple(range(COUNT))
    assert whole.scores == pytest.approx(ones.scores, rel=1e-4)


def test_recording_first_and_profiling_afterwards_is_the_same_as_extraction():
    at_once = extract(MODEL, COUNT, STEPS, seed=3)
    later = profile_trajectories(record(MODEL, range(3, 3 + COUNT), STEPS))
    assert later.kept.tolist() == at_once.kept.tolist()
    assert later.chord_scores == pytest.approx(at_once.chord_scores, rel=1e-5, abs=1e-9)
    assert (later.nfe, later.seeds, later.settings) == (at_once.nfe, at_once.seeds, at_once.settings)
    assert later.origin.to_dict() == at_once.origin.to_dict()


@pytest.mark.parametrize("calls", [1, 2])
def test_network_calls_are_counted_per_sample_and_guidance_counts_twice(calls):
    profile = extract(replace(MODEL, calls=calls), COUNT, STEPS, batch=4)
    assert profile.nfe == COUNT * STEPS * calls


def test_the_profile_says_how_it_was_made():
    chosen = Settings(target_score=0.02)
    profile = extract(MODEL, 3, STEPS, solver="ddim", settings=chosen, seed=5, eta=0.25)
    origin = profile.origin
    assert (origin.model, origin.shape, origin.solver, origin.eta) == ("gaussian", (5,), "ddim", 0.25)
    assert origin.noise.same_as(NOISE)
    assert (profile.settings, profile.seeds) == (chosen, (5, 6, 7))
    assert set(profile.versions) == {"geosprint", "torch", "numpy"}


# The step-budget oracle


def fine_profile(seed=0, timesteps=40):
    """Every training timestep is a reference timestep, so that the score of any schedule is exact."""
    points = np.stack([drifting_walk(seed + i, timesteps + 1) for i in range(3)])
    noise, times = DiscreteVP.named(timesteps=timesteps), np.arange(timesteps - 1.0, -1, -1)
    kept = random_kept(seed, 3, timesteps + 1)
    return profile_of_kept(kept, noise, times, gram=centred_gram(points)), points


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("literal", [False, True])
def test_the_budget_is_the_first_k_of_a_plain_scan(seed, literal):
    profile, points = fine_profile(seed)
    scanned = {}
    for steps in range(2, 41):
        times = build_schedule(profile, steps, 0.4, literal).timesteps
        kept = sorted(int(39 - t) for t in times)
        scanned[steps] = np.mean([geometry.chord_score(one, [*kept, 40]) for one in points])
    for target in (0.5 * scanned[2], scanned[10] * 1.0001, scanned[25] * 1.0001, 1e-9):
        budget = find_budget(profile, target, 0.4, literal)
        first = min(steps for steps, score in scanned.items() if score <= target)
        assert len(budget.schedule) == first
        assert budget.schedule.timesteps.tolist() == build_schedule(profile, first, 0.4, literal).timesteps.tolist()
        assert budget.score == pytest.approx(scanned[first], rel=1e-9, abs=1e-12)
        assert budget.score <= target
        assert budget.curve_steps.tolist() == list(scanned)
        assert budget.curve_scores == pytest.approx(list(scanned.values()), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_every_k_from_the_settled_one_on_meets_the_target_and_the_one_before_does_not(seed):
    profile, _ = fine_profile(seed)
    scores = find_budget(profile, 1e-9).curve_scores
    for target in np.quantile(scores, [0.1, 0.3, 0.5, 0.7]):
        budget = find_budget(profile, target + 1e-12)
        met = dict(zip(budget.curve_steps.tolist(), (budget.curve_scores <= budget.target_score).tolist(), strict=True))
        assert all(met[steps] for steps in met if steps >= budget.settled)
        assert budget.settled == 2 or not met[budget.settled - 1]
        assert len(budget.schedule) <= budget.settled


def test_no_k_is_called_settled_where_the_last_one_misses_the_target():
    profile = profile_of_kept(random_kept(0, 3, 21), DiscreteVP.named(timesteps=100), np.round(np.linspace(99, 0, 20)))
    chords = {}
    for steps in (19, 20):
        times = build_schedule(profile, steps).timesteps
        kept = sorted({*(int(np.abs(profile.timesteps[:-1] - t).argmin()) for t in times), 20})
        chords[steps] = set(pairwise(kept))
    # Make dear what only the last K uses.
    table = profile.chord_scores.copy()
    for chord in chords[20] - chords[19]:
        table[chord] += 1.0
    spoilt = replace(profile, chord_scores=table)
    budget = find_budget(spoilt, spoilt.score_of_steps(build_schedule(spoilt, 19).timesteps) * 1.0001)
    assert budget.curve_scores[-1] > budget.target_score
    assert budget.settled is None or budget.settled > budget.curve_steps[-1]


def test_a_target_that_no_k_meets_is_refused_with_the_lowest_score():
    profile = profile_of_kept(random_kept(0, 3, 21), DiscreteVP.named(timesteps=100), np.round(np.linspace(99, 0, 20)))
    with pytest.raises(ScheduleError, match="up to 20 steps has a score of 1e-12 or less; the lowest is"):
        find_budget(replace(profile, chord_scores=profile.chord_scores + 1e-3), 1e-12)


@pytest.mark.parametrize("target", [0.0, -1.0, float("nan")])
def test_a_target_that_is_not_positive_is_refused(target):
    with pytest.raises(ScheduleError, match=f"positive, got {target}"):
        find_budget(fine_profile()[0], target)


def test_a_budget_is_shown_in_one_short_line():
    schedule = StepSchedule.at([999, 500, 12], DiscreteVP.named(), {})
    budget = Budget(schedule, 0.000934567, 1e-3, 3, np.arange(2, 200), np.linspace(1, 0, 198))
    assert repr(budget) == "Budget(3 steps, score 0.000935 for a target of 0.001)"


def test_a_model_of_your_own_needs_the_required_names_alone():
    class Own:
        name, shape, noise, prediction, clip, calls, device = "own", (5,), NOISE, "x0", None, 1, torch.device("cpu")

        def __call__(self, x, t):
            return MODEL(x, t)

    assert extract(Own(), COUNT, STEPS).kept.tolist() == extract(MODEL, COUNT, STEPS).kept.tolist()


# Bad input


def test_no_trajectories_are_refused():
    with pytest.raises(GeometryError, match="at least one trajectory is needed, got 0"):
        extract(MODEL, 0, STEPS)


@pytest.mark.parametrize("steps", [0, 1, 101])
def test_reference_steps_out_of_range_are_refused(steps):
    with pytest.raises(ScheduleError, match=f"got {steps}"):
        extract(MODEL, 2, steps)


def test_a_window_longer_than_the_trajectory_is_refused():
    with pytest.raises(GeometryError, match=rf"2\.\.{STEPS} .*got 12"):
        extract(MODEL, 2, STEPS, settings=Settings(window=12))


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_nonsense_from_a_model_names_the_seed_and_the_timestep(wrong):
    bad_start = torch.randn(5, generator=torch.Generator().manual_seed(12))
    times = np.round(np.linspace(99, 0, STEPS))
    marked = []

    def spoilt(x, t):
        answer = MODEL(x, t)
        if t == times[0]:
            marked[:] = [int(torch.argmin((x - bad_start).abs().sum(dim=1)))]
        if t == times[4]:
            answer[marked[0], 2] = wrong
        return answer

    network = Network(spoilt, (5,), NOISE, prediction="x0", name="spoilt")
    with pytest.raises(ModelError, match=f"'spoilt' returned nan or infinity for seed 12 at t = {times[4]:g}"):
        extract(network, 5, STEPS, seed=10)


def test_a_model_that_returns_another_shape_is_refused_with_both_shapes():
    network = Network(lambda x, t: x[:, :4], (5,), NOISE)
    with pytest.raises(ModelError, match=r"\(2, 5\).*got \(2, 4\)"):
        extract(network, 2, STEPS)


def test_recorded_states_that_are_not_finite_are_refused():
    recorded = record(MODEL, range(3), STEPS)
    recorded.states[1, 4, 0] = float("nan")
    with pytest.raises(GeoSprintError, match="nan"):
        profile_trajectories(recorded)


def test_the_x0_space_of_a_recording_without_predictions_is_refused():
    with pytest.raises(GeometryError, match="predictions=True"):
        profile_trajectories(record(MODEL, range(2), STEPS), Settings(space="x0"))


@dataclass(frozen=True)
class Asked(Network):
    """A network that says what it was asked to draw."""

    drawn: dict = field(default_factory=dict)

    @property
    def conditions(self):
        return self.drawn


def made_from(conditions):
    """A schedule made from draws under these conditions."""
    model = Asked(lambda x, t: torch.tanh(3 * x), (3,), NOISE, "x0", drawn=conditions)
    return build_schedule(extract(model, 3, STEPS), 4)


@pytest.mark.parametrize(
    ("made", "here", "both"),
    [
        ({"label": 3, "guidance": 2.0}, {"label": 3, "guidance": 5.0}, ("label 3 and guidance 2.0", "guidance 5.0")),
        ({"label": 3, "guidance": 2.0}, {"label": 4, "guidance": 2.0}, ("draws with label 3 ", "draws with label 4 ")),
        ({"label": 3, "guidance": 2.0}, {}, ("draws with label 3 and guidance 2.0", "draws with no label")),
        ({}, {"label": 0, "guidance": 1.0}, ("draws with no label", "draws with label 0 and guidance 1.0")),
        ({"label": [0, 1], "guidance": 1.0}, {"label": 1, "guidance": 1.0}, ("labels 0, 1 and", "draws with label 1 ")),
    ],
)
def test_a_schedule_of_another_label_or_guidance_is_a_warning_that_names_both(tmp_path, made, here, both):
    schedule = made_from(made)
    schedule.save(tmp_path / "s.json")
    for one in (schedule, StepSchedule.load(tmp_path / "s.json")):
        with pytest.warns(UserWarning, match=f"{both[0]}.*{both[1]}.*may suit the other less") as told:
            one.warn_of_other_conditions(here)
        assert len(told) == 1


def test_a_schedule_of_the_same_conditions_or_of_none_known_warns_of_nothing(tmp_path):
    asked = {"label": 3, "guidance": 2.0}
    made_from(asked).save(tmp_path / "s.json")
    same = StepSchedule.load(tmp_path / "s.json")
    provenance = {**same.provenance, "origin": {**same.provenance["origin"]}}
    del provenance["origin"]["conditions"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same.warn_of_other_conditions(asked)
        made_from({}).warn_of_other_conditions({})
        made_from({"guidance_scale": 7.5, "height": 512}).warn_of_other_conditions({})
        for unknown in ({}, provenance, {"origin": None}, {"origin": {"conditions": [1]}}):
            replace(same, provenance=unknown).warn_of_other_conditions(asked)
