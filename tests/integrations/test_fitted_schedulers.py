"""Fitted solvers in diffusers pipelines of every family, and in ComfyUI."""

from __future__ import annotations

from types import SimpleNamespace

import diffusers
import numpy as np
import pytest
import tiny_pipelines as tiny
import torch
from diffusers import DDIMScheduler, FlowMatchEulerDiscreteScheduler

import geosprint
from geosprint import FittedSolver, StepSchedule
from geosprint.errors import ScheduleError
from geosprint.integrations.fitted_schedulers import GeoSprintFittedFlowMatchScheduler, GeoSprintFittedScheduler
from geosprint.integrations.schedulers import GeoSprintDDIMScheduler
from geosprint.models.base import Network
from geosprint.noise import DiscreteVP, Flow
from geosprint.sampling import sample
from geosprint.trajectory import Origin

TIMES = [951.0, 700.0, 450.0, 180.0, 30.0]
NUMBERS = (
    (0.98, 0.05),
    (0.9, 0.2, -0.1),
    (0.7, 0.4, -0.3, 0.1),
    (0.5, 0.6, -0.5, 0.2, -0.05),
    (0.02, 0.97, -0.6, 0.3, -0.1),
)


def by_hand(noise, times=TIMES, numbers=NUMBERS, prediction="eps", shape=(3, 8, 8), clip=None):
    """A fitted solver whose numbers are made up, so that any mistake shows."""
    model = Network(lambda x, t: x, shape, noise, prediction, clip, name="tiny")
    origin = Origin.of(model, "ipndm", 0.0).to_dict()
    return FittedSolver(StepSchedule.at(times, noise, {"method": "by hand", "origin": origin}), numbers)


def walked_by_hand(network, x, fitted, x0_of):
    past = []
    for t, (of_x, of_x0, *of_past) in zip(fitted.schedule.timesteps, fitted.coefficients, strict=True):
        x0 = x0_of(x, network(x, t), t)
        x = of_x * x + of_x0 * x0 + sum(c * (past[-1 - k] - x0) for k, c in enumerate(of_past))
        past.append(x0)
    return x


def network(x, t):
    return torch.tanh(x) * (0.3 + float(t) / 2000)


def noise_like(seed=0, shape=(2, 3, 8, 8), dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def run(scheduler, x, steps=5, **more):
    scheduler.set_timesteps(steps, **more)
    for t in scheduler.timesteps:
        x = scheduler.step(network(x, t), t, x, return_dict=False)[0]
    return x


@pytest.mark.parametrize("clip", [None, 1.0, 0.4])
@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction", "sample"])
def test_a_diffusion_scheduler_takes_the_steps_of_the_formula(prediction, clip):
    kind = {"epsilon": "eps", "v_prediction": "v", "sample": "x0"}[prediction]
    fitted = by_hand(DiscreteVP.named(), prediction=kind, clip=clip)
    stock = DDIMScheduler(prediction_type=prediction, clip_sample=clip is not None, clip_sample_range=clip or 1.0)
    scheduler = geosprint.apply(SimpleNamespace(scheduler=stock), fitted).scheduler
    assert type(scheduler) is GeoSprintFittedScheduler

    def x0_of(x, output, t):
        a, s = fitted_noise.signal_and_sigma(t)
        x0 = {"eps": (x - s * output) / a, "v": a * x - s * output, "x0": output}[kind]
        return x0 if clip is None else x0.clamp(-clip, clip)

    fitted_noise = DiscreteVP(stock.alphas_cumprod.double().numpy())
    x = noise_like()
    expected = walked_by_hand(network, x, fitted, x0_of)
    torch.testing.assert_close(run(scheduler, x), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(run(scheduler, x), expected, rtol=1e-6, atol=1e-6)  # a second run starts anew


def test_a_flow_scheduler_takes_the_steps_of_the_formula():
    fitted = by_hand(Flow(3.0), prediction="flow")
    pipe = SimpleNamespace(scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0))
    scheduler = geosprint.apply(pipe, fitted).scheduler
    assert type(scheduler) is GeoSprintFittedFlowMatchScheduler
    x = noise_like()
    expected = walked_by_hand(network, x, fitted, lambda x, output, t: x - t / 1000 * output)
    torch.testing.assert_close(run(scheduler, x), expected, rtol=1e-5, atol=1e-5)
    uniform = np.linspace(1, 0.2, 5).tolist()
    torch.testing.assert_close(run(scheduler, x, None, sigmas=uniform), expected, rtol=1e-5, atol=1e-5)  # as FLUX asks


def test_half_precision_is_added_up_in_single():
    fitted = by_hand(DiscreteVP.named())
    scheduler = geosprint.apply(SimpleNamespace(scheduler=DDIMScheduler(clip_sample=False)), fitted).scheduler
    x = noise_like(dtype=torch.float16)
    found = run(scheduler, x)
    assert found.dtype == torch.float16
    scheduler.set_timesteps(5)
    first = scheduler.step(network(x, 951), 951, x).prev_sample
    a, s = scheduler.noise.signal_and_sigma(951)
    x0 = (x.float() - s * network(x, 951).float()) / a
    assert torch.equal(first, (0.98 * x.float() + 0.05 * x0).half())


def test_a_run_that_begins_midway_takes_ddim_steps_until_it_has_seen_enough():
    fitted = by_hand(DiscreteVP.named())
    scheduler, plain = (
        geosprint.apply(SimpleNamespace(scheduler=DDIMScheduler(clip_sample=False)), made).scheduler
        for made in (fitted, fitted.schedule)
    )
    for one in (scheduler, plain):
        one.set_timesteps(5)
    x, y = noise_like(), noise_like()
    past = []
    for i in (1, 2, 3, 4):
        t = int(TIMES[i])
        output = network(x, t)
        a, s = scheduler.noise.signal_and_sigma(t)
        past.append((x - s * output) / a)
        y = plain.step(output, t, x).prev_sample
        if i == 4:  # looks back at three predictions: those of steps 1, 2 and 3
            c = NUMBERS[4]
            y = c[0] * x + c[1] * past[3] + sum(c[2 + k] * (past[2 - k] - past[3]) for k in range(3))
        x = scheduler.step(output, t, x).prev_sample
        torch.testing.assert_close(x, y, rtol=1e-6, atol=1e-6)


def test_timesteps_of_the_users_own_are_stepped_by_ddim():
    fitted = by_hand(DiscreteVP.named())
    ours, stock = (
        geosprint.apply(SimpleNamespace(scheduler=DDIMScheduler(clip_sample=False)), made).scheduler
        for made in (fitted, fitted.schedule)
    )
    ends = [run(one, noise_like(), None, timesteps=[900, 400, 50]) for one in (ours, stock)]
    assert torch.equal(*ends)


def test_what_it_cannot_do_is_refused():
    fitted = by_hand(DiscreteVP.named())
    scheduler = geosprint.apply(SimpleNamespace(scheduler=DDIMScheduler()), fitted).scheduler
    with pytest.raises(ScheduleError, match="steps for K = 5, but 8 were asked for; ask for 5, or tune for that"):
        scheduler.set_timesteps(8)
    scheduler.set_timesteps(5)
    x = noise_like()
    with pytest.raises(ValueError, match=r"eta must be 0, got 0\.5"):
        scheduler.step(x, 951, x, eta=0.5)
    with pytest.raises(ScheduleError, match="predicts eps, the pipeline's predicts v"):
        geosprint.apply(SimpleNamespace(scheduler=DDIMScheduler(prediction_type="v_prediction")), fitted)
    with pytest.raises(ScheduleError, match="another noise schedule"):
        geosprint.apply(SimpleNamespace(scheduler=DDIMScheduler(beta_schedule="squaredcos_cap_v2")), fitted)


def test_a_schedule_or_nothing_can_be_put_in_place_of_a_fitted_solver():
    fitted = by_hand(DiscreteVP.named())
    pipe = geosprint.apply(SimpleNamespace(scheduler=DDIMScheduler(clip_sample=False)), fitted)
    geosprint.apply(pipe)  # what the config still holds
    assert type(pipe.scheduler) is GeoSprintFittedScheduler
    geosprint.apply(pipe, fitted.schedule)
    assert type(pipe.scheduler) is GeoSprintDDIMScheduler
    stock = GeoSprintFittedScheduler(clip_sample=False)  # nothing fitted: ddim
    stock.set_timesteps(7)
    plain = DDIMScheduler(clip_sample=False)
    assert torch.equal(run(stock, noise_like(), 7), run(plain, noise_like(), 7))


@pytest.mark.parametrize("kind", ["EulerDiscreteScheduler", "DPMSolverMultistepScheduler", "PNDMScheduler"])
def test_any_diffusion_scheduler_can_be_replaced_and_the_model_clips_as_it_did(kind):
    """Their configs do not speak of clipping, and a scheduler made from one would clip by default."""
    scheduler = getattr(diffusers, kind)(**tiny.SD_NOISE)
    fitted = by_hand(DiscreteVP.named("scaled_linear"))
    made = geosprint.apply(SimpleNamespace(scheduler=scheduler), fitted).scheduler
    assert made.config.clip_sample is False
    assert made.init_noise_sigma == 1


def test_a_pixel_pipeline_draws_what_sample_draws():
    pipe = tiny.ddim()
    model = geosprint.as_model(pipe)
    fitted = by_hand(model.noise, clip=model.clip)
    ours = sample(model, fitted.schedule.timesteps, [5], fitted)
    geosprint.apply(pipe, fitted)
    pipe.set_progress_bar_config(disable=True)
    theirs = pipe(num_inference_steps=5, generator=torch.Generator().manual_seed(5), output_type="np").images
    expected = (ours / 2 + 0.5).clamp(0, 1).permute(0, 2, 3, 1).numpy()
    np.testing.assert_allclose(theirs, expected, atol=1e-4)


class SteppedByEuler:
    """What xDiT puts in the place of a flow scheduler, after its source: all is forwarded but `step`."""

    def __init__(self, module):
        self.module = module

    def __getattr__(self, name):
        return getattr(self.module, name)

    def step(self, model_output, timestep, sample):
        if self.step_index is None:
            self._init_step_index(timestep)
        now, then = self.sigmas[self.step_index], self.sigmas[self.step_index + 1]
        self.module._step_index += 1
        return sample + (then - now) * model_output


@pytest.mark.parametrize("standalone", [False, True])
@pytest.mark.parametrize("is_fitted", [True, False])
def test_fitted_steps_of_a_flow_refuse_a_step_that_is_not_theirs(is_fitted, standalone):
    fitted = by_hand(Flow(), TIMES, prediction="flow")
    pipe = SimpleNamespace(scheduler=diffusers.FlowMatchEulerDiscreteScheduler())
    geosprint.apply(pipe, fitted if is_fitted else fitted.schedule, standalone=standalone)
    replaced = SteppedByEuler(pipe.scheduler)
    replaced.set_timesteps(5)
    x = torch.ones(1, 2)
    if is_fitted:
        with pytest.raises(
            RuntimeError if standalone else ScheduleError, match=r"as xDiT does .* tuned for euler there"
        ):
            replaced.step(x, replaced.timesteps[0], x)
    else:
        for t in replaced.timesteps:
            x = replaced.step(torch.ones(1, 2), t, x)
        torch.testing.assert_close(x, torch.full((1, 2), 1 - fitted.schedule.sigmas[0], dtype=torch.float32))
