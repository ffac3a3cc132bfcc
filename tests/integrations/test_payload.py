"""What travels in a scheduler's config, now and since the first version, and for which solver it was made."""

from __future__ import annotations

import json
import warnings
from types import SimpleNamespace

import diffusers
import float64_solvers as exact
import numpy as np
import pytest
import tiny_pipelines as tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

import geosprint
from geosprint import FittedSolver, StepSchedule
from geosprint.errors import FileError, ScheduleError
from geosprint.integrations.payload import Payload, Steps
from geosprint.noise import DiscreteVP, Flow
from geosprint.tuned import Tuned, as_tuned

NOISE = DiscreteVP.named("scaled_linear")
SD = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}


def at(times, noise=NOISE, **provenance):
    return StepSchedule.at(times, noise, provenance)


def fitted(times, noise=NOISE):
    return FittedSolver(at(times, noise), tuple((0.5, 0.5) for _ in times))


def tuned(*made, **about):
    return Tuned(tuple(one for each in made for one in as_tuned(each).results), **about)


def pipe_with(kind=diffusers.DDIMScheduler, **config):
    return SimpleNamespace(scheduler=kind(**{**SD, **config}))


# To a dictionary and back.

lists = st.lists(st.floats(0.01, 999.0), min_size=1, max_size=5, unique=True).map(lambda t: tuple(sorted(t)[::-1]))
grids = st.lists(lists, min_size=1, max_size=3, unique_by=len).map(lambda some: tuple(Steps(t, t) for t in some))


@given(
    grids=grids,
    shape=st.none() | st.just((3, 8, 8)),
    shift=st.none() | st.floats(0.5, 9),
    solver=st.none() | st.just("unipc"),
)
def test_a_payload_survives_the_config(grids, shape, shift, solver):
    payload = Payload(grids, shape=shape, shift=shift, solver=solver)
    assert Payload.from_dict(json.loads(json.dumps(payload.to_dict()))) == payload


def test_a_profile_survives_the_config():
    payload = Payload.of(exact.profile_for(NOISE), blend=0.25)
    assert Payload.from_dict(json.loads(json.dumps(payload.to_dict()))) == payload


# As the first versions wrote it.

TIMES = [951.0, 700.0, 30.0]
SIGMAS = [float(NOISE.sigma(t)) for t in TIMES]
OLD = {
    "schedule": {"timesteps": TIMES, "sigmas": [*SIGMAS, 0.0], "shape": [4, 8, 8]},
    "closed form": {"timesteps": TIMES, "sigmas": [*SIGMAS, 0.0]},
    "profile": {"timesteps": TIMES, "sigmas": SIGMAS, "retention": [1.0, 0.5, 0.25], "blend": 0.6, "shape": [4, 8, 8]},
    "fitted": {
        "timesteps": TIMES,
        "sigmas": [*SIGMAS, 0.0],
        "shape": [4, 8, 8],
        "coefficients": [[0.9, 0.1], [0.7, 0.4, -0.3], [0.02, 0.97, -0.6, 0.3]],
    },
}


@pytest.mark.parametrize("kind", OLD)
def test_a_dictionary_of_an_earlier_version_is_read_and_written_as_it_was(kind):
    assert Payload.from_dict(OLD[kind]).to_dict() == OLD[kind]


MODULES = {
    "profile": "schedulers",
    "schedule": "schedulers",
    "closed form": "schedulers",
    "fitted": "fitted_schedulers",
}
NAMES = {
    "schedulers": [
        "GeoSprintDDIMScheduler",
        "GeoSprintDDPMScheduler",
        "GeoSprintDPMSolverMultistepScheduler",
        "GeoSprintDPMSolverSinglestepScheduler",
        "GeoSprintEulerAncestralDiscreteScheduler",
        "GeoSprintEulerDiscreteScheduler",
        "GeoSprintHeunDiscreteScheduler",
        "GeoSprintLCMScheduler",
        "GeoSprintUniPCMultistepScheduler",
    ],
    "fitted_schedulers": ["GeoSprintFittedScheduler"],
}


def saved_by_hand(directory, family, module, name, payload):
    """A pipeline's directory as an earlier version left it."""
    tiny.FAMILIES[family]().save_pretrained(directory)
    index, config = (directory / part for part in ("model_index.json", "scheduler/scheduler_config.json"))
    content = json.loads(index.read_text())
    index.write_text(json.dumps({**content, "scheduler": [f"geosprint.integrations.{module}", name]}))
    config.write_text(json.dumps({**json.loads(config.read_text()), "_class_name": name, "geosprint": payload}))
    return directory


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, module in MODULES.items() for name in NAMES[module]])
def test_a_pipeline_saved_by_an_earlier_version_opens(kind, name, tmp_path):
    pipe = geosprint.load_pipeline(saved_by_hand(tmp_path, "sd15", MODULES[kind], name, OLD[kind]))
    assert type(pipe.scheduler).__name__ == name
    pipe.scheduler.set_timesteps(3)
    times = pipe.scheduler.timesteps.double().numpy()
    times = times[[0, 1, 3]] if pipe.scheduler.order == 2 else times
    if kind == "profile":
        assert len(times) == 3
    else:
        np.testing.assert_array_equal(times, TIMES)


@pytest.mark.parametrize("name", ["GeoSprintFlowMatchEulerScheduler", "GeoSprintFittedFlowMatchScheduler"])
def test_a_flow_pipeline_saved_by_an_earlier_version_opens(name, tmp_path):
    payload = {"timesteps": [1000.0, 640.5], "sigmas": [1.0, 0.6405, 0.0], "shift": 3.0}
    if "Fitted" in name:
        payload["coefficients"] = [[0.9, 0.1], [0.0, 1.0, -0.2]]
    module = "fitted_schedulers" if "Fitted" in name else "schedulers"
    pipe = geosprint.load_pipeline(saved_by_hand(tmp_path, "sd3", module, name, payload))
    assert type(pipe.scheduler).__name__ == name
    assert tiny.drawn(pipe, "sd3", 2).shape[0] == 1
    np.testing.assert_allclose(pipe.scheduler.timesteps, [1000.0, 640.5])


# Several numbers of steps, and files.


@pytest.mark.parametrize("make", [at, fitted], ids=["schedules", "fitted solvers"])
@pytest.mark.parametrize(
    "scheduler", [diffusers.DDIMScheduler(**SD), diffusers.FlowMatchEulerDiscreteScheduler()], ids=["vp", "flow"]
)
def test_num_inference_steps_selects_among_several(make, scheduler, tmp_path):
    noise = NOISE if isinstance(scheduler, diffusers.DDIMScheduler) else Flow()
    lists = {2: [900.0, 200.0], 3: [950.0, 600.0, 50.0]}
    several = tuned(*(make(times, noise) for times in lists.values()))
    pipe = geosprint.apply(SimpleNamespace(scheduler=scheduler), several)
    pipe.scheduler.save_pretrained(tmp_path)
    for ours in (pipe.scheduler, type(pipe.scheduler).from_pretrained(tmp_path)):
        for number, times in lists.items():
            ours.set_timesteps(number)
            np.testing.assert_allclose(ours.timesteps, times)
        with pytest.raises(ScheduleError, match=r"steps for K = 2, 3, but 4 were asked for; ask for one of these"):
            ours.set_timesteps(4)
        with pytest.raises(ScheduleError, match=r"K = 2, 3, but None were asked for"):
            ours.set_timesteps(None)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ((at([900.0, 20.0], solver="ddim"), fitted(TIMES)), r"2 for ddim, 3 for fitted\); apply one.*tuned\[2\]"),
        ((fitted([900.0, 20.0]), at(TIMES)), "2 for fitted, 3 for any"),
        ((at([900.0, 20.0], solver="ddim"), at(TIMES, solver="unipc")), "2 for ddim, 3 for unipc"),
    ],
)
def test_steps_for_several_solvers_do_not_go_into_one_scheduler(made, said):
    pipe = pipe_with()
    with pytest.raises(ScheduleError, match=f"takes one solver, and these .* for several .*{said}"):
        geosprint.apply(pipe, tuned(*made))
    assert type(pipe.scheduler) is diffusers.DDIMScheduler


def test_one_of_several_fitted_solvers_takes_its_own_steps():
    one, other = fitted([900.0, 200.0]), FittedSolver(at([950.0, 600.0, 50.0]), ((0.1, 0.2), (0.3, 0.4), (0.5, 0.6)))
    pipe = geosprint.apply(pipe_with(clip_sample=False), tuned(one, other))
    alone = geosprint.apply(pipe_with(clip_sample=False), other)
    ends = []
    for scheduler in (pipe.scheduler, alone.scheduler):
        scheduler.set_timesteps(3)
        x = torch.ones(1, 4)
        for t in scheduler.timesteps:
            x = scheduler.step(0.1 * x, t, x).prev_sample
        ends.append(x)
    assert torch.equal(*ends)


@pytest.mark.parametrize(
    "made",
    [exact.profile_for(NOISE), at(TIMES), tuned(fitted(TIMES)), tuned(at(TIMES[:2]), at(TIMES))],
    ids=["profile", "schedule", "solver", "several"],
)
def test_a_file_is_applied_as_what_it_holds(made, tmp_path):
    path = made.save(tmp_path / "made.json")
    for file in (path, str(path)):
        found, expected = (geosprint.apply(pipe_with(), one).scheduler for one in (file, made))
        assert (type(found), found.config.geosprint) == (type(expected), expected.config.geosprint)


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "other.json").write_text('{"format": "geosprint-comparison", "version": 1}')
    with pytest.raises(FileError, match=r"other\.json must be a geosprint-tuned, .*'geosprint-comparison'"):
        geosprint.apply(pipe_with(), tmp_path / "other.json")


# For which solver.

MULTISTEP = diffusers.DPMSolverMultistepScheduler
SOLVERS = {
    "ddim": pipe_with(),
    "ddpm": pipe_with(diffusers.DDPMScheduler),
    "heun": pipe_with(diffusers.HeunDiscreteScheduler),
    "dpmpp-2m": pipe_with(MULTISTEP),
    "unipc": pipe_with(diffusers.UniPCMultistepScheduler),
    "DPMSolverMultistepScheduler": pipe_with(MULTISTEP, solver_order=3),
    "EulerAncestralDiscreteScheduler": pipe_with(diffusers.EulerAncestralDiscreteScheduler),
}


@pytest.mark.parametrize("here", SOLVERS)
@pytest.mark.parametrize("tuned_for", ["ddim", "heun", "dpmpp-2m", "unipc", "deis"])
def test_steps_that_were_tuned_for_another_solver_are_a_warning_that_names_both(tuned_for, here):
    pipe = SimpleNamespace(scheduler=SOLVERS[here].scheduler)
    made = at(TIMES, method="tuned", solver=tuned_for)
    if tuned_for == here:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            geosprint.apply(pipe, made)
    else:
        with pytest.warns(UserWarning, match=f"tuned for the solver {tuned_for}, and .* steps by {here};"):
            geosprint.apply(pipe, made)


@pytest.mark.parametrize("tuned_for", ["ddim", "euler"])
@pytest.mark.parametrize(
    "pipe",
    [
        pipe_with(),
        pipe_with(diffusers.EulerDiscreteScheduler),
        pipe_with(MULTISTEP, solver_order=1),
        pipe_with(diffusers.DPMSolverSinglestepScheduler, solver_order=1),
    ],
    ids=lambda pipe: type(pipe.scheduler).__name__,
)
def test_solvers_that_take_the_same_step_are_the_same(pipe, tuned_for):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        geosprint.apply(SimpleNamespace(scheduler=pipe.scheduler), at(TIMES, solver=tuned_for))


@pytest.mark.parametrize(
    "made", [at(TIMES), exact.profile_for(NOISE), fitted(TIMES)], ids=lambda made: type(made).__name__
)
def test_what_was_tuned_for_no_solver_suits_all(made):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        geosprint.apply(pipe_with(MULTISTEP), made)


def test_the_solver_is_remembered_through_a_swap_of_schedulers():
    pipe = geosprint.apply(pipe_with(), tuned(at([900.0, 20.0]), at(TIMES, solver="ddim")))
    pipe.scheduler = MULTISTEP.from_config(pipe.scheduler.config)
    with pytest.warns(UserWarning, match="tuned for the solver ddim, and .* steps by dpmpp-2m"):
        geosprint.apply(pipe)


@pytest.mark.parametrize("kind", ["DPMSolverMultistepScheduler", "UniPCMultistepScheduler", "EulerDiscreteScheduler"])
def test_a_schedule_in_place_of_a_fitted_solver_is_stepped_by_the_solver_of_before(kind):
    pipe = geosprint.apply(pipe_with(getattr(diffusers, kind)), fitted(TIMES))
    solver = {"DPM": "dpmpp-2m", "Uni": "unipc", "Eul": "euler"}[kind[:3]]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        geosprint.apply(pipe, at(TIMES, solver=solver))
    assert type(pipe.scheduler).__name__ == f"GeoSprint{kind}"
