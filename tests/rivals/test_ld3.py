import math
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
import pytest
import torch

from geosprint.baselines import BASELINES, applicable_baselines
from geosprint.models.base import CPU, Model, Network
from geosprint.models.exact import Gaussian, digits, ring
from geosprint.models.wrappers import Wrapped
from geosprint.noise import ContinuousVP, DiscreteVP, Flow
from geosprint.rivals import ld3
from geosprint.rivals.base import Task, build
from geosprint.rivals.ld3 import EndPairs, descent, end_of_walk, known_times, ld3_l2, mean_error
from geosprint.rivals.registry import RIVALS
from geosprint.schedule import gaps_of

VARIANCES = torch.tensor([0.02, 0.3, 1.0, 2.5], dtype=torch.float64)
SOLVERS = ["ddim", "heun", "dpmpp-2m", "unipc"]
NOISES = {"discrete": DiscreteVP.named(), "continuous": ContinuousVP(), "flow": Flow(shift=3.0)}


def gaussian(noise):
    return Gaussian(VARIANCES, noise, in_cosine_basis=False)


def exact_pairs(model, count=6):
    """Noise and where the ODE itself takes it, in float64."""
    noise = torch.randn(count, *model.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return EndPairs(torch.arange(count), noise, model.solution(noise, model.noise.first))


@pytest.fixture
def short(monkeypatch):
    """A descent that need not arrive."""
    monkeypatch.setattr(ld3, "UPDATES", 2 * ld3.LOOKS)


# The gradient.


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("kind", NOISES)
def test_the_gradient_of_the_error_is_a_finite_difference(solver, kind, monkeypatch):
    monkeypatch.setattr(ld3, "NUDGE", 1e-3)  # these models do not jitter in time
    model = gaussian(NOISES[kind])
    task, pairs, first = Task.of(model, solver), exact_pairs(model), model.noise.first
    times = np.array([0.96, 0.6, 0.31, 0.09]) * first if model.noise.continuous else np.array([960.0, 600, 310, 90])
    leaf = torch.tensor(times, requires_grad=True)
    loss = pairs.errors(end_of_walk(task, leaf, pairs)).mean()
    assert loss.item() == pytest.approx(mean_error(task, times, pairs), rel=1e-12)
    (gradient,) = torch.autograd.grad(loss, [leaf])
    nudge = 1e-5 * first if model.noise.continuous else 1.0
    expected = [
        (mean_error(task, times + nudge * way, pairs) - mean_error(task, times - nudge * way, pairs)) / (2 * nudge)
        for way in np.eye(len(times))
    ]
    assert gradient.numpy() == pytest.approx(np.array(expected), rel=0.01, abs=0.003 * np.abs(expected).max())


def test_the_last_trained_time_has_a_slope_too():
    model = gaussian(NOISES["discrete"])
    leaf = torch.tensor([999.0, 400.0, 0.0], dtype=torch.float64, requires_grad=True)
    pairs = exact_pairs(model)
    end_of_walk(Task.of(model, "ddim"), leaf, pairs).sum().backward()
    assert torch.isfinite(leaf.grad).all()
    assert float(leaf.grad.abs().min()) > 0


def test_gaps_lead_back_to_the_times_they_came_from():
    for noise in NOISES.values():
        times = noise.last + (noise.first - noise.last) * np.array([0.9, 0.55, 0.3, 0.04])
        times = times if noise.continuous else np.round(times)
        assert known_times(torch.from_numpy(gaps_of(times, noise)), noise).numpy() == pytest.approx(times, rel=1e-9)


def test_rounding_lets_the_gradient_of_the_exact_times_pass():
    logits = torch.tensor([-4.0, -1.0, 0.3, -0.2], dtype=torch.float64)
    found = torch.autograd.functional.jacobian(lambda free: known_times(free, DiscreteVP.named()), logits)
    shares = torch.softmax(logits, dim=0).numpy()
    # d gap_j / d logit_k = gap_j (1[j = k] - gap_k), and time i is 999 (1 - gap_0 - ... - gap_i).
    by_gap = shares[:, None] * (np.eye(4) - shares[None])
    assert found.numpy() == pytest.approx(-999 * np.cumsum(by_gap, axis=0)[:-1], rel=1e-12)
    whole = known_times(logits, DiscreteVP.named()).numpy()
    assert (whole == np.round(999 * (1 - np.cumsum(shares)[:-1]))).all()


# What the descent finds.


@pytest.mark.parametrize("solver", ["ddim", "dpmpp-2m"])
def test_the_best_of_all_pairs_of_whole_timesteps_is_found(solver):
    noise = DiscreteVP.named("cosine", timesteps=40)
    task = Task.of(gaussian(noise), solver, trajectories=12, reference_steps=40)
    pairs = EndPairs.of(task.recording.teacher.for_validation)
    errors = {
        times: mean_error(task, np.array(times, dtype=float), pairs) for times in combinations(range(39, -1, -1), 2)
    }
    best = min(errors, key=errors.get)
    found = tuple(int(t) for t in ld3_l2(task, 2))
    closed_forms = [errors[tuple(BASELINES[name](noise, 2).astype(int))] for name in applicable_baselines(noise)]
    assert min(closed_forms) > 1.05 * errors[best]
    assert errors[found] < 1.02 * errors[best]


@pytest.mark.parametrize("solver", ["ddim", "dpmpp-2m", "unipc"])
def test_the_result_beats_every_closed_form_on_pairs_held_out_and_not(solver):
    model = digits()
    task = Task.of(replace(model, means=model.means[:60]), solver, trajectories=24, reference_steps=100)
    pairs = EndPairs.of(task.recording.teacher.for_validation)
    held_out = pairs.at(slice(0, None, 3))
    found = ld3_l2(task, 4)
    noise = task.model.noise
    for judges in (pairs, held_out):
        closed_forms = [mean_error(task, BASELINES[name](noise, 4), judges) for name in applicable_baselines(noise)]
        assert mean_error(task, found, judges) < 0.97 * min(closed_forms)


def test_a_descent_that_only_gets_worse_returns_its_start(monkeypatch):
    task = Task.of(gaussian(NOISES["discrete"]), "ddim", trajectories=9, reference_steps=50)
    monkeypatch.setattr(ld3, "descent", lambda *_: iter([np.array([30.0, 20.0, 10.0])]))
    held_out = EndPairs.of(task.recording.teacher.for_validation).at(slice(0, None, 3))
    best = min(ld3.starts(task, 3), key=lambda times: mean_error(task, times, held_out))
    assert (ld3_l2(task, 3) == best).all()


@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize("steps", [2, 7])
def test_times_fall_strictly_and_are_known_to_the_model(kind, steps, short):
    task = Task.of(ring(noise=NOISES[kind]), "ddim", trajectories=6, reference_steps=40)
    start = BASELINES["uniform-trailing"](task.model.noise, steps)
    for times in descent(task, start, EndPairs.of(task.recording.teacher.for_validation)):
        assert len(times) == steps
        assert (np.diff(times) < 0).all()
        assert task.model.noise.contains(times).all()


def test_the_same_task_gives_the_same_times(short):
    found = [ld3_l2(Task.of(ring(), "unipc", trajectories=8, reference_steps=40), 4) for _ in range(2)]
    assert (found[0] == found[1]).all()


def test_it_learns_from_where_the_ode_leads_not_from_where_a_recording_ends():
    model = gaussian(NOISES["discrete"])
    task = Task.of(model, "dpmpp-2m", trajectories=6, reference_steps=100)
    fine = task.recording.teacher.for_validation
    exact = model.solution(fine.starts, model.noise.first)
    learnt, recorded = EndPairs.of(fine), task.recorded
    assert float(learnt.errors(exact).mean()) < 1e-3
    off = recorded.states[:, -1] - model.solution(recorded.states[:, 0], model.noise.first)
    assert float(off.square().mean(dim=1).sqrt().mean()) > 1e-2


def test_schedules_that_begin_late_are_starts_too():
    task = Task.of(ring(), "ddim", trajectories=6, reference_steps=40)
    beginnings = {float(times[0]) for times in ld3.starts(task, 4)}
    assert {999.0, 799.0, 599.0} <= beginnings  # uniform-trailing over all of time, 80 % and 60 %


def test_a_walk_that_blows_up_ends_the_descent_at_the_last_times_that_held(short):
    model = ring()
    breaks = Network(lambda x, t: model(x, t) * (math.nan if t < 300 else 1), model.shape, model.noise, "x0")
    pairs = EndPairs.of(Task.of(model, "ddim").recording.teacher.for_validation)
    assert list(descent(Task.of(breaks, "ddim"), np.array([900.0, 500.0, 200.0]), pairs)) == []


# What the model is asked.


def test_network_calls_are_those_of_the_judging_and_three_for_every_step_of_the_descent(short):
    task = Task.of(ring(), "ddim", trajectories=30, reference_steps=40)
    walks, held_out, steps = 96, 22, 5  # of 64 to learn from, every third
    starts = 5 * len(applicable_baselines(task.model.noise)) + 3  # each over all of time and four shares of it
    judged = (starts + ld3.LOOKS) * held_out * steps
    descended = ld3.UPDATES * ld3.BATCH * 3 * steps
    assert build(RIVALS["ld3-l2"], task, steps).nfe == 30 * 40 + walks * 60 + judged + descended


def test_a_model_of_whole_timesteps_is_asked_about_plain_whole_numbers_only(short):
    inner, asked = ring(), []

    class Watched(Wrapped):
        def __call__(self, x, t):
            asked.append(t)
            return self.inner(x, t)

    ld3_l2(Task.of(Watched(inner), "heun", trajectories=6, reference_steps=40), 3)
    assert all(isinstance(t, float) and t.is_integer() and 0 <= t <= 999 for t in asked)


@dataclass(frozen=True)
class KnowsItsSamples(Model):
    """Every sample has its own answer, whatever the state: any schedule is exact, if rows are not mixed up."""

    answers: torch.Tensor
    shape: tuple = (2,)
    noise: object = field(default_factory=DiscreteVP.named)
    prediction: str = "x0"
    clip: None = None
    calls: int = 1
    name: str = "knows"
    device: torch.device = CPU

    def __call__(self, x, t):
        return self.answers.to(x) + 0 * x

    def for_samples(self, rows):
        return replace(self, answers=self.answers[torch.as_tensor(rows)])


def test_every_walk_is_compared_with_that_of_its_own_sample():
    model = KnowsItsSamples(torch.randn(96, 2, generator=torch.Generator().manual_seed(0)))
    task = Task.of(model, "ddim")
    pairs = EndPairs.of(task.recording.teacher.for_validation)
    some = pairs.at(torch.tensor([31, 4, 17]))
    times = np.array([900.0, 300.0])
    assert mean_error(task, times, pairs) < 1e-5
    assert float(some.errors(end_of_walk(task, torch.from_numpy(times), some)).max()) < 1e-5
    assert float(some.errors(pairs.ends[:3]).min()) > 0.1


def test_errors_are_root_mean_squares_of_each_pair():
    pairs = EndPairs(torch.arange(2), torch.zeros(2, 1, 2), torch.tensor([[[0.0, 0.0]], [[1.0, 1.0]]]))
    found = torch.tensor([[[3.0, 4.0]], [[1.0, 3.0]]])
    assert pairs.errors(found).tolist() == pytest.approx([12.5**0.5, 2**0.5])


def test_it_is_for_solvers_without_fresh_noise():
    method, solvers = RIVALS["ld3-l2"], ("ddim", "unipc", "ddpm")
    assert method.is_limit
    assert [method.applies(Task.of(ring(), solver)) for solver in solvers] == [True, True, False]
