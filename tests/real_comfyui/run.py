"""The package in comfyui/ inside a real ComfyUI, asked over HTTP, against `geosprint.sample`: `make comfyui`.

python tests/real_comfyui/run.py COMFYUI_DIRECTORY PYTHON_OF_COMFYUI
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import types
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import geosprint
from geosprint.models.base import Model
from geosprint.models.exact import Mixture
from geosprint.noise import DiscreteVP, Flow
from geosprint.schedule import StepSchedule
from geosprint.tuned import FITTED, Tuned, TunedSteps

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
PORT, SEED, AGREES, GUIDANCE = 8199, 7, 1e-5, 3.0
GUIDED = "fitted, guided"
STUBS = {
    "torchvision": "from . import transforms",
    "torchvision/transforms": "from . import functional",
    "torchvision/transforms/functional": "",
    "torchaudio": "",
    "torchaudio/transforms": "MelScale = None",
}
"""Where torchvision and torchaudio cannot be had: ComfyUI imports them at its start, and no node here uses them."""
EARLY, LATE = [999.0, 800.0, 600.0, 350.0, 80.0], [700.0, 550.0, 400.0, 230.0, 60.0]
SOLVERS = {
    "vp": (FITTED, GUIDED, "ddim", "heun", "dpmpp-2m"),
    "flow": (FITTED, GUIDED, "euler", "heun", "dpmpp-2m-kdiffusion"),
}


def main(comfyui: Path, python: str) -> None:
    """Every solver, early and late, by our node; sigmas alone by ComfyUI's own; and what must be refused."""
    inputs = comfyui / "models" / "geosprint"
    with running(comfyui, python) as ask:
        worst = 0.0
        for kind, solvers in SOLVERS.items():
            model = exact_model(kind)
            for start, times in (("early", EARLY), ("late", LATE)):
                if kind == "flow" and start == "early":
                    times = [1000.0, *times[1:]]
                expected = {}
                for solver in solvers:
                    made, cfg = made_by(model, times, solver), GUIDANCE if solver == GUIDED else 1.0
                    made.save(inputs / "steps.json")
                    expected[solver] = geosprint.sample(replace(model, guidance=cfg), made, [SEED])
                    error = apart(ask(workflow(kind, "steps.json", cfg=cfg)), expected[solver])
                    print(f"{kind:<5} {start:<6} {solver:<20} {error:.1e} from geosprint.sample", flush=True)
                    worst = max(worst, error)
                assert all(apart(*pair) > 100 * AGREES for pair in combinations(expected.values(), 2))
                if "ManualSigmas" in get("object_info"):  # older versions have no such node
                    sigmas_alone(ask, model, kind, times, start == "late")
        assert worst < AGREES, f"ComfyUI is {worst:.1e} from geosprint.sample, at most {AGREES:g} was expected"
        refusals(ask, inputs)
    print(f"all within {AGREES:g}")


@dataclass(frozen=True, eq=False)
class GuidedMixture(Mixture):
    """The model of the test node, in our own words: guided away from all modes, towards the first ones."""

    conditional: Mixture | None = None
    guidance: float = 1.0
    tells: bool = False

    def __call__(self, x: torch.Tensor, t: float) -> torch.Tensor:
        conditional, all_modes = self.conditional(x, t), super().__call__(x, t)
        guided = all_modes + self.guidance * (conditional - all_modes)
        return torch.stack([guided, conditional], dim=1) if self.tells else guided

    def with_conditional(self) -> GuidedMixture:
        return replace(self, tells=True)


def exact_model(kind: str) -> GuidedMixture:
    """Of a variance-preserving model or of a flow."""
    node = analytic_node()
    noise = Flow() if kind == "flow" else DiscreteVP.named("scaled_linear")
    means, rest = node.means(), (node.DEVIATION, noise)
    return GuidedMixture(means, *rest, conditional=Mixture(means[: node.CONDITIONAL], *rest))


def analytic_node() -> Any:
    """The test node's module beside a ComfyUI that is not there: only its numbers are wanted."""
    for name in ("model_base", "model_management", "model_patcher", "supported_models_base"):
        sys.modules.setdefault("comfy", types.ModuleType("comfy"))
        sys.modules.setdefault(f"comfy.{name}", types.ModuleType(f"comfy.{name}"))
    spec = importlib.util.spec_from_file_location("analytic_model", HERE / "analytic_model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def made_by(model: Model, times: list[float], solver: str) -> Tuned:
    """Steps at these times for a solver; fitted ones have coefficients that no known solver has."""
    schedule = StepSchedule.at(times, model.noise, {})
    origin = {"noise": model.noise.to_dict(), "prediction": "x0", "model": model.name}
    if solver not in (FITTED, GUIDED):
        return Tuned((TunedSteps(schedule, solver),), made_for=origin)
    known = geosprint.fitted_solver.known_coefficients("unipc", model.noise, times, 3)
    own = tuple(tuple(1.01 * c for c in step) for step in known)
    added = tuple((kept, *(number for c in rest for number in (c, 0.1 * c))) for kept, *rest in own)
    made = geosprint.FittedSolver(schedule, own, added if solver == GUIDED else ())
    return Tuned((TunedSteps(made, FITTED),), made_for=origin)


def workflow(kind: str, file: str, steps: int = 0, cfg: float = 1.0) -> dict:
    """Our node into SamplerCustom."""
    node = {"class_type": "GeoSprintSteps", "inputs": {"file": file, "steps": steps}}
    return wired(kind, node, ["3", 0], ["3", 1], cfg)


def wired(kind: str, third: dict, sampler: list, sigmas: list, cfg: float = 1.0, **more: dict) -> dict:
    """Noise to latents in ComfyUI's own format."""
    asked = {"add_noise": True, "noise_seed": SEED, "cfg": cfg, "model": ["1", 0], "latent_image": ["2", 0]}
    wires = {"positive": ["1", 1], "negative": ["1", 2], "sampler": sampler, "sigmas": sigmas}
    return {
        "1": {"class_type": "AnalyticModel", "inputs": {"kind": kind}},
        "2": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 1}},
        "3": third,
        **more,
        "9": {"class_type": "SamplerCustom", "inputs": {**asked, **wires}},
        "10": {"class_type": "SaveLatent", "inputs": {"samples": ["9", 0], "filename_prefix": "test"}},
    }


def sigmas_alone(ask: Callable, model: Model, kind: str, times: list[float], is_late: bool) -> None:
    """`export --to comfyui` with a sampler of ComfyUI: the same picture, or less noise by what the warning says."""
    schedule = StepSchedule.at(times, model.noise, {"solver": "euler", "origin": {"noise": model.noise.to_dict()}})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        text = geosprint.export(schedule, "comfyui")
    lacks = [float(re.search(r"noise ([\d.]+) times smaller", str(one.message))[1]) for one in caught]
    assert len(lacks) == is_late, lacks
    given = {"class_type": "ManualSigmas", "inputs": {"sigmas": text.strip()}}
    chosen = {"class_type": "KSamplerSelect", "inputs": {"sampler_name": "euler"}}
    found = ask(wired(kind, given, ["4", 0], ["3", 0], **{"4": chosen}))
    error = apart(found, geosprint.sample(model, schedule, [SEED]))
    print(f"{kind:<5} {'late' if is_late else 'early':<6} sigmas alone, euler  {error:.1e}", flush=True)
    assert (error > 100 * AGREES) == is_late


def refusals(ask: Callable, inputs: Path) -> None:
    """Each with a sentence that ComfyUI shows."""
    flow = exact_model("flow")
    made_by(flow, LATE, "dpmpp-2m").save(inputs / "log-snr.json")
    both = [made_by(flow, times, "euler").results[0] for times in (LATE[:3], LATE)]
    Tuned(tuple(both), made_for=made_by(flow, LATE, "euler").made_for).save(inputs / "both.json")
    for asked, told in (
        (workflow("flow", "nowhere.json"), "Value not in list|there is no nowhere.json in .*models/geosprint"),
        (workflow("flow", "log-snr.json"), "was tuned for dpmpp-2m, which ComfyUI does not have for this model"),
        (workflow("vp", "both.json", 5), "was made for a flow model, and this is another: tune for this one"),
        (workflow("flow", "both.json"), "has steps for K = 3, 5: say which one, got 0"),
    ):
        with pytest.raises(RuntimeError, match=told):
            ask(asked)


def apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference."""
    assert found.shape == expected.shape
    return float((found - expected).abs().max())


@contextlib.contextmanager
def running(comfyui: Path, python: str) -> Iterator[Callable[[dict], torch.Tensor]]:
    """A server with our package and the test model; what it gives runs a workflow and returns its latents."""
    nodes = comfyui / "custom_nodes"
    shutil.rmtree(nodes / "geosprint", ignore_errors=True)
    shutil.copytree(ROOT / "comfyui", nodes / "geosprint", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(HERE / "analytic_model.py", nodes)
    (comfyui / "models" / "geosprint").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as stubs:
        for name, text in STUBS.items():
            (Path(stubs) / name).mkdir()
            (Path(stubs) / name / "__init__.py").write_text(text)
        with open(comfyui / "server.log", "w") as log:
            server = subprocess.Popen(
                [python, "main.py", "--cpu", "--port", str(PORT), "--output-directory", f"{stubs}/output"],
                cwd=comfyui,
                env={**os.environ, "PYTHONPATH": "" if has_torchvision(python) else stubs},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_for_server(server, comfyui / "server.log")
            yield lambda asked: latents_of(asked, Path(stubs) / "output")
        finally:
            server.terminate()
            server.wait()


def has_torchvision(python: str) -> bool:
    """Whether the real one is there."""
    return subprocess.run([python, "-c", "import torchvision, torchaudio"], capture_output=True).returncode == 0


def wait_for_server(server: subprocess.Popen, log: Path) -> None:
    """Until it knows our node."""
    for _ in range(120):
        time.sleep(1)
        if server.poll() is not None:
            raise RuntimeError(f"ComfyUI ended:\n{log.read_text()[-2000:]}")
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            assert "GeoSprintSteps" in get("object_info"), log.read_text()[-2000:]
            return
    raise RuntimeError(f"ComfyUI did not answer:\n{log.read_text()[-2000:]}")


def get(path: str, posted: dict | None = None) -> Any:
    """JSON from the server."""
    data = None if posted is None else json.dumps(posted).encode()
    with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{PORT}/{path}", data)) as answer:
        return json.loads(answer.read() or "null")


def latents_of(asked: dict, output: Path) -> torch.Tensor:
    """What the workflow saved; its error, if it ended with one."""
    try:
        name = get("prompt", {"prompt": asked})["prompt_id"]
    except urllib.error.HTTPError as refused:
        raise RuntimeError(refused.read().decode()) from refused
    while not (done := get(f"history/{name}")):
        time.sleep(0.1)
    if done[name]["status"]["status_str"] != "success":
        raise RuntimeError(str(done[name]["status"]["messages"]))
    (saved,) = done[name]["outputs"]["10"]["latents"]
    return load_file(output / saved["subfolder"] / saved["filename"])["latent_tensor"]


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), os.path.abspath(sys.argv[2]))
