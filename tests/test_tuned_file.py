"""The file of what `tune` and `fit` make: its layout, its schema, what it brings back and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import geosprint
from geosprint import FittedSolver, StepSchedule
from geosprint.errors import FileError, ScheduleError
from geosprint.estimates import Estimate
from geosprint.models.exact import ring
from geosprint.models.fingerprint import made_for
from geosprint.noise import DiscreteVP, Flow
from geosprint.trajectory import Origin
from geosprint.tuned import FITTED, OURS, TODAY, Today, Tuned, TunedSteps, as_tuned

PRINTED = st.characters(exclude_categories=("Cs", "Cc", "Cf"))  # files hold nothing that commands a terminal
SCHEMA = json.loads((Path(__file__).parent.parent / "docs" / "tuned.schema.json").read_text(encoding="utf-8"))
NOISE = DiscreteVP.named()


def validate(path):
    Draft202012Validator.check_schema(SCHEMA)
    Draft202012Validator(SCHEMA).validate(json.loads(Path(path).read_text(encoding="utf-8")))


def at(times, noise=NOISE, **provenance):
    return StepSchedule.at(times, noise, provenance)


def fitted(times, numbers=None, noise=NOISE):
    return FittedSolver(at(times, noise, method="tuned and fitted"), numbers or tuple((0.5, 0.5) for _ in times))


def example():
    """Two fitted numbers of steps, of which the larger one is proved."""
    errors = {OURS: np.array([0.125, 0.25, 0.5]), TODAY: np.array([0.25, 0.25, 0.5])}
    return Tuned(
        (
            TunedSteps(fitted([999.0, 300.0]), FITTED, errors, Estimate(12.5, 11.0, 14.0)),
            TunedSteps(fitted([999.0, 600.0, 30.0], ((0.9, 0.1), (0.7, 0.4, -0.3), (0.0, 1.0))), FITTED, errors),
        ),
        Today("ddim", 50, "uniform-trailing"),
        proved=3,
        made_for=made_for(geosprint.load_model("fashion", 3, 2.0)),
        seed=7,
        nfe=20_000,
    )


# What a file brings back.

falling = st.lists(st.integers(0, 999), min_size=1, max_size=6, unique=True).map(lambda t: sorted(t, reverse=True))
amounts = st.floats(0.0, 10.0).map(lambda x: float(f"{x:.6g}"))


@st.composite
def some_tuned(draw):
    lists = draw(st.lists(falling, min_size=1, max_size=3, unique_by=len))
    samples = draw(st.integers(1, 4))
    results = []
    for times in sorted(lists, key=len):
        solver = draw(st.sampled_from([FITTED, "ddim", "unipc", None]))
        numbers = [
            tuple(draw(st.lists(st.floats(-9, 9), min_size=2, max_size=min(i, 3) + 2))) for i in range(len(times))
        ]
        made = FittedSolver(at(times), tuple(numbers)) if solver == FITTED else at(times)
        names = draw(st.lists(st.sampled_from([OURS, TODAY, "ddim"]), unique=True))
        errors = {name: np.array(draw(st.lists(amounts, min_size=samples, max_size=samples))) for name in names}
        worth = draw(st.none() | st.tuples(amounts, amounts, amounts).map(lambda three: Estimate(*three)))
        results.append(TunedSteps(made, solver, errors, worth))
    return Tuned(
        tuple(results),
        draw(st.none() | st.builds(Today, st.text(PRINTED, max_size=5), st.integers(1, 100), st.just("karras"))),
        draw(st.none() | st.sampled_from([one.steps for one in results])),
        draw(st.sampled_from(["rmse", "classifier"])),
        draw(st.sampled_from([{}, Origin.of(ring(), "ddim", 0.0).to_dict()])),
        draw(st.integers(0, 2**40)),
        draw(st.integers(0, 2**40)),
    )


@settings(max_examples=40, deadline=None)  # it writes to the disk, and waits for it
@given(tuned=some_tuned())
def test_a_file_brings_back_everything_and_follows_the_schema(tuned, tmp_path_factory):
    path = tuned.save(tmp_path_factory.mktemp("round") / "tuned.json")
    validate(path)
    again = Tuned.load(path)
    for name in ("today", "proved", "measure", "made_for", "seed", "nfe", "steps"):
        assert getattr(again, name) == getattr(tuned, name)
    for one, other in zip(again.results, tuned.results, strict=True):
        assert (one.solver, one.steps, one.today_steps) == (other.solver, other.steps, other.today_steps)
        assert getattr(one.made, "coefficients", None) == getattr(other.made, "coefficients", None)
        for name in ("timesteps", "sigmas", "log_snr"):
            np.testing.assert_array_equal(getattr(one.schedule, name), getattr(other.schedule, name))
        assert {name: list(own) for name, own in one.errors.items()} == {
            name: list(own) for name, own in other.errors.items()
        }
    text = path.read_text(encoding="utf-8")
    assert again.save(path).read_text(encoding="utf-8") == text


@pytest.mark.parametrize("solver", [FITTED, "dpmpp-2m"])
def test_what_tune_makes_follows_the_schema_and_comes_back(solver, tmp_path):
    tuned = geosprint.tune(ring(), (2, 3), solver=solver, budget_nfe=3000, progress=False)
    path = tuned.save(tmp_path / "tuned.json")
    validate(path)
    again = Tuned.load(path)
    assert (again.steps, again.proved, again.today, again.nfe) == (tuned.steps, tuned.proved, tuned.today, tuned.nfe)
    for steps in tuned.steps:
        found, expected = (geosprint.sample(ring(), one, range(4), steps=steps) for one in (again, tuned))
        assert found.equal(expected)
        assert again.result(steps).error().value == pytest.approx(tuned.result(steps).error().value, rel=1e-4)


def test_fitted_steps_with_weights_follow_the_schema(tmp_path):
    validate(example().save(tmp_path / "tuned.json"))


def test_errors_have_six_digits_and_the_mean_is_theirs(tmp_path):
    thirds = TunedSteps(at([999, 3]), "ddim", {OURS: np.array([1 / 3, 2 / 3])})
    (result,) = json.loads(Tuned((thirds,)).save(tmp_path / "tuned.json").read_text())["results"]
    found = result["errors"][OURS]
    assert found["samples"] == [0.333333, 0.666667]
    assert found["mean"] == pytest.approx(0.5, abs=1e-6)
    assert found["samples"][0] <= found["low"] <= found["mean"] <= found["high"] <= found["samples"][1]


def test_times_of_a_flow_survive(tmp_path):
    tuned = Tuned((TunedSteps(at([1000.0, 512.123456789], Flow(3.0)), "euler"),))
    assert Tuned.load(tuned.save(tmp_path / "t.json"))[2].timesteps.tolist() == [1000.0, 512.123456789]


# For people.


def test_a_field_and_a_list_of_numbers_have_a_line_each(tmp_path):
    lines = example().save(tmp_path / "tuned.json").read_text(encoding="utf-8").splitlines()
    for line in (
        '  "format": "geosprint-tuned",',
        '    "solver": "ddim",',
        '      "timesteps": [999.0, 300.0],',
        "        [0.7, 0.4, -0.3],",
        '          "samples": [0.125, 0.25, 0.5]',
        "}",
    ):
        assert line in lines


def test_a_line_says_what_it_is():
    tuned = example()
    assert repr(tuned) == "Tuned(K = 2, 3; fitted; proved 3)"
    assert repr(tuned.results[0]) == "TunedSteps(2 steps, fitted, error 0.2917)"
    assert repr(tuned[3]) == "FittedSolver(3 steps from t = 999 to 30)"
    assert repr(Tuned((TunedSteps(at([9, 3]), None),))) == "Tuned(K = 2; any solver)"


def test_the_proved_one_is_taken_unless_another_is_asked_for():
    tuned = example()
    assert tuned.steps == (3, 2)
    assert tuned.result().steps == 3
    assert tuned.result(2).steps == 2
    with pytest.raises(ScheduleError, match="steps for K = 2, 3: 5 were asked for"):
        tuned.result(5)
    with pytest.raises(ScheduleError, match="steps for K = 2, 3: say which one"):
        Tuned(tuned.results).result()


def test_one_that_is_taken_along_alone_says_what_it_was_made_for():
    about = {"model": "digits"}
    both = Tuned((TunedSteps(at([9, 3]), "unipc"), TunedSteps(fitted([99, 9, 3]), FITTED)), made_for=about)
    for steps, solver in ((2, "unipc"), (3, FITTED)):
        alone = as_tuned(both[steps])
        assert (alone.made_for, alone.result().solver) == (about, solver)
    assert as_tuned(both[3].schedule).result().solver is None  # without its coefficients, it is for no solver


# What is refused.


@pytest.fixture
def saved(tmp_path):
    return example().save(tmp_path / "tuned.json")


def changed(path, way, value):
    content = json.loads(path.read_text(encoding="utf-8"))
    place = content
    for step in way[:-1]:
        place = place[step]
    if value is KeyError:
        del place[way[-1]]
    else:
        place[way[-1]] = value
    path.write_text(json.dumps(content), encoding="utf-8")


FIRST = ("results", 0)


@pytest.mark.parametrize(
    ("way", "value", "said"),
    [
        (("proved",), "3", "its proved must be a whole number or null, got '3'"),
        (("proved",), True, "its proved must be a whole number or null, got True"),
        (("proved",), 5, "a proved one be among them"),
        (("measure",), 3, "its measure must be a text"),
        (("made_for",), None, "its made_for must be an object"),
        (("made_for", "weights"), {"names_sha256": "", "values": ["a"]}, "finite numbers"),
        (("made_for", "weights"), {"names_sha256": 3, "values": []}, "its names_sha256 must be a text"),
        (("seed",), 0.5, "its seed must be a whole number"),
        (("nfe",), None, "its nfe must be a whole number"),
        (("today",), "ddim", "its today must be an object or null"),
        (("today", "solver"), 3, "its solver must be a text"),
        (("today", "steps"), "50", "its steps must be a whole number"),
        (("today", "spacing"), KeyError, "'spacing' is missing"),
        (("results",), {}, "its results must be a list"),
        (("results",), [], "the numbers of steps must rise"),
        (("results",), [3], "damaged"),
        ((*FIRST, "steps"), 3, "it says 3 steps but lists 2"),
        ((*FIRST, "steps"), True, "its steps must be a whole number"),
        ((*FIRST, "solver"), 3, "its solver must be a text or null"),
        ((*FIRST, "solver"), "ddim", "fitted steps have coefficients and others have none, these are for ddim"),
        ((*FIRST, "method"), None, "its method must be a text"),
        ((*FIRST, "timesteps"), [999, 999], "fall strictly"),
        ((*FIRST, "timesteps"), [999, "a"], "finite numbers"),
        ((*FIRST, "sigmas"), None, "finite numbers"),
        ((*FIRST, "log_snr"), [1.0], "log-SNR"),
        ((*FIRST, "coefficients"), None, "fitted steps have coefficients"),
        ((*FIRST, "coefficients"), [[0.5, 0.5]], "2 steps need as many lists"),
        ((*FIRST, "coefficients"), [[0.5, 0.5], [0.5, None]], "finite numbers"),
        ((*FIRST, "errors"), [], "its errors must be an object"),
        ((*FIRST, "errors", OURS), 3, "damaged"),
        ((*FIRST, "errors", OURS, "samples"), [0.1], "of the same samples"),
        ((*FIRST, "errors", OURS, "samples"), [], "of the same samples"),
        ((*FIRST, "today_steps"), 12, "its today_steps must be an object or null"),
        ((*FIRST, "today_steps", "low"), KeyError, "'low' is missing"),
        (("version",), 2, "must have version 1, got 2"),
        (("format",), "geosprint-profile", "must be a geosprint-tuned, geosprint-schedule or geosprint-solver file"),
    ],
    ids=str,
)
def test_a_damaged_file_is_refused_in_one_sentence_that_names_it(saved, way, value, said):
    changed(saved, way, value)
    with pytest.raises(FileError, match=said) as refused:
        Tuned.load(saved)
    assert "tuned.json" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("field", [name for name in SCHEMA["required"] if name != "formula"])
def test_a_missing_field_is_refused(saved, field):
    changed(saved, (field,), KeyError)
    with pytest.raises(FileError, match=r"tuned\.json"):
        Tuned.load(saved)


def test_half_a_file_is_refused(saved):
    saved.write_bytes(saved.read_bytes()[:300])
    with pytest.raises(FileError, match="not a whole JSON file"):
        Tuned.load(saved)


# Files of earlier versions.

LISTS = {"steps": 2, "timesteps": [999, 3], "sigmas": [157.4, 0.02, 0.0], "log_snr": [-10.1, 7.8]}
OLD_SCHEDULE = {"format": "geosprint-schedule", "version": 1, **LISTS}
OLD_SOLVER = {
    "format": "geosprint-solver",
    "version": 1,
    "formula": "x_next = ...",
    **LISTS,
    "coefficients": [[0.9, 0.1], [0.02, 0.97, -0.6]],
    "validation": {"walks": 32, "ships": "fitted", "rmse": {"fitted": 0.1}},
    "provenance": {"method": "fitted on karras", "calls": 900, "origin": {"model": "fashion"}},
}


@pytest.mark.parametrize(
    ("content", "solver", "model"),
    [
        ({**OLD_SCHEDULE, "provenance": {"method": "karras"}}, None, {}),
        ({**OLD_SCHEDULE, "provenance": {"solver": "unipc", "origin": {"model": "x"}}}, "unipc", {"model": "x"}),
        (OLD_SOLVER, FITTED, {"model": "fashion"}),
    ],
    ids=["closed form", "tuned", "solver"],
)
def test_a_file_of_an_earlier_version_is_one_of_one_k(content, solver, model, tmp_path):
    (tmp_path / "old.json").write_text(json.dumps(content))
    old = Tuned.load(tmp_path / "old.json")
    (one,) = old.results
    assert (old.steps, one.solver, old.made_for) == ((2,), solver, model)
    assert one.schedule.timesteps.tolist() == [999, 3]
    assert getattr(one.made, "coefficients", None) == (((0.9, 0.1), (0.02, 0.97, -0.6)) if solver == FITTED else None)
    validate(old.save(tmp_path / "new.json"))
    assert Tuned.load(tmp_path / "new.json").made_for == model


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"coefficients": None}, "fitted steps have coefficients"),
        ({"coefficients": [[1.0, 0.1]]}, "2 steps need as many lists"),
        ({"coefficients": [[1.0], [1.0, 1.0]]}, "step 1 can have 2 coefficients, got 1"),
        ({"coefficients": [[1.0, 0.1], [1.0, True]]}, "finite numbers"),
        ({"coefficients": "ab"}, "its coefficients must be a list or null"),
        ({"steps": 5}, "5 steps but lists 2"),
        ({"provenance": 3}, "its provenance must be an object"),
        ({"timesteps": [700, 700]}, "fall strictly"),
        ({"sigmas": None}, "finite numbers"),
        ({"version": 99}, "version 1"),
    ],
    ids=str,
)
def test_a_damaged_file_of_an_earlier_version_is_refused_by_name(change, said, tmp_path):
    (tmp_path / "solver.json").write_text(json.dumps(OLD_SOLVER | change))
    with pytest.raises(FileError, match=said) as refused:
        Tuned.load(tmp_path / "solver.json")
    assert "solver.json" in str(refused.value)


def test_the_calls_of_an_earlier_version_are_kept(tmp_path):
    (tmp_path / "solver.json").write_text(json.dumps(OLD_SOLVER))
    assert Tuned.load(tmp_path / "solver.json").nfe == 900
