from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.interpolate import lagrange
from scipy.optimize import LinearConstraint, minimize

from geosprint.models.base import Network
from geosprint.noise import ContinuousVP, DiscreteVP, Flow
from geosprint.rivals.base import Task, build
from geosprint.rivals.dm_nonuniform import (
    assumed_error,
    carried_error,
    optimised_nodes,
    optimised_times,
    step_weights,
)
from geosprint.rivals.registry import RIVALS

START, END = -5.0, 4.6  # about the half log-SNR of the linear rates
NODES = np.array([-5.0, -4.1, -2.0, -1.7, -0.3, 0.2, 1.9, 2.5, 4.6])
NOISES = {
    "linear": DiscreteVP.named(),
    "few timesteps": DiscreteVP.named(timesteps=12),
    "cosine": DiscreteVP.named("cosine"),
    "zero terminal SNR": DiscreteVP.named("scaled_linear", zero_terminal_snr=True),
    "continuous": ContinuousVP(),
    "flow": Flow(),
    "shifted flow": Flow(3.0),
}


# The slow and obvious version: walk the solver, one prediction a unit impulse, all others 0


def slow_weights(nodes):
    """weights[s, j]: what step s adds of the prediction at node j to x / s."""
    steps = len(nodes) - 1
    weights = np.zeros((steps, steps))
    for s in range(steps):
        order = min(3, s + 1, steps - s)
        known = list(range(s - order + 1, s + 1))
        for j in known:
            x0 = lagrange(nodes[known], [float(k == j) for k in known])
            weights[s, j] = quad(lambda l, x0=x0: math.exp(l) * x0(l), nodes[s], nodes[s + 1], epsabs=1e-12)[0]  # noqa: E741
    return weights


def slow_carried_error(nodes):
    alpha, sigma = 1 / np.sqrt(1 + np.exp(-2 * nodes[:-1])), 1 / np.sqrt(1 + np.exp(2 * nodes[:-1]))
    weighted = slow_weights(nodes) * sigma**2 / alpha
    last = len(weighted) - 1
    alone = [s for s in range(last + 1) if s in (0, 1, 2, last)]
    together = [s for s in range(last + 1) if s not in alone]
    return sum(np.linalg.norm(weighted[s]) for s in alone) + np.abs(weighted[together].sum(axis=0)).sum()


def dense_weights(nodes):
    weights, at = step_weights(torch.tensor(nodes))
    dense = torch.zeros(len(weights), len(weights), dtype=torch.float64)
    return dense.scatter_add(1, at, weights).numpy()


@pytest.mark.parametrize("steps", [2, 3, 4, 5, 8])
def test_weights_equal_those_of_impulses_walked_through_the_solver(steps):
    nodes = NODES[: steps + 1]
    np.testing.assert_allclose(dense_weights(nodes), slow_weights(nodes), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("steps", [2, 3, 4, 5, 8])
def test_the_objective_equals_the_slow_one(steps):
    nodes = NODES[: steps + 1]
    assert carried_error(torch.tensor(nodes)).item() == pytest.approx(slow_carried_error(nodes), rel=1e-9)


def test_softness_rounds_the_kink_of_each_joint_error_off():
    nodes = torch.tensor(NODES)
    plain = carried_error(nodes).item()
    assert carried_error(nodes, 1e-9).item() == pytest.approx(plain, rel=1e-9)
    assert carried_error(nodes, 1e6).item() == pytest.approx(8e6, rel=1e-3)  # each of the eight |x| is sqrt(x² + 1e12)


# Theory


def test_a_constant_x0_is_carried_exactly_from_the_first_state_to_the_last():
    (alpha_start, alpha_end), (sigma_start, sigma_end) = (
        np.sqrt(1 / (1 + np.exp(sign * 2 * NODES[[0, -1]]))) for sign in (-1, 1)
    )
    exact = alpha_end - alpha_start * sigma_end / sigma_start
    assert sigma_end * dense_weights(NODES).sum() == pytest.approx(exact, rel=1e-12)


def test_parabolas_are_integrated_exactly_where_the_order_is_three():
    def antiderivative(node):
        return (node**2 - 2 * node + 2) * np.exp(node)  # of l² e^l

    exact = np.diff(antiderivative(NODES))
    off = np.abs(dense_weights(NODES) @ NODES[:-1] ** 2 / exact - 1)
    assert off[2:-2].max() < 1e-11
    assert off[[0, 1, -2, -1]].min() > 1e-3


def test_a_step_of_twenty_half_log_snrs_is_still_integrated_exactly():
    assert dense_weights(np.array([-12.0, -11.0, 9.0]))[1, 1] == pytest.approx(np.exp(9) - np.exp(-11), rel=1e-12)


def test_the_assumed_error_is_noise_squared_over_signal():
    # a / s is tan 60° = √3 at l = ln(3) / 2, and tan 45° at 0.
    half_log_snr = torch.tensor([math.log(3) / 2, 0.0], dtype=torch.float64)
    expected = [0.25 / (math.sqrt(3) / 2), 0.5 / math.sqrt(0.5)]
    assert assumed_error(half_log_snr).tolist() == pytest.approx(expected, rel=1e-14)


# The optimum


def test_the_only_free_node_of_two_steps_is_where_a_scan_finds_it():
    middle = np.linspace(START, END, 200_001)[1:-1]
    error = lambda node: np.sqrt(1 + np.exp(-2 * node)) / (1 + np.exp(2 * node))  # noqa: E731
    scanned = error(START) * (np.exp(middle) - np.exp(START)) + error(middle) * (np.exp(END) - np.exp(middle))
    assert optimised_nodes(START, END, 2) == pytest.approx([START, middle[scanned.argmin()], END], abs=1e-3)


@pytest.mark.parametrize("method", ["trust-constr", "SLSQP"])
def test_five_steps_are_no_worse_than_what_scipy_finds(method):
    def value(inner):
        return carried_error(torch.tensor(np.concatenate([[START], inner, [END]]))).item()

    start = np.linspace(START, END, 6)[1:-1]
    gaps = np.eye(5, 4) - np.eye(5, 4, k=-1)
    bound = np.array([START, 0, 0, 0, -END]) + 1e-3
    found = minimize(value, start, method=method, constraints=[LinearConstraint(gaps, bound, np.inf)])
    assert found.fun < value(start) / 2  # it did search
    assert value(optimised_nodes(START, END, 5)[1:-1]) < found.fun * (1 + 1e-6)


@pytest.mark.parametrize("steps", [3, 5, 10, 20])
def test_no_other_nodes_carry_less_error(steps):
    best = optimised_nodes(START, END, steps)
    assert (best[0], best[-1]) == (START, END)
    assert (np.diff(best) > 0).all()
    least = carried_error(torch.tensor(best)).item()
    others = [np.linspace(START, END, steps + 1)]
    random = np.random.default_rng(0)
    for size in [1.0, 0.1, 0.01] * 20:
        gaps = np.diff(best) * np.exp(size * random.standard_normal(steps))
        others.append(START + (END - START) * np.append(0, np.cumsum(gaps)) / gaps.sum())
    assert min(carried_error(torch.tensor(nodes)).item() for nodes in others) > least * (1 - 1e-4)
    assert carried_error(torch.tensor(others[0])).item() > 1.3 * least


# The schedule


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
@pytest.mark.parametrize("steps", [2, 3, 5, 12])
def test_times_are_exactly_k_strictly_falling_known_ones_from_pure_noise(noise, steps):
    times = optimised_times(noise, steps)
    assert times.shape == (steps,)
    assert (np.diff(times) < 0).all()
    assert noise.contains(times).all()
    assert times[0] == noise.first


def test_times_are_those_of_the_nodes_and_the_last_node_is_no_step():
    flow, vp = Flow(), ContinuousVP()
    nodes = optimised_nodes(-math.log(4096), math.log(999), 6)  # s / a from 1/999, a thousandth of the way
    assert flow.log_snr(optimised_times(flow, 6)) / 2 == pytest.approx(nodes[:-1], abs=1e-6)
    nodes = optimised_nodes(*vp.log_snr([1.0, 1e-3]) / 2, 6)
    assert vp.log_snr(optimised_times(vp, 6)) / 2 == pytest.approx(nodes[:-1], abs=1e-6)


def test_whole_times_are_the_nearest_to_those_of_the_nodes():
    noise = NOISES["linear"]
    nodes = optimised_nodes(*noise.log_snr([999, 0]) / 2, 6)
    alphas = np.cumprod(1 - np.linspace(1e-4, 0.02, 1000))
    half_log_snr = np.log(alphas / (1 - alphas)) / 2
    assert optimised_times(noise, 6) == pytest.approx(np.interp(-nodes[:-1], -half_log_snr, np.arange(1000)), abs=0.501)


def test_the_same_question_has_the_same_answer_bit_for_bit():
    assert optimised_nodes(START, END, 10).tobytes() == optimised_nodes(START, END, 10).tobytes()


def test_no_call_of_the_model_is_spent():
    def never(x, t):
        raise AssertionError("the model was asked")

    task = Task.of(Network(never, (2,), NOISES["linear"]), "ddim")
    built = build(RIVALS["dm-nonuniform"], task, 4)
    assert built.nfe == 0
    assert built.schedule.timesteps.tolist() == optimised_times(NOISES["linear"], 4).tolist()
    assert built.schedule.provenance["method"] == "dm-nonuniform"
