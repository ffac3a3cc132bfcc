from __future__ import annotations

import numpy as np
import pytest
import torch

import geosprint
from geosprint.baselines import BASELINES, applicable_baselines, baseline_schedule
from geosprint.estimates import endpoint_errors
from geosprint.models.base import Network
from geosprint.models.exact import Gaussian, digits, ring
from geosprint.models.spread import Spread
from geosprint.noise import Flow
from geosprint.sampling import sample
from geosprint.schedule import StepSchedule
from geosprint.teacher import VALIDATION_SEED, fine_steps, fine_timesteps
from geosprint.tuned import FITTED, OURS, TODAY, Tuned

FRESH = range(77_000_000, 77_000_064)
SMALL = 6000


def tune(model, *given, **named):
    return geosprint.tune(model, *given, **{"budget_nfe": SMALL, "progress": False, **named})


def fresh_error(model, made, solver=None):
    fine = sample(model, fine_timesteps(model.noise, 150), FRESH, "heun")
    return endpoint_errors(sample(model, made, FRESH, solver), fine).mean()


@pytest.mark.parametrize("model", [ring(), digits(), ring(noise=Flow())], ids=["mixture", "digits", "flow"])
def test_with_no_other_word_it_finds_fewer_steps_that_are_as_good_on_fresh_noise(model):
    counted = Spread(model)
    found = tune(counted, budget_nfe=12_000)
    assert found.nfe == counted.nfe <= 12_000
    assert (found.today.steps, found.today.solver) == (50, "euler" if isinstance(model.noise, Flow) else "ddim")
    assert found.proved == found.steps[0] < 25
    today = BASELINES["uniform-trailing"](model.noise, 50)
    assert fresh_error(model, found) < 1.05 * fresh_error(model, today, found.today.solver)


@pytest.mark.parametrize(
    ("model", "solver"),
    [
        *((ring(), solver) for solver in ("ddim", "dpmpp-2m", "unipc", "heun", "deis", "ipndm", "fitted")),
        *((ring(noise=Flow()), solver) for solver in ("euler", "dpmpp-2m-kdiffusion")),
    ],
    ids=["ddim", "dpmpp-2m", "unipc", "heun", "deis", "ipndm", "fitted", "flow", "flow in log sigma"],
)
def test_on_fresh_noise_it_has_a_lower_error_than_the_solver_on_every_closed_form(model, solver):
    found = tune(model, 6, solver=solver)
    assert found.steps == (6,)
    assert found.result().solver == solver
    known = "dpmpp-2m" if solver == FITTED else solver
    forms = [BASELINES[name](model.noise, 6) for name in applicable_baselines(model.noise)]
    assert fresh_error(model, found) < min(fresh_error(model, times, known) for times in forms)


def test_errors_are_those_of_samples_from_the_held_out_noise():
    model = digits()
    found = tune(model, (3, 5), today="dpmpp-2m:20:quadratic")
    trajectories = int(0.3 * SMALL / 60)
    held_out = trajectories - trajectories // 3
    first = VALIDATION_SEED + round(held_out / 3)  # those before choose among candidates
    seeds = range(first, VALIDATION_SEED + held_out)
    fine = sample(model, fine_steps(model.noise), seeds, "ipndm")
    today = sample(model, BASELINES["quadratic"](model.noise, 20), seeds, "dpmpp-2m")
    for one in found.results:
        np.testing.assert_allclose(
            one.errors[OURS], endpoint_errors(sample(model, one.made, seeds), fine), rtol=1e-3, atol=1e-6
        )
        np.testing.assert_allclose(one.errors[TODAY], endpoint_errors(today, fine), rtol=1e-3, atol=1e-6)


def test_the_same_seed_gives_the_same_file_bit_for_bit_and_another_gives_another(tmp_path):
    files = [
        tune(ring(), 4, solver="ddim", seed=seed).save(tmp_path / f"{i}.json").read_bytes()
        for i, seed in enumerate((0, 0, 1))
    ]
    assert files[0] == files[1] != files[2]


@pytest.mark.parametrize("solver", ["ddim", "heun", "fitted"])
@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("steps", [(3,), (2, 9), None], ids=str)
def test_it_works_with_the_least_budget_that_it_asks_for_and_never_exceeds_it(steps, calls, solver):
    inner = ring()
    model = Spread(Network(inner, inner.shape, inner.noise, "x0", calls=calls))
    with pytest.raises(geosprint.GeoSprintError, match=r"a budget of at least [\d,]+ network calls, got 10") as refused:
        tune(model, steps, solver=solver, budget_nfe=10)
    assert model.nfe == 0
    least = int(str(refused.value).split("at least ")[1].split()[0].replace(",", ""))
    assert least < 1300 * calls
    found = tune(model, steps, solver=solver, budget_nfe=least)
    assert found.nfe == model.nfe <= least
    assert not steps or tuple(sorted(found.steps)) == steps


def test_several_numbers_of_steps_are_one_file_and_share_the_budget(tmp_path):
    model = Spread(ring())
    found = tune(model, [6, 4])
    assert [one.steps for one in found.results] == [4, 6]
    assert model.nfe == found.nfe <= SMALL
    again = Tuned.load(found.save(tmp_path / "tuned.json"))
    assert [one.steps for one in again.results] == [4, 6]
    for one, other in zip(found.results, again.results, strict=True):
        assert one.made.coefficients == other.made.coefficients
        np.testing.assert_allclose(one.errors[OURS], other.errors[OURS], rtol=1e-5)
    assert again.made_for["model"] == "mixture"
    with pytest.raises(geosprint.GeoSprintError, match="K = 4, 6"):
        found[5]


def test_a_target_error_takes_the_place_of_todays():
    model = ring()
    loose, tight = (tune(model, target_error=error, budget_nfe=12_000) for error in (0.1, 0.005))
    assert loose.proved < tight.proved
    assert fresh_error(model, loose) < 0.1
    assert tight.result().errors[OURS].mean() < 0.005


def test_a_measure_in_features_is_what_errors_are():
    model = ring()
    raw = tune(model, 3, solver="ddim", measure="raw")
    assert raw.measure == "raw"
    assert len(raw[3]) == 3


def test_a_schedule_of_the_user_must_be_surely_beaten():
    yours = baseline_schedule("karras", ring().noise, 4)
    (found,) = tune(ring(), 4, solver="ddim", against=yours).results
    assert found.errors[OURS].mean() < found.errors["yours"].mean()
    best = found.schedule
    (again,) = tune(ring(), 4, solver="ddim", seed=5, against=best).results
    assert again.errors[OURS].mean() <= again.errors.get("yours", again.errors[OURS]).mean()


def test_a_flow_that_is_gaussian_is_followed_closely():
    model = Gaussian.of_images((1, 6, 6), noise=Flow())
    found = tune(model, 4)
    assert fresh_error(model, found) < 0.2 * fresh_error(model, BASELINES["uniform-trailing"](model.noise, 4), "euler")


@pytest.mark.parametrize("solver", ["fitted", "ddim"])
def test_a_model_that_always_says_the_same_is_tuned_without_an_error(solver):
    constant = Network(lambda x, t: torch.full_like(x, 0.25), (3,), ring().noise, "x0")
    found = tune(constant, solver=solver)
    assert found.result(min(found.steps)).errors[OURS].max() < 1e-5


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"steps": 5, "solver": "ddpm"}, "fresh noise"),
        ({"steps": 0}, "steps"),
        ({"steps": 5, "solver": "rk4"}, "solver must be one of"),
        ({"steps": 5, "solver": "dpmpp-2m-kdiffusion"}, "on flows alone; tune this model for dpmpp-2m"),
        ({"steps": 5, "measure": "beauty"}, "no features 'beauty'"),
        ({"steps": 5, "today": "ddim"}, "solver:steps"),
        ({"steps": 5, "today": "ddim:many"}, "solver:steps"),
        ({"steps": 5, "today": "ddim:50:zigzag"}, "the spacing must be one of"),
        ({"steps": 5, "today": "ddpm:50"}, "fresh noise"),
        ({"steps": 5, "target_error": 0.0}, "above 0"),
        ({"steps": 2, "against": baseline_schedule("karras", ring().noise, 2)}, "name that"),
        (
            {"steps": 2, "solver": "ddim", "against": StepSchedule(np.array([1e6]), np.array([1.0, 0]), np.zeros(1))},
            "knows",
        ),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_the_model_is_asked(asked, told):
    model = Spread(ring())
    with pytest.raises(geosprint.GeoSprintError, match=told):
        tune(model, **asked)
    assert model.nfe == 0


def test_before_it_begins_it_says_what_it_will_cost(capsys):
    tune(ring(), 3, progress=True)
    assert "at most 6,000 network calls, about 0:00:" in capsys.readouterr().err
