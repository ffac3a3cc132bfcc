from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from geosprint import trajectory
from geosprint.errors import FileError, GeometryError, GeoSprintError
from geosprint.models.exact import ring
from geosprint.models.networks import Card, PretrainedModel
from geosprint.noise import CLEAN, ContinuousVP, DiscreteVP, Flow
from geosprint.trajectory import Origin, Trajectories
from problems import centred_gram, random_walk, smooth_curve

NOISE = DiscreteVP.named(timesteps=50)
ORIGIN = Origin("toy", (2, 10), NOISE, "eps", 1.0, 2, "ddim", 0.5)
TIMES = np.array([49.0, 30.0, 20.0, 11.0, 4.0, 0.0, CLEAN])


def toy(count=3, dimensions=20, predictions=True, dtype=torch.float64):
    states = np.stack([smooth_curve(seed, len(TIMES), dimensions) for seed in range(count)])
    x0 = np.stack([random_walk(seed, len(TIMES) - 1, dimensions) for seed in range(count)])
    eps = np.stack([random_walk(seed + 99, len(TIMES) - 1, dimensions) for seed in range(count)])
    return Trajectories(
        torch.tensor(states, dtype=dtype),
        TIMES,
        tuple(range(100, 100 + count)),
        ORIGIN,
        x0=torch.tensor(x0, dtype=dtype) if predictions else None,
        eps=torch.tensor(eps, dtype=dtype) if predictions else None,
    )


def all_vectors(one):
    return torch.cat([one.states, one.x0, one.eps], dim=1).double().numpy()


# Normalisation


@pytest.mark.parametrize("how", ["time", "pooled", "none"])
def test_the_gram_matrices_are_those_of_the_normalised_states(how):
    one = toy()
    one.states[:, :, 4] = 7.0
    direct = one.states.numpy()
    if how != "none":
        axes = 1 if how == "time" else (0, 1)
        spread = direct.std(axis=axes, keepdims=True)
        direct = direct / np.where(spread > 1e-9, spread, 1)
    assert one.gram(how) == pytest.approx(centred_gram(direct), abs=1e-9)


def test_the_gram_matrices_of_single_precision_states_are_accurate():
    single, double = toy(dtype=torch.float32), toy()
    exact = double.gram("time")
    assert single.gram("time") == pytest.approx(exact, abs=1e-5 * np.abs(exact).max())


def test_taking_gram_matrices_leaves_the_states_as_they_were():
    one = toy()
    before = one.states.clone()
    for how in ("time", "pooled", "none"):
        one.gram(how)
    assert torch.equal(one.states, before)


# Spaces


def test_ve_states_are_states_over_the_signal():
    one = toy()
    alphas = np.cumprod(1 - np.linspace(1e-4, 0.02, 50))
    signal = np.sqrt(np.append(alphas[TIMES[:-1].astype(int)], 1.0))
    assert one.states_in("ve").numpy() == pytest.approx(one.states.numpy() / signal[:, None], rel=1e-6)
    assert torch.equal(one.states_in("ve", slice(1, 3)), one.states_in("ve")[1:3])


def test_the_x0_space_holds_the_predictions_and_the_clean_end():
    one = toy()
    states = one.states_in("x0")
    assert torch.equal(states[:, :-1], one.x0)
    assert torch.equal(states[:, -1], one.states[:, -1])


def test_the_states_as_recorded_are_not_copied():
    one = toy()
    assert torch.equal(one.states_in("vp"), one.states)
    assert one.states_in("vp").data_ptr() == one.states.data_ptr()


@pytest.mark.parametrize("space", ["vp", "ve", "x0"])
def test_the_gram_matrices_of_a_space_are_those_of_its_states(space):
    one = toy()
    direct = one.states_in(space).numpy()
    assert one.gram("none", space) == pytest.approx(centred_gram(direct), abs=1e-9)
    direct = direct / direct.std(axis=(0, 1), keepdims=True)
    assert one.gram("pooled", space) == pytest.approx(centred_gram(direct), abs=1e-9)


def test_the_ve_space_is_refused_where_no_signal_is_left():
    zero = DiscreteVP.named(timesteps=50, zero_terminal_snr=True)
    one = replace(toy(), origin=replace(ORIGIN, noise=zero))
    with pytest.raises(GeometryError, match="signal"):
        one.states_in("ve")


def test_the_x0_space_needs_predictions():
    with pytest.raises(GeometryError, match="predictions=True"):
        toy(predictions=False).states_in("x0")


def test_an_unknown_space_is_refused():
    with pytest.raises(GeometryError, match="vp, ve, x0, got 'vq'"):
        toy().states_in("vq")


def test_an_unknown_normalisation_is_refused():
    with pytest.raises(GeometryError, match="time, pooled, none, got 'each'"):
        toy().gram("each")


def test_trajectories_are_shown_in_one_short_line():
    assert repr(toy(predictions=False)) == "Trajectories(toy: 3 of 7 states in 20 dimensions)"
    assert repr(toy()) == "Trajectories(toy: 3 of 7 states in 20 dimensions, with predictions)"


# Bad input


@pytest.mark.parametrize(
    ("states", "seeds", "got"),
    [
        (torch.zeros(7, 20), (0,), r"\(7, 20\)"),
        (torch.zeros(2, 7, 20), (0, 1, 2), r"\(2, 7, 20\)"),
        (torch.zeros(3, 6, 20), (0, 1, 2), r"\(3, 6, 20\)"),
    ],
)
def test_states_of_the_wrong_shape_are_refused_with_both_shapes(states, seeds, got):
    with pytest.raises(GeometryError, match=rf"\({len(seeds)}, 7, any\), got {got}"):
        Trajectories(states, TIMES, seeds, ORIGIN)


@pytest.mark.parametrize("name", ["x0", "eps"])
def test_predictions_of_the_wrong_shape_are_refused(name):
    with pytest.raises(GeometryError, match=rf"{name} must have shape \(3, 6, 20\), got \(3, 7, 20\)"):
        replace(toy(), **{name: torch.zeros(3, 7, 20)})


@pytest.mark.parametrize(
    "times",
    [
        [0.0, 4, 11, 20, 30, 49, CLEAN],
        [49.0, 30, 20, 20, 4, 0, CLEAN],
        [49.0, 30, 20, 11, 4, 2, 0],
        [49.0, 30, np.nan, 11, 4, 0, CLEAN],
    ],
    ids=["rising", "repeated", "no clean end", "nan"],
)
def test_timesteps_that_do_not_fall_strictly_to_the_clean_end_are_refused(times):
    with pytest.raises(GeometryError, match="fall strictly"):
        replace(toy(), timesteps=np.array(times))


def test_recordings_join_seed_by_seed():
    one = toy(4)
    parts = [
        replace(one, states=one.states[i], x0=one.x0[i], eps=one.eps[i], seeds=tuple(np.array(one.seeds)[i]))
        for i in ([0, 1], [2], [3])
    ]
    whole = Trajectories.joined(parts)
    assert torch.equal(whole.states, one.states)
    assert torch.equal(whole.eps, one.eps)
    assert whole.seeds == one.seeds


def test_recordings_on_different_timesteps_do_not_join():
    one = toy()
    other = replace(one, timesteps=np.array([49.0, 31, 20, 11, 4, 0, CLEAN]))
    with pytest.raises(GeoSprintError, match="timesteps"):
        Trajectories.joined([one, other])


# Files


@pytest.mark.parametrize("noise", [NOISE, DiscreteVP(np.linspace(0.99, 0.01, 50), 0.995), ContinuousVP(), Flow(3.0)])
@pytest.mark.parametrize("predictions", [True, False])
def test_a_file_gives_back_what_was_saved(tmp_path, noise, predictions):
    one = replace(toy(predictions=predictions), origin=replace(ORIGIN, noise=noise))
    back = Trajectories.load(one.save(tmp_path / "deep" / "walks.safetensors"))
    assert torch.equal(back.states, one.states)
    assert back.timesteps.tolist() == one.timesteps.tolist()
    assert back.seeds == one.seeds
    assert (back.x0 is None) == (one.x0 is None)
    assert predictions is False or torch.equal(back.eps, one.eps)
    assert back.origin.to_dict() == one.origin.to_dict()
    assert back.origin.noise.same_as(noise)
    assert back.origin.shape == (2, 10)


@pytest.mark.parametrize("length", [0, 4, 40, 400, -1])
def test_a_truncated_file_is_refused_by_name(tmp_path, length):
    path = toy().save(tmp_path / "walks.safetensors")
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(FileError, match=r"walks\.safetensors"):
        Trajectories.load(path)


def test_a_missing_file_and_a_directory_are_refused_by_name(tmp_path):
    with pytest.raises(FileError, match=r"nowhere\.safetensors"):
        Trajectories.load(tmp_path / "nowhere.safetensors")
    with pytest.raises(FileError, match=r"cannot read|must be a file"):
        Trajectories.load(tmp_path)


def edited(path, change):
    """The file at path with its header changed by hand."""
    tensors = load_file(path)
    with safe_open(path, framework="pt") as file:
        about = json.loads(file.metadata()["geosprint"])
    change(about, tensors)
    save_file(tensors, path, {"geosprint": json.dumps(about)})


def _drop(key):
    return lambda about, tensors: about.pop(key)


def _set(key, value):
    return lambda about, tensors: about.__setitem__(key, value)


def _tensor(name, value):
    return lambda about, tensors: tensors.__setitem__(name, value)


DAMAGE = {
    "another version": (_set("version", 99), "version 1, got 99"),
    "another format": (_set("format", "geosprint-profile"), "geosprint-trajectories.*'geosprint-profile'"),
    "no timesteps": (_drop("timesteps"), "'timesteps' is missing"),
    "no origin": (_drop("origin"), "'origin' is missing"),
    "timesteps that rise": (_set("timesteps", [0, 1, 2, 3, 4, 5, -1]), "fall strictly"),
    "timesteps that are words": (_set("timesteps", ["a"] * 7), "finite numbers"),
    "too few timesteps": (_set("timesteps", [5, 0, -1]), r"got \(3, 7, 20\)"),
    "too few seeds": (_set("seeds", [1]), r"got \(3, 7, 20\)"),
    "seeds that are words": (_set("seeds", ["a", "b", "c"]), "damaged"),
    "an unknown space": (_set("space", "xyz"), "'xyz'"),
    "states in another space": (_set("space", "ve"), "must be as recorded, .*'vp'.* are .*'ve'"),
    "normalised states": (_set("normalisation", "time"), "must be as recorded, .*'none'.* are .*'time'"),
    "compressed states": (_set("compressed", True), "must be as recorded"),
    "an origin that is a list": (_set("origin", [1, 2]), "damaged"),
    "a noise schedule of no kind": (_set("origin", {**ORIGIN.to_dict(), "noise": {"kind": "no"}}), "'no'"),
    "a nan among the states": (_tensor("states", torch.full((3, 7, 20), float("nan"))), "nan or infinity"),
    "states of another shape": (_tensor("states", torch.zeros(3, 5, 20)), r"\(3, 5, 20\)"),
    "an unknown tensor": (_tensor("more", torch.zeros(1)), "unknown tensors"),
    "no states": (lambda about, tensors: tensors.pop("states"), "states"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_hand_edited_file_is_refused_by_name_and_reason(tmp_path, what):
    change, message = DAMAGE[what]
    path = toy().save(tmp_path / "walks.safetensors")
    edited(path, change)
    with pytest.raises(FileError, match=message) as refused:
        Trajectories.load(path)
    assert "walks.safetensors" in str(refused.value)


def test_a_safetensors_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file({"states": torch.zeros(3, 7, 20)}, path)
    with pytest.raises(FileError, match=r"weights\.safetensors must be a geosprint-trajectories file"):
        Trajectories.load(path)


@pytest.mark.parametrize("wrong", [OSError(28, "No space left on device"), SafetensorError("I/O error: no space left")])
def test_a_failed_save_keeps_the_old_file_and_leaves_nothing_half_written(tmp_path, monkeypatch, wrong):
    path = toy().save(tmp_path / "walks.safetensors")
    before = path.read_bytes()

    def half_written(tensors, to, metadata):
        to.write_bytes(b"half")
        raise wrong

    monkeypatch.setattr(trajectory, "save_file", half_written)
    with pytest.raises(FileError, match=r"cannot write .*walks\.safetensors"):
        toy(2).save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["walks.safetensors"]


# Conditions


@pytest.mark.parametrize(
    ("labels", "guidance", "stored"),
    [
        (None, 1.0, {}),
        ([3], 1.0, {"label": 3, "guidance": 1.0}),
        ([3, 3, 3], 2.5, {"label": 3, "guidance": 2.5}),
        ([5, 1, 5, 0], 2.0, {"label": [0, 1, 5], "guidance": 2.0}),
    ],
)
def test_the_origin_stores_what_a_network_was_asked_to_draw(tmp_path, labels, guidance, stored):
    card = Card("toy", NOISE, "eps", 1.0, (2, 10), 1, 10, "")
    wanted = None if labels is None else torch.tensor(labels)
    origin = Origin.of(PretrainedModel(card, torch.nn.Linear(1, 1), wanted, guidance), "ddim", 0.0)
    assert origin.conditions == stored
    path = replace(toy(), origin=origin).save(tmp_path / "t.safetensors")
    assert Trajectories.load(path).origin.conditions == stored


def test_a_model_that_says_no_conditions_has_none():
    assert Origin.of(ring(), "ddim", 0.0).conditions == {}


def test_an_origin_written_before_there_were_conditions_is_still_read():
    described = ORIGIN.to_dict()
    del described["conditions"]
    assert Origin.from_dict(described).to_dict() == ORIGIN.to_dict()
