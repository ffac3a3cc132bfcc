"""The package in comfyui/ beside a ComfyUI in miniature; `make comfyui` runs it in a real one."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from test_clients import EARLY, LATE, SAMPLERS, SEEDS, VP, network

import geosprint
from geosprint.integrations.export import SAMPLERS as EXPORTED
from geosprint.models.base import Network
from geosprint.noise import Flow
from geosprint.sampling import SeededNoise
from geosprint.schedule import StepSchedule
from geosprint.tuned import FITTED, Tuned, TunedSteps

PACKAGE = Path(__file__).parents[2] / "comfyui"
NUMBERS = ((0.9, 0.1), (0.8, 0.3, -0.2), (0.7, 0.4, -0.1, 0.05), (0.6, 0.5, -0.1), (0.0, 1.0))
CONVENTIONS = {"euler": "euler", "heun": "heun", "dpmpp-2m-kdiffusion": "dpmpp_2m"}


# ComfyUI in miniature: what its samplers do with the first noise, after its source.


class CONST:
    """A flow's states."""

    def noise_scaling(self, sigma, noise, latent_image, max_denoise=False):
        return sigma * noise + (1 - sigma) * latent_image


class EPS:
    """States of models that preserve variance, divided by the signal."""

    def noise_scaling(self, sigma, noise, latent_image, max_denoise=False):
        return noise * ((1 + sigma**2) ** 0.5 if max_denoise else sigma) + latent_image


class KSAMPLER:
    def __init__(self, sampler_function, extra_options=None):
        self.sampler_function, self.extra_options = sampler_function, extra_options or {}

    def max_denoise(self, model_wrap, sigmas):
        return math.isclose(float(sigmas[0]), model_wrap.inner_model.sigma_max, rel_tol=1e-5)

    def sample(self, model_wrap, sigmas, extra_args, callback, noise, latent_image, denoise_mask, disable_pbar):
        scaling, most = model_wrap.inner_model.model_sampling.noise_scaling, self.max_denoise(model_wrap, sigmas)
        start = scaling(sigmas[0], noise, latent_image, most)
        return self.sampler_function(
            SimpleDenoiser(model_wrap), start, sigmas, extra_args, callback, disable_pbar, **self.extra_options
        )


class SimpleDenoiser:
    def __init__(self, inner_model):
        self.inner_model = inner_model

    def __call__(self, x, sigma, model_options=None):
        """Guided; what listens after guidance is told both predictions."""
        told = self.inner_model.inner_model.denoised(x, float(sigma[0]))
        denoised, conditional = told if isinstance(told, tuple) else (told, told)
        for function in (model_options or {}).get("sampler_post_cfg_function", []):
            denoised = function({"denoised": denoised, "cond_denoised": conditional})
        return denoised


def ksampler(name):
    own = {theirs: SAMPLERS[ours] for ours, theirs in CONVENTIONS.items()}[name]

    def function(model, x, sigmas, extra_args, callback, disable):
        return own(lambda x, sigma: model(x, torch.tensor([sigma])), x, sigmas.tolist())

    return KSAMPLER(function)


def guider_of(model):
    """What a SAMPLER is given as the model."""
    is_flow = isinstance(model.noise, Flow)

    def denoised(x, sigma):
        time = float(model.noise.time_of_sigma(sigma))
        answer = model(x, time) if is_flow else model(x / math.hypot(1, sigma), round(time))
        return tuple(answer.unbind(1)) if answer.ndim > x.ndim else answer

    top = float(model.noise.sigma(model.noise.first))
    sampling = CONST() if is_flow else EPS()
    return SimpleNamespace(inner_model=SimpleNamespace(model_sampling=sampling, sigma_max=top, denoised=denoised))


@pytest.fixture
def comfyui(monkeypatch, tmp_path):
    """The modules that the package imports; files lie in models/geosprint and in input."""
    listed = {}
    for folder in ("models/geosprint", "input"):
        (tmp_path / folder).mkdir(parents=True)
    folders = SimpleNamespace(
        models_dir=str(tmp_path / "models"),
        get_input_directory=lambda: str(tmp_path / "input"),
        folder_names_and_paths=listed,
        add_model_folder_path=lambda name, path: listed.setdefault(name, ([], set()))[0].append(path),
        get_folder_paths=lambda name: listed[name][0],
        get_filename_list=lambda name: sorted(
            found.name for path in listed[name][0] for found in Path(path).iterdir() if found.suffix in listed[name][1]
        ),
        get_full_path=lambda name, file: next(
            (f"{path}/{file}" for path in listed[name][0] if Path(path, file).exists()), None
        ),
    )
    fakes = {
        "comfy": ModuleType("comfy"),
        "comfy.samplers": SimpleNamespace(KSAMPLER=KSAMPLER, ksampler=ksampler),
        "comfy.model_sampling": SimpleNamespace(CONST=CONST, EPS=EPS),
        "folder_paths": folders,
        "comfy_api.latest": None,  # an older ComfyUI has no such module
    }
    for name, module in fakes.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys.modules["comfy"], "samplers", fakes["comfy.samplers"], raising=False)
    return tmp_path


def package(monkeypatch):
    """As ComfyUI imports a directory of custom_nodes."""
    spec = importlib.util.spec_from_file_location("geosprint_nodes", PACKAGE / "__init__.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "geosprint_nodes", module)
    monkeypatch.delitem(sys.modules, "geosprint_nodes.steps", raising=False)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def node(comfyui, monkeypatch):
    """The node, as an older ComfyUI makes it."""
    return package(monkeypatch).NODE_CLASS_MAPPINGS["GeoSprintSteps"]()


def made_for(model):
    return {"model": model.name, "noise": model.noise.to_dict(), "prediction": "x0"}


def steps_of(model, times, solver):
    """Steps at these times, for a known solver or with coefficients of their own."""
    schedule = StepSchedule.at(times, model.noise, {"origin": made_for(model)})
    made = geosprint.FittedSolver(schedule, NUMBERS[: len(times)]) if solver == FITTED else schedule
    return TunedSteps(made, solver)


def drawn(model, sampler, sigmas, latent=0.0, callback=None):
    noise = SeededNoise(SEEDS, model.shape, model.device).draw()
    latent = torch.full_like(noise, latent)
    return sampler.sample(guider_of(model), sigmas, {}, callback, noise, latent, None, True)


@pytest.mark.parametrize("start", ["early", "late"])
@pytest.mark.parametrize("solver", [FITTED, None, *CONVENTIONS])
@pytest.mark.parametrize("noise", [VP, Flow(3.0)], ids=["vp", "flow"])
def test_the_node_draws_what_sample_draws(node, comfyui, noise, solver, start):
    solver = "dpmpp-2m" if noise is VP and solver == "dpmpp-2m-kdiffusion" else solver
    times = LATE if start == "late" else [noise.first, *EARLY[1:]]
    model = network(noise)
    tuned = Tuned((steps_of(model, times, solver),), made_for=made_for(model))
    tuned.save(comfyui / "models/geosprint/steps.json")
    sampler, sigmas = node.execute("steps.json", 0)
    assert (sigmas.dtype, sigmas.tolist()) == (torch.float32, pytest.approx(tuned.result().schedule.sigmas))
    expected = geosprint.sample(model, tuned, SEEDS)
    torch.testing.assert_close(drawn(model, sampler, sigmas), expected, rtol=1e-4, atol=1e-4)


@dataclass(frozen=True, eq=False)
class GuidedNetwork(Network):
    """One that tells what guidance added to 0.5·tanh(x)."""

    tells: bool = False

    def __call__(self, x, t):
        conditional = 0.5 * torch.tanh(x)
        guided = super().__call__(x, t)
        return torch.stack([guided, conditional], dim=1) if self.tells else guided

    def with_conditional(self):
        return replace(self, tells=True)


@pytest.mark.parametrize("noise", [VP, Flow(3.0)], ids=["vp", "flow"])
def test_guided_steps_hear_the_conditional_prediction(node, comfyui, noise):
    model = GuidedNetwork(**network(noise).__dict__)
    more = ((0.9, 0.1, 0.3), (0.8, 0.3, 0.1, -0.2, 0.1), (0.7, 0.4, -0.1), (0.6, 0.5, -0.1), (0.0, 1.0, 0.2))
    fitted = replace(steps_of(model, LATE, FITTED).made, guided=more)
    tuned = Tuned((TunedSteps(fitted, FITTED),), made_for=made_for(model))
    tuned.save(comfyui / "input/steps.json")
    expected = geosprint.sample(model, tuned, SEEDS)
    found = drawn(model.with_conditional(), *node.execute("steps.json", 0))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert (expected - geosprint.sample(model, replace(fitted, guided=()), SEEDS)).abs().max() > 0.01


def test_a_picture_to_start_from_is_noised_by_comfyui(node, comfyui):
    model = network(Flow())
    Tuned((steps_of(model, LATE, "euler"),), made_for=made_for(model)).save(comfyui / "input/steps.json")
    sampler, sigmas = node.execute("steps.json", 0)
    noise = SeededNoise(SEEDS, model.shape, model.device).draw()
    first = sigmas[0] * noise + (1 - sigmas[0]) * 0.5
    expected = SAMPLERS["euler"](lambda x, sigma: model(x, 1000 * sigma), first, sigmas.tolist())
    torch.testing.assert_close(drawn(model, sampler, sigmas, latent=0.5), expected)


def test_a_fitted_sampler_reports_its_steps_and_takes_its_own_sigmas_alone(node, comfyui):
    model, seen = network(VP), []
    Tuned((steps_of(model, LATE, FITTED),), made_for=made_for(model)).save(comfyui / "input/steps.json")
    sampler, sigmas = node.execute("steps.json", 5)
    drawn(model, sampler, sigmas, callback=seen.append)
    assert [one["i"] for one in seen] == [0, 1, 2, 3, 4]
    assert set(seen[0]) == {"x", "i", "sigma", "sigma_hat", "denoised"}
    for others in (sigmas[1:], sigmas * 1.1):
        with pytest.raises(ValueError, match="connect both outputs of the same node GeoSPRINT steps"):
            drawn(model, sampler, others)


def test_files_of_earlier_versions_and_exports_are_read(node, comfyui):
    model, path = network(VP), comfyui / "input/steps.json"
    fitted = steps_of(model, LATE, FITTED).made
    lists = {name: getattr(fitted.schedule, name).tolist() for name in ("timesteps", "sigmas", "log_snr")}
    old = {"coefficients": fitted.coefficients, "provenance": {"origin": made_for(model)}}
    path.write_text(json.dumps({"format": "geosprint-solver", "version": 1, "steps": 5, **lists, **old}))
    expected = geosprint.sample(model, fitted, SEEDS)
    torch.testing.assert_close(drawn(model, *node.execute("steps.json", 0)), expected, rtol=1e-4, atol=1e-4)
    path.write_text(geosprint.export(fitted, "json"))
    torch.testing.assert_close(drawn(model, *node.execute("steps.json", 5)), expected, rtol=1e-4, atol=1e-4)
    schedule = StepSchedule.at(LATE, VP, {"solver": "dpmpp-2m", "origin": made_for(model)})
    expected = geosprint.sample(model, schedule, SEEDS)
    for write in (schedule.save, lambda path: path.write_text(geosprint.export(schedule, "json"))):
        write(path)
        torch.testing.assert_close(drawn(model, *node.execute("steps.json", 0)), expected, rtol=1e-4, atol=1e-4)


def test_one_number_of_steps_is_picked_the_proved_one_if_none_is_named(node, comfyui):
    model = network(VP)
    both = tuple(steps_of(model, times, "ddim") for times in (LATE[:3], LATE))
    path = comfyui / "input/steps.json"
    Tuned(both, proved=3, made_for=made_for(model)).save(path)
    assert [len(node.execute("steps.json", steps)[1]) for steps in (0, 3, 5)] == [4, 4, 6]
    with pytest.raises(ValueError, match="has steps for K = 3, 5: say which one, got 7"):
        node.execute("steps.json", 7)
    Tuned(both, made_for=made_for(model)).save(path)
    with pytest.raises(ValueError, match="has steps for K = 3, 5: say which one, got 0"):
        node.execute("steps.json", 0)
    assert node.IS_CHANGED("steps.json", 0) == path.stat().st_mtime


@pytest.mark.parametrize("content", ["[]", "{}", '{"sigmas": [3, 1]}', '{"sigmas": "3, 0"}'])
def test_other_files_are_refused(node, comfyui, content):
    (comfyui / "input/other.json").write_text(content)
    with pytest.raises(ValueError, match="must hold lists of sigmas that end with 0"):
        node.execute("other.json", 0)


@pytest.mark.parametrize(("noise", "solver"), [(VP, "unipc"), (Flow(), "deis"), (Flow(), "dpmpp-2m")])
def test_a_solver_that_comfyui_has_not_is_refused(node, comfyui, noise, solver):
    model = network(noise)
    Tuned((steps_of(model, LATE, solver),), made_for=made_for(model)).save(comfyui / "input/steps.json")
    with pytest.raises(ValueError, match=f"tuned for {solver}, which ComfyUI does not have for this model; tune for"):
        node.execute("steps.json", 0)


@pytest.mark.parametrize(
    ("made", "here", "told"),
    [(Flow(), VP, "for a flow model, and this is another"), (VP, Flow(), "this is a flow model")],
)
def test_a_model_of_another_kind_is_refused(node, comfyui, made, here, told):
    tuned = Tuned((steps_of(network(made), LATE, "euler"),), made_for=made_for(network(made)))
    tuned.save(comfyui / "input/steps.json")
    with pytest.raises(ValueError, match=told):
        drawn(network(here), *node.execute("steps.json", 0))


def test_a_file_that_is_gone_is_named_with_its_folders(node, comfyui):
    with pytest.raises(ValueError, match=r"there is no gone\.json in .*models/geosprint or .*input: put the file"):
        node.execute("gone.json", 0)


def test_files_are_picked_from_the_folders_of_comfyui_with_tooltips(node, comfyui):
    for name in ("models/geosprint/sd15.json", "input/mine.json", "input/picture.png"):
        (comfyui / name).write_text("")
    asked = node.INPUT_TYPES()["required"]
    assert asked["file"][0] == ["mine.json", "sd15.json"]
    assert asked["steps"][0] == "INT"
    assert all(options["tooltip"] for _, options in asked.values())
    assert node.RETURN_TYPES == ("SAMPLER", "SIGMAS")


def test_a_new_comfyui_gets_the_same_node_by_its_own_schema(comfyui, monkeypatch):
    (comfyui / "input/mine.json").write_text("")
    kinds = ("Combo", "Int", "Sampler", "Sigmas")
    io = SimpleNamespace(ComfyNode=object, Schema=SimpleNamespace, NodeOutput=lambda *given: given)
    for kind in kinds:
        named = SimpleNamespace(
            Input=lambda name, kind=kind, **options: SimpleNamespace(name=name, kind=kind, **options),
            Output=lambda kind=kind: kind,
        )
        setattr(io, kind, named)
    latest = SimpleNamespace(ComfyExtension=object, io=io)
    monkeypatch.setitem(sys.modules, "comfy_api", SimpleNamespace(latest=latest))
    monkeypatch.setitem(sys.modules, "comfy_api.latest", latest)
    module = package(monkeypatch)
    assert not hasattr(module, "NODE_CLASS_MAPPINGS")  # ComfyUI would look no further
    entry = module.comfy_entrypoint()
    with pytest.raises(StopIteration) as extension:
        entry.send(None)
    listed = extension.value.value.get_node_list()
    with pytest.raises(StopIteration) as nodes:
        listed.send(None)
    (node,) = nodes.value.value
    schema = node.define_schema()
    assert (schema.node_id, schema.outputs) == ("GeoSprintSteps", ["Sampler", "Sigmas"])
    assert [(one.name, one.kind) for one in schema.inputs] == [("file", "Combo"), ("steps", "Int")]
    assert schema.inputs[0].options == ["mine.json"]
    assert all(one.tooltip for one in schema.inputs)
    StepSchedule.at(LATE, VP, {}).save(comfyui / "input/mine.json")
    assert len(node.execute("mine.json", 0)[1]) == 6


def test_the_package_is_what_the_registry_takes():
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())
    assert project["project"]["name"] == "geosprint"  # the registry wants no "ComfyUI" in it
    assert project["project"]["version"] == geosprint.__version__
    assert project["project"]["dependencies"] == []
    assert project["tool"]["comfy"].keys() >= {"PublisherId", "DisplayName", "requires-comfyui"}
    assert project["tool"]["comfy"]["PublisherId"] == ""  # docs/comfyui.md says who fills it in
    assert "import geosprint" not in "".join(path.read_text() for path in PACKAGE.glob("*.py"))


def test_the_node_and_the_export_call_solvers_the_same(comfyui, monkeypatch):
    package(monkeypatch)
    assert EXPORTED["comfyui"] == sys.modules["geosprint_nodes.steps"].SAMPLERS


def test_the_workflow_connects_the_node_to_samplercustom():
    workflow = json.loads((PACKAGE / "example_workflows" / "geosprint.json").read_text())
    nodes = {one["id"]: one for one in workflow["nodes"]}
    (ours,) = [one for one in nodes.values() if one["type"] == "GeoSprintSteps"]
    ends = {(link[5], nodes[link[3]]["type"]) for link in workflow["links"] if link[1] == ours["id"]}
    assert ends == {("SAMPLER", "SamplerCustom"), ("SIGMAS", "SamplerCustom")}
