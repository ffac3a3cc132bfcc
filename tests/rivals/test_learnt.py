"""Solvers learnt by back-propagation: where they start, their formulas, gradients, descents and costs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from geosprint.baselines import BASELINES, applicable_baselines, baseline_schedule
from geosprint.errors import ScheduleError
from geosprint.fitted_solver import FittedSolver, known_coefficients
from geosprint.linear_solver import LinearSolver
from geosprint.models.base import predict
from geosprint.models.exact import Gaussian, digits, ring
from geosprint.models.wrappers import Wrapped
from geosprint.noise import CLEAN, EDM, ContinuousVP, DiscreteVP, Flow
from geosprint.rivals import bns, dyweight, ld3, learnt, neural_solver, s4s
from geosprint.rivals.base import Task, build
from geosprint.rivals.ld3 import EndPairs
from geosprint.rivals.registry import RIVALS
from geosprint.sampling import walk
from geosprint.schedule import StepSchedule
from geosprint.solvers import SOLVERS, refuse_to_draw

VARIANCES = torch.tensor([0.02, 0.3, 1.0, 2.5], dtype=torch.float64)
NOISES = {"discrete": DiscreteVP.named(), "continuous": ContinuousVP(), "edm": EDM(), "flow": Flow(shift=3.0)}
CONTINUOUS = ["continuous", "edm", "flow"]
WALKS, PER_WALK, HELD_OUT = 96, 60, 32  # teacher trajectories, their calls, and how many of them judge


def task_and_pairs(noise):
    model = Gaussian(VARIANCES, noise, in_cosine_basis=False)
    start = torch.randn(6, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return Task.of(model, "ddim"), EndPairs(torch.arange(6), start, model.solution(start, noise.first))


def end_of(solver, times, task, pairs):
    *_, last = walk(task.model, pairs.noise, times, solver, refuse_to_draw)
    return last.x


def moved(free, by=0.05):
    """The same numbers, each a little off: weights no longer sum to 1."""
    generator = torch.Generator().manual_seed(5)
    return [part + by * torch.randn(part.shape, generator=generator, dtype=part.dtype) for part in free]


def families(noise, steps):
    """By name, a family and numbers of it that belong to no known solver."""
    times = BASELINES["uniform-trailing"](noise, steps)
    found = {
        "s4s-alt": (s4s.family(noise, steps), moved(s4s.free_of("dpmpp-2m", noise, times))),
        "dyweight": (dyweight.family(noise, steps), [torch.tensor(times), *moved(dyweight.free_of(times)[1:])]),
    }
    if isinstance(noise, Flow):
        found["neural-solver"] = neural_solver.family(noise, steps), moved(neural_solver.free_of(2, noise, times))
    return found


FAMILIES = [(kind, name) for kind in NOISES for name in families(NOISES[kind], 4)]


# The solvers that they start from.


@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize("solver", ["ddim", "dpmpp-2m", "unipc"])
def test_s4s_holds_known_solvers(kind, solver):
    noise = NOISES[kind]
    task, pairs = task_and_pairs(noise)
    family, free = s4s.family(noise, 6), s4s.free_of(solver, noise, BASELINES["karras"](noise, 6))
    times = family.solver(free, noise).schedule.timesteps
    expected = end_of(SOLVERS[solver], times, task, pairs)
    torch.testing.assert_close(family.end(task, free, pairs), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", NOISES)
def test_dyweight_holds_ipndm(kind):
    noise = NOISES[kind]
    task, pairs = task_and_pairs(noise)
    times = BASELINES["karras"](noise, 4)  # the third order is the highest that four steps reach
    family, free = dyweight.family(noise, 4), dyweight.free_of(times)
    expected = end_of(SOLVERS["ipndm"], times, task, pairs)
    torch.testing.assert_close(family.end(task, free, pairs), expected, rtol=1e-9, atol=1e-9)
    assert family.solver(free, noise).schedule.timesteps == pytest.approx(times, rel=1e-12)


def test_neural_solver_holds_euler_and_adams_bashforth():
    noise = NOISES["flow"]
    task, pairs = task_and_pairs(noise)
    times = BASELINES["uniform-trailing"](noise, 5)
    family = neural_solver.family(noise, 5)
    euler = end_of(SOLVERS["euler"], times, task, pairs)
    found = family.end(task, neural_solver.free_of(1, noise, times), pairs)
    torch.testing.assert_close(found, euler, rtol=1e-9, atol=1e-9)
    x, before = pairs.noise, None
    for t, t_next in zip(times, [*times[1:], 0.0], strict=True):
        v = (x - predict(task.model, x, float(t)).x0) / (t / 1000)
        x = x + (t_next - t) / 1000 * (v if before is None else 1.5 * v - 0.5 * before)
        before = v
    found = family.end(task, neural_solver.free_of(2, noise, times), pairs)
    torch.testing.assert_close(found, x, rtol=1e-9, atol=1e-9)


# The published formulas, as slow loops over states.


def slow_dyweight(model, noise, schedule, scales, weights):
    """In the coordinates of the network's own x / a, as the authors walk; a flow's x is as it is."""
    is_flow = isinstance(model.noise, Flow)
    levels = [*model.noise.sigma(schedule), 0.0]
    x = noise if is_flow else noise / model.noise.signal_and_sigma(schedule[0])[0]
    level, slopes = levels[0], []
    for i, own in enumerate(weights):
        t = float(model.noise.time_of_sigma(min(scales[i] * level, levels[0])))
        a, s = model.noise.signal_and_sigma(t)
        if is_flow:
            slopes.append((x - predict(model, x, t).x0) / s)
        else:
            slopes.append((x - predict(model, a * x, t).x0) / level)
        x = x + (levels[i + 1] - level) * sum(w * d for w, d in zip(own, slopes[::-1], strict=False))
        level = level + sum(own) * (levels[i + 1] - level)
    return x


@pytest.mark.parametrize("kind", CONTINUOUS)
def test_dyweight_steps_as_published(kind):
    noise = NOISES[kind]
    task, pairs = task_and_pairs(noise)
    schedule = BASELINES["uniform-trailing"](noise, 5)
    scales = torch.tensor([0.95 if kind == "flow" else 0.8, 0.97, 1.02, 0.98, 0.95], dtype=torch.float64)
    weights = learnt.numbers([[0.95], [1.4, -0.45], [1.8, -1.2, 0.38], [1.9, -1.1, 0.15], [1.1, -0.2, 0.05]])
    expected = slow_dyweight(task.model, pairs.noise, schedule, scales.tolist(), [own.tolist() for own in weights])
    family, free = dyweight.family(noise, 5), [torch.tensor(schedule), scales, *weights]
    torch.testing.assert_close(family.end(task, free, pairs), expected, rtol=1e-7, atol=1e-7)
    made = family.solver(free, noise)
    torch.testing.assert_close(end_of(made, made.schedule.timesteps, task, pairs), expected, rtol=1e-7, atol=1e-7)
    a, a_asked = (noise.signal_and_sigma(t)[0] for t in (schedule[0], made.schedule.timesteps[0]))
    assert made.rows[0][0] == pytest.approx(1.0 if kind == "flow" else a_asked / a)  # louder than the network expects


@pytest.mark.parametrize("steps", [5, 8])
def test_neural_solver_steps_as_published(steps):
    noise = NOISES["flow"]
    task, pairs = task_and_pairs(noise)
    family, free = families(noise, steps)["neural-solver"]
    gaps, *weights = free
    ends = 1 - np.cumsum(np.exp(gaps.numpy()) / np.exp(gaps.numpy()).sum())
    x, velocities, s = pairs.noise, [], 1.0
    for own, s_next in zip(weights, ends, strict=True):
        velocities.insert(0, (x - predict(task.model, x, 1000 * s).x0) / s)
        mean = (1 - float(own.sum())) * velocities[0]
        mean = mean + sum(float(c) * v for c, v in zip(own, velocities[1:], strict=False))
        x, s = x + (s_next - s) * mean, s_next
    torch.testing.assert_close(family.end(task, free, pairs), x, rtol=1e-7, atol=1e-7)
    looked_at = [0, 1, 2, 1, 1] if steps == 5 else list(range(8))
    assert [len(own) for own in weights] == looked_at


@pytest.mark.parametrize("kind", NOISES)
def test_what_s4s_returns_is_a_fitted_solver_of_the_same_walk(kind, monkeypatch):
    noise = NOISES[kind]
    task, pairs = task_and_pairs(noise)
    family, free = families(noise, 6)["s4s-alt"]
    monkeypatch.setattr(learnt.Family, "learnt", lambda self, task: free)
    found = s4s.s4s_alt(task, 6)
    ends = [end_of(made, made.schedule.timesteps, task, pairs) for made in (found, family.solver(free, noise))]
    torch.testing.assert_close(*ends, rtol=1e-9, atol=1e-9)
    assert [len(own) - 1 for own in found.coefficients] == [1, 2, 3, 4, 4, 4]


@pytest.mark.parametrize(("kind", "name"), FAMILIES)
def test_the_walk_of_a_descent_is_that_of_the_solver_it_gives(kind, name):
    noise = NOISES[kind]
    task, pairs = task_and_pairs(noise)
    family, free = families(noise, 4)[name]
    made = family.solver(free, noise)
    found = end_of(made, made.schedule.timesteps, task, pairs)
    torch.testing.assert_close(family.end(task, free, pairs), found, rtol=1e-9, atol=1e-9)


# Gradients.


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, name in FAMILIES if kind != "discrete"])
def test_the_gradient_is_a_finite_difference(kind, name, monkeypatch):
    monkeypatch.setattr(ld3, "NUDGE", 1e-3)  # these models do not jitter in time
    noise = NOISES[kind]
    task, pairs = task_and_pairs(noise)
    family, free = families(noise, 4)[name]
    if name == "dyweight":
        free[1] = torch.tensor([0.9, 0.97, 1.02, 0.95], dtype=torch.float64)  # there is no time before the first
    learns = [any(turn[i] for turn in family.turns) for i in range(len(free))]

    def error(parts):
        return pairs.errors(family.end(task, parts, pairs)).mean()

    leaves = [part.clone().requires_grad_(is_learnt) for part, is_learnt in zip(free, learns, strict=True)]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    found = iter(torch.autograd.grad(error(leaves), wanted))
    for i, is_learnt in enumerate(learns):
        for j, slope in enumerate(next(found) if is_learnt else ()):
            ends = []
            for way in (1e-5, -1e-5):
                parts = [part.clone() for part in free]
                parts[i][j] += way
                ends.append(float(error(parts)))
            assert float(slope) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=0.02, abs=2e-3)


# What the descent finds.


@pytest.fixture
def short(monkeypatch):
    """A descent that need not arrive."""
    monkeypatch.setattr(learnt, "UPDATES", 4 * ld3.LOOKS)


@pytest.mark.parametrize(("name", "noise"), [("s4s-alt", None), ("dyweight", None), ("neural-solver", Flow())])
def test_a_descent_lowers_the_held_out_error(name, noise, short):
    model = digits() if noise is None else ring(noise=noise)
    task = Task.of(replace(model, means=model.means[:60]) if noise is None else model, "ddim")
    module = {"s4s-alt": s4s, "dyweight": dyweight, "neural-solver": neural_solver}[name]
    family = module.family(model.noise, 4)
    held_out = EndPairs.of(task.recording.teacher.for_search)
    starts = [family.error(task, free, held_out) for free in family.starts]
    found = family.error(task, family.learnt(task), held_out)
    assert found < 0.99 * min(starts)


def test_a_descent_that_only_gets_worse_returns_its_best_start(monkeypatch):
    task = Task.of(ring(), "ddim")

    def worse(self, task, begun, *_):
        return [[*begun[:2], *(weights + 1 for weights in begun[2:])]]

    monkeypatch.setattr(learnt.Family, "_descent", worse)
    family = dyweight.family(task.model.noise, 3)
    found = family.learnt(task)
    held_out = EndPairs.of(task.recording.teacher.for_search)
    few = held_out.at(slice(None, None, 3))
    best = min(family.starts, key=lambda free: family.error(task, free, few))
    assert family.error(task, found, held_out) == family.error(task, best, held_out)


def test_times_that_do_not_fall_are_not_taken():
    task, pairs = task_and_pairs(NOISES["continuous"])
    times = np.array([0.9, 0.5, 0.45])
    family, (schedule, _, *weights) = dyweight.family(task.model.noise, 3), dyweight.free_of(times)
    scales = torch.tensor([1.0, 0.5, 1.5], dtype=torch.float64)
    assert family.error(task, [schedule, scales, *weights], pairs) == math.inf
    assert family.error(task, dyweight.free_of(times), pairs) < 1


# What the model is asked, and what a gradient costs.


@pytest.mark.parametrize(
    ("name", "noise", "calls", "backprops"),
    [
        ("s4s-alt", DiscreteVP.named(), (1 + 3) / 2, 4),  # turns of the times ask three times; the first state is fixed
        ("dyweight", DiscreteVP.named(), 3, 5),  # the scale of the first time scales the first state
        ("neural-solver", Flow(), 3, 4),
    ],
)
def test_calls_and_back_propagations_are_those_counted_by_hand(name, noise, calls, backprops, short):
    task, steps = Task.of(ring(noise=noise), "ddim"), 5
    forms = len(applicable_baselines(noise))
    forms *= 5  # each over all of time and four shares of it
    starts, turns = {"s4s-alt": (2 * forms, 2), "dyweight": (forms, 1), "neural-solver": (2, 1)}[name]
    samples = 4 * ld3.LOOKS * ld3.BATCH * turns  # coefficients and times take turns
    judged = (starts * 11 + (1 + ld3.LOOKS) * HELD_OUT) * steps  # one held-out trajectory in three judges starts
    built = build(RIVALS[name], task, steps)
    assert built.nfe == WALKS * PER_WALK + judged + samples * steps * calls
    assert built.backprops == samples * backprops


def test_limits_count_their_back_propagations_too(monkeypatch):
    for module in (ld3, bns):
        monkeypatch.setattr(module, "UPDATES", ld3.LOOKS)
    task = Task.of(ring(), "ddim", trajectories=6, reference_steps=20)
    expected = ld3.LOOKS * ld3.BATCH * 2  # of three steps: the first state is fixed
    assert build(RIVALS["gits"], task, 3).backprops == 0
    assert build(RIVALS["ld3-l2"], task, 3).backprops == expected
    schedule = baseline_schedule("karras", task.model.noise, 3)
    start = FittedSolver(schedule, known_coefficients("ddim", task.model.noise, schedule.timesteps, 2))
    before, walked = task.model.tally.backprops, task.model.nfe
    bns.bns_l2(task, start)
    assert task.model.tally.backprops - before == expected
    judged = (1 + ld3.LOOKS) * 96 * 3  # all trajectories judge, in three calls each
    assert task.model.nfe - walked == ld3.LOOKS * ld3.BATCH * 3 * 3 + judged


def test_a_model_of_whole_timesteps_is_asked_about_known_ones_alone(short):
    asked = []

    class Watched(Wrapped):
        def __call__(self, x, t):
            asked.append(t)
            return self.inner(x, t)

    dyweight.dyweight(Task.of(Watched(ring()), "ddim"), 4)
    assert all(isinstance(t, float) and t.is_integer() and 0 <= t <= 999 for t in asked)


def test_they_are_for_the_models_they_were_published_for():
    def applied(noise):
        task = Task.of(ring(noise=noise), "ddim")
        return {name for name in ("s4s-alt", "dyweight", "neural-solver") if RIVALS[name].applies(task)}

    assert applied(DiscreteVP.named()) == {"s4s-alt", "dyweight"}
    assert applied(DiscreteVP.named(zero_terminal_snr=True)) == {"s4s-alt"}
    assert applied(Flow()) == {"s4s-alt", "dyweight", "neural-solver"}


# The linear solver itself.


def test_a_linear_solver_is_checked_once_and_takes_its_own_steps_alone():
    noise = DiscreteVP.named()
    schedule = StepSchedule.at(np.array([900.0, 300.0]), noise, {})
    for rows in [((1.0,), (0.5, 0.5)), ((1.0,), (0.5,), (0.1, 0.2, 0.7)), ((0.0,), (1.0, 1.0), (1.0, 1.0, 1.0))]:
        with pytest.raises(ScheduleError, match=r"states of 2 steps|first state other than 0"):
            LinearSolver(schedule, rows)
    with pytest.raises(ScheduleError, match="finite"):
        LinearSolver(schedule, ((1.0,), (math.nan, 0.5), (0.1, 0.2, 0.7)))
    made = LinearSolver(schedule, ((2.0,), (0.5, 0.25), (0.1, 0.2, 0.7)))
    task, pairs = task_and_pairs(noise)
    states = list(walk(task.model, pairs.noise, [900, 300], made, refuse_to_draw))
    x0 = [state.prediction.x0 for state in states[:2]]
    torch.testing.assert_close(states[0].x, 2 * pairs.noise)
    torch.testing.assert_close(states[1].x, 0.5 * pairs.noise + 0.25 * x0[0])
    torch.testing.assert_close(states[2].x, 0.1 * pairs.noise + 0.2 * x0[0] + 0.7 * x0[1])
    assert states[2].t == CLEAN
    for times in ([900, 500], [900, 300, 100]):
        with pytest.raises(ScheduleError, match="its own 2 steps alone"):
            list(walk(task.model, pairs.noise, times, made, refuse_to_draw))
