from __future__ import annotations

import inspect
import math
import warnings
from itertools import pairwise
from types import SimpleNamespace

import float64_solvers as exact
import numpy as np
import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from hypothesis import given, settings
from hypothesis import strategies as st

import geosprint
from geosprint.errors import ScheduleError
from geosprint.integrations.schedulers import GeoSprintFlowMatchEulerScheduler
from geosprint.noise import Flow

CONFIGS = [
    {},
    {"shift": 3.0},
    {"shift": 3.0, "shift_terminal": 0.1},
    {"use_dynamic_shifting": True},
    {"use_dynamic_shifting": True, "time_shift_type": "linear"},
    {"use_dynamic_shifting": True, "shift_terminal": 0.02},
    {"use_karras_sigmas": True},
    {"use_exponential_sigmas": True},
    {"invert_sigmas": True},
    {"stochastic_sampling": True},
    {"num_train_timesteps": 500, "shift": 2.0},
]


def normal(seed, shape=(2, 3, 4)):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def mu_of(config):
    return {"mu": 0.8} if config.get("use_dynamic_shifting") else {}


def applied(made, **config):
    pipe = SimpleNamespace(scheduler=FlowMatchEulerDiscreteScheduler(**config))
    return geosprint.apply(pipe, made).scheduler


def default_sigmas(steps):
    return np.linspace(1.0, 1 / steps, steps)


@pytest.fixture(scope="module")
def profile():
    return exact.profile_for(Flow(3.0), "flow")


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("how", ["steps", "sigmas", "both lists"])
def test_without_a_payload_it_is_stock_to_the_last_bit(config, how):
    given_lists = {
        "steps": {"num_inference_steps": 6},
        "sigmas": {"sigmas": [1.0, 0.7, 0.4, 0.2]},
        "both lists": {"sigmas": [1.0, 0.7, 0.4, 0.2], "timesteps": [1000.0, 700.0, 400.0, 200.0]},
    }[how]
    ends = []
    for kind in (FlowMatchEulerDiscreteScheduler, GeoSprintFlowMatchEulerScheduler):
        scheduler = kind(**config)
        scheduler.set_timesteps(**given_lists, **mu_of(config))
        torch.manual_seed(0)
        x = normal(1)
        for t in scheduler.timesteps:
            x = scheduler.step(torch.tanh(x) + t / 1000, t, x).prev_sample
        ends.append((x, scheduler.timesteps, scheduler.sigmas))
    assert all(torch.equal(ours, stock) for ours, stock in zip(*ends, strict=True))


falling = st.lists(st.integers(1, 100_000), min_size=1, max_size=12, unique=True).map(
    lambda times: [t / 100 for t in sorted(times, reverse=True)]
)


@settings(max_examples=40, deadline=None)
@given(times=falling, config=st.sampled_from(CONFIGS[:8]))
def test_applied_times_come_out_as_they_went_in_whatever_the_shift(times, config):
    scheduler = applied(geosprint.StepSchedule.at(times, Flow(), {}), **config)
    scheduler.set_timesteps(len(times), **mu_of(config))
    np.testing.assert_allclose(scheduler.timesteps.double(), times, rtol=1e-6)
    np.testing.assert_allclose(scheduler.sigmas.double(), [*(t / 1000 for t in times), 0.0], rtol=1e-6)


@pytest.mark.parametrize("steps", [1, 2, 9, 60])
def test_a_profile_gives_any_number_of_steps(profile, steps):
    scheduler = applied(profile, shift=3.0)
    scheduler.set_timesteps(steps)
    times = scheduler.timesteps.tolist()
    assert len(times) == steps
    assert times[0] == 1000
    assert all(a > b for a, b in pairwise(times))
    if steps > 1:
        np.testing.assert_allclose(times, geosprint.build_schedule(profile, steps).timesteps, rtol=1e-6)


def test_the_shift_of_a_uniform_profile_is_applied_once():
    """Where every state is kept, blend 1 asks for uniform steps of the clock, that is the shift of a uniform list."""
    profile = exact.profile_for(Flow(3.0), "flow")
    scheduler = applied(profile, shift=3.0)
    payload = {**scheduler.config.geosprint, "blend": 1.0}
    payload["retention"] = [1.0] * len(payload["retention"])
    scheduler = GeoSprintFlowMatchEulerScheduler(shift=3.0, geosprint=payload)
    scheduler.set_timesteps(8)
    clock = np.arange(8, 0, -1) / 8
    np.testing.assert_allclose(scheduler.sigmas[:-1], 3 * clock / (1 + 2 * clock), rtol=1e-5)


@pytest.mark.parametrize("steps", [2, 4, 28, 50])
def test_the_list_that_flux_always_passes_means_the_number_of_steps(profile, steps):
    scheduler = applied(profile, use_dynamic_shifting=True)
    scheduler.set_timesteps(sigmas=default_sigmas(steps), mu=math.log(3.0))
    np.testing.assert_allclose(scheduler.timesteps, geosprint.build_schedule(profile, steps).timesteps, rtol=1e-6)


@pytest.mark.parametrize(
    "config", [{"shift": 3.0}, {"use_dynamic_shifting": True}, {"shift": 3.0, "shift_terminal": 0.1}]
)
def test_sigmas_of_the_users_own_are_treated_as_stock_treats_them(profile, config):
    own = [1.0, 0.8, 0.35, 0.1]
    ours, stock = applied(profile, **config), FlowMatchEulerDiscreteScheduler(**config)
    for scheduler in (ours, stock):
        scheduler.set_timesteps(sigmas=own, **mu_of(config))
    assert torch.equal(ours.sigmas, stock.sigmas)
    assert torch.equal(ours.timesteps, stock.timesteps)


def test_timesteps_of_the_users_own_are_treated_as_stock_treats_them(profile):
    ours, stock = applied(profile, shift=3.0), FlowMatchEulerDiscreteScheduler(shift=3.0)
    for scheduler in (ours, stock):
        scheduler.set_timesteps(timesteps=[900.0, 500.0])
    assert torch.equal(ours.timesteps, stock.timesteps)


@pytest.mark.parametrize("as_schedule", [False, True])
def test_another_dynamic_shift_is_a_warning_that_names_both(profile, as_schedule):
    scheduler = applied(geosprint.build_schedule(profile, 6) if as_schedule else profile, use_dynamic_shifting=True)
    with pytest.warns(UserWarning, match=r"recorded with shift 3, this run has 2\.226"):
        scheduler.set_timesteps(6, mu=0.8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler.set_timesteps(6, mu=math.log(3.0))


def test_a_schedule_of_another_length_is_refused():
    scheduler = applied(geosprint.StepSchedule.at([1000, 500, 20], Flow(), {}))
    with pytest.raises(ScheduleError, match="steps for K = 3, but 28 were asked for"):
        scheduler.set_timesteps(sigmas=default_sigmas(28))


def test_inverted_sigmas_are_refused_because_they_mean_something_else(profile):
    with pytest.raises(geosprint.GeoSprintError, match="invert_sigmas"):
        applied(profile, shift=3.0, invert_sigmas=True)


def test_a_profile_survives_stock_and_back_and_save_and_load(profile, tmp_path):
    ours = applied(profile, shift=3.0)
    back = GeoSprintFlowMatchEulerScheduler.from_config(FlowMatchEulerDiscreteScheduler.from_config(ours.config).config)
    ours.save_pretrained(tmp_path)
    loaded = GeoSprintFlowMatchEulerScheduler.from_pretrained(tmp_path)
    for other in (back, loaded):
        assert other.config.geosprint == ours.config.geosprint
        for scheduler in (ours, other):
            scheduler.set_timesteps(7)
        assert torch.equal(ours.sigmas, other.sigmas)
        assert other.shift == 3.0


def test_every_argument_of_stock_is_an_argument_here_with_the_same_default():
    stock = inspect.signature(FlowMatchEulerDiscreteScheduler.__init__).parameters
    ours = inspect.signature(GeoSprintFlowMatchEulerScheduler.__init__).parameters
    assert list(ours) == [*stock, "geosprint"]
    assert all(ours[name].default == stock[name].default for name in stock)
    taken = inspect.signature(FlowMatchEulerDiscreteScheduler.set_timesteps).parameters
    assert list(inspect.signature(GeoSprintFlowMatchEulerScheduler.set_timesteps).parameters) == list(taken)


def test_push_to_hub_is_inherited():
    assert GeoSprintFlowMatchEulerScheduler.push_to_hub is FlowMatchEulerDiscreteScheduler.push_to_hub


def test_image_to_image_can_start_inside_the_list(profile):
    scheduler = applied(profile, shift=3.0)
    scheduler.set_timesteps(8)
    scheduler.set_begin_index(3)
    x, v = normal(1), normal(2)
    result = scheduler.step(v, scheduler.timesteps[3], x).prev_sample
    sigmas = scheduler.sigmas.double()
    torch.testing.assert_close(result.double(), x.double() + (sigmas[4] - sigmas[3]) * v.double(), rtol=0, atol=1e-6)
