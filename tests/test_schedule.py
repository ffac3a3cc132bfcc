from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import combinations, combinations_with_replacement
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter1d

from geosprint import files
from geosprint.errors import FileError, GeoSprintError, ScheduleError
from geosprint.noise import ContinuousVP, DiscreteVP, Flow
from geosprint.schedule import (
    Density,
    StepSchedule,
    blended_density,
    build_schedule,
    curvature_density,
    log_snr_density,
    profile_density,
    quantile_times,
    smoothed,
    top_k_schedule,
    whole_steps,
)
from problems import profile_of_kept, random_kept
from references import schedule as reference

NOISE = DiscreteVP.named(timesteps=100)
TIMES = np.round(np.linspace(99, 0, 20))


def test_a_schedule_is_shown_in_one_short_line():
    assert repr(StepSchedule.at([99, 50, 12, 3], NOISE, {"method": "mine"})) == "StepSchedule(4 steps, t = 99 … 3)"
    assert repr(StepSchedule.at([1.0, 0.25], ContinuousVP(), {})) == "StepSchedule(2 steps, t = 1 … 0.25)"


@st.composite
def discrete_noises(draw):
    """Noise schedules of every make and of few to many timesteps, those of a random table included."""
    timesteps = draw(st.integers(2, 60))
    make = draw(st.sampled_from(["linear", "scaled_linear", "cosine", "zero", "random"]))
    if make == "zero":
        return DiscreteVP.named(timesteps=timesteps, zero_terminal_snr=True)
    if make != "random":
        return DiscreteVP.named(make, timesteps)
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    drops = random.uniform(0.01, 1, size=timesteps) ** 4 + 1e-6
    return DiscreteVP(np.append(1 - np.cumsum(drops)[:-1] / drops.sum(), 0.0))


@st.composite
def retentions(draw, size):
    random = np.random.default_rng(draw(st.integers(0, 10_000)))
    w = random.uniform(size=size) ** draw(st.sampled_from([0.5, 1, 8, 60]))
    return w / w.max()


def toy(seed=0, count=6, noise=NOISE, times=TIMES):
    return profile_of_kept(random_kept(seed, count, len(times) + 1), noise, times)


# Exactly K steps


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_placement_gives_exactly_k_strictly_decreasing_whole_steps_with_both_ends_pinned_for_every_k(data):
    noise = data.draw(discrete_noises())
    count = int(noise.first) + 1
    reference_count = data.draw(st.integers(2, count))
    times = np.round(np.linspace(count - 1, 0, reference_count))
    w = data.draw(retentions(reference_count))
    density = blended_density(w, times, noise, data.draw(st.sampled_from([0.0, 0.3, 0.6, 1.0])))
    for steps in range(2, count + 1):
        found = quantile_times(density, steps, noise)
        assert len(found) == steps
        assert (np.diff(found) < 0).all()
        assert (found == np.round(found)).all()
        assert (found[0], found[-1]) == (count - 1, 0)


@pytest.mark.parametrize("rates", ["linear", "scaled_linear", "cosine"])
@pytest.mark.parametrize("zero", [False, True])
def test_every_k_up_to_a_thousand_training_steps_can_be_placed(rates, zero):
    noise = DiscreteVP.named(rates, zero_terminal_snr=zero)
    for steps in (2, 3, 10, 50, 199, 200, 333, 500, 777, 999, 1000):
        found = quantile_times(log_snr_density(noise), steps, noise)
        assert len(found) == steps
        assert (np.diff(found) <= -1).all()
        assert (found[0], found[-1]) == (999, 0)
    assert found.tolist() == list(range(999, -1, -1))


@given(st.integers(2, 400), st.sampled_from([Flow(), Flow(3.0), Flow(0.4), ContinuousVP(), ContinuousVP(last=0.01)]))
@settings(max_examples=40, deadline=None)
def test_continuous_time_gets_exactly_k_falling_times_from_pure_noise_to_above_the_clean_end(steps, noise):
    times = noise.time_at(np.arange(30, 0, -1) / 30)
    density = blended_density(np.linspace(0.1, 1, 30), times, noise, 0.6)
    found = quantile_times(density, steps, noise)
    assert len(found) == steps
    assert (np.diff(found) < 0).all()
    assert found[0] == pytest.approx(noise.first, rel=1e-12)
    assert noise.contains(found).all()


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_schedules_of_any_density_carry_falling_sigmas_that_end_at_zero(data):
    noise = data.draw(discrete_noises())
    steps = data.draw(st.integers(2, int(noise.first) + 1))
    schedule = StepSchedule.at(quantile_times(log_snr_density(noise), steps, noise), noise, {})
    assert len(schedule.sigmas) == len(schedule) + 1 == steps + 1
    assert (np.diff(schedule.sigmas) < 0).all()
    assert schedule.sigmas[-1] == 0


@pytest.mark.parametrize(
    ("noise", "times"),
    [
        (DiscreteVP(np.append(np.linspace(0.9, 0.1, 8), [1e-9, 1e-12])), np.arange(9.0, -1, -1)),
        (DiscreteVP(np.append([1.0, 1 - 1e-9], np.linspace(0.9, 0.1, 8))), np.arange(9.0, -1, -1)),
        (ContinuousVP(rate_max=60.0), np.array([1.0, 0.9, 0.5, 0.1])),
    ],
    ids=["two steps of almost no signal", "two steps of almost no noise", "fast rates"],
)
def test_a_schedule_may_hold_two_steps_whose_log_snr_is_beyond_the_cut(noise, times):
    assert StepSchedule.at(times, noise, {}).timesteps.tolist() == times.tolist()


@pytest.mark.parametrize("steps", [-3, 0, 1, 101, 1000])
def test_k_out_of_range_is_refused_with_the_range_and_what_came(steps):
    for make in (lambda: quantile_times(log_snr_density(NOISE), steps, NOISE), lambda: build_schedule(toy(), steps)):
        with pytest.raises(ScheduleError, match=rf"(2\.\.100|at least 2).*got {steps}"):
            make()


# Whole steps


@given(st.lists(st.integers(0, 200), unique=True, min_size=1, max_size=30))
@settings(max_examples=50, deadline=None)
def test_whole_steps_changes_nothing_where_steps_are_distinct(times):
    falling = np.array(sorted(times, reverse=True), dtype=float)
    assert whole_steps(falling, 200).tolist() == falling.tolist()


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 7])
def test_whole_steps_moves_steps_as_little_as_the_best_of_all_choices(count):
    choices = np.array(list(combinations(range(8), count)))
    for wanted in combinations_with_replacement(range(8), count):
        found = whole_steps(np.array(wanted[::-1], dtype=float), 7)[::-1]
        moved, possible = np.abs(found - wanted), np.abs(choices - wanted)
        assert found.tolist() in choices.tolist()
        assert moved.max() == possible.max(axis=1).min(), wanted
        # Nor could any step stay nearer with all others as near.
        better = (possible <= moved).all(axis=1) & (possible < moved).any(axis=1)
        assert not better.any(), wanted


def test_whole_steps_leaves_free_neighbours_of_a_crowd_alone():
    # Five steps at 5 must spread over 3..7; those at 8 and 9 are free already.
    times = np.array([9.0, 8, 5, 5, 5, 5, 5])
    assert whole_steps(times, 20).tolist() == [9, 8, 7, 6, 5, 4, 3]


def test_whole_steps_rounds_fractions_and_keeps_its_ends_when_crowded():
    assert whole_steps(np.array([9.0, 8.9, 8.8, 0.1, 0.0]), 9).tolist() == [9, 8, 7, 1, 0]
    assert whole_steps(np.array([4.0, 4.0, 4.0, 4.0, 4.0]), 4).tolist() == [4, 3, 2, 1, 0]


# Densities


def test_quantiles_of_a_rising_density_are_square_roots():
    density = Density.normalised(np.linspace(0, 1, 1001), np.linspace(0, 5, 1001))
    shares = np.linspace(0, 1, 9)
    assert density.quantiles(shares) == pytest.approx(np.sqrt(shares), abs=2e-5)


@given(st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_as_much_mass_lies_below_a_quantile_as_its_share_says(seed):
    random = np.random.default_rng(seed)
    nodes, values = np.linspace(0.2, 1, 101), random.uniform(0.05, 1, size=101)
    density = Density.normalised(nodes, values)
    shares = np.linspace(0, 1, 7)
    found = density.quantiles(shares)
    below = [reference.share_below(x, nodes, values) for x in found]
    # Within a cell the CDF is taken as straight: wrong by an eighth of (change of density) x cell at most.
    assert below == pytest.approx(shares, abs=1 / 8 * 0.01 * 2)
    assert (found[0], found[-1]) == (pytest.approx(nodes[0]), pytest.approx(nodes[-1]))


@given(st.integers(0, 1000), st.floats(0, 1))
@settings(max_examples=20, deadline=None)
def test_densities_integrate_to_one_before_and_after_blending(seed, blend):
    w = np.random.default_rng(seed).uniform(size=20)
    for density in (
        log_snr_density(NOISE),
        curvature_density(w, TIMES, NOISE),
        blended_density(w, TIMES, NOISE, blend),
    ):
        assert np.trapezoid(density.values, density.clock) == pytest.approx(1, abs=1e-12)
        assert (density.values >= 0).all()


@pytest.mark.parametrize("blend", [0.0, 0.25, 0.6, 1.0])
def test_the_blend_is_eq_7(blend):
    w = np.random.default_rng(3).uniform(size=20)
    one, other = log_snr_density(NOISE), curvature_density(w, TIMES, NOISE)
    expected = (1 - blend) * one.values + blend * other.values
    assert blended_density(w, TIMES, NOISE, blend).values == pytest.approx(expected, rel=1e-12)


def test_smoothing_equals_scipys_gaussian_filter_with_repeated_ends():
    random = np.random.default_rng(0)
    for size in (3, 20, 200):
        values = random.uniform(size=size)
        for width in (0.7, 5.0, 11.0):
            expected = gaussian_filter1d(values, width, mode="nearest")
            assert smoothed(values, width) == pytest.approx(expected, abs=1e-12)
    assert smoothed(values, 0).tolist() == values.tolist()


def test_the_curvature_density_is_the_smoothed_and_floored_retention_on_the_training_grid():
    times = np.round(np.linspace(99, 0, 50))
    w = np.zeros(50)
    w[:6] = [1, 1, 0.5, 0.4, 0.9, 0.2]
    shape = reference.smoothed_and_floored(w)
    assert (shape == shape.min()).sum() > 10  # the floor is at work
    grid = np.interp(np.arange(100), times[::-1], shape[::-1])
    expected = grid / np.trapezoid(grid, np.linspace(0, 1, 100))
    found = curvature_density(w, times, NOISE)
    assert found.clock == pytest.approx(np.linspace(0, 1, 100), abs=1e-12)
    assert found.values == pytest.approx(expected, rel=1e-9)


def test_smoothing_in_timesteps_is_smoothing_in_cells_of_that_many_timesteps():
    noise, times = DiscreteVP.named(timesteps=101), np.arange(100.0, -1, -4)
    w = np.random.default_rng(1).uniform(size=26)
    in_timesteps = curvature_density(w, times, noise, smoothing=8.0, unit="timesteps")
    assert in_timesteps.values == pytest.approx(curvature_density(w, times, noise, smoothing=2.0).values, rel=1e-12)
    with pytest.raises(ScheduleError, match="cells or timesteps, got 'hours'"):
        curvature_density(w, times, noise, unit="hours")


def test_blend_0_is_uniform_in_log_snr():
    for noise in (DiscreteVP.named(), DiscreteVP.named("scaled_linear"), DiscreteVP.named(zero_terminal_snr=True)):
        for steps in (5, 10, 20):
            # Infinity is cut at alpha-bar = 2^-24, the value diffusers gives to a zero terminal SNR.
            ends = np.maximum(noise.log_snr([noise.first, 0]), np.log(2.0**-24 / (1 - 2.0**-24)))
            exact = noise.time_of_log_snr(np.linspace(ends[0], ends[1], steps))
            exact[0] = noise.first  # pinned, wherever the cut may be
            found = quantile_times(log_snr_density(noise), steps, noise)
            assert np.abs(found - exact).max() <= 1


@pytest.mark.parametrize("noise", [Flow(), ContinuousVP()])
def test_blend_0_in_continuous_time_spaces_log_snr_evenly(noise):
    # Away from the ends, where log-SNR of a flow is infinite, neighbouring steps are the same log-SNR apart.
    gaps = np.diff(noise.log_snr(quantile_times(log_snr_density(noise), 20, noise)))[3:-3]
    assert gaps == pytest.approx(gaps.mean(), rel=0.05)


def test_a_constant_retention_alone_spaces_steps_evenly():
    found = quantile_times(blended_density(np.ones(20), TIMES, NOISE, 1.0), 12, NOISE)
    assert found.tolist() == np.arange(99.0, -1, -9).tolist()


def test_more_retention_draws_more_steps():
    w = np.where(TIMES > 50, 1.0, 0.1)
    found = quantile_times(blended_density(w, TIMES, NOISE, 1.0), 20, NOISE)
    assert (found > 50).sum() >= 2 * (found <= 50).sum()


def test_no_retention_at_all_falls_back_to_log_snr_with_a_warning():
    with pytest.warns(UserWarning, match="log-SNR density alone"):
        density = blended_density(np.zeros(20), TIMES, NOISE, 0.6)
    assert density.values == pytest.approx(log_snr_density(NOISE).values)


# From a profile


@pytest.mark.parametrize("blend", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("literal", [False, True])
def test_build_schedule_equals_algorithm_1_line_by_line(blend, literal):
    profile = toy(5)
    w = reference.retention(profile.kept.tolist())
    if not literal:
        w[:2] = w[2]
    grid = np.linspace(0, 1, 100)
    curvature = np.interp(np.arange(100), TIMES[::-1], reference.smoothed_and_floored(w)[::-1])
    alphas = np.cumprod(1 - np.linspace(1e-4, 0.02, 100))
    log_snr = np.abs(np.gradient(np.log(alphas / (1 - alphas)), grid))
    rho = (1 - blend) * log_snr / np.trapezoid(log_snr, grid) + blend * curvature / np.trapezoid(curvature, grid)
    fine = np.linspace(0, 1, 100_001)
    mass = np.cumsum(np.interp(fine, grid, rho))
    wanted = 99 * np.interp(np.linspace(0, 1, 8), mass / mass[-1], fine)[::-1]
    found = build_schedule(profile, 8, blend, literal)
    assert found.timesteps == pytest.approx(wanted, abs=0.6)
    assert found.sigmas[:-1] == pytest.approx(np.sqrt((1 - alphas) / alphas)[found.timesteps.astype(int)], rel=1e-9)
    assert found.log_snr == pytest.approx(np.log(alphas / (1 - alphas))[found.timesteps.astype(int)], rel=1e-9)


def test_the_literal_variant_counts_the_forced_first_window():
    kept = np.zeros((4, 21), dtype=bool)
    kept[:, :2] = True
    kept[:, 12:14] = True
    profile = profile_of_kept(kept, NOISE, TIMES)
    literal, ours = build_schedule(profile, 10, 1.0, literal=True), build_schedule(profile, 10, 1.0)
    assert (literal.timesteps > 80).sum() > (ours.timesteps > 80).sum()


def test_top_k_takes_both_ends_and_the_most_retained_times_between():
    kept = np.zeros((5, 21), dtype=bool)
    kept[:, :2] = True
    for index, count in {4: 5, 9: 4, 15: 3, 17: 2}.items():
        kept[:count, index] = True
    profile = profile_of_kept(kept, NOISE, TIMES)
    assert top_k_schedule(profile, 2).timesteps.tolist() == [99, 0]
    assert top_k_schedule(profile, 4).timesteps.tolist() == TIMES[[0, 4, 9, 19]].tolist()
    assert top_k_schedule(profile, 6).timesteps.tolist() == TIMES[[0, 4, 9, 15, 17, 19]].tolist()
    assert top_k_schedule(profile, 4, literal=True).timesteps.tolist() == TIMES[[0, 1, 4, 19]].tolist()
    assert top_k_schedule(profile, 20).timesteps.tolist() == TIMES.tolist()


@pytest.mark.parametrize("steps", [1, 21])
def test_top_k_refuses_more_steps_than_the_reference_has(steps):
    with pytest.raises(ScheduleError, match=rf"2\.\.20, got {steps}"):
        top_k_schedule(toy(), steps)


@pytest.mark.parametrize("blend", [-0.1, 1.1, math.nan])
def test_a_blend_out_of_range_is_refused(blend):
    with pytest.raises(ScheduleError, match=rf"0\.\.1, got {blend}"):
        profile_density(toy(), blend)


def test_the_schedule_says_how_it_was_made():
    provenance = build_schedule(toy(), 7, 0.3, literal=True).provenance
    assert (provenance["method"], provenance["blend"], provenance["literal"]) == ("geosprint", 0.3, True)
    assert provenance["origin"]["noise"] == NOISE.to_dict()
    assert (provenance["trajectories"], provenance["reference_steps"]) == (6, 20)


# Bad input


@pytest.mark.parametrize(
    "times",
    [[], [5, 9], [9, 9, 1], [9, 5, 7], [9, math.nan, 3], [math.nan]],
    ids=["none", "rising", "twice", "rising later", "nan between", "nan"],
)
def test_timesteps_that_do_not_fall_strictly_are_refused(times):
    with pytest.raises(GeoSprintError, match=r"fall strictly|at least one number|got nan"):
        StepSchedule.at(times, NOISE, {})


@pytest.mark.parametrize("times", [[100, 4], [50, -1], [1e9, 3]])
def test_times_that_the_noise_schedule_does_not_know_are_refused(times):
    with pytest.raises(GeoSprintError, match=r"0\.\.99, got"):
        StepSchedule.at(times, NOISE, {})


@pytest.mark.parametrize("times", [[1001.0, 4.0], [50.0, -1.0], [50.0, 0.0]])
def test_times_that_a_flow_does_not_know_are_refused(times):
    with pytest.raises(GeoSprintError):
        StepSchedule.at(times, Flow(), {})


@pytest.mark.parametrize("times", [[[9, 5], [4, 3]], 7.0])
def test_timesteps_that_are_no_list_are_refused(times):
    with pytest.raises(ScheduleError, match="timesteps"):
        StepSchedule.at(times, NOISE, {})


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("sigmas", np.array([3.0, 2.0, 1.0]), "4 strictly falling sigmas, the last one 0"),
        ("sigmas", np.array([3.0, 2.0, 1.0, 0.5]), "the last one 0"),
        ("sigmas", np.array([3.0, 3.0, 1.0, 0.0]), "strictly falling"),
        ("sigmas", np.array([3.0, math.nan, 1.0, 0.0]), "strictly falling|finite"),
        ("log_snr", np.zeros(2), "as many log-SNR values, got 2"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(field, value, message):
    with pytest.raises(ScheduleError, match=message):
        replace(StepSchedule.at([60, 30, 0], NOISE, {}), **{field: value})


def test_a_schedule_fits_its_own_noise_and_no_other():
    schedule = build_schedule(toy(), 7)
    schedule.check_fits(NOISE, "own")
    single = DiscreteVP(NOISE.alphas_cumprod.astype(np.float32).astype(float))
    schedule.check_fits(single, "own in single precision")
    for other in (DiscreteVP.named("cosine", 100), DiscreteVP.named("scaled_linear", 100)):
        with pytest.raises(ScheduleError, match=r"at t = \d+ they expect sigma .* but model 'other' has"):
            schedule.check_fits(other, "other")
    with pytest.raises(ScheduleError, match=r"times 99\.\.0, but model 'short' .* knows 0\.\.49"):
        schedule.check_fits(DiscreteVP.named(timesteps=50), "short")
    with pytest.raises(ScheduleError):
        schedule.check_fits(Flow(), "flow")


# Files


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_a_file_gives_back_what_was_saved(tmp_path_factory, data):
    noise = data.draw(st.sampled_from([NOISE, DiscreteVP.named("cosine", 100), Flow(3.0), ContinuousVP()]))
    times = quantile_times(log_snr_density(noise), data.draw(st.integers(2, 100)), noise)
    schedule = StepSchedule.at(times, noise, {"method": "test", "nested": {"seeds": [1, 2]}})
    back = StepSchedule.load(schedule.save(tmp_path_factory.mktemp("round") / "schedule.json"))
    assert back.timesteps.tolist() == schedule.timesteps.tolist()
    assert back.sigmas.tolist() == schedule.sigmas.tolist()
    assert back.log_snr.tolist() == schedule.log_snr.tolist()
    assert back.provenance == schedule.provenance


def test_the_file_lists_k_whole_timesteps_and_k_plus_one_sigmas_that_end_with_zero(tmp_path):
    content = json.loads(StepSchedule.at([99, 40, 0], NOISE, {}).save(tmp_path / "s.json").read_text())
    assert content["timesteps"] == [99, 40, 0]
    assert all(isinstance(t, int) for t in content["timesteps"])
    assert len(content["sigmas"]) == 4
    assert content["sigmas"][-1] == 0


def _set(key, value):
    return lambda content: content.__setitem__(key, value)


def _edit(key, place, value):
    return lambda content: content[key].__setitem__(place, value)


DAMAGE = {
    "another version": (_set("version", 7), "version 1, got 7"),
    "no version": (lambda content: content.pop("version"), "version 1, got None"),
    "a profile": (_set("format", "geosprint-profile"), "must be a geosprint-schedule.*'geosprint-profile'"),
    "no sigmas": (lambda content: content.pop("sigmas"), "'sigmas' is missing"),
    "another number of steps": (_set("steps", 9), "says 9 steps but lists 4"),
    "timesteps that rise": (lambda content: content["timesteps"].reverse(), "fall strictly"),
    "a timestep twice": (_edit("timesteps", 1, 99), "fall strictly"),
    "a timestep that is a word": (_edit("timesteps", 1, "40"), "finite numbers"),
    "a timestep that is true": (_edit("timesteps", 3, False), "finite numbers"),
    "a nan": (_edit("sigmas", 1, math.nan), "NaN"),
    "an infinity": (_edit("sigmas", 0, math.inf), "Infinity"),
    "a number too large": (_edit("sigmas", 0, 10**400), "damaged"),
    "sigmas that do not end with zero": (_edit("sigmas", -1, 1e-3), "the last one 0"),
    "a missing sigma": (lambda content: content["sigmas"].pop(1), "5 strictly falling sigmas"),
    "a missing log-SNR": (lambda content: content["log_snr"].pop(), "log-SNR values, got 3"),
    "timesteps that are a number": (_set("timesteps", 4), "damaged"),
    "a provenance that is a word": (_set("provenance", "mine"), "provenance"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_hand_edited_file_is_refused_by_name_and_reason(tmp_path, what):
    change, message = DAMAGE[what]
    path = StepSchedule.at([99, 60, 40, 0], NOISE, {"method": "test"}).save(tmp_path / "schedule.json")
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(FileError, match=message) as refused:
        StepSchedule.load(path)
    assert "schedule.json" in str(refused.value)


@pytest.mark.parametrize("length", [0, 1, 60, -3])
def test_a_truncated_file_is_refused_by_name(tmp_path, length):
    path = StepSchedule.at([99, 40, 0], NOISE, {}).save(tmp_path / "schedule.json")
    path.write_text(path.read_text()[:length])
    with pytest.raises(FileError, match=r"schedule\.json is not a whole JSON file"):
        StepSchedule.load(path)


@pytest.mark.parametrize("where", ["write", "replace"])
def test_a_failed_save_keeps_the_old_file_and_leaves_nothing_half_written(tmp_path, monkeypatch, where):
    path = StepSchedule.at([99, 40, 0], NOISE, {}).save(tmp_path / "schedule.json")
    before = path.read_bytes()

    def no_space(target, text, encoding=None):
        if where == "write":
            target.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    if where == "write":
        monkeypatch.setattr(Path, "write_text", no_space)
    else:
        monkeypatch.setattr(files.os, "replace", no_space)
    with pytest.raises(FileError, match=r"cannot write .*schedule\.json: No space left"):
        StepSchedule.at([99, 0], NOISE, {}).save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["schedule.json"]


def test_a_provenance_that_json_cannot_hold_keeps_the_old_file(tmp_path):
    path = StepSchedule.at([99, 40, 0], NOISE, {}).save(tmp_path / "schedule.json")
    before = path.read_bytes()
    with pytest.raises(Exception, match=r"JSON|float"):
        StepSchedule.at([99, 40, 0], NOISE, {"blend": math.nan}).save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["schedule.json"]


def test_a_place_that_cannot_be_written_is_one_clear_sentence(tmp_path):
    schedule = StepSchedule.at([99, 40, 0], NOISE, {})
    (tmp_path / "file").write_text("not a directory")
    (tmp_path / "directory").mkdir()
    for path in (tmp_path / "file" / "schedule.json", tmp_path / "directory", tmp_path / ("s" * 300 + ".json")):
        with pytest.raises(FileError, match="cannot write"):
            schedule.save(path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["directory", "file"]


def test_any_name_that_the_disk_allows_can_be_saved(tmp_path):
    schedule = StepSchedule.at([99, 40, 0], NOISE, {})
    path = tmp_path / ("s" * 240 + ".json")
    assert StepSchedule.load(schedule.save(path)).timesteps.tolist() == [99, 40, 0]
