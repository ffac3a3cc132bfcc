"""What serving engines make of exported steps, by the code of theirs that takes them: docs/serving.md.

    python -m benchmarks.serving                    the engines on PyPI
    python -m benchmarks.serving --webui DIRECTORY  and A1111 or Forge, of which DIRECTORY is a checkout

Engines want a GPU to be installed as a whole. Their wheels are fetched without what they depend on, and the functions
that take the steps are run out of them. stable-diffusion.cpp runs where stable-diffusion-cpp-python is installed.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib
import inspect
import json
import os
import shlex
import subprocess
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch
from zipfile import ZipFile

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import diffusers
import numpy as np
import torch

import geosprint
from geosprint.fitted_solver import FittedSolver
from geosprint.integrations.export import SAMPLERS
from geosprint.noise import DiscreteVP, Flow, NoiseSchedule
from geosprint.schedule import StepSchedule

ROOT = Path(__file__).parents[1]
WHEELS = ROOT / "out" / "serving"
VERSIONS = {"vllm-omni": "0.30.0", "sglang": "0.5.23", "xfuser": "0.7.0"}
TIMES = [1000.0, 700.0, 350.0, 90.0]
VP = DiscreteVP.named("scaled_linear")

Found = Iterator[tuple[str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--webui", type=Path, help="a checkout of A1111 or Forge")
    webui = parser.parse_args().webui
    warnings.simplefilter("ignore")
    diffusers.utils.logging.set_verbosity_error()
    engines: dict[str, Callable[[], Found]] = {
        f"vLLM-Omni {VERSIONS['vllm-omni']}": vllm,
        f"SGLang {VERSIONS['sglang']}": sglang,
        f"xDiT {VERSIONS['xfuser']}": xdit,
        f"stable-diffusion-cpp-python {_installed('stable-diffusion-cpp-python')}": sdcpp,
    }
    if webui is not None:
        engines[webui.name] = lambda: a1111(webui)
    for engine, run in engines.items():
        for what, came in run():
            print(f"{engine:<33} {what:<34} {came}", flush=True)


def vllm() -> Found:
    """The sampling parameters of the exported lines, in what two pipelines do to set their schedulers."""
    data = source("vllm-omni", "vllm_omni/inputs/data.py")
    world = taken_from(
        data,
        ["OmniDiffusionSamplingParams"],
        dataclass=dataclasses.dataclass,
        field=dataclasses.field,
        torch=torch,
        Any=Any,
    )
    module: Any = types.ModuleType("vllm_omni.inputs.data")
    module.OmniDiffusionSamplingParams = world["OmniDiffusionSamplingParams"]
    named = dict.fromkeys(("vllm_omni", "vllm_omni.inputs", "vllm_omni.inputs.data"), module)
    for name, path, scheduler, shift in (
        ("SD3", "sd3/pipeline_sd3.py", {"shift": 3.0}, 3.0),
        ("Qwen-Image", "qwen_image/pipeline_qwen_image.py", {"use_dynamic_shifting": True}, float(np.exp(0.5))),
    ):
        schedule, lines = StepSchedule.at(TIMES, Flow(shift), _origin(Flow(shift))), {}
        with patch.dict(sys.modules, named):
            exec(geosprint.export(schedule, "vllm"), lines)
        given = lines["sampling_params"]
        wanted = ["retrieve_timesteps", "calculate_shift", "prepare_timesteps"]
        code = source("vllm-omni", f"vllm_omni/diffusion/models/{path}")
        pipe = SimpleNamespace(scheduler=diffusers.FlowMatchEulerDiscreteScheduler(**scheduler))
        prepare = taken_from(code, wanted, np=np, inspect=inspect, torch=torch)["prepare_timesteps"]
        prepare(pipe, given.num_inference_steps, given.sigmas, 256)
        yield f"sigmas of {name}", apart(pipe.scheduler.sigmas, schedule.sigmas, "the schedule")


def sglang() -> Found:
    """The exported options, in what the diffusers backend calls its pipeline with."""
    sys.path.insert(0, str(ROOT / "tests" / "integrations"))
    tiny = importlib.import_module("tiny_pipelines")
    schedule = StepSchedule.at(TIMES, Flow(3.0), _origin(Flow(3.0)))
    words = shlex.split(geosprint.export(schedule, "sglang"))
    known = source("sglang", "sglang/multimodal_gen/configs/sample/sampling_params.py")
    assert all(f'"{word}"' in known for word in words if word in ("--num-inference-steps", "--diffusers-kwargs"))
    options = dict(zip(words[::2], words[1::2], strict=True))
    code = source("sglang", "sglang/multimodal_gen/runtime/pipelines/diffusers_pipeline.py")
    wanted = ["_build_pipeline_kwargs", "_filter_pipeline_kwargs"]
    methods = taken_from(code, wanted, inspect=inspect, torch=torch, logger=MagicMock())
    stage = SimpleNamespace(diffusers_pipe=tiny.sd3(), _load_input_image=lambda batch: None)
    request = SimpleNamespace(
        prompt=tiny.PROMPTS[0],
        negative_prompt=None,
        num_inference_steps=int(options["--num-inference-steps"]),
        guidance_scale=4.0,
        true_cfg_scale=None,
        height=16,
        width=16,
        num_frames=1,
        generator=torch.Generator().manual_seed(7),
        num_outputs_per_prompt=1,
        extra={"diffusers_kwargs": json.loads(options["--diffusers-kwargs"])},
    )
    named, _ = methods["_filter_pipeline_kwargs"](stage, methods["_build_pipeline_kwargs"](stage, request))
    stage.diffusers_pipe.set_progress_bar_config(disable=True)
    found = stage.diffusers_pipe(**named, output_type="np").images
    expected = tiny.drawn(geosprint.apply(tiny.sd3(), schedule), "sd3", len(schedule), guidance_scale=4.0)
    yield "picture of a tiny SD3", apart(found, expected, "apply")


def xdit() -> Found:
    """Its wrappers around our schedulers, told that there are two devices."""
    wrap = _xdit_wrappers()
    flow = StepSchedule.at(TIMES, Flow(3.0), {})
    vp = StepSchedule.at([999, 700, 350, 90], VP, {})
    coefficients = ((0.5, 0.5),) * len(TIMES)
    noise = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
    for name, scheduler, made in (
        ("Euler on a flow", diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0), flow),
        ("DDIM", diffusers.DDIMScheduler(**noise, clip_sample=False), vp),
        ("DPM++ 2M", diffusers.DPMSolverMultistepScheduler(**noise), vp),
        ("fitted steps", diffusers.DDIMScheduler(**noise, clip_sample=False), FittedSolver(vp, coefficients)),
        (
            "fitted steps of a flow",
            diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
            FittedSolver(flow, coefficients),
        ),
    ):
        applied = geosprint.apply(SimpleNamespace(scheduler=scheduler, components={}, config={}), made).scheduler
        try:
            yield name, apart(walked(wrap(applied)), walked(applied), "the same without it")
        except geosprint.GeoSprintError as refused:
            yield name, f"refused: {str(refused).partition(',')[0]}"


def sdcpp() -> Found:
    """The exported options, read by its Python package; no picture is drawn."""
    if _installed("stable-diffusion-cpp-python") == NOT_INSTALLED:
        yield "options", "not tried"
        return
    package = importlib.import_module("stable_diffusion_cpp.stable_diffusion")
    schedule = StepSchedule.at(TIMES, Flow(3.0), {})
    words = shlex.split(geosprint.export(schedule, "sdcpp"))
    found = package.StableDiffusion._parse_sigmas(None, words[words.index("--sigmas") + 1])
    yield "sigmas", apart(found, schedule.sigmas, "the schedule")
    known = {name: name in package.SAMPLE_METHOD_MAP for name in sorted(set(SAMPLERS["sdcpp"].values()))}
    yield "sampling methods", ", ".join(f"{name} {'known' if there else 'unknown'}" for name, there in known.items())


def a1111(webui: Path) -> Found:
    """The exported script beside the schedule types of a checkout."""
    code = (webui / "modules" / "sd_schedulers.py").read_text(encoding="utf-8")
    schedulers: Any = types.ModuleType("modules.sd_schedulers")
    package: Any = types.ModuleType("modules")
    package.shared, package.sd_schedulers = MagicMock(), schedulers
    stubs = {"k_diffusion": MagicMock(), "modules": package, "modules.shared": package.shared}
    schedule = StepSchedule.at([999, 700, 350, 90], VP, {})
    with patch.dict(sys.modules, {**stubs, "modules.sd_schedulers": schedulers}):
        exec(compile(code, "sd_schedulers.py", "exec"), vars(schedulers))
        before = len(schedulers.schedulers)
        exec(geosprint.export(schedule, "a1111"), {})
    own = schedulers.schedulers_map["GeoSPRINT 4"]
    assert len(schedulers.schedulers) == before + 1
    found = own.function(n=4, sigma_min=0.03, sigma_max=14.6, device="cpu")
    yield f"one of {before + 1} schedule types", apart(found, schedule.sigmas, "the schedule")


def _xdit_wrappers() -> Callable[[Any], Any]:
    """What xDiT puts around a scheduler; its modules for several devices are stubs."""
    wheel("xfuser").extractall(WHEELS / "xfuser")
    state = SimpleNamespace(patch_mode=False, pipeline_patch_idx=0, num_pipeline_patch=1)
    two = {f"get_{kind}_parallel_world_size": lambda: 2 for kind in ("pipeline", "sequence", "tensor_model")}
    stubs: dict[str, Any] = {"xfuser.logger": MagicMock()}
    for name in ("xfuser", "xfuser.core", "xfuser.model_executor"):
        stubs[name] = types.ModuleType(name)
        stubs[name].__path__ = [str(WHEELS / "xfuser" / name.replace(".", "/"))]
    for name in ("distributed", "distributed.parallel_state", "distributed.runtime_state", "fast_attention"):
        stubs[f"xfuser.core.{name}"] = MagicMock(**two, get_runtime_state=lambda: state)
    with patch.dict(sys.modules, stubs):
        register = importlib.import_module("xfuser.model_executor.schedulers").xFuserSchedulerWrappersRegister
    return lambda scheduler: register.get_wrapper(scheduler)(scheduler)


@cache
def wheel(package: str) -> ZipFile:
    """A package alone, as PyPI has it."""
    name = f"{package.replace('-', '_')}-{VERSIONS[package]}-*.whl"
    if not list(WHEELS.glob(name)):
        alone = ["--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(WHEELS)]
        subprocess.run([sys.executable, "-m", "pip", "download", *alone, f"{package}=={VERSIONS[package]}"], check=True)
    return ZipFile(next(WHEELS.glob(name)))


def source(package: str, path: str) -> str:
    return wheel(package).read(path).decode()


def taken_from(code: str, names: list[str], **world: Any) -> dict[str, Any]:
    """Functions, methods and classes of a module that is not imported."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    nodes = {one.name: one for one in ast.walk(ast.parse(code)) if isinstance(one, kinds) and one.name in names}
    body = "\n".join(map(ast.unparse, nodes.values()))
    exec(f"from __future__ import annotations\n{body}", world)
    return world


def walked(scheduler: Any) -> torch.Tensor:
    """Where a scheduler's steps lead under a network in closed form."""
    scheduler.set_timesteps(len(TIMES))
    x = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    for t in scheduler.timesteps:
        x = scheduler.step(0.3 * torch.tanh(x) * (1 - float(t) / 2000), t, x, return_dict=False)[0]
    return x


def apart(found: Any, expected: Any, what: str) -> str:
    return f"{np.abs(np.asarray(found) - np.asarray(expected)).max():.1e} from {what}"


def _origin(noise: NoiseSchedule) -> dict[str, Any]:
    """As a schedule that was made for a model says it."""
    return {"origin": {"noise": noise.to_dict()}}


NOT_INSTALLED = "not installed"


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return NOT_INSTALLED


if __name__ == "__main__":
    main()
