from __future__ import annotations

import math

import numpy as np
import pytest
from diffusers import DDIMScheduler, EulerDiscreteScheduler
from diffusers.schedulers.scheduling_utils import AysSchedules
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from geosprint.baselines import (
    BASELINES,
    applicable_baselines,
    baseline_schedule,
    beta,
    beta_quantiles,
    karras,
    kl_optimal,
    quadratic,
    reference_timesteps,
    smallest_time,
    uniform_in_log_snr,
    uniform_leading,
    uniform_linspace,
    uniform_trailing,
)
from geosprint.errors import ScheduleError
from geosprint.noise import ContinuousVP, DiscreteVP, Flow

NOISE = DiscreteVP.named()
STABLE_DIFFUSION = DiscreteVP.named("scaled_linear")
STABLE_VIDEO = DiscreteVP(1 / (1 + np.geomspace(0.002, 700, 1000) ** 2))  # its sigmas, over a table of our own
EVERYWHERE = {"uniform-trailing", "uniform-linspace", "quadratic", "logsnr", "karras", "beta", "kl-optimal"}
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


@pytest.mark.parametrize(
    ("noise", "middle"),
    [
        (Flow(), 71.772),  # ((1 + 0.001^(1/7)) / 2)^7 = 0.68638^7 of 1000
        (ContinuousVP(), 0.59214),  # sigma from 152.16 to 0.010486: ((2.05002 + 0.52147) / 2)^7 = 5.8088
    ],
)
def test_the_middle_of_three_karras_steps_is_the_mean_of_the_seventh_roots(noise, middle):
    first, between, last = karras(noise, 3)
    assert between == pytest.approx(middle, rel=1e-4)
    assert (first, last) == pytest.approx((noise.first, smallest_time(noise)), rel=1e-9)


def test_the_smallest_time_of_a_flow_is_a_thousandth_of_its_clock_and_else_the_last_trained_one():
    assert smallest_time(Flow()) == pytest.approx(1)
    assert smallest_time(Flow(3.0)) == pytest.approx(1000 * 0.003 / 1.002)  # s = 3u / (1 + 2u) at u = 1/1000
    assert smallest_time(ContinuousVP(last=1e-5)) == 1e-5
    assert smallest_time(NOISE) == 0


@pytest.mark.parametrize("noise", [Flow(), Flow(3.0), ContinuousVP()])
def test_kl_optimal_steps_are_equal_in_the_arc_tangent_of_sigma(noise):
    angles = np.arctan(noise.sigma(kl_optimal(noise, 9)))
    ends = np.arctan(noise.sigma([noise.first, smallest_time(noise)]))
    np.testing.assert_allclose(np.diff(angles), (ends[1] - ends[0]) / 8, rtol=1e-7)


@pytest.mark.parametrize("steps", [4, 10, 28])  # one less divides 999
def test_kl_optimal_steps_are_uniform_where_the_angle_of_noise_to_signal_is_linear_in_time(steps):
    noise = DiscreteVP(np.cos(np.linspace(0.01, 1.56, 1000)) ** 2)
    assert kl_optimal(noise, steps).tolist() == np.arange(999, -1, -999 // (steps - 1)).tolist()


def test_beta_steps_lie_closer_at_both_ends_and_mirror_each_other():
    times = np.append(beta(Flow(), 10), 0) / 1000
    np.testing.assert_allclose(times, 1 - times[::-1], atol=1e-12)
    gaps = -np.diff(times)
    assert (np.diff(gaps[:5]) > 0).all()
    # Near 0 the mass below x is x^0.6 / (0.6 B(0.6, 0.6)).
    tiny = beta_quantiles([1e-6])[0]
    assert tiny == pytest.approx((1e-6 * 0.6 * np.exp(2 * math.lgamma(0.6) - math.lgamma(1.2))) ** (1 / 0.6), rel=1e-4)


@pytest.mark.parametrize("aligned", [BASELINES["ays-sd15"], BASELINES["ays-sdxl"]])
def test_twice_the_aligned_steps_put_geometric_means_between_them(aligned):
    ten = np.append(aligned(STABLE_DIFFUSION, 10), 0)
    twenty = aligned(STABLE_DIFFUSION, 20)
    assert twenty[::2].tolist() == ten[:-1].tolist()
    sigma = STABLE_DIFFUSION.sigma
    means = np.sqrt(sigma(ten[1:]) * sigma(ten[:-1]))
    np.testing.assert_allclose(twenty[1::2], STABLE_DIFFUSION.time_of_sigma(means), atol=0.5001)
    assert aligned(STABLE_DIFFUSION, 5).tolist() == ten[:-1:2].tolist()


# Against scipy, diffusers and ComfyUI


def test_beta_quantiles_equal_those_of_scipy():
    shares = np.concatenate([np.linspace(0, 1, 2001), [1e-9, 1e-6, 1e-3, 1 - 1e-3, 1 - 1e-6]])
    np.testing.assert_allclose(beta_quantiles(shares), stats.beta.ppf(shares, 0.6, 0.6), atol=1e-8)


@pytest.mark.parametrize("steps", [2, 5, 10, 20, 50])
def test_beta_steps_are_where_comfyui_puts_them(steps):
    # Its rule is rint(ppf(1 - i / K)·(T - 1)) for i < K; equal ones do not occur for so few.
    expected = np.rint(stats.beta.ppf(1 - np.arange(steps) / steps, 0.6, 0.6) * 999)
    assert beta(NOISE, steps).tolist() == expected.tolist()


def test_diffusers_spreads_the_same_beta_quantiles_over_sigma():
    theirs = EulerDiscreteScheduler(use_beta_sigmas=True, timestep_spacing="linspace")
    theirs.set_timesteps(12)
    sigmas = theirs.sigmas.double().numpy()[:-1]
    shares = (sigmas - sigmas[-1]) / (sigmas[0] - sigmas[-1])
    np.testing.assert_allclose(beta_quantiles(np.linspace(1, 0, 12)), shares, atol=1e-6)


@pytest.mark.parametrize("steps", [3, 7, 10, 20])
@pytest.mark.parametrize("rates", ["linear", "scaled_linear"])
def test_karras_steps_are_where_diffusers_puts_them(rates, steps):
    noise = DiscreteVP.named(rates)
    first_rate, last_rate = noise.recipe["first_rate"], noise.recipe["last_rate"]
    theirs = EulerDiscreteScheduler(
        beta_start=first_rate, beta_end=last_rate, beta_schedule=rates, use_karras_sigmas=True
    )
    theirs.set_timesteps(steps)
    # Theirs are fractions of float32 sigmas.
    np.testing.assert_allclose(karras(noise, steps), theirs.timesteps.numpy(), atol=0.51)


def test_aligned_steps_are_the_published_ones():
    assert BASELINES["ays-sd15"](STABLE_DIFFUSION, 10).tolist() == AysSchedules["StableDiffusionTimesteps"]
    assert BASELINES["ays-sdxl"](STABLE_DIFFUSION, 10).tolist() == AysSchedules["StableDiffusionXLTimesteps"]
    # Half a cell of the table: ln(700 / 0.002) / 999 / 2 = 0.0064.
    published = AysSchedules["StableDiffusionVideoSigmas"][:-1]
    np.testing.assert_allclose(STABLE_VIDEO.sigma(BASELINES["ays-svd"](STABLE_VIDEO, 10)), published, rtol=0.0065)


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
)
@settings(max_examples=60, deadline=None)
def test_every_closed_form_gives_exactly_k_strictly_falling_known_times(sizes, rates, zero):
    timesteps, steps = sizes
    noise = DiscreteVP.named(rates, timesteps, zero_terminal_snr=zero)
    for name in applicable_baselines(noise):
        check_times_of(baseline_schedule(name, noise, steps), noise, steps, name)


@given(
    st.integers(2, 1000),
    st.sampled_from(
        [NOISE, STABLE_DIFFUSION, STABLE_VIDEO, DiscreteVP.named("cosine"), DiscreteVP.named(zero_terminal_snr=True)]
    ),
)
@settings(max_examples=40, deadline=None)
def test_every_closed_form_gives_exactly_k_of_a_thousand_timesteps(steps, noise):
    for name in applicable_baselines(noise):
        check_times_of(baseline_schedule(name, noise, steps), noise, steps, name)


def check_times_of(schedule, noise, steps, name):
    assert len(schedule) == steps
    assert (np.diff(schedule.timesteps) < 0).all()
    assert noise.contains(schedule.timesteps).all()
    assert schedule.provenance["method"] == name


@given(
    st.integers(2, 1000),
    st.sampled_from([Flow(), Flow(3.0), Flow(0.3), ContinuousVP(), ContinuousVP(last=0.05), ContinuousVP(1.0, 40.0)]),
)
@settings(max_examples=60, deadline=None)
def test_every_closed_form_gives_exactly_k_falling_times_in_continuous_time(steps, noise):
    for name in applicable_baselines(noise):
        schedule = baseline_schedule(name, noise, steps)
        check_times_of(schedule, noise, steps, name)
        if name != "ays-svd":
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


# Where each applies


@pytest.mark.parametrize(
    ("noise", "also"),
    [
        (NOISE, {"uniform-leading"}),
        (DiscreteVP.named("scaled_linear", timesteps=500), {"uniform-leading"}),
        (STABLE_DIFFUSION, {"uniform-leading", "ays-sd15", "ays-sdxl"}),
        (DiscreteVP.named("scaled_linear", zero_terminal_snr=True), {"uniform-leading", "ays-svd"}),
        (STABLE_VIDEO, {"uniform-leading", "ays-svd"}),
        (DiscreteVP.named("cosine"), {"uniform-leading", "ays-svd"}),
        (ContinuousVP(), set()),
        (ContinuousVP(1.0, 40.0), {"ays-svd"}),
        (ContinuousVP(1.0, 40.0, last=0.01), set()),  # its smallest sigma is 0.11, above the last but one of the list
        (Flow(3.0), set()),
    ],
)
def test_each_noise_schedule_gets_the_closed_forms_made_for_it(noise, also):
    assert set(applicable_baselines(noise)) == EVERYWHERE | also


@pytest.mark.parametrize(
    ("name", "noise", "why"),
    [
        ("ays-sd15", NOISE, "ays-sd15 needs Stable Diffusion's own.*scaled_linear from 0.00085 to 0.012"),
        ("ays-sdxl", Flow(), "ays-sdxl needs Stable Diffusion's own"),
        ("ays-svd", STABLE_DIFFUSION, "ays-svd needs .* sigma reaches from 700 to below 0.034"),
        ("ays-svd", Flow(), "ays-svd needs a variance preserving"),
    ],
)
def test_a_closed_form_made_for_another_noise_schedule_is_refused_with_what_it_needs(name, noise, why):
    with pytest.raises(ScheduleError, match=why):
        baseline_schedule(name, noise, 10)


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
