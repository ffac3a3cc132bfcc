from __future__ import annotations

import numpy as np
import pytest
from diffusers import DDIMScheduler
from hypothesis import given, settings
from hypothesis import strategies as st

from geosprint.baselines import (
    BASELINES,
    applicable_baselines,
    baseline_schedule,
    quadratic,
    reference_timesteps,
    uniform_in_log_snr,
    uniform_leading,
    uniform_linspace,
    uniform_trailing,
)
from geosprint.errors import ScheduleError
from geosprint.noise import ContinuousVP, DiscreteVP, Flow

NOISE = DiscreteVP.named()
SPACINGS = {"leading": uniform_leading, "trailing": uniform_trailing, "linspace": uniform_linspace}


# By hand


@pytest.mark.parametrize(
    ("spacing", "steps", "expected"),
    [
        ("leading", 4, [750, 500, 250, 0]),
        ("leading", 3, [666, 333, 0]),  # 1000 // 3 = 333: starts low
        ("leading", 7, [852, 710, 568, 426, 284, 142, 0]),
        ("trailing", 4, [999, 749, 499, 249]),
        ("trailing", 3, [999, 666, 332]),  # 1000, 666.67 and 333.33, rounded, less 1
        ("trailing", 6, [999, 832, 666, 499, 332, 166]),
        ("linspace", 4, [999, 666, 333, 0]),
        ("linspace", 3, [999, 500, 0]),  # 499.5 rounds to the even 500
        ("linspace", 6, [999, 799, 599, 400, 200, 0]),
    ],
)
def test_uniform_spacings_equal_their_formulas_worked_out_by_hand(spacing, steps, expected):
    assert SPACINGS[spacing](NOISE, steps).tolist() == expected


@pytest.mark.parametrize(("steps", "start"), [(29, 952), (34, 957), (39, 950), (44, 946), (56, 935)])
def test_leading_spacing_starts_low_where_k_does_not_divide_a_thousand(steps, start):
    assert uniform_leading(NOISE, steps)[0] == start


def test_quadratic_steps_are_even_in_the_square_root_of_time():
    expected = np.round(999 * np.array([1, (3 / 4) ** 2, (2 / 4) ** 2, (1 / 4) ** 2, 0]))
    assert quadratic(NOISE, 5).tolist() == expected.tolist()
    assert quadratic(Flow(timesteps=1000), 4).tolist() == pytest.approx([1000, 562.5, 250, 62.5])


def test_continuous_time_is_cut_into_equal_parts_of_the_clock():
    assert uniform_trailing(Flow(), 4).tolist() == pytest.approx([1000, 750, 500, 250])
    # Shift 3: s = 3u / (1 + 2u) at u = 1, 3/4, 1/2, 1/4.
    assert uniform_trailing(Flow(3.0), 4).tolist() == pytest.approx([1000, 900, 750, 500])
    assert uniform_trailing(ContinuousVP(), 4).tolist() == pytest.approx([1, 0.75, 0.5, 0.25])
    assert uniform_linspace(ContinuousVP(last=0.2), 5).tolist() == pytest.approx([1, 0.8, 0.6, 0.4, 0.2])
    assert uniform_linspace(Flow(), 4).tolist() == pytest.approx([1000, 667, 334, 1])


# Against diffusers


@pytest.mark.parametrize("timesteps", [1000, 50])
@pytest.mark.parametrize("spacing", SPACINGS)
def test_uniform_spacings_equal_those_of_diffusers_for_every_k(spacing, timesteps):
    noise = DiscreteVP.named(timesteps=timesteps)
    theirs = DDIMScheduler(num_train_timesteps=timesteps, timestep_spacing=spacing)
    different = []
    for steps in range(2, timesteps + 1, 1 if timesteps < 100 else 7):
        theirs.set_timesteps(steps)
        # Rounding makes diffusers' trailing spacing one step too long for some K (61 among them): its last step is -1.
        expected = theirs.timesteps.tolist()[:steps]
        if expected != SPACINGS[spacing](noise, steps).tolist():
            different.append(steps)
    assert different == []


@pytest.mark.parametrize("steps", [2, 5, 7, 10, 13, 20, 25, 48, 50, 100, 200, 1000])
@pytest.mark.parametrize("spacing", SPACINGS)
def test_uniform_spacings_equal_those_of_diffusers_for_budgets_in_use(spacing, steps):
    theirs = DDIMScheduler(timestep_spacing=spacing)
    theirs.set_timesteps(steps)
    assert SPACINGS[spacing](NOISE, steps).tolist() == theirs.timesteps.tolist()


# Properties


@given(
    st.integers(2, 80).flatmap(lambda count: st.tuples(st.just(count), st.integers(2, count))),
    st.sampled_from(["linear", "scaled_linear", "cosine"]),
    st.booleans(),
    st.sampled_from(list(BASELINES)),
)
@settings(max_examples=120, deadline=None)
def test_every_closed_form_gives_exactly_k_strictly_falling_known_times(sizes, rates, zero, name):
    timesteps, steps = sizes
    noise = DiscreteVP.named(rates, timesteps, zero_terminal_snr=zero)
    schedule = baseline_schedule(name, noise, steps)
    assert len(schedule) == steps
    assert (np.diff(schedule.timesteps) < 0).all()
    assert noise.contains(schedule.timesteps).all()
    assert schedule.provenance["method"] == name


@given(st.integers(2, 300), st.sampled_from([Flow(), Flow(3.0), Flow(0.3), ContinuousVP()]))
@settings(max_examples=40, deadline=None)
def test_every_closed_form_gives_exactly_k_falling_times_in_continuous_time(steps, noise):
    for name in applicable_baselines(noise):
        schedule = baseline_schedule(name, noise, steps)
        assert len(schedule) == steps
        assert noise.contains(schedule.timesteps).all()
        assert schedule.timesteps[0] == pytest.approx(noise.first, rel=1e-12)


def test_all_but_leading_start_at_pure_noise():
    for name in applicable_baselines(NOISE):
        first = baseline_schedule(name, NOISE, 7).timesteps[0]
        assert (first == 999) == (name != "uniform-leading")


@pytest.mark.parametrize("steps", [5, 10, 25])
def test_log_snr_steps_are_equal_in_log_snr_up_to_rounding(steps):
    times = uniform_in_log_snr(NOISE, steps)
    alphas = np.cumprod(1 - np.linspace(1e-4, 0.02, 1000))
    log_snr = np.log(alphas) - np.log(1 - alphas)
    wanted = np.linspace(log_snr[-1], log_snr[0], steps)
    # Where a whole timestep is longer than the wanted gap nothing can be even: look at the noisy half.
    noisy = times > 100
    off = np.abs(log_snr[times.astype(int)] - wanted)[noisy]
    assert off.max() < np.abs(np.diff(log_snr))[100:].max()
    assert noisy.sum() > steps / 3


def test_the_reference_grid_starts_at_pure_noise_and_ends_above_or_at_the_last_trained_time():
    assert reference_timesteps(NOISE, 4).tolist() == [999, 666, 333, 0]
    assert reference_timesteps(Flow(), 4).tolist() == pytest.approx([1000, 750, 500, 250])


# Bad input


@pytest.mark.parametrize("name", list(BASELINES))
@pytest.mark.parametrize("steps", [0, 1, 51])
def test_k_out_of_range_is_refused_with_the_range_and_what_came(name, steps):
    with pytest.raises(ScheduleError, match=rf"(2\.\.50|at least 2).*got {steps}"):
        baseline_schedule(name, DiscreteVP.named(timesteps=50), steps)


@pytest.mark.parametrize("steps", [1, 51])
def test_a_reference_grid_out_of_range_is_refused(steps):
    with pytest.raises(ScheduleError, match=f"got {steps}"):
        reference_timesteps(DiscreteVP.named(timesteps=50), steps)


def test_an_unknown_name_is_refused_with_all_known_ones():
    with pytest.raises(ScheduleError, match=r"uniform-leading, uniform-trailing.*got 'karas'"):
        baseline_schedule("karas", NOISE, 10)


@pytest.mark.parametrize("noise", [Flow(), ContinuousVP()])
def test_leading_spacing_is_refused_where_time_zero_is_clean(noise):
    assert "uniform-leading" not in applicable_baselines(noise)
    with pytest.raises(ScheduleError, match="use uniform-trailing"):
        baseline_schedule("uniform-leading", noise, 10)
