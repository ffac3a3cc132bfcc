import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from geosprint.errors import ModelError, ScheduleError
from geosprint.models.base import Network, Prediction, predict
from geosprint.models.exact import Gaussian, Mixture
from geosprint.noise import CLEAN, ContinuousVP, DiscreteVP, Flow
from geosprint.sampling import Counted, sample, walk
from geosprint.solvers import SOLVERS, Step, solver_named

VARIANCES = torch.tensor([0.05, 0.3, 1.0, 2.5], dtype=torch.float64)
UNEVEN = [999, 900, 777, 640, 512, 400, 250, 130, 60, 20, 3]
DETERMINISTIC = ["ddim", "euler", "heun", "dpmpp-2m", "dpmpp-2m-kdiffusion", "unipc", "deis", "ipndm"]
# UniPC-2 predicts with order 2, and its corrector adds one.
ORDERS = [("ddim", 1), ("euler", 1), ("heun", 2), ("dpmpp-2m", 2), ("dpmpp-2m-kdiffusion", 2), ("unipc", 3)]


def refuse_to_draw():
    raise AssertionError("a deterministic solver asked for noise")


def states(model, x, timesteps, solver, draw=refuse_to_draw):
    solver = SOLVERS[solver] if isinstance(solver, str) else solver
    return [state.x for state in walk(model, x, timesteps, solver, draw)]


def start(model, batch=3, seed=0):
    return torch.randn(batch, *model.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def modes(noise, prediction="eps"):
    """A nonlinear denoiser in closed form: three modes in five dimensions, asked for any kind of prediction."""
    means = torch.randn(3, 5, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    return asked_for(Mixture(means, 0.3, noise), prediction)


def asked_for(model, prediction, clip=None):
    def function(x, t):
        a, s = model.noise.signal_and_sigma(t)
        x0 = model(x, t)
        eps = (x - a * x0) / s
        return {"x0": x0, "eps": eps, "v": a * eps - s * x0, "flow": eps - x0}[prediction]

    return Network(function, model.shape, model.noise, prediction, clip)


def slope_of_error(model, solver, first, last, in_log_snr):
    """Order of a solver: how the error at a time before the clean end falls with the number of steps."""
    noise, counts, errors = model.noise, [40, 80, 160, 320], []
    x = start(model)
    for count in counts:
        ends = noise.log_snr([first, last])
        times = (
            noise.time_of_log_snr(np.linspace(*ends, count + 1)) if in_log_snr else np.linspace(first, last, count + 1)
        )
        times[[0, -1]] = first, last
        there = states(model, x, times, solver)[count]
        errors.append(float((there - model.solution(x, first, last)).abs().max()))
    return -np.polyfit(np.log(counts), np.log(errors), 1)[0]


@pytest.mark.parametrize(("solver", "order"), ORDERS)
@pytest.mark.parametrize("in_log_snr", [True, False], ids=["log-SNR grid", "time grid"])
def test_order_of_each_solver_on_a_variance_preserving_gaussian(solver, order, in_log_snr):
    model = Gaussian(VARIANCES, ContinuousVP(), in_cosine_basis=False)
    assert slope_of_error(model, solver, 0.9, 0.15, in_log_snr) == pytest.approx(order, abs=0.15)


@pytest.mark.parametrize(("solver", "order"), ORDERS)
def test_order_of_each_solver_on_a_flow(solver, order):
    model = Gaussian(VARIANCES, Flow(), in_cosine_basis=False)
    assert slope_of_error(model, solver, 950.0, 100.0, in_log_snr=False) == pytest.approx(order, abs=0.15)


@pytest.mark.parametrize(("solver", "order"), [("euler", 1), ("heun", 2), ("dpmpp-2m-kdiffusion", 2)])
def test_order_on_a_flow_from_pure_noise_is_kept(solver, order):
    model = Gaussian(VARIANCES, Flow(), in_cosine_basis=False)
    assert slope_of_error(model, solver, 1000.0, 100.0, in_log_snr=False) == pytest.approx(order, abs=0.15)


def test_heun_on_a_flow_is_the_textbook_trapezoid():
    model = Gaussian(VARIANCES, Flow(), in_cosine_basis=False)
    x, (t, t_next) = start(model), (700.0, 450.0)

    def velocity(x, t):
        share = t / 1000
        x0 = x * (1 - share) * VARIANCES / ((1 - share) ** 2 * VARIANCES + share**2)
        return (x - x0) / share

    here = velocity(x, t)
    there = velocity(x + (t_next - t) / 1000 * here, t_next)
    expected = x + (t_next - t) / 1000 * (here + there) / 2
    torch.testing.assert_close(states(model, x, [t, t_next], "heun")[1], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("noise", [DiscreteVP.named(), Flow()])
def test_ddim_and_euler_are_the_same_step_without_clipping(noise):
    model = modes(noise)
    times = np.array(UNEVEN, dtype=float)
    for one, other in zip(
        states(model, start(model), times, "ddim"), states(model, start(model), times, "euler"), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def two_step_in_log_sigma(denoised, x, sigmas):
    """k-diffusion's 2M in the words of its idea: x0 is followed along a line in -ln sigma to the middle of the step."""
    seen = []
    for now, then in pairwise(sigmas):
        seen.append((-math.log(now), denoised(x, now)))
        ahead = seen[-1][1]
        if len(seen) > 1 and then > 0:
            (before, old), (here, new) = seen[-2:]
            ahead = new + (new - old) / (here - before) * (-math.log(then) - here) / 2
        x = then / now * x + (1 - then / now) * ahead
    return x


def test_two_m_of_k_diffusion_is_followed_in_log_sigma_on_a_flow():
    model, sigmas = modes(Flow(), "x0"), [1.0, 0.93, 0.7, 0.41, 0.2, 0.05, 0.0]
    times = [1000 * sigma for sigma in sigmas[:-1]]
    expected = two_step_in_log_sigma(lambda x, sigma: model(x, 1000 * sigma), start(model), sigmas)
    torch.testing.assert_close(states(model, start(model), times, "dpmpp-2m-kdiffusion")[-1], expected)
    assert (states(model, start(model), times, "dpmpp-2m")[-1] - expected).abs().max() > 1e-3


def test_two_m_of_k_diffusion_is_the_papers_where_variance_is_preserved():
    model = modes(DiscreteVP.named(), "x0")
    found, expected = (states(model, start(model), UNEVEN, f"dpmpp-2m{form}") for form in ("-kdiffusion", ""))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


# Against diffusers, on grids where its schedulers are exact.


def relative_error(ours, theirs):
    return float((ours - theirs).abs().max() / theirs.abs().max())


def diffusers_states(scheduler, model, x, **step_options):
    """Their loop: every state after a step."""
    found = []
    for t in scheduler.timesteps:
        asked = scheduler.scale_model_input(x, t) if hasattr(scheduler, "scale_model_input") else x
        options = {name: option() if callable(option) else option for name, option in step_options.items()}
        x = scheduler.step(model(asked.double(), float(t)), t, x, **options).prev_sample
        found.append(x.double())
    return found


def table_of(scheduler, **rest):
    return DiscreteVP(scheduler.alphas_cumprod.double().numpy(), **rest)


@pytest.mark.parametrize("spacing", ["trailing", "leading"])
@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction", "sample"])
@pytest.mark.parametrize("eta", [0.0, 0.4, 1.0])
def test_ddim_is_that_of_diffusers(spacing, prediction, eta):
    from diffusers import DDIMScheduler

    scheduler = DDIMScheduler(
        timestep_spacing=spacing, prediction_type=prediction, clip_sample=False, steps_offset=0, set_alpha_to_one=True
    )
    scheduler.set_timesteps(20)
    model = modes(table_of(scheduler), {"epsilon": "eps", "v_prediction": "v", "sample": "x0"}[prediction])
    x = start(model)
    fresh = [start(model, seed=100 + i) for i in range(20)]
    supply, same_supply = iter(fresh), iter(fresh)
    ours = states(model, x, scheduler.timesteps.double(), solver_named("ddim", eta), lambda: next(supply))
    theirs = diffusers_states(scheduler, model, x, eta=eta, variance_noise=lambda: next(same_supply))
    assert len(ours) == 21
    for one, other in zip(ours[1:], theirs, strict=True):
        assert relative_error(one, other) < 1e-5


@pytest.mark.parametrize("prediction", ["eps", "v", "x0"])
def test_a_clipped_prediction_still_makes_up_its_state(prediction):
    means = torch.randn(3, 5, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    model = asked_for(Mixture(means, 0.3), prediction, clip=0.3)
    x = start(model)
    for t in (999.0, 400.0, 20.0):
        a, s = model.noise.signal_and_sigma(t)
        found = predict(model, x, t)
        assert float(found.x0.abs().max()) <= 0.3
        torch.testing.assert_close(a * found.x0 + s * found.eps, x, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("eta", [0.0, 0.6])
def test_ddim_clips_as_diffusers_does_when_told_to_keep_x_whole(eta):
    from diffusers import DDIMScheduler

    scheduler = DDIMScheduler(timestep_spacing="trailing", clip_sample=True, clip_sample_range=0.5)
    scheduler.set_timesteps(10)
    free = modes(table_of(scheduler))
    model = replace(free, clip=0.5)
    x = start(model)
    fresh = [start(model, seed=100 + i) for i in range(10)]
    supply, same_supply = iter(fresh), iter(fresh)
    ours = states(model, x, scheduler.timesteps.double(), solver_named("ddim", eta), lambda: next(supply))
    fresh_too = lambda: next(same_supply)  # noqa: E731
    theirs = diffusers_states(scheduler, model, x, eta=eta, variance_noise=fresh_too, use_clipped_model_output=True)
    assert relative_error(ours[-1], theirs[-1]) < 1e-5
    assert relative_error(ours[5], theirs[4]) < 1e-5
    assert float(ours[-1].abs().max()) == pytest.approx(0.5)
    assert relative_error(states(free, x, scheduler.timesteps.double(), "ddim")[-1], theirs[-1]) > 0.1


def test_ddim_ends_at_the_first_alpha_where_diffusers_does():
    from diffusers import DDIMScheduler

    scheduler = DDIMScheduler(timestep_spacing="trailing", clip_sample=False, set_alpha_to_one=False)
    scheduler.set_timesteps(20)
    model = modes(table_of(scheduler, final_alpha_cumprod=float(scheduler.alphas_cumprod[0])))
    x = start(model)
    theirs = diffusers_states(scheduler, model, x)
    assert relative_error(states(model, x, scheduler.timesteps.double(), "ddim")[-1], theirs[-1]) < 1e-5
    at_one = modes(table_of(scheduler))
    assert relative_error(states(at_one, x, scheduler.timesteps.double(), "ddim")[-1], theirs[-1]) > 3e-5


def test_ddim_from_a_zero_terminal_snr_is_that_of_diffusers():
    from diffusers import DDIMScheduler

    scheduler = DDIMScheduler(
        timestep_spacing="trailing", clip_sample=False, prediction_type="v_prediction", rescale_betas_zero_snr=True
    )
    scheduler.set_timesteps(20)
    model = modes(table_of(scheduler), "v")
    x = start(model)
    theirs = diffusers_states(scheduler, model, x)
    for one, other in zip(states(model, x, scheduler.timesteps.double(), "ddim")[1:], theirs, strict=True):
        assert relative_error(one, other) < 1e-5


@pytest.mark.parametrize("clip", [None, 0.5])
def test_ddpm_is_that_of_diffusers_on_an_uneven_list(clip):
    from diffusers import DDPMScheduler

    scheduler = DDPMScheduler(variance_type="fixed_small", clip_sample=clip is not None, clip_sample_range=clip or 1.0)
    scheduler.set_timesteps(timesteps=UNEVEN)
    model = replace(modes(table_of(scheduler)), clip=clip)
    x = start(model)
    generator = torch.Generator().manual_seed(1)
    theirs = diffusers_states(scheduler, model, x, generator=generator)
    same = torch.Generator().manual_seed(1)
    ours = states(model, x, UNEVEN, "ddpm", lambda: torch.randn(x.shape, generator=same, dtype=torch.float64))
    for one, other in zip(ours[1:], theirs, strict=True):
        assert relative_error(one, other) < 1e-5


def variance_exploding(noise, xs, times):
    """Our states in the coordinates that Euler and Heun of diffusers live in: x·sqrt(1 + sigma²)."""
    return [x * math.sqrt(1 + float(noise.sigma(t)) ** 2) for x, t in zip(xs, times, strict=True)]


def test_euler_is_that_of_diffusers():
    from diffusers import EulerDiscreteScheduler

    scheduler = EulerDiscreteScheduler(timestep_spacing="leading", steps_offset=0)
    scheduler.set_timesteps(20)
    model = modes(table_of(scheduler))
    x, times = start(model), scheduler.timesteps.double().numpy()
    ours = states(model, x, times, "euler")
    exploded = variance_exploding(model.noise, ours[:-1], times)
    theirs = diffusers_states(scheduler, model, exploded[0])
    for one, other in zip([*exploded[1:], ours[-1]], theirs, strict=True):
        assert relative_error(one, other) < 1e-5


@pytest.mark.parametrize("clip", [None, 0.5])
def test_heun_is_that_of_diffusers_on_an_uneven_list(clip):
    from diffusers import HeunDiscreteScheduler

    scheduler = HeunDiscreteScheduler(
        beta_start=1e-4, beta_end=0.02, clip_sample=clip is not None, clip_sample_range=clip or 1.0
    )
    scheduler.set_timesteps(timesteps=UNEVEN)
    assert len(scheduler.timesteps) == 2 * len(UNEVEN) - 1
    model = replace(modes(table_of(scheduler)), clip=clip)
    x = start(model)
    ours = states(model, x, UNEVEN, "heun")
    exploded = variance_exploding(model.noise, ours[:-1], UNEVEN)
    theirs = diffusers_states(scheduler, model, exploded[0])
    after_whole_steps = [*theirs[1::2], theirs[-1]]
    for one, other in zip([*exploded[1:], ours[-1]], after_whole_steps, strict=True):
        assert relative_error(one, other) < 1e-5


@pytest.mark.parametrize(("order", "solver"), [(1, "ddim"), (2, "dpmpp-2m")])
@pytest.mark.parametrize("count", [3, 11, 20])
def test_dpm_solver_is_that_of_diffusers_on_an_uneven_list(order, solver, count):
    from diffusers import DPMSolverMultistepScheduler

    times = UNEVEN[:count] if count < 12 else [999 - round(998 * (i / 19) ** 1.3) for i in range(20)]
    scheduler = DPMSolverMultistepScheduler(
        beta_start=1e-4,
        beta_end=0.02,
        algorithm_type="dpmsolver++",
        solver_order=order,
        solver_type="midpoint",
        final_sigmas_type="zero",
    )
    scheduler.set_timesteps(timesteps=times)
    assert scheduler.timesteps.tolist() == times
    model = modes(table_of(scheduler))
    x = start(model)
    theirs = diffusers_states(scheduler, model, x)
    for one, other in zip(states(model, x, times, solver)[1:], theirs, strict=True):
        assert relative_error(one, other) < 1e-5


@pytest.mark.parametrize("count", [1, 2, 3, 11])
@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction", "sample"])
def test_unipc_is_that_of_diffusers_on_an_uneven_list(count, prediction):
    from diffusers import UniPCMultistepScheduler

    scheduler = UniPCMultistepScheduler(
        beta_start=1e-4, beta_end=0.02, prediction_type=prediction, final_sigmas_type="zero"
    )
    assert (scheduler.config.solver_order, scheduler.config.solver_type, scheduler.config.predict_x0) == (
        2,
        "bh2",
        True,
    )
    noise, times = table_of(scheduler), UNEVEN[:count]
    scheduler.set_timesteps(count)
    scheduler.timesteps = torch.tensor(times)  # it takes no list of its own
    scheduler.sigmas = torch.tensor([*noise.sigma(times), 0.0])
    model = modes(noise, {"epsilon": "eps", "v_prediction": "v", "sample": "x0"}[prediction])
    x = start(model)
    theirs = diffusers_states(scheduler, model, x)
    for one, other in zip(states(model, x, times, "unipc")[1:], theirs, strict=True):
        assert relative_error(one, other) < 1e-5


@pytest.mark.filterwarnings("ignore:__array_wrap__")  # diffusers mixes torch and numpy there
@pytest.mark.parametrize("count", [1, 2, 3, 4, 10])
@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction"])
def test_deis_is_that_of_diffusers_on_an_uneven_list(count, prediction):
    from diffusers import DEISMultistepScheduler

    scheduler = DEISMultistepScheduler(
        beta_start=1e-4, beta_end=0.02, solver_order=3, prediction_type=prediction, lower_order_final=False
    )
    assert scheduler.config.solver_type == "logrho"
    noise, times = table_of(scheduler), UNEVEN[: count + 1]
    scheduler.set_timesteps(len(times))
    scheduler.timesteps = torch.tensor(times)  # it takes no list of its own
    scheduler.sigmas = torch.tensor([*noise.sigma(times), 0.0])
    model = modes(noise, {"epsilon": "eps", "v_prediction": "v"}[prediction])
    x = start(model)
    ours = states(model, x, times, "deis")
    for t, one in zip(times[:-1], ours[1:-1], strict=True):  # their last step, to sigma 0, gives nan
        x = scheduler.step(model(x, t), t, x).prev_sample
        assert relative_error(one, x) < 1e-5


@pytest.mark.parametrize("count", [2, 3, 4, 5, 9])
def test_ipndm_on_equal_steps_of_a_flow_is_adams_and_bashforths_method(count):
    model = Gaussian(VARIANCES, Flow(), in_cosine_basis=False)
    times = np.linspace(950.0, 150.0, count)
    x, h, slopes = start(model), (times[1] - times[0]) / 1000, []
    ours = states(model, x, times, "ipndm")
    for t, one in zip(times[:-1], ours[1:-1], strict=True):
        share = t / 1000
        slopes.append((x - model(x, t)) / share)
        # The weights make the integral over [0, 1] of the polynomial through the slopes at 0, -1, -2, -3.
        places = -np.arange(min(len(slopes), 4), dtype=float)
        powers = np.arange(len(places))
        weights = np.linalg.solve(places[None] ** powers[:, None], 1 / (powers + 1))
        x = x + h * sum(w * slope for w, slope in zip(weights, slopes[::-1], strict=False))
        torch.testing.assert_close(one, x, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("noise", [ContinuousVP(), Flow()], ids=["vp", "flow"])
def test_deis_is_of_second_order_at_least_and_of_third_where_its_first_step_of_first_order_does_not_tell(noise):
    model = Gaussian(VARIANCES, noise, in_cosine_basis=False)
    first, last = noise.time_at([0.9, 0.15])
    for in_log_snr in (True, False):
        assert 1.85 < slope_of_error(model, "deis", first, last, in_log_snr) < 3.15


def test_the_weights_of_ipndm_add_up_to_a_whole_step_of_any_size():
    """Where the slope is constant the weights must not matter, however uneven the steps."""
    noise = DiscreteVP.named()
    x0, eps = (torch.tensor([[0.1, 0.7]], dtype=torch.float64), torch.tensor([[0.5, -1.0]], dtype=torch.float64))
    model = Network(lambda x, t: eps.expand_as(x), (2,), noise, "eps")
    a, s = noise.signal_and_sigma(999)
    for x, t in zip(states(model, a * x0 + s * eps, UNEVEN, "ipndm"), [*UNEVEN, CLEAN], strict=True):
        a_t, s_t = noise.signal_and_sigma(t)
        torch.testing.assert_close(x, a_t * x0 + s_t * eps, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shift", [1.0, 3.0])
def test_unipc_on_a_flow_is_that_of_diffusers(shift):
    from diffusers import UniPCMultistepScheduler

    scheduler = UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, final_sigmas_type="zero"
    )
    noise = Flow(shift)
    times = noise.time_at(np.linspace(0.99, 0.1, 9))  # they have nan at pure noise
    scheduler.set_timesteps(9)
    scheduler.timesteps = torch.tensor(times)
    scheduler.sigmas = torch.tensor([*noise.sigma(times), 0.0])
    model = modes(noise, "flow")
    x = start(model)
    theirs = diffusers_states(scheduler, model, x)
    for one, other in zip(states(model, x, times, "unipc")[1:], theirs, strict=True):
        assert relative_error(one, other) < 1e-5


@pytest.mark.parametrize("shift", [1.0, 3.0])
def test_euler_on_a_flow_is_that_of_diffusers(shift):
    from diffusers import FlowMatchEulerDiscreteScheduler

    scheduler = FlowMatchEulerDiscreteScheduler(shift=shift)
    uniform = np.linspace(1, 1 / 10, 10)
    scheduler.set_timesteps(sigmas=uniform.tolist())
    noise = Flow(shift)
    model = modes(noise, "flow")
    x = start(model)
    theirs = diffusers_states(scheduler, model, x)
    for one, other in zip(states(model, x, noise.time_at(uniform), "euler")[1:], theirs, strict=True):
        assert relative_error(one, other) < 1e-5


# What a prediction means.


@pytest.mark.parametrize("solver", DETERMINISTIC)
@pytest.mark.parametrize("noise", [DiscreteVP.named(), Flow()], ids=["vp", "flow"])
def test_every_kind_of_prediction_of_one_denoiser_gives_the_same_samples(solver, noise):
    kinds = ["x0", "eps", "flow"] if isinstance(noise, Flow) else ["x0", "eps", "v"]
    x = start(modes(noise))
    first, *rest = [states(modes(noise, kind), x, np.array(UNEVEN, float), solver)[-1] for kind in kinds]
    for other in rest:
        torch.testing.assert_close(other, first, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("noise", "prediction"),
    [
        *((DiscreteVP.named(), kind) for kind in ("x0", "eps", "v")),
        *((ContinuousVP(), kind) for kind in ("x0", "eps", "v")),
        *((Flow(), kind) for kind in ("x0", "eps", "flow")),
    ],
)
def test_a_prediction_recovers_the_x0_and_eps_that_made_the_state(noise, prediction):
    t = float(noise.time_at(0.4).round(3)) if noise.continuous else 400.0
    a, s = noise.signal_and_sigma(t)
    x0, eps = torch.tensor([[0.3, -1.2]]), torch.tensor([[-0.7, 0.9]])
    answer = {"x0": x0, "eps": eps, "v": a * eps - s * x0, "flow": eps - x0}[prediction]
    model = Network(lambda x, t: answer, (2,), noise, prediction)
    found = predict(model, a * x0 + s * eps, t)
    torch.testing.assert_close(found.x0, x0)
    torch.testing.assert_close(found.eps, eps)


@pytest.mark.parametrize("solver", [*DETERMINISTIC, "ddpm"])
def test_zero_terminal_snr_with_v_prediction_starts_finite_and_ends_right(solver):
    noise = DiscreteVP.named("scaled_linear", zero_terminal_snr=True)
    exact = Gaussian(VARIANCES, noise, in_cosine_basis=False)
    model = asked_for(exact, "v")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 4, generator=generator, dtype=torch.float64)
    times = np.arange(999.0, -1, -1 if solver == "ddpm" else -9)  # posterior sampling needs small steps to be exact
    xs = states(model, x, times, solver, lambda: torch.randn(x.shape, generator=generator, dtype=torch.float64))
    assert all(torch.isfinite(state).all() for state in xs)
    if solver == "ddpm":
        assert xs[-1].var(dim=0).numpy() == pytest.approx(VARIANCES.numpy(), rel=0.12)
    else:
        torch.testing.assert_close(xs[-1], exact.solution(x, 999), rtol=0.06, atol=0.01)


def test_an_eps_prediction_at_zero_signal_is_refused():
    noise = DiscreteVP.named("scaled_linear", zero_terminal_snr=True)
    model = Network(lambda x, t: x, (2,), noise, "eps")
    with pytest.raises(ModelError, match="zero terminal SNR"):
        predict(model, torch.ones(1, 2), 999)


def test_ddim_is_exact_where_eps_is_constant():
    noise = DiscreteVP.named()
    eps = torch.tensor([[0.5, -1.0, 0.2]], dtype=torch.float64)
    model = Network(lambda x, t: eps.expand_as(x), (3,), noise, "eps")
    x0 = torch.tensor([[0.1, 0.7, -0.4]], dtype=torch.float64)
    a, s = noise.signal_and_sigma(980)
    for times in ([980], [980, 3], [980, 700, 200, 50, 0]):
        xs = states(model, a * x0 + s * eps, times, "ddim")
        for x, t in zip(xs, [*times, CLEAN], strict=True):
            a_t, s_t = noise.signal_and_sigma(t)
            torch.testing.assert_close(x, a_t * x0 + s_t * eps, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("solver", ["dpmpp-2m", "unipc"])
@pytest.mark.parametrize("noise", [DiscreteVP.named(), ContinuousVP(), Flow()], ids=["discrete", "continuous", "flow"])
def test_solvers_in_data_prediction_are_exact_where_x0_is_constant(solver, noise):
    x0 = torch.tensor([[0.1, 0.7, -0.4]], dtype=torch.float64)
    eps = torch.tensor([[0.5, -1.0, 0.2]], dtype=torch.float64)
    model = Network(lambda x, t: x0.expand_as(x), (3,), noise, "x0")
    for shares in ([1.0], [1.0, 0.2], [1.0, 0.7, 0.4, 0.05, 0.01]):
        times = noise.time_at(shares) if noise.continuous else np.round(noise.time_at(shares))
        a, s = noise.signal_and_sigma(times[0])
        for x, t in zip(states(model, a * x0 + s * eps, times, solver), [*times, CLEAN], strict=True):
            a_t, s_t = noise.signal_and_sigma(t)
            torch.testing.assert_close(x, a_t * x0 + s_t * eps, rtol=1e-10, atol=1e-10)


def test_unipc_from_pure_noise_of_a_flow_knows_no_slope_of_x0_before_its_third_prediction():
    """Pure noise is infinitely far in log-SNR: what is seen there says nothing of how x0 bends later."""
    noise, seen = Flow(), {1000.0: -0.3, 700.0: 0.4, 250.0: 1.1, 60.0: 0.8}
    model = Network(lambda x, t: torch.full_like(x, seen[t]), (1,), noise, "x0")

    def walked(x, t, t_next, x0_of):
        """The exact solution if x0 is this function of the way from t to t_next in log-SNR."""
        (_, s), (_, s1) = noise.signal_and_sigma(t), noise.signal_and_sigma(t_next)
        begin, end = noise.log_snr([t, t_next]) / 2
        nodes, weights = np.polynomial.legendre.leggauss(40)
        share = (nodes + 1) / 2
        gain = (weights / 2 * np.exp(begin + share * (end - begin)) * x0_of(share)).sum() * (end - begin)
        return s1 / s * x + s1 * gain

    xs = states(model, torch.tensor([[0.9]], dtype=torch.float64), [*seen], "unipc")
    first, second, third, _ = seen.values()
    at_700 = 0.7 * 0.9 + 0.3 * (first + second) / 2  # corrected: x = s·eps + a·x0 with the mean x0
    at_250 = walked(at_700, 700.0, 250.0, lambda share: second + share * (third - second))
    h_before, h = np.diff(noise.log_snr([700.0, 250.0, 60.0]) / 2)
    ahead = third + h / h_before * (third - second) / 2
    expected = walked(at_250, 250.0, 60.0, lambda share: ahead + 0 * share)
    assert float(xs[2]) == pytest.approx(walked(at_700, 700.0, 250.0, lambda share: second + 0 * share), rel=1e-9)
    assert float(xs[3]) == pytest.approx(expected, rel=1e-9)


# Gradients to the times.


def end_with_tensor_factors(model, x, times, solver):
    """A walk whose factors, and whose denoiser, are torch expressions of the times."""

    def factors(t):
        return (1 - t / 1000, t / 1000) if model.noise.kind == "flow" else vp_factors(t)

    def vp_factors(t):
        lost = -(0.1 * t + 19.9 * t**2 / 2)
        return torch.exp(lost / 2), torch.sqrt(-torch.expm1(lost))

    def denoised(x, t):
        a, s = factors(t)
        x0 = x * a * VARIANCES / (a**2 * VARIANCES + s**2) + 0.1 * torch.tanh(x)
        return Prediction(x0, (x - a * x0) / s)

    memory, clean = None, (1.0, 0.0)
    fresh = start(model, seed=9)
    for t, t_next in zip(times, [*times[1:], CLEAN], strict=True):
        then = clean if t_next is CLEAN else factors(t_next)
        step = Step(t, t_next, *factors(t), *then, model.noise.kind == "flow", denoised, lambda: fresh)
        x, memory = SOLVERS[solver](x, denoised(x, t), step, memory)
    return x.sum()


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("noise", [ContinuousVP(), Flow()], ids=["vp", "flow"])
def test_the_gradient_to_every_time_is_a_finite_difference(solver, noise):
    model = Gaussian(VARIANCES, noise, in_cosine_basis=False)
    shares = torch.tensor([0.95, 0.7, 0.45, 0.2, 0.05], dtype=torch.float64)
    times = (shares * noise.first).requires_grad_()
    x = start(model)
    (gradient,) = torch.autograd.grad(end_with_tensor_factors(model, x, times, solver), [times])
    for i in range(len(times)):
        nudge = torch.zeros_like(times)
        nudge[i] = 1e-6 * noise.first
        higher, lower = (end_with_tensor_factors(model, x, (times + way * nudge).detach(), solver) for way in (1, -1))
        expected = float(higher - lower) / (2e-6 * noise.first)
        assert float(gradient[i]) == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert float(gradient.abs().min()) > 0


@pytest.mark.parametrize("solver", DETERMINISTIC)
def test_tensor_factors_lead_where_plain_ones_do(solver):
    noise = Flow()
    model = Gaussian(VARIANCES, noise, in_cosine_basis=False)
    x, times = start(model), torch.tensor([1000.0, 640.0, 300.0, 70.0], dtype=torch.float64)

    def denoised(x, t):
        return predict(model, x, float(t))

    memory, found = None, x
    for t, t_next in zip(times, [*times[1:], CLEAN], strict=True):
        plain = Step.between(noise, float(t), float(t_next), denoised, refuse_to_draw)
        factors = {
            name: torch.tensor(getattr(plain, name), dtype=torch.float64) for name in ("a", "s", "a_next", "s_next")
        }
        found, memory = SOLVERS[solver](found, denoised(found, t), replace(plain, **factors), memory)
    torch.testing.assert_close(found, states(model, x, times, solver)[-1], rtol=1e-12, atol=1e-12)


# Stochastic steps.


@pytest.mark.parametrize(
    ("noise", "t", "t_next"),
    [
        (DiscreteVP.named(), 800, 300),
        (DiscreteVP.named(), 500, 499),
        (ContinuousVP(), 0.9, 0.05),
        (Flow(), 700.0, 250.0),
    ],
)
def test_a_ddpm_step_is_the_bayes_posterior_of_the_next_state(noise, t, t_next):
    (a, s), (a1, s1) = noise.signal_and_sigma(t), noise.signal_and_sigma(t_next)
    x, x0 = torch.tensor([[1.3]], dtype=torch.float64), torch.tensor([[-0.4]], dtype=torch.float64)
    # Prior x1 ~ N(a1·x0, s1²), likelihood x ~ N(r·x1, s² - r²·s1²).
    r = a / a1
    unexplained = s**2 - r**2 * s1**2
    precision = 1 / s1**2 + r**2 / unexplained
    mean = (a1 * x0 / s1**2 + r * x / unexplained) / precision

    def next_state(fresh):
        step = Step.between(noise, t, t_next, None, lambda: torch.full_like(x, fresh))
        return SOLVERS["ddpm"](x, Prediction(x0, (x - a * x0) / s), step, None)[0]

    torch.testing.assert_close(next_state(0.0), mean, rtol=1e-10, atol=1e-12)
    assert float(next_state(1.0) - mean) == pytest.approx(precision**-0.5, rel=1e-10)


def test_ddim_with_eta_one_is_ddpm():
    model = modes(DiscreteVP.named())
    fresh = [start(model, seed=i) for i in range(20)]
    one, other = iter(fresh), iter(fresh)
    x = start(model)
    ddim_end = states(model, x, UNEVEN, solver_named("ddim", 1.0), lambda: next(one))[-1]
    torch.testing.assert_close(
        ddim_end, states(model, x, UNEVEN, "ddpm", lambda: next(other))[-1], rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("eta", [0.3, 1.0])
def test_a_stochastic_step_keeps_the_variance_of_the_forward_process(eta):
    """With x0 known and eps unit normal, the next state must again be N(a1·x0, s1²)."""
    noise = DiscreteVP.named()
    s, s1 = noise.signal_and_sigma(700)[1], noise.signal_and_sigma(350)[1]
    zero = torch.zeros(1, 1, dtype=torch.float64)

    def response(eps, fresh):
        step = Step.between(noise, 700, 350, None, lambda: zero + fresh)
        return float(solver_named("ddim", eta)(zero + s * eps, Prediction(zero, zero + eps), step, None)[0])

    assert response(1.0, 0.0) ** 2 + response(0.0, 1.0) ** 2 == pytest.approx(s1**2, rel=1e-10)


# What a walk costs, and what is refused.


@pytest.mark.parametrize(
    ("solver", "calls"),
    [("ddim", 7), ("ddpm", 7), ("euler", 7), ("heun", 13), ("dpmpp-2m", 7), ("unipc", 7), ("deis", 7), ("ipndm", 7)],
)
@pytest.mark.parametrize("noise", [DiscreteVP.named(), Flow()], ids=["vp", "flow"])
def test_network_calls_of_seven_steps(solver, calls, noise):
    model = Counted(modes(noise))
    sample(model, np.arange(940.0, 0, -140), range(3), solver)
    assert model.nfe == 3 * calls


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("final", [1.0, None], ids=["ends at alpha-bar 1", "ends at the first alpha-bar"])
def test_no_solver_asks_the_model_about_a_time_it_was_not_trained_on(solver, final):
    table = DiscreteVP.named().alphas_cumprod
    noise = DiscreteVP(table, final_alpha_cumprod=final or float(table[0]))
    asked = []
    inner = modes(noise)
    model = replace(inner, function=lambda x, t: asked.append(t) or inner.function(x, t))
    sample(model, [900, 500, 20], [0], solver)
    assert set(asked) == {900, 500, 20}


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_table_that_starts_without_noise_can_be_walked_to_its_end(solver):
    noise = DiscreteVP(np.array([1.0, 0.9, 0.6, 0.3, 0.05]))
    model = Gaussian(VARIANCES, noise, in_cosine_basis=False)
    xs = states(model, start(model), [4, 3, 2, 1, 0], solver, lambda: start(model, seed=5))
    assert torch.isfinite(xs[-2]).all()
    torch.testing.assert_close(xs[-1], xs[-2])  # nothing is left to remove at alpha-bar = 1


@pytest.mark.parametrize(
    ("name", "eta", "said"),
    [
        ("dpm", 0.0, "ddim, ddpm, euler, heun, dpmpp-2m, dpmpp-2m-kdiffusion, unipc, deis, ipndm"),
        ("ddim", 1.5, r"0\.\.1"),
        ("ddim", -0.1, r"0\.\.1"),
        ("ddim", math.nan, r"0\.\.1"),
        ("heun", 0.5, "belongs to ddim"),
    ],
)
def test_a_solver_that_cannot_be_is_refused(name, eta, said):
    with pytest.raises(ScheduleError, match=said):
        solver_named(name, eta)


def test_a_solver_of_ones_own_is_taken_as_it_is_and_takes_no_eta():
    def stand_still(x, p, step, memory):
        return x, None

    assert solver_named(stand_still) is stand_still
    with pytest.raises(ScheduleError, match="function does not take it"):
        solver_named(stand_still, 0.5)
