from __future__ import annotations

import inspect
import logging
import math
import subprocess
import sys
from itertools import pairwise
from types import SimpleNamespace

import diffusers
import float64_solvers as exact
import numpy as np
import pytest
import torch
from diffusers import DDIMScheduler
from hypothesis import given, settings
from hypothesis import strategies as st

import geosprint
from geosprint.errors import NoiseError, ScheduleError
from geosprint.integrations.schedulers import GeoSprintDDIMScheduler, GeoSprintFlowMatchEulerScheduler
from geosprint.noise import DiscreteVP

SHAPE = (2, 3, 4, 4)


def normal(seed, shape=SHAPE, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def noise_of_table(scheduler):
    return DiscreteVP(scheduler.alphas_cumprod.double().numpy(), float(scheduler.final_alpha_cumprod))


def applied(profile_or_schedule, scheduler=None):
    pipe = SimpleNamespace(scheduler=scheduler or DDIMScheduler())
    return geosprint.apply(pipe, profile_or_schedule).scheduler


@pytest.fixture(scope="module")
def profile():
    return exact.profile_for(noise_of_table(DDIMScheduler()))


# The formula, for any list.


def formula(scheduler, output, t, t_next, x, eta, fresh):
    """Song et al. (2021), Eq. 12 and 16, in float64, with the clipping of the model's own config."""
    config, table = scheduler.config, scheduler.alphas_cumprod.double()
    now = table[t]
    then = table[t_next] if t_next is not None else scheduler.final_alpha_cumprod.double()
    x, output = x.double(), output.double()
    if config.prediction_type == "epsilon":
        eps, x0 = output, (x - (1 - now).sqrt() * output) / now.sqrt()
    elif config.prediction_type == "sample":
        eps, x0 = (x - now.sqrt() * output) / (1 - now).sqrt(), output
    else:
        eps, x0 = now.sqrt() * output + (1 - now).sqrt() * x, now.sqrt() * x - (1 - now).sqrt() * output
    if config.thresholding:
        limit = torch.quantile(x0.flatten(1).abs(), config.dynamic_thresholding_ratio, dim=1)
        limit = limit.clamp(1, config.sample_max_value)[:, None, None, None]
        x0 = torch.maximum(torch.minimum(x0, limit), -limit) / limit
    elif config.clip_sample:
        x0 = x0.clamp(-config.clip_sample_range, config.clip_sample_range)
    deviation = eta * ((1 - then) / (1 - now) * (1 - now / then)).sqrt()
    return then.sqrt() * x0 + (1 - then - deviation**2).sqrt() * eps + deviation * fresh.double(), x0


lists = st.lists(st.integers(0, 999), min_size=1, max_size=12, unique=True).map(lambda t: sorted(t, reverse=True))
configs = st.fixed_dictionaries(
    {
        "beta_schedule": st.sampled_from(["linear", "scaled_linear", "squaredcos_cap_v2"]),
        "prediction_type": st.sampled_from(["epsilon", "sample", "v_prediction"]),
        "clip_sample": st.booleans(),
        "clip_sample_range": st.sampled_from([1.0, 2.5]),
        "thresholding": st.booleans(),
        "sample_max_value": st.sampled_from([1.0, 3.0]),
        "set_alpha_to_one": st.booleans(),
        "rescale_betas_zero_snr": st.booleans(),
        "timestep_spacing": st.sampled_from(["leading", "trailing", "linspace"]),
    }
)


@settings(max_examples=60, deadline=None, derandomize=True)  # the same sixty lists on every machine
@given(times=lists, config=configs, eta=st.sampled_from([0.0, 0.3, 1.0]), dtype=st.sampled_from(["float32", "float64"]))
def test_every_step_of_any_falling_list_is_the_float64_formula(times, config, eta, dtype):
    if config["rescale_betas_zero_snr"] and config["prediction_type"] == "epsilon":
        times = [t for t in times if t != 999] or [998]  # noise alone says nothing of x0 where no signal is left
    scheduler = GeoSprintDDIMScheduler(**config)
    scheduler.set_timesteps(timesteps=times)
    assert scheduler.timesteps.tolist() == times
    for i, t in enumerate(scheduler.timesteps):
        x, output, fresh = (normal(3 * i + k, dtype=getattr(torch, dtype)) for k in range(3))
        result = scheduler.step(output, t, x, eta=eta, variance_noise=fresh if eta else None)
        t_next = times[i + 1] if i + 1 < len(times) else None
        expected, x0 = formula(scheduler, output, times[i], t_next, x, eta, fresh)
        for found, wanted in ((result.prev_sample, expected), (result.pred_original_sample, x0)):
            assert float((found - wanted).abs().max()) <= 1e-6 * max(1.0, float(wanted.abs().max()))


def test_a_whole_walk_stays_within_a_millionth_of_float64():
    times = [999, 981, 902, 760, 701, 433, 260, 120, 31, 3]
    scheduler = GeoSprintDDIMScheduler(clip_sample=False)
    scheduler.set_timesteps(timesteps=times)
    table = scheduler.alphas_cumprod
    x, start = normal(1), normal(1).double()
    for t in scheduler.timesteps:
        a, s = exact.vp_levels(table, [t])[0]
        x = scheduler.step(exact.smooth_network(x, a, s, float(t))[1], t, x).prev_sample
    expected = exact.ddim(exact.smooth_network, start, times, exact.vp_levels(table, times))
    assert float((x - expected).abs().max() / expected.abs().max()) < 1e-6


def test_stock_ddim_is_far_off_on_the_same_list():
    times = [999, 981, 902, 760, 701, 433, 260, 120, 31, 3]
    stock = DDIMScheduler(clip_sample=False)
    stock.set_timesteps(len(times))
    stock.timesteps = torch.tensor(times)
    x = normal(1)
    for t in stock.timesteps:
        a, s = exact.vp_levels(stock.alphas_cumprod, [t])[0]
        x = stock.step(exact.smooth_network(x, a, s, float(t))[1], t, x).prev_sample
    expected = exact.ddim(exact.smooth_network, normal(1).double(), times, exact.vp_levels(stock.alphas_cumprod, times))
    assert float((x - expected).abs().max() / expected.abs().max()) > 0.01


def test_with_a_generator_the_noise_is_what_the_generator_gives():
    scheduler = GeoSprintDDIMScheduler()
    scheduler.set_timesteps(timesteps=[900, 500, 20])
    x, output = normal(1), normal(2)
    drawn = scheduler.step(output, 500, x, eta=0.7, generator=torch.Generator().manual_seed(3)).prev_sample
    fresh = torch.randn(SHAPE, generator=torch.Generator().manual_seed(3))
    assert torch.equal(drawn, scheduler.step(output, 500, x, eta=0.7, variance_noise=fresh).prev_sample)
    with pytest.raises(ValueError, match="not both"):
        scheduler.step(output, 500, x, eta=0.7, variance_noise=fresh, generator=torch.Generator())


def test_a_clipped_x0_can_take_the_noise_with_it():
    scheduler = GeoSprintDDIMScheduler()
    scheduler.set_timesteps(timesteps=[900, 500, 20])
    x, output = 3 * normal(1), normal(2)
    result = scheduler.step(output, 500, x, use_clipped_model_output=True)
    (a, s), (a1, s1) = exact.vp_levels(scheduler.alphas_cumprod, [500, 20])[:2]
    x0 = result.pred_original_sample.double()
    expected = a1 * x0 + s1 * (x - a * x0) / s
    torch.testing.assert_close(result.prev_sample.double(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_comes_back_as_half_precision(dtype):
    scheduler = GeoSprintDDIMScheduler()
    scheduler.set_timesteps(timesteps=[900, 500, 20])
    assert scheduler.step(normal(1, dtype=dtype), 500, normal(2, dtype=dtype)).prev_sample.dtype == dtype


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"timesteps": [500, 500]}, "fall strictly"),
        ({"timesteps": [5, 500]}, "fall strictly"),
        ({"timesteps": []}, "fall strictly"),
        ({"timesteps": [1000, 5]}, r"in 0\.\.999, got 1000\.\.5"),
        ({"timesteps": [5, -1]}, r"in 0\.\.999, got 5\.\.-1"),
        ({"timesteps": [900, 5], "num_inference_steps": 3}, "got 2 timesteps, but num_inference_steps says 3"),
    ],
)
def test_lists_that_no_walk_can_follow_are_refused(asked, complaint):
    with pytest.raises(ValueError, match=complaint):
        GeoSprintDDIMScheduler().set_timesteps(**asked)


# Its payload.


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 10, 50, 333, 1000])
def test_a_profile_gives_any_number_of_steps(profile, steps):
    scheduler = applied(profile)
    scheduler.set_timesteps(steps)
    times = scheduler.timesteps.tolist()
    assert len(times) == steps
    assert all(a > b for a, b in pairwise(times))
    if steps > 1:
        assert times == geosprint.build_schedule(profile, steps).timesteps.tolist()


def test_blend_and_literal_reach_the_placement(profile):
    pipe = SimpleNamespace(scheduler=DDIMScheduler())
    for blend, literal in ((0.0, False), (1.0, True)):
        scheduler = geosprint.apply(pipe, profile, blend=blend, literal=literal).scheduler
        scheduler.set_timesteps(9)
        assert scheduler.timesteps.tolist() == geosprint.build_schedule(profile, 9, blend, literal).timesteps.tolist()


def test_too_many_steps_are_refused(profile):
    with pytest.raises(ScheduleError, match=r"2\.\.1000, the number of training timesteps, got 1001"):
        applied(profile).set_timesteps(1001)


def test_a_list_of_the_callers_own_goes_before_the_payload(profile):
    scheduler = applied(profile)
    scheduler.set_timesteps(timesteps=[800, 100])
    assert scheduler.timesteps.tolist() == [800, 100]


def test_a_pipeline_that_looks_sees_that_timesteps_are_taken():
    assert "timesteps" in inspect.signature(GeoSprintDDIMScheduler().set_timesteps).parameters
    names = list(inspect.signature(DDIMScheduler.step).parameters)
    assert list(inspect.signature(GeoSprintDDIMScheduler.step).parameters) == names


def test_a_profile_of_another_noise_schedule_is_refused_by_the_scheduler_itself(profile):
    content = applied(profile).config.geosprint
    with pytest.raises(ScheduleError, match="made for another noise schedule"):
        GeoSprintDDIMScheduler(beta_schedule="squaredcos_cap_v2", geosprint=content)


def test_a_walk_that_starts_inside_the_list_goes_on_along_it(profile):
    scheduler = applied(profile)
    scheduler.set_timesteps(8)
    times = scheduler.timesteps.tolist()
    between = (times[3] + times[4]) // 2
    x, output = normal(1), normal(2)
    expected, _ = formula(scheduler, output, between, times[4], x, 0.0, normal(3))
    torch.testing.assert_close(scheduler.step(output, between, x).prev_sample.double(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", DDIMScheduler._compatibles)
def test_a_profile_survives_every_compatible_scheduler_and_back(profile, name, caplog):
    kind = getattr(diffusers, name)
    if not issubclass(kind, diffusers.SchedulerMixin):
        pytest.skip(f"{name} needs a package that is not installed")
    ours = applied(profile, DDIMScheduler(clip_sample=False, steps_offset=1))
    with caplog.at_level(logging.ERROR):
        back = GeoSprintDDIMScheduler.from_config(kind.from_config(ours.config).config)
    assert back.config.geosprint == ours.config.geosprint
    assert (back.config.clip_sample, back.config.steps_offset) == (False, 1)
    for scheduler in (ours, back):
        scheduler.set_timesteps(9)
    assert torch.equal(ours.timesteps, back.timesteps)
    assert torch.equal(ours.alphas_cumprod, back.alphas_cumprod)


def test_a_trip_through_all_compatible_schedulers_changes_no_value_of_the_config():
    config = {"beta_start": 0.01, "clip_sample": False, "timestep_spacing": "trailing", "prediction_type": "sample"}
    ours = GeoSprintDDIMScheduler(**config)
    scheduler = ours
    for kind in ours.compatibles:
        if issubclass(kind, diffusers.SchedulerMixin) and "SDE" not in kind.__name__:
            scheduler = kind.from_config(scheduler.config)
    back = GeoSprintDDIMScheduler.from_config(scheduler.config)
    assert {name: back.config[name] for name in ours.config if not name.startswith("_")} == {
        name: value for name, value in ours.config.items() if not name.startswith("_")
    }


def test_it_lists_the_same_compatible_schedulers_as_ddim():
    ours, theirs = GeoSprintDDIMScheduler().compatibles, DDIMScheduler().compatibles
    # diffusers lists them in the order of a set of names, which differs from one process to the next.
    assert sorted(kind.__name__ for kind in ours) == sorted(kind.__name__ for kind in theirs)


def test_a_profile_survives_save_and_load(profile, tmp_path):
    ours = applied(profile)
    ours.save_pretrained(tmp_path)
    loaded = GeoSprintDDIMScheduler.from_pretrained(tmp_path)
    assert loaded.config.geosprint == ours.config.geosprint
    for scheduler in (ours, loaded):
        scheduler.set_timesteps(9)
    x, output = normal(1), normal(2)
    for t in ours.timesteps:
        assert torch.equal(ours.step(output, t, x).prev_sample, loaded.step(output, t, x).prev_sample)


def test_stock_ddim_can_still_read_the_saved_config(profile, tmp_path):
    applied(profile, DDIMScheduler(clip_sample=False)).save_pretrained(tmp_path)
    assert DDIMScheduler.from_pretrained(tmp_path).config.clip_sample is False


def test_push_to_hub_is_inherited():
    assert GeoSprintDDIMScheduler.push_to_hub is DDIMScheduler.push_to_hub


def test_the_scheduler_is_importable_where_saved_pipelines_say():
    assert GeoSprintDDIMScheduler.__module__ == "geosprint.integrations.schedulers"
    assert GeoSprintFlowMatchEulerScheduler.__module__ == "geosprint.integrations.schedulers"


def test_importing_geosprint_does_not_import_diffusers():
    code = "import sys, geosprint; sys.exit('diffusers' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# What diffusers checks of its own DDIM scheduler: without a payload, the stock one is the expected value.

CONFIGS = [
    *({"num_train_timesteps": n} for n in (100, 500, 1000)),
    *({"beta_start": a, "beta_end": b} for a, b in ((0.0001, 0.002), (0.001, 0.02), (0.01, 0.2), (0.1, 2))),
    *({"beta_schedule": name} for name in ("linear", "scaled_linear", "squaredcos_cap_v2")),
    *({"prediction_type": name} for name in ("epsilon", "sample", "v_prediction")),
    *({"clip_sample": on} for on in (True, False)),
    *({"clip_sample_range": limit} for limit in (1.0, 2.0)),
    *(
        {"thresholding": True, "sample_max_value": v, "dynamic_thresholding_ratio": r}
        for v, r in ((0.5, 0.995), (1, 0.9), (2, 0.995))
    ),
    *({"timestep_spacing": name} for name in ("leading", "trailing", "linspace")),
    *({"steps_offset": offset} for offset in (0, 1)),
    *({"set_alpha_to_one": on, "beta_start": 0.01} for on in (True, False)),
    *({"rescale_betas_zero_snr": on, "prediction_type": "v_prediction"} for on in (True, False)),
    {"trained_betas": [0.1] * 20, "num_train_timesteps": 20},
    {"trained_betas": [0.0, 0.0, 0.5, 0.5, 0.1], "num_train_timesteps": 5},
]


def both(**config):
    return DDIMScheduler(**config), GeoSprintDDIMScheduler(**config)


def full_loop(scheduler, steps, eta=0.0):
    scheduler.set_timesteps(steps)
    x, generator = normal(0), torch.Generator().manual_seed(0)
    for t in scheduler.timesteps:
        output = torch.tanh(x) * (0.5 + float(t) / 2000)
        x = scheduler.step(output, t, x, eta, generator=generator).prev_sample
    return x


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("eta", [0.0, 0.5])
def test_without_a_list_a_full_loop_is_bit_identical_to_stock(config, eta):
    stock, ours = both(**config)
    for steps in (1, 3, 5) if config.get("num_train_timesteps", 1000) < 100 else (1, 7, 10, 50):
        expected = full_loop(stock, steps, eta)
        torch.testing.assert_close(full_loop(ours, steps, eta), expected, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(ours.timesteps, stock.timesteps)


@pytest.mark.parametrize("steps", [10, 50, 500])
def test_without_a_list_steps_off_the_grid_are_bit_identical_to_stock(steps):
    stock, ours = both()
    stock.set_timesteps(steps)
    ours.set_timesteps(steps)
    x, output = normal(1), normal(2)
    for t in (0, 1, 49, 333, 777, 998, 999):
        assert torch.equal(ours.step(output, t, x).prev_sample, stock.step(output, t, x).prev_sample)


def test_after_a_list_the_stock_spacing_comes_back():
    stock, ours = both()
    ours.set_timesteps(timesteps=[900, 3])
    assert torch.equal(full_loop(ours, 10), full_loop(stock, 10))


def test_a_step_before_set_timesteps_is_an_error_as_in_stock():
    for scheduler in both():
        with pytest.raises(ValueError, match="set_timesteps"):
            scheduler.step(normal(1), 5, normal(2))


def test_more_steps_than_were_trained_is_an_error_as_in_stock():
    for scheduler in both():
        with pytest.raises(ValueError, match="cannot be larger"):
            scheduler.set_timesteps(1001)


def test_offset_timesteps_are_those_of_stock():
    ours = GeoSprintDDIMScheduler(steps_offset=1)
    ours.set_timesteps(5)
    assert ours.timesteps.tolist() == [801, 601, 401, 201, 1]


@pytest.mark.parametrize(
    ("t", "before", "variance"),
    [(0, 0, 0.0), (420, 400, 0.14771), (980, 960, 0.32460), (487, 486, 0.00979), (999, 998, 0.02)],
)
def test_the_variance_is_eq_16(t, before, variance):
    stock, ours = both(beta_start=0.0001, beta_end=0.02)
    table = stock.alphas_cumprod.double()
    expected = (1 - table[before]) / (1 - table[t]) * (1 - table[t] / table[before])
    assert float(ours._get_variance(t, before)) == pytest.approx(float(expected), abs=1e-5)
    assert float(expected) == pytest.approx(variance, abs=1e-4)
    assert torch.equal(ours._get_variance(t, before), stock._get_variance(t, before))


def test_a_batch_of_steps_without_noise_is_each_step_alone():
    stock, ours = both()
    for scheduler in (stock, ours):
        scheduler.set_timesteps(10)
    x, output = normal(1, (3, 3, 4, 4)), normal(2, (3, 3, 4, 4))
    together = ours.step(output, 500, x).prev_sample
    for i in range(3):
        assert torch.equal(together[i : i + 1], stock.step(output[i : i + 1], 500, x[i : i + 1]).prev_sample)


@pytest.mark.parametrize("listed", [False, True])
def test_dictionary_and_tuple_outputs_are_the_same(listed):
    ours = GeoSprintDDIMScheduler()
    ours.set_timesteps(**({"timesteps": [900, 500, 20]} if listed else {"num_inference_steps": 10}))
    x, output = normal(1), normal(2)
    result = ours.step(output, 500, x)
    pair = ours.step(output, 500, x, return_dict=False)
    assert torch.equal(result.prev_sample, pair[0])
    assert torch.equal(result.pred_original_sample, pair[1])
    assert result.to_tuple()[0] is result.prev_sample
    assert pair[0].shape == x.shape


def test_outputs_of_two_steps_have_the_shape_of_the_sample():
    ours = GeoSprintDDIMScheduler()
    ours.set_timesteps(timesteps=[900, 500, 20])
    for t in (900, 20):
        assert ours.step(normal(1), t, normal(2)).prev_sample.shape == SHAPE


def test_adding_noise_and_velocity_are_those_of_stock_on_any_list():
    stock, ours = both()
    ours.set_timesteps(timesteps=[900, 500, 20])
    clean, noise, times = normal(1), normal(2), torch.tensor([900, 20])
    for dtype in (torch.float32, torch.float64):
        given = clean.to(dtype), noise.to(dtype), times
        assert torch.equal(ours.add_noise(*given), stock.add_noise(*given))
        assert torch.equal(ours.get_velocity(*given), stock.get_velocity(*given))
    a, s = exact.vp_levels(stock.alphas_cumprod, [900])[0]
    torch.testing.assert_close(ours.add_noise(clean, noise, times)[0], a * clean[0] + s * noise[0])


def test_timesteps_go_to_the_device_that_is_asked_for():
    ours = GeoSprintDDIMScheduler()
    ours.set_timesteps(timesteps=[900, 20], device="meta")
    assert ours.timesteps.device.type == "meta"


def test_the_config_round_trip_keeps_every_value_and_default(tmp_path):
    config = {"beta_start": 0.01, "prediction_type": "v_prediction", "trained_betas": [0.1, 0.2, 0.3]}
    stock, ours = both(**config)
    ours.save_pretrained(tmp_path)
    loaded = GeoSprintDDIMScheduler.from_pretrained(tmp_path)
    kept = {key: value for key, value in loaded.config.items() if not key.startswith("_")}
    assert kept == {**{k: v for k, v in stock.config.items() if not k.startswith("_")}, "geosprint": None}
    changed = GeoSprintDDIMScheduler.from_pretrained(tmp_path, clip_sample=False)
    assert changed.config.clip_sample is False
    assert changed.config.beta_start == 0.01


def test_every_argument_of_stock_is_an_argument_here_with_the_same_default():
    stock = inspect.signature(DDIMScheduler.__init__).parameters
    ours = inspect.signature(GeoSprintDDIMScheduler.__init__).parameters
    assert list(ours) == [*stock, "geosprint"]
    assert all(ours[name].default == stock[name].default for name in stock)


def test_scaling_and_length_are_those_of_stock():
    stock, ours = both()
    assert len(ours) == len(stock) == 1000
    assert ours.init_noise_sigma == stock.init_noise_sigma
    assert ours.order == stock.order
    x = normal(1)
    assert ours.scale_model_input(x, 5) is x


def test_tables_that_no_list_can_use_still_work_as_stock_and_say_so_with_a_list():
    flat = {"trained_betas": [0.0, 0.0, 0.5, 0.5, 0.1], "num_train_timesteps": 5}
    ours = GeoSprintDDIMScheduler(**flat)
    ours.set_timesteps(timesteps=[4, 2])
    with pytest.raises(NoiseError, match="fall strictly"):
        ours.step(normal(1), 4, normal(2))


def test_zero_terminal_snr_starts_from_nothing_but_the_prediction():
    ours = GeoSprintDDIMScheduler(rescale_betas_zero_snr=True, prediction_type="v_prediction", clip_sample=False)
    ours.set_timesteps(timesteps=[999, 500])
    v = normal(2)
    x0 = ours.step(v, 999, normal(1)).pred_original_sample
    torch.testing.assert_close(x0, -v, rtol=0, atol=1e-6)  # a = 0 and s = 1: x0 = a·x - s·v
    assert math.isclose(float(np.sqrt(ours.alphas_cumprod[999])), 0.0, abs_tol=1e-6)
