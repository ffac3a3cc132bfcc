"""Every export read back by a reader of its own, and used where the target can be had."""

from __future__ import annotations

import json
import re
import shlex
import sys
import warnings
from dataclasses import dataclass, replace
from types import SimpleNamespace

import float64_solvers as exact
import numpy as np
import pytest
import tiny_pipelines as tiny
import torch
from diffusers import DDIMScheduler, DPMSolverMultistepScheduler, FlowMatchEulerDiscreteScheduler
from typer.testing import CliRunner

import geosprint
from geosprint.baselines import baseline_schedule
from geosprint.cli import app
from geosprint.errors import ScheduleError
from geosprint.noise import DiscreteVP, Flow
from geosprint.tuned import FITTED, Tuned, TunedSteps, as_tuned

PLAIN = re.compile(r"\d+\.\d+")


@pytest.fixture(scope="module")
def vp():
    table = DDIMScheduler(**tiny.SD_NOISE).alphas_cumprod.double().numpy()
    return geosprint.build_schedule(exact.profile_for(DiscreteVP(table)), 12)


@pytest.fixture(scope="module")
def flow():
    return geosprint.build_schedule(exact.profile_for(Flow(3.0), "flow"), 12)


@pytest.fixture(params=["vp", "flow", "tiny"])
def schedule(request, vp, flow):
    tiny_sigmas = np.array([80.0, 1.0, 2.5e-5, 1.25e-7, 0.0])
    small = geosprint.StepSchedule(np.array([999.0, 500.0, 3.0, 0.0]), tiny_sigmas, -2 * np.log(tiny_sigmas[:-1]), {})
    return {"vp": vp, "flow": flow, "tiny": small}[request.param]


def read_decimals(text):
    """Numbers as a strict reader takes them: digits, a point, digits, and nothing else."""
    words = [word.strip() for word in text.split(",")]
    assert all(PLAIN.fullmatch(word) for word in words), words
    return np.array([float(word) for word in words])


def check(numbers, schedule):
    assert len(numbers) == len(schedule) + 1
    assert numbers[-1] == 0
    assert (np.diff(numbers) < 0).all()
    np.testing.assert_allclose(numbers, schedule.sigmas, rtol=1e-8)


def made_for(schedule, solver):
    return replace(schedule, provenance={**schedule.provenance, "solver": solver})


def test_comfyui_manual_sigmas_are_plain_decimals(schedule):
    check(read_decimals(geosprint.export(schedule, "comfyui").strip()), schedule)


def test_stable_diffusion_cpp_reads_options(schedule):
    option, value = shlex.split(geosprint.export(schedule, "sdcpp"))
    assert option == "--sigmas"
    check(read_decimals(value), schedule)
    named = geosprint.export(made_for(schedule, "heun"), "sdcpp")
    assert shlex.split(named) == ["--sampling-method", "heun", option, value]


def test_k_diffusion_gets_a_tensor(schedule):
    text = geosprint.export(schedule, "kdiffusion")
    check(read_decimals(re.search(r"\[(.*)\]", text).group(1)), schedule)
    assert "# sample_euler(model, first_noise * torch.randn(shape), sigmas)" in text
    namespace = {}
    exec(text, namespace)
    assert namespace["sigmas"].dtype == torch.float32
    np.testing.assert_allclose(namespace["sigmas"].numpy(), schedule.sigmas, rtol=1e-6)


@dataclass
class WebuiScheduler:
    """What A1111's modules/sd_schedulers.py registers; Forge's has the same fields."""

    name: str
    label: str
    function: object
    default_rho: float = -1
    need_inner_model: bool = False
    aliases: list | None = None


@pytest.fixture
def webui(monkeypatch):
    """The list and the map that A1111 and Forge read schedule types from."""
    known = [WebuiScheduler("automatic", "Automatic", None)]
    module = SimpleNamespace(Scheduler=WebuiScheduler, schedulers=known, schedulers_map={"Automatic": known[0]})
    monkeypatch.setitem(sys.modules, "modules", SimpleNamespace(sd_schedulers=module))
    return module


def test_a1111_gets_a_script_that_registers_a_schedule_type(schedule, webui):
    text, steps = geosprint.export(schedule, "a1111"), len(schedule)
    assert not re.search(r"\d[eE][-+]?\d", text)
    for _ in range(2):  # a reload of the page runs scripts again
        exec(text, {})
    automatic, own = webui.schedulers
    assert (automatic.label, own.label) == ("Automatic", f"GeoSPRINT {steps}")
    assert webui.schedulers_map == {"Automatic": automatic, own.label: own, own.name: own}
    assert (own.default_rho, own.need_inner_model) == (-1, False)  # then it is called with these words alone:
    sigmas = own.function(n=steps, sigma_min=0.03, sigma_max=14.6, device="cpu")
    np.testing.assert_allclose(sigmas.numpy(), schedule.sigmas, rtol=1e-6)
    for n in (1, 2, 5, 40):
        sigmas = own.function(n=n, sigma_min=0.03, sigma_max=14.6, device="cpu")
        assert (sigmas.shape, sigmas.dtype) == ((n + 1,), torch.float32)
        assert (sigmas.diff() < 0).all()
        assert (float(sigmas[0]), float(sigmas[-1])) == (pytest.approx(schedule.sigmas[0]), 0.0)


def test_the_a1111_script_names_the_sampler_and_its_directory(vp):
    text = geosprint.export(made_for(vp, "dpmpp-2m"), "a1111")
    assert 'Schedule type "GeoSPRINT 12" for the sampler DPM++ 2M.' in text
    assert "extensions/geosprint/scripts/" in text


def test_json_holds_both_lists(schedule):
    content = json.loads(geosprint.export(made_for(schedule, "heun"), "json"))
    assert (content.pop("first_noise") > 1) != content.pop("is_flow")
    assert content.pop("solver") == "heun"
    assert content == {"timesteps": schedule.timesteps.tolist(), "sigmas": schedule.sigmas.tolist()}


def test_an_unknown_target_is_refused_with_the_known_ones(vp):
    with pytest.raises(
        ScheduleError, match=r"diffusers, comfyui, a1111, sdcpp, kdiffusion, vllm, sglang, json, got 'word'"
    ):
        geosprint.export(vp, "word")


@pytest.mark.parametrize(
    ("target", "instead"),
    [("comfyui-node", "copy the directory comfyui .* reads the file"), ("xdit", r"use geosprint\.apply\(pipe")],
)
def test_what_takes_no_export_says_what_to_do_instead(vp, target, instead):
    with pytest.raises(ScheduleError, match=f"must be one of .*, got '{target}': .*{instead}"):
        geosprint.export(vp, target)


SPACINGS = ("use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas")


@pytest.mark.parametrize(
    ("solver", "spacing"), [(None, None), ("ddim", None), *(("dpmpp-2m", one) for one in SPACINGS)]
)
def test_the_lines_for_diffusers_draw_what_apply_draws(vp, solver, spacing):
    applied = tiny.sd15()
    applied.scheduler = DDIMScheduler.from_config(applied.scheduler.config, set_alpha_to_one=True)
    if solver == "dpmpp-2m":
        applied.scheduler = DPMSolverMultistepScheduler.from_config(applied.scheduler.config)
    if solver:
        vp = replace(vp, provenance={**vp.provenance, "solver": solver})
    geosprint.apply(applied, vp)
    expected = tiny.drawn(applied, "sd15", len(vp))
    pipe = tiny.sd15()
    if spacing:
        pipe.scheduler = DPMSolverMultistepScheduler.from_config(pipe.scheduler.config, **{spacing: True})
    pipe.set_progress_bar_config(disable=True)
    size = {"height": 16, "width": 16, "generator": torch.Generator().manual_seed(7), "output_type": "np"}
    namespace = {"pipe": SimpleAsk(pipe, size), "prompt": tiny.PROMPTS[0]}
    exec(geosprint.export(vp, "diffusers"), namespace)
    assert namespace["timesteps"] == vp.timesteps.tolist()
    np.testing.assert_allclose(namespace["images"], expected, atol=1e-4)


@pytest.mark.parametrize("solver", ["unipc", "heun", FITTED])
def test_lines_for_diffusers_alone_refuse_solvers_that_they_cannot_name(vp, solver):
    made = fitted_on(vp) if solver == FITTED else replace(vp, provenance={"solver": solver})
    with pytest.raises(
        ScheduleError, match=rf"step by ddim, euler, dpmpp-2m, .* made for {solver}; use geosprint\.apply"
    ):
        geosprint.export(made, "diffusers")


def test_lines_for_a_flow_step_by_euler_alone(flow):
    with pytest.raises(ScheduleError, match=r"step by ddim, euler, and these steps were made for dpmpp-2m"):
        geosprint.export(replace(flow, provenance={**flow.provenance, "solver": "dpmpp-2m"}), "diffusers")


# What `tune` makes.


def fitted_on(schedule):
    return geosprint.FittedSolver(schedule, ((0.5, 0.5),) * len(schedule))


@pytest.fixture
def tuned(vp):
    short = geosprint.StepSchedule(vp.timesteps[::4], vp.sigmas[[0, 4, 8, 12]], vp.log_snr[::4], vp.provenance)
    return Tuned((TunedSteps(short, "ddim"), TunedSteps(vp, "ddim")), proved=3, made_for=vp.provenance["origin"])


@pytest.mark.parametrize("target", ["diffusers", "comfyui", "a1111", "sdcpp", "kdiffusion", "json"])
def test_one_number_of_steps_is_exported_the_proved_one_if_none_is_named(tuned, target):
    assert geosprint.export(tuned, target) == geosprint.export(tuned[3], target)
    assert geosprint.export(tuned, target, steps=12) == geosprint.export(tuned[12], target)
    with pytest.raises(ScheduleError, match="steps for K = 3, 12: 5 were asked for"):
        geosprint.export(tuned, target, steps=5)


@pytest.mark.parametrize("target", ["comfyui", "a1111", "sdcpp", "kdiffusion"])
def test_coefficients_that_stay_behind_are_a_warning_that_says_what_to_do(vp, target):
    with pytest.warns(UserWarning, match=f"{target} takes sigmas alone: .*geosprint tune MODEL --solver dpmpp-2m`"):
        assert geosprint.export(fitted_on(vp), target) == geosprint.export(vp, target)


@pytest.mark.parametrize("target", ["comfyui", "a1111", "sdcpp", "kdiffusion"])
def test_a_solver_that_a_tool_has_not_is_a_warning(vp, flow, target):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        geosprint.export(made_for(vp, "dpmpp-2m"), target)
        geosprint.export(made_for(flow, "dpmpp-2m-kdiffusion"), target)
    with pytest.warns(UserWarning, match=f"tuned for unipc, and {target} has no such .* --solver dpmpp-2m`"):
        geosprint.export(made_for(vp, "unipc"), target)
    with pytest.warns(UserWarning, match=f"for dpmpp-2m, and {target} has no such .* --solver dpmpp-2m-kdiffusion`"):
        geosprint.export(made_for(flow, "dpmpp-2m"), target)


def test_json_takes_coefficients_along(vp):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        content = json.loads(geosprint.export(replace(fitted_on(vp), guided=((0.5, 0.5, 0.1),) * len(vp)), "json"))
    assert content["coefficients"] == [[0.5, 0.5]] * 12
    assert content["guided"] == [[0.5, 0.5, 0.1]] * 12
    assert content["sigmas"] == vp.sigmas.tolist()


@pytest.mark.filterwarnings("default::UserWarning")
def test_the_command_line_picks_a_number_of_steps_and_warns_on_stderr(run, tuned, vp, tmp_path):
    path = tuned.save(tmp_path / "tuned.json")
    code, out, err = run("export", path, "--to", "comfyui", "--steps", 12)
    assert (code, out, err) == (0, geosprint.export(vp, "comfyui"), "")
    path = as_tuned(fitted_on(vp)).save(tmp_path / "fitted.json")
    code, out, err = run("export", path, "--to", "comfyui")
    assert (code, out) == (0, geosprint.export(vp, "comfyui"))
    assert err.startswith("geosprint: warning: these steps were fitted with coefficients of their own")
    assert err.count("\n") == 1


class SimplePipe(SimpleNamespace):
    """A pipeline that draws nothing."""

    def __init__(self, scheduler):
        super().__init__(scheduler=scheduler)

    def __call__(self, prompt, sigmas):
        return SimpleNamespace(images=None)


class SimpleAsk:
    """A pipeline whose calls take some more arguments than the lines say."""

    def __init__(self, pipe, more):
        self.__dict__.update(pipe=pipe, more=more)

    def __getattr__(self, name):
        return getattr(self.pipe, name)

    def __setattr__(self, name, value):
        setattr(self.pipe, name, value)

    def __call__(self, *given, **named):
        return self.pipe(*given, **named, **self.more)


@pytest.mark.parametrize(
    ("config", "mu", "shift"),
    [
        ({"shift": 3.0}, None, 3.0),
        ({}, None, 1.0),
        ({"use_dynamic_shifting": True}, 0.8, float(np.exp(0.8))),
        ({"use_dynamic_shifting": True, "time_shift_type": "linear"}, 1.7, 1.7),
        *(({"shift": 3.0, spacing: True}, None, 3.0) for spacing in SPACINGS),
    ],
)
def test_sigmas_for_diffusers_come_out_of_the_stock_scheduler_as_intended(config, mu, shift):
    schedule = geosprint.build_schedule(exact.profile_for(Flow(shift), "flow"), 9)
    pipe = SimplePipe(FlowMatchEulerDiscreteScheduler(**config))
    namespace = {"pipe": pipe, "prompt": ""}
    text = geosprint.export(schedule, "diffusers")
    exec(text, namespace)
    read_decimals(re.search(r"\[(.*)\]", text).group(1))
    stock = pipe.scheduler
    stock.set_timesteps(sigmas=namespace["sigmas"], mu=mu)
    np.testing.assert_allclose(stock.sigmas.numpy(), schedule.sigmas, rtol=1e-5)
    np.testing.assert_allclose(stock.timesteps.numpy(), schedule.timesteps, rtol=1e-5)


def sglang_options(text):
    """As argparse and json read them."""
    words = shlex.split(text)
    options = dict(zip(words[::2], words[1::2], strict=True))
    assert options.pop("--backend") == "diffusers"
    return int(options["--num-inference-steps"]), json.loads(options["--diffusers-kwargs"])["sigmas"]


def vllm_parameters(text, monkeypatch):
    module = SimpleNamespace(OmniDiffusionSamplingParams=SimpleNamespace)
    for name in ("vllm_omni", "vllm_omni.inputs", "vllm_omni.inputs.data"):
        monkeypatch.setitem(sys.modules, name, module)
    namespace = {}
    exec(text, namespace)
    return namespace["sampling_params"].num_inference_steps, namespace["sampling_params"].sigmas


@pytest.mark.parametrize("solver", [None, "euler", "ddim"])
@pytest.mark.parametrize("target", ["vllm", "sglang"])
def test_engines_that_run_a_pipelines_own_euler_get_sigmas_before_their_shift(target, solver, monkeypatch):
    schedule = geosprint.build_schedule(exact.profile_for(Flow(float(np.exp(0.8))), "flow"), 6)
    text = geosprint.export(replace(schedule, provenance={**schedule.provenance, "solver": solver}), target)
    steps, sigmas = sglang_options(text) if target == "sglang" else vllm_parameters(text, monkeypatch)
    assert (steps, len(sigmas)) == (6, 6)
    stock = FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True)  # what both make of FLUX's config
    stock.set_timesteps(sigmas=sigmas, mu=0.8)
    np.testing.assert_allclose(stock.sigmas.numpy(), schedule.sigmas, rtol=1e-5)


@pytest.mark.parametrize("target", ["vllm", "sglang"])
def test_engines_that_step_by_euler_refuse_other_steps(target, vp, flow):
    with pytest.raises(ScheduleError, match=r"along sigmas for flows alone, .* use diffusers"):
        geosprint.export(vp, target)
    for made in (fitted_on(flow), made_for(flow, "dpmpp-2m-kdiffusion")):
        with pytest.raises(ScheduleError, match=r"steps by ddim, euler, and these steps were made for .*apply"):
            geosprint.export(made, target)


def test_sigmas_cannot_be_told_to_a_scheduler_that_stretches_them():
    pipe = tiny.sd3()
    pipe.scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0, shift_terminal=0.1)
    inputs = geosprint.PipelineInputs(tiny.PROMPTS, height=16, width=16)
    schedule = geosprint.build_schedule(geosprint.extract(pipe, 2, 6, inputs=inputs), 4)
    with pytest.raises(ScheduleError, match=r"shift_terminal 0\.1 stretches.*geosprint\.apply"):
        geosprint.export(schedule, "diffusers")
    geosprint.apply(pipe, schedule)
    pipe.scheduler.set_timesteps(4)
    np.testing.assert_allclose(pipe.scheduler.sigmas.numpy(), schedule.sigmas, rtol=1e-6)


def test_closed_forms_of_a_flow_are_known_as_flows():
    schedule = baseline_schedule("uniform-trailing", Flow(), 5)
    assert geosprint.export(schedule, "diffusers").startswith("sigmas = [1.0, 0.8")
    schedule = baseline_schedule("uniform-trailing", DiscreteVP.named(), 5)
    assert "timesteps = [999, 799, 599, 399, 199]" in geosprint.export(schedule, "diffusers")


# The command line.


@pytest.mark.parametrize("target", ["diffusers", "comfyui", "a1111", "sdcpp", "kdiffusion", "json"])
def test_the_command_line_prints_or_writes_every_target(target, tmp_path, vp):
    vp.save(tmp_path / "schedule.json")
    words = ["export", str(tmp_path / "schedule.json"), "--to", target]
    printed = CliRunner().invoke(app, words, catch_exceptions=False).stdout
    assert printed == geosprint.export(vp, target)
    CliRunner().invoke(app, [*words, "-o", str(tmp_path / "out.txt")], catch_exceptions=False)
    assert (tmp_path / "out.txt").read_text() == printed
