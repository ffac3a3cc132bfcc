from __future__ import annotations

import inspect
import math
import warnings
from dataclasses import replace
from types import SimpleNamespace

import diffusers
import float64_solvers as exact
import numpy as np
import pytest
import torch

import geosprint
from geosprint.errors import GeoSprintError, ScheduleError
from geosprint.noise import DiscreteVP, Flow

SD = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
UNEVEN = [999, 981, 902, 760, 701, 433, 260, 120, 31, 3]
LONG = [999, 990, 961, 930, 900, 850, 760, 701, 640, 555, 433, 350, 260, 200, 120, 71, 31, 3]
FLOW_TIMES = [1000.0, 941.5, 903.0, 717.25, 402.0, 111.5, 20.0]


def noise_of_table(scheduler):
    table = scheduler.alphas_cumprod.double()
    return DiscreteVP(table.numpy(), float(getattr(scheduler, "final_alpha_cumprod", 1.0)))


def schedule_at(times, noise):
    return geosprint.StepSchedule.at(times, noise, {})


def first_noise(seed=5):
    return torch.randn(2, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def applied_walk(scheduler, made, steps, kind="epsilon"):
    pipe = SimpleNamespace(scheduler=scheduler)
    geosprint.apply(pipe, made)
    table = scheduler.alphas_cumprod

    def levels_at(t):
        return exact.vp_levels(table, [t])[0]

    return exact.walked(pipe.scheduler, exact.smooth_network, first_noise().float(), kind, steps, levels_at)


def relative(result, expected):
    return float((result.double() - expected).abs().max() / expected.abs().max())


def seeded_draws(count):
    generator = torch.Generator().manual_seed(11)
    drawn = iter([torch.randn(2, 6, generator=generator) for _ in range(count)])
    return lambda: next(drawn).double()


PAIRS = {
    "DDIM": (diffusers.DDIMScheduler, {"clip_sample": False}, exact.ddim, {}),
    "DDIM, last alpha not one": (
        diffusers.DDIMScheduler,
        {"clip_sample": False, "set_alpha_to_one": False},
        exact.ddim,
        {},
    ),
    "Euler": (diffusers.EulerDiscreteScheduler, {}, exact.euler, {}),
    "Euler, linspace": (diffusers.EulerDiscreteScheduler, {"timestep_spacing": "linspace"}, exact.euler, {}),
    "Euler, Karras": (diffusers.EulerDiscreteScheduler, {"use_karras_sigmas": True}, exact.euler, {}),
    "Heun": (diffusers.HeunDiscreteScheduler, {}, exact.heun, {}),
    "Heun, trailing": (diffusers.HeunDiscreteScheduler, {"timestep_spacing": "trailing"}, exact.heun, {}),
    "DPM++ 1": (diffusers.DPMSolverMultistepScheduler, {"solver_order": 1}, exact.dpmpp_multistep, {"order": 1}),
    "DPM++ 2M": (diffusers.DPMSolverMultistepScheduler, {"solver_order": 2}, exact.dpmpp_multistep, {"order": 2}),
    "DPM++ 2M Karras": (
        diffusers.DPMSolverMultistepScheduler,
        {"use_karras_sigmas": True, "final_sigmas_type": "sigma_min"},
        exact.dpmpp_multistep,
        {"order": 2},
    ),
    "DPM++ 2M, Lu's lambdas": (
        diffusers.DPMSolverMultistepScheduler,
        {"use_lu_lambdas": True},
        exact.dpmpp_multistep,
        {"order": 2},
    ),
    "DPM++ 3M": (diffusers.DPMSolverMultistepScheduler, {"solver_order": 3}, exact.dpmpp_multistep, {"order": 3}),
    "DPM++ 1S": (diffusers.DPMSolverSinglestepScheduler, {"solver_order": 1}, exact.dpmpp_singlestep, {"order": 1}),
    "DPM++ 2S": (diffusers.DPMSolverSinglestepScheduler, {"solver_order": 2}, exact.dpmpp_singlestep, {"order": 2}),
    "DPM++ 3S": (diffusers.DPMSolverSinglestepScheduler, {"solver_order": 3}, exact.dpmpp_singlestep, {"order": 3}),
    "UniPC 1": (diffusers.UniPCMultistepScheduler, {"solver_order": 1}, exact.unipc, {"order": 1}),
    "UniPC 2": (diffusers.UniPCMultistepScheduler, {"solver_order": 2}, exact.unipc, {"order": 2}),
    "UniPC 3": (diffusers.UniPCMultistepScheduler, {"solver_order": 3}, exact.unipc, {"order": 3}),
}


@pytest.mark.parametrize("times", [UNEVEN, LONG], ids=["10 steps", "18 steps"])
@pytest.mark.parametrize("pair", PAIRS)
def test_an_applied_schedule_walks_as_the_float64_solver_does(pair, times):
    kind, config, solve, more = PAIRS[pair]
    scheduler = kind(**{**SD, **config})
    result = applied_walk(scheduler, schedule_at(times, noise_of_table(scheduler)), len(times))
    final = float(scheduler.final_alpha_cumprod) if kind is diffusers.DDIMScheduler else 1.0
    levels = exact.vp_levels(scheduler.alphas_cumprod, times, final)
    assert relative(result, solve(exact.smooth_network, first_noise(), times, levels, **more)) < 2e-5


@pytest.mark.parametrize("pair", ["DDIM", "Euler", "Heun", "DPM++ 2M", "UniPC 2"])
@pytest.mark.parametrize("prediction", ["sample", "v_prediction"])
def test_other_predictions_are_walked_exactly_too(pair, prediction):
    kind, config, solve, more = PAIRS[pair]
    scheduler = kind(**{**SD, **config, "prediction_type": prediction})
    result = applied_walk(scheduler, schedule_at(UNEVEN, noise_of_table(scheduler)), len(UNEVEN), prediction)
    levels = exact.vp_levels(scheduler.alphas_cumprod, UNEVEN)
    assert relative(result, solve(exact.smooth_network, first_noise(), UNEVEN, levels, **more)) < 2e-5


@pytest.mark.parametrize(
    ("kind", "config", "solve"),
    [
        (diffusers.DDPMScheduler, {"clip_sample": False}, exact.ddpm),
        (diffusers.LCMScheduler, {"clip_sample": False}, exact.lcm),
        (diffusers.EulerAncestralDiscreteScheduler, {}, exact.euler_ancestral),
        (diffusers.DPMSolverMultistepScheduler, {"algorithm_type": "sde-dpmsolver++"}, exact.sde_dpmpp_2m),
    ],
)
def test_schedulers_that_draw_noise_walk_as_float64_does_with_the_same_noise(kind, config, solve):
    scheduler = kind(**{**SD, **config})
    result = applied_walk(scheduler, schedule_at(UNEVEN, noise_of_table(scheduler)), len(UNEVEN))
    levels = exact.vp_levels(scheduler.alphas_cumprod, UNEVEN)
    expected = solve(exact.smooth_network, first_noise(), UNEVEN, levels, draw=seeded_draws(len(UNEVEN)))
    assert relative(result, expected) < 2e-5


@pytest.mark.parametrize(
    "config", [{}, {"shift": 3.0}, {"shift": 3.0, "shift_terminal": 0.1}, {"use_karras_sigmas": True}]
)
def test_flow_euler_walks_the_given_times_whatever_shift_it_has(config):
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler(**config)
    pipe = geosprint.apply(SimpleNamespace(scheduler=scheduler), schedule_at(FLOW_TIMES, Flow()))

    def levels_at(t):
        return 1 - t / 1000, t / 1000

    class Unscaled:
        init_noise_sigma = 1.0

        def __getattr__(self, name):
            return getattr(pipe.scheduler, name)

    result = exact.walked(Unscaled(), exact.smooth_network, first_noise().float(), "flow", len(FLOW_TIMES), levels_at)
    levels = [*(levels_at(t) for t in FLOW_TIMES), (1.0, 0.0)]
    assert relative(result, exact.ddim(exact.smooth_network, first_noise(), FLOW_TIMES, levels)) < 2e-5


@pytest.mark.parametrize(
    ("kind", "solve"),
    [
        (diffusers.UniPCMultistepScheduler, exact.unipc),
        (diffusers.DPMSolverMultistepScheduler, exact.dpmpp_multistep),
    ],
)
def test_multistep_solvers_of_flows_walk_the_given_times(kind, solve):
    scheduler = kind(use_flow_sigmas=True, flow_shift=3.0, prediction_type="flow_prediction")
    pipe = geosprint.apply(SimpleNamespace(scheduler=scheduler), schedule_at(FLOW_TIMES, Flow()))

    def levels_at(t):
        share = min(t / 1000, 1 - 1e-6)
        return 1 - share, share

    result = exact.walked(
        pipe.scheduler, exact.smooth_network, first_noise().float(), "flow", len(FLOW_TIMES), levels_at
    )
    levels = [*(levels_at(t) for t in FLOW_TIMES), (1.0, 0.0)]
    assert relative(result, solve(exact.smooth_network, first_noise(), FLOW_TIMES, levels)) < 1e-4


@pytest.mark.parametrize("pair", ["DDIM", "Euler", "Heun", "DPM++ 2M", "DPM++ 2S", "UniPC 2"])
@pytest.mark.parametrize("steps", [1, 2, 7, 40])
def test_with_a_profile_any_number_of_steps_is_placed_as_build_schedule_places_it(pair, steps):
    kind, config, _, _ = PAIRS[pair]
    scheduler = kind(**{**SD, **config})
    profile = exact.profile_for(noise_of_table(scheduler))
    pipe = geosprint.apply(SimpleNamespace(scheduler=scheduler), profile)
    pipe.scheduler.set_timesteps(steps)
    expected = geosprint.build_schedule(profile, steps).timesteps if steps > 1 else np.array([999.0])
    found = pipe.scheduler.timesteps.double().numpy()
    np.testing.assert_array_equal(found[:1].tolist() + found[1::2].tolist() if kind.order == 2 else found, expected)


def test_every_scheduler_keeps_its_times_through_save_and_reload(tmp_path):
    for pair, (kind, config, _, _) in PAIRS.items():
        scheduler = kind(**{**SD, **config})
        pipe = geosprint.apply(SimpleNamespace(scheduler=scheduler), schedule_at(UNEVEN, noise_of_table(scheduler)))
        pipe.scheduler.save_pretrained(tmp_path / pair)
        loaded = type(pipe.scheduler).from_pretrained(tmp_path / pair)
        for one in (loaded, pipe.scheduler):
            one.set_timesteps(len(UNEVEN))
        assert torch.equal(loaded.timesteps, pipe.scheduler.timesteps), pair
        assert loaded.config.geosprint == pipe.scheduler.config.geosprint


@pytest.mark.parametrize("pair", PAIRS)
def test_our_scheduler_without_a_list_is_the_stock_one(pair):
    kind, config, _, _ = PAIRS[pair]
    stock = kind(**{**SD, **config})
    ours = geosprint.apply(
        SimpleNamespace(scheduler=kind(**{**SD, **config})), schedule_at(UNEVEN, noise_of_table(stock))
    ).scheduler
    empty = type(ours).from_config(stock.config)
    assert empty.config.geosprint is None

    def levels_at(t):
        return exact.vp_levels(stock.alphas_cumprod, [min(max(t, 0), 999)])[0]

    one, other = (
        exact.walked(each, exact.smooth_network, first_noise().float(), "epsilon", 9, levels_at)
        for each in (stock, empty)
    )
    assert torch.equal(one, other)


def test_the_user_can_still_bring_timesteps_of_their_own():
    scheduler = diffusers.DPMSolverMultistepScheduler(**SD)
    pipe = geosprint.apply(SimpleNamespace(scheduler=scheduler), schedule_at(UNEVEN, noise_of_table(scheduler)))
    pipe.scheduler.set_timesteps(timesteps=[900, 500, 100])
    assert pipe.scheduler.timesteps.tolist() == [900, 500, 100]


def test_applying_again_replaces_the_payload():
    scheduler = diffusers.EulerDiscreteScheduler(**SD)
    noise = noise_of_table(scheduler)
    pipe = geosprint.apply(SimpleNamespace(scheduler=scheduler), schedule_at(UNEVEN, noise))
    geosprint.apply(pipe, schedule_at([999, 500, 1], noise))
    pipe.scheduler.set_timesteps(3)
    assert pipe.scheduler.timesteps.tolist() == [999, 500, 1]


REFUSED = {
    "DEISMultistepScheduler": "nan",
    "PNDMScheduler": "equal spacing",
    "IPNDMScheduler": "equal spacing",
    "KDPM2DiscreteScheduler": "times of its own",
    "KDPM2AncestralDiscreteScheduler": "times of its own",
    "DDIMInverseScheduler": "not one of those that are tested",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_scheduler_that_cannot_be_exact_is_refused_with_the_reason(name):
    kind = getattr(diffusers, name)
    scheduler = kind() if name == "IPNDMScheduler" else kind(**SD)
    pipe = SimpleNamespace(scheduler=scheduler)
    with pytest.raises(ScheduleError, match=f"{name} cannot be made exact.*{REFUSED[name]}.*DDIMScheduler"):
        geosprint.apply(pipe, schedule_at(UNEVEN, DiscreteVP.named("scaled_linear")))
    assert pipe.scheduler is scheduler


def test_solvers_that_predict_noise_have_no_step_to_sigma_zero_and_are_refused():
    made = schedule_at(UNEVEN, DiscreteVP.named("scaled_linear"))
    for scheduler, reason in (
        (diffusers.UniPCMultistepScheduler(**SD, predict_x0=False), "predict_x0"),
        (
            diffusers.DPMSolverMultistepScheduler(**SD, algorithm_type="dpmsolver", final_sigmas_type="sigma_min"),
            "algorithm_type 'dpmsolver'",
        ),
        (diffusers.DPMSolverSinglestepScheduler(**SD, algorithm_type="sde-dpmsolver++"), "not one of those"),
    ):
        with pytest.raises(ScheduleError, match=reason):
            geosprint.apply(SimpleNamespace(scheduler=scheduler), made)


def test_settings_left_over_from_another_scheduler_do_not_count():
    noisy = diffusers.UniPCMultistepScheduler(**SD, predict_x0=False)
    scheduler = diffusers.EulerDiscreteScheduler.from_config(noisy.config)
    assert scheduler.config.predict_x0 is False
    made = schedule_at(UNEVEN, noise_of_table(scheduler))
    assert geosprint.apply(SimpleNamespace(scheduler=scheduler), made).scheduler.config.geosprint is not None


def test_deis_does_give_nan_at_a_last_sigma_of_zero():
    scheduler = diffusers.DEISMultistepScheduler(**SD)
    table = scheduler.alphas_cumprod.double()
    scheduler.set_timesteps(len(UNEVEN))
    scheduler.timesteps = torch.tensor(UNEVEN)
    scheduler.sigmas = torch.tensor([*(math.sqrt((1 - table[t]) / table[t]) for t in UNEVEN), 0.0]).float()
    scheduler._step_index = scheduler._begin_index = None
    x = first_noise().float()
    for t in scheduler.timesteps:
        a, s = exact.vp_levels(table, [t])[0]
        x = scheduler.step(exact.smooth_network(x, a, s, float(t))[1], t, x).prev_sample
    assert torch.isnan(x).any()


def test_pndm_does_assume_equal_spacing():
    scheduler = diffusers.PNDMScheduler(**SD, skip_prk_steps=True)
    x, output = first_noise().float(), first_noise(6).float()
    results = []
    for following in (500, 100):
        scheduler.set_timesteps(5)
        scheduler.timesteps = torch.tensor([801, following, 50])
        results.append(scheduler.step(output, 801, x).prev_sample)
    assert torch.equal(*results)  # where the step ends does not depend on the list


def test_ipndm_does_assume_equal_spacing():
    results = []
    for first in (0.99, 0.7):
        scheduler = diffusers.IPNDMScheduler()
        scheduler.set_timesteps(4)
        scheduler.betas = torch.tensor([first, 0.6, 0.3, 0.1, 0.0])
        scheduler.alphas = (1 - scheduler.betas**2).sqrt()
        nothing = torch.zeros(1)
        scheduler.step(1 / scheduler.alphas[:1], scheduler.timesteps[0], nothing)  # a slope of 1, so far back
        results.append(float(scheduler.step(nothing, scheduler.timesteps[1], nothing).prev_sample))
    assert results[0] != 0
    assert results[0] == pytest.approx(results[1], rel=1e-6)  # its weight does not depend on how far back it was


def test_flow_heun_does_take_neither_timesteps_nor_sigmas_and_is_refused():
    scheduler = diffusers.FlowMatchHeunDiscreteScheduler()
    assert list(inspect.signature(scheduler.set_timesteps).parameters) == ["num_inference_steps", "device"]
    with pytest.raises(ScheduleError, match="takes neither timesteps nor sigmas"):
        geosprint.apply(SimpleNamespace(scheduler=scheduler), schedule_at(FLOW_TIMES, Flow()))


def test_kdpm2_does_put_times_between_the_given_ones():
    scheduler = diffusers.KDPM2DiscreteScheduler(**SD)
    scheduler.set_timesteps(5)
    asked = np.linspace(0, 999, 5)[::-1]
    between = [float(t) for t in scheduler.timesteps if np.abs(asked - float(t)).min() > 1]
    assert len(between) == 4


def test_another_noise_schedule_is_an_error_that_names_both_values():
    profile = exact.profile_for(DiscreteVP.named("linear"))
    pipe = SimpleNamespace(scheduler=diffusers.DDIMScheduler(**SD))
    with pytest.raises(
        ScheduleError, match=r"at t = \d+ they expect sigma [\d.]+, but the pipeline.s scheduler has [\d.]+"
    ):
        geosprint.apply(pipe, profile)
    assert type(pipe.scheduler) is diffusers.DDIMScheduler


@pytest.mark.parametrize("as_schedule", [False, True])
def test_another_prediction_type_is_an_error_that_names_both(as_schedule):
    profile = exact.profile_for(noise_of_table(diffusers.DDIMScheduler()), "v")
    made = geosprint.build_schedule(profile, 5) if as_schedule else profile
    with pytest.raises(ScheduleError, match="predicts v, the pipeline's predicts eps"):
        geosprint.apply(SimpleNamespace(scheduler=diffusers.DDIMScheduler()), made)


def test_a_flow_schedule_does_not_go_into_a_variance_preserving_pipeline_nor_back():
    flow = geosprint.build_schedule(exact.profile_for(Flow(3.0), "flow"), 5)
    vp = geosprint.build_schedule(exact.profile_for(DiscreteVP.named()), 5)
    with pytest.raises(ScheduleError, match="predicts flow, the pipeline's predicts eps"):
        geosprint.apply(SimpleNamespace(scheduler=diffusers.DDIMScheduler()), flow)
    with pytest.raises(ScheduleError, match="predicts eps, the pipeline's predicts flow"):
        geosprint.apply(SimpleNamespace(scheduler=diffusers.FlowMatchEulerDiscreteScheduler()), vp)


def test_another_shift_is_an_error_that_names_both():
    profile = exact.profile_for(Flow(3.0), "flow")
    with pytest.raises(ScheduleError, match="shift 3, the pipeline has 5"):
        geosprint.apply(SimpleNamespace(scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=5.0)), profile)


def test_another_number_of_steps_than_a_schedule_has_is_an_error():
    scheduler = diffusers.EulerDiscreteScheduler(**SD)
    pipe = geosprint.apply(SimpleNamespace(scheduler=scheduler), schedule_at(UNEVEN, noise_of_table(scheduler)))
    with pytest.raises(ScheduleError, match="steps for K = 10, but 8 were asked for; ask for 10"):
        pipe.scheduler.set_timesteps(8)


def test_another_guidance_scale_or_size_is_a_warning_and_the_same_is_none():
    profile = exact.profile_for(noise_of_table(diffusers.DDIMScheduler()))
    seen = {"guidance_scale": 7.5, "height": 512, "width": 512}
    profile = replace(profile, origin=replace(profile.origin, conditions=seen))
    pipe = SimpleNamespace(scheduler=diffusers.DDIMScheduler())
    with pytest.warns(UserWarning, match="recorded with guidance scale 7.5, you said 3"):
        geosprint.apply(pipe, profile, guidance_scale=3.0)
    with pytest.warns(UserWarning, match="recorded with height 512, you said 768"):
        geosprint.apply(pipe, geosprint.build_schedule(profile, 4), height=768, width=512)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        geosprint.apply(pipe, profile, **seen)


def test_a_blend_outside_zero_and_one_is_refused():
    profile = exact.profile_for(noise_of_table(diffusers.DDIMScheduler()))
    with pytest.raises(GeoSprintError, match=r"blend must be in 0\.\.1, got 2"):
        geosprint.apply(SimpleNamespace(scheduler=diffusers.DDIMScheduler()), profile, blend=2)


def test_a_network_that_wants_noise_levels_is_not_given_timesteps():
    scheduler = diffusers.EulerDiscreteScheduler(
        **SD, timestep_type="continuous", prediction_type="v_prediction", use_karras_sigmas=True
    )
    made = schedule_at(UNEVEN, DiscreteVP.named("scaled_linear"))
    with pytest.raises(GeoSprintError):  # which is of timesteps
        geosprint.apply(SimpleNamespace(scheduler=scheduler), made)
    swapped = diffusers.DPMSolverMultistepScheduler.from_config(scheduler.config)
    with pytest.raises(
        GeoSprintError, match="a list says: its network wants the noise level, which EulerDiscreteScheduler"
    ):
        geosprint.apply(SimpleNamespace(scheduler=swapped), made)
