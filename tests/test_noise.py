import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from geosprint.errors import NoiseError
from geosprint.noise import CLEAN, EDM, ContinuousVP, DiscreteVP, Flow, noise_from_dict
from geosprint.schedule import StepSchedule

LINEAR = DiscreteVP.named("linear")
SCALED = DiscreteVP.named("scaled_linear")
COSINE = DiscreteVP.named("cosine")
ZERO_SNR = DiscreteVP.named("scaled_linear", zero_terminal_snr=True)
CONTINUOUS = ContinuousVP()
FLOW = Flow(shift=3.0)
ALL = {
    "linear": LINEAR,
    "scaled_linear": SCALED,
    "cosine": COSINE,
    "zero terminal SNR": ZERO_SNR,
    "linear, zero terminal SNR": DiscreteVP.named("linear", zero_terminal_snr=True),
    "cosine, zero terminal SNR": DiscreteVP.named("cosine", zero_terminal_snr=True),
    "continuous": CONTINUOUS,
    "edm": EDM(),
    "flow": FLOW,
}
untimed = settings(deadline=None, max_examples=50)
every_kind = pytest.mark.parametrize("noise", ALL.values(), ids=ALL.keys())


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (LINEAR, {"beta_schedule": "linear", "beta_start": 1e-4, "beta_end": 0.02}),
        (SCALED, {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012}),
        (COSINE, {"beta_schedule": "squaredcos_cap_v2"}),
        (
            DiscreteVP.named("linear", 250, 0.001, 0.05),
            {"num_train_timesteps": 250, "beta_start": 0.001, "beta_end": 0.05},
        ),
    ],
    ids=["linear", "scaled_linear", "cosine", "other rates"],
)
def test_named_tables_are_those_of_diffusers(ours, theirs):
    from diffusers import DDIMScheduler

    table = DDIMScheduler(**theirs).alphas_cumprod.double().numpy()
    assert len(ours.alphas_cumprod) == len(table)
    np.testing.assert_allclose(ours.alphas_cumprod, table, rtol=2e-4)


@pytest.mark.parametrize(("rates", "first", "last"), [("linear", 1e-4, 0.02), ("scaled_linear", 0.00085, 0.012)])
def test_zero_terminal_snr_is_the_rescaling_of_diffusers(rates, first, last):
    from diffusers import DDIMScheduler

    theirs = DDIMScheduler(beta_schedule=rates, beta_start=first, beta_end=last, rescale_betas_zero_snr=True)
    ours = DiscreteVP.named(rates, zero_terminal_snr=True)
    # Their float32 differences of square roots lose digits near the end, so signals are compared, not squares.
    np.testing.assert_allclose(np.sqrt(ours.alphas_cumprod), theirs.alphas_cumprod.double().sqrt().numpy(), atol=3e-6)
    assert ours.alphas_cumprod[-1] == 0
    assert ours.alphas_cumprod[0] == pytest.approx(DiscreteVP.named(rates).alphas_cumprod[0], rel=1e-12)


def test_the_linear_table_is_the_product_of_one_minus_each_rate():
    product = 1.0
    for i in range(1000):
        product *= 1 - (1e-4 + (0.02 - 1e-4) * i / 999)
        if i in (0, 1, 500, 999):
            assert LINEAR.alphas_cumprod[i] == pytest.approx(product, rel=1e-10)


def test_continuous_vp_is_the_integral_of_its_linear_rate():
    t = 0.37
    rates = 0.1 + (20 - 0.1) * np.linspace(0, t, 100_001)
    kept = math.exp(-np.trapezoid(rates, dx=t / 100_000))
    a, s = CONTINUOUS.signal_and_sigma(t)
    assert (a**2, s**2) == pytest.approx((kept, 1 - kept), rel=1e-8)
    assert float(CONTINUOUS.log_snr(t)) == pytest.approx(math.log(kept / (1 - kept)), rel=1e-8)


@every_kind
@untimed
@given(fraction=st.floats(0, 1), whole=st.booleans())
def test_time_survives_the_way_to_log_snr_and_sigma_and_back(noise, fraction, whole):
    t = noise.last + fraction * (noise.first - noise.last)
    t = round(t) if whole and not noise.continuous else t
    near = {"abs": 1e-6 * noise.first}
    if 0 < t < noise.first or not isinstance(noise, Flow):
        assume(not isinstance(noise, Flow) or 1e-3 < t / noise.first < 1 - 1e-3)  # beyond, log-SNR is cut
        assert float(noise.time_of_log_snr(noise.log_snr(t))) == pytest.approx(t, **near)
    assert float(noise.time_of_sigma(noise.sigma(t))) == pytest.approx(t, **near)


@every_kind
@untimed
@given(share=st.floats(0.001, 0.999))
def test_log_snr_survives_the_way_to_time_and_back(noise, share):
    high, low = float(noise.log_snr(noise.last)), float(noise.log_snr(noise.first))
    log_snr = low + share * (high - low)
    assert float(noise.log_snr(noise.time_of_log_snr(log_snr))) == pytest.approx(log_snr, abs=1e-6)


@every_kind
def test_every_trained_time_has_its_own_noise_level(noise):
    times = noise.time_at(np.linspace(max(noise.clock(noise.last), 0.001), 1, 1000))
    times = np.arange(1000.0) if not noise.continuous else times
    assert (np.diff(noise.sigma(times)) > 0).all()
    assert (np.diff(noise.log_snr(times)) < 0).all()


@pytest.mark.parametrize("rates", ["linear", "scaled_linear", "cosine"])
def test_a_schedule_of_all_steps_exists_for_zero_terminal_snr(rates):
    noise = DiscreteVP.named(rates, zero_terminal_snr=True)
    assert len(StepSchedule.at(np.arange(999.0, -1, -1), noise, {})) == 1000


@every_kind
@untimed
@given(fraction=st.floats(0.001, 0.999))
def test_signal_and_sigma_agree_with_log_snr_also_between_timesteps(noise, fraction):
    t = noise.last + fraction * (noise.first - noise.last)
    a, s = noise.signal_and_sigma(t)
    assume(a > 0 and abs(2 * math.log(a / s)) < 16)
    assert 2 * math.log(a / s) == pytest.approx(float(noise.log_snr(t)), abs=1e-8)
    assert (a + s if isinstance(noise, Flow) else a**2 + s**2) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("noise", [LINEAR, ZERO_SNR, CONTINUOUS])
def test_the_sigma_of_vp_is_noise_over_signal(noise):
    for t in (noise.time_at(0.3).round(6), noise.time_at(0.7).round(6)):
        a, s = noise.signal_and_sigma(float(t))
        assert float(noise.sigma(t)) == pytest.approx(s / a, rel=1e-9)
        assert float(noise.log_snr(t)) == pytest.approx(-2 * math.log(s / a), rel=1e-9)


@pytest.mark.parametrize("rates", ["linear", "scaled_linear", "cosine"])
@pytest.mark.parametrize("zero_terminal_snr", [False, True])
def test_the_sigma_of_every_whole_timestep_with_signal_is_noise_over_signal(rates, zero_terminal_snr):
    noise = DiscreteVP.named(rates, zero_terminal_snr=zero_terminal_snr)
    kept = noise.alphas_cumprod[noise.alphas_cumprod > 0]
    np.testing.assert_allclose(noise.sigma(np.arange(len(kept))), np.sqrt((1 - kept) / kept), rtol=1e-9)


@every_kind
def test_the_clean_end_is_all_signal(noise):
    assert noise.signal_and_sigma(CLEAN) == (1.0, 0.0)


def test_the_clean_end_can_be_the_first_alpha_of_the_table():
    noise = DiscreteVP(LINEAR.alphas_cumprod, final_alpha_cumprod=float(LINEAR.alphas_cumprod[0]))
    assert noise.signal_and_sigma(CLEAN) == pytest.approx((math.sqrt(0.9999), 0.01), rel=1e-9)
    assert noise.signal_and_sigma(CLEAN) == noise.signal_and_sigma(0)


def test_zero_terminal_snr_has_no_signal_at_the_first_step_and_a_finite_sigma():
    assert ZERO_SNR.signal_and_sigma(999) == (0.0, 1.0)
    assert np.isfinite(ZERO_SNR.sigma(999))


def test_flow_values_computed_by_hand():
    noise = Flow()
    assert noise.signal_and_sigma(250) == (0.75, 0.25)
    assert noise.signal_and_sigma(1000) == (0.0, 1.0)
    assert float(noise.sigma(250)) == 0.25
    assert float(noise.log_snr(500)) == 0
    assert float(noise.log_snr(250)) == pytest.approx(2 * math.log(3))
    assert float(noise.time_of_log_snr(2 * math.log(3))) == pytest.approx(250)
    assert Flow(timesteps=1).signal_and_sigma(0.25) == (0.75, 0.25)


def test_shift_bends_the_clock_by_hand():
    assert float(FLOW.time_at(0.5)) == pytest.approx(750)  # 3·0.5 / (1 + 2·0.5)
    assert float(FLOW.clock(750)) == pytest.approx(0.5)
    assert float(FLOW.time_at(0.25)) == pytest.approx(500)  # 0.75 / 1.5
    assert FLOW.time_at([0.0, 1.0]).tolist() == [0, 1000]


def test_shift_does_not_change_what_a_time_means():
    assert FLOW.signal_and_sigma(750) == Flow(shift=1).signal_and_sigma(750) == (0.25, 0.75)
    assert FLOW.log_snr(750) == Flow(shift=1).log_snr(750)


@every_kind
@untimed
@given(clock=st.floats(0, 1))
def test_clock_and_time_are_inverse(noise, clock):
    assert float(noise.clock(noise.time_at(clock))) == pytest.approx(clock, abs=1e-12)


@pytest.mark.parametrize("shift", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("steps", [4, 7])
def test_a_uniform_clock_gives_the_shifted_sigmas_of_diffusers(shift, steps):
    from diffusers import FlowMatchEulerDiscreteScheduler

    scheduler = FlowMatchEulerDiscreteScheduler(shift=shift)
    uniform = np.linspace(1, 1 / steps, steps)
    scheduler.set_timesteps(sigmas=uniform.tolist())
    times = Flow(shift).time_at(uniform)
    np.testing.assert_allclose(times, scheduler.timesteps, rtol=1e-6)
    np.testing.assert_allclose(Flow(shift).sigma(times), scheduler.sigmas[:-1], rtol=1e-6)


@every_kind
def test_a_noise_schedule_survives_the_way_to_a_dictionary_and_back(noise):
    again = noise_from_dict(noise.to_dict())
    assert type(again) is type(noise)
    times = noise.time_at(np.linspace(0.01, 1, 50))
    np.testing.assert_array_equal(again.log_snr(times), noise.log_snr(times))
    assert again.to_dict() == noise.to_dict()
    assert again.same_as(noise)
    assert noise.same_as(again)


def test_own_tables_and_their_clean_end_survive_the_way_to_a_dictionary_and_back():
    noise = DiscreteVP(np.array([0.9, 0.5, 0.1]), final_alpha_cumprod=0.95)
    again = noise_from_dict(noise.to_dict())
    assert again.alphas_cumprod.tolist() == [0.9, 0.5, 0.1]
    assert again.final_alpha_cumprod == 0.95
    named = DiscreteVP(LINEAR.alphas_cumprod, 0.99995, LINEAR.recipe)
    assert noise_from_dict(named.to_dict()).final_alpha_cumprod == 0.99995


def test_a_float32_table_is_the_same_noise_schedule():
    assert LINEAR.same_as(DiscreteVP(LINEAR.alphas_cumprod.astype(np.float32)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (LINEAR, SCALED),
        (LINEAR, COSINE),
        (SCALED, ZERO_SNR),
        (LINEAR, DiscreteVP.named("linear", 500)),
        (LINEAR, DiscreteVP.named("linear", last_rate=0.021)),
        (LINEAR, CONTINUOUS),
        (CONTINUOUS, ContinuousVP(rate_max=19)),
        (FLOW, Flow(shift=1)),
        (FLOW, Flow(shift=3, timesteps=1)),
    ],
)
def test_another_noise_schedule_is_not_the_same(one, other):
    assert not one.same_as(other)
    assert not other.same_as(one)


def test_only_trained_times_are_contained():
    assert LINEAR.contains([0, 999, 1000, -1, 3.5]).tolist() == [True, True, False, False, False]
    assert FLOW.contains([0, 0.5, 1000, 1000.5, -1]).tolist() == [False, True, True, False, False]
    assert CONTINUOUS.contains([0, 1e-3, 0.5, 1, 1.1]).tolist() == [False, True, True, True, False]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: DiscreteVP(np.linspace(0.1, 0.9, 5)), "fall strictly"),
        (lambda: DiscreteVP(np.array([0.9, 0.5, 0.5])), "fall strictly"),
        (lambda: DiscreteVP(np.array([1.1, 0.5])), r"0\.\.1"),
        (lambda: DiscreteVP(np.array([0.9, np.nan])), "finite"),
        (lambda: DiscreteVP(np.array([0.9])), "at least 2"),
        (lambda: DiscreteVP(np.ones((2, 2)) / 2), "shape"),
        (lambda: DiscreteVP(np.array([0.9, 0.5]), final_alpha_cumprod=0.8), "final_alpha_cumprod"),
        (lambda: DiscreteVP(np.array([0.9, 0.5]), final_alpha_cumprod=1.2), "final_alpha_cumprod"),
        (lambda: DiscreteVP.named("sigmoid"), "linear, scaled_linear, cosine"),
        (lambda: DiscreteVP.named("linear", 1), "at least 2"),
        (lambda: DiscreteVP.named("scaled_linear", first_rate=-0.1), "rate"),
        (lambda: ContinuousVP(rate_min=5, rate_max=1), "rate_min"),
        (lambda: ContinuousVP(last=0), "last"),
        (lambda: Flow(shift=0), "shift"),
        (lambda: Flow(shift=float("nan")), "shift"),
        (lambda: Flow(timesteps=0), "timesteps"),
        (lambda: LINEAR.log_snr(1000), r"0\.\.999"),
        (lambda: LINEAR.signal_and_sigma(-0.5), r"0\.\.999"),
        (lambda: noise_from_dict({"kind": "karras"}), "discrete-vp, continuous-vp, edm, flow"),
        (lambda: EDM(sigma_min=90.0), "sigma_min < sigma_max, got 90.0 and 80.0"),
        (lambda: EDM(sigma_data=0.0), "sigma_data must be positive"),
        (lambda: noise_from_dict({}), "kind"),
        (lambda: noise_from_dict({"kind": "flow", "shfit": 3}), "shfit"),
        (lambda: noise_from_dict({"kind": "discrete-vp"}), "discrete-vp"),
        (lambda: noise_from_dict({"kind": "discrete-vp", "rates": "linear", "timesteps": "many"}), "discrete-vp"),
    ],
)
def test_a_noise_schedule_that_cannot_be_is_refused(make, said):
    with pytest.raises(NoiseError, match=said):
        make()
