"""Optimised time steps (Xue et al. 2024): no model is asked, only how far its errors would be carried.

A multistep solver that interpolates x0 in half log-SNR, l = ln(a / s), ends at a weighted sum of the
predictions it was given. With an assumed size of the error of each prediction, the steps that carry
the least error into the sample follow from the noise schedule alone.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from geosprint.baselines import smallest_time
from geosprint.noise import Array, NoiseSchedule
from geosprint.rivals.base import Task
from geosprint.schedule import known_times

ORDER = 3  # of the solver that the steps are made for
STEPS_ALONE = 3  # the first ones: were their large errors let cancel later ones, the best nodes would be absurd
SOFTNESS = (0.1, 0.01, 0.001)  # stages of the search, of errors that sum to about 10: |x| has a kink to get stuck at
ITERATIONS = 100  # of each stage
# Gauss-Legendre quadrature, exact to rounding for e^l times a parabola over a step of any size in use.
PLACES, SHARES = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(24))


def dm_nonuniform(task: Task, steps: int) -> Array:
    """K times that carry the least error, whatever the model."""
    return optimised_times(task.model.noise, steps)


def optimised_times(noise: NoiseSchedule, steps: int) -> Array:
    """The times of all nodes but the last, which stands for the clean sample and is not a step."""
    start, end = noise.log_snr([noise.first, smallest_time(noise)]) / 2
    nodes = optimised_nodes(float(start), float(end), steps)
    # Where there is no signal the log-SNR is cut, and would lead back to a time below the first.
    times = np.append(noise.first, noise.time_of_log_snr(2 * nodes[1:-1]))
    return known_times(times, noise)


def optimised_nodes(start: float, end: float, steps: int) -> Array:
    """K + 1 rising half log-SNRs between these ends that minimise `carried_error`, sought from equal gaps."""
    shares = torch.zeros(steps, dtype=torch.float64, requires_grad=True)
    for softness in SOFTNESS:
        _minimise(shares, start, end, softness)
    return _nodes(start, end, shares.detach()).numpy()


def carried_error(nodes: Tensor, softness: float = 0.0) -> Tensor:
    """The objective: a bound on the error that all steps together carry into the sample."""
    weights, at = step_weights(nodes)
    weighted = assumed_error(nodes)[at] * weights
    alone, rest = weighted[:STEPS_ALONE], weighted[STEPS_ALONE:]
    together = torch.zeros(len(weighted), dtype=nodes.dtype).index_add(0, at[STEPS_ALONE:].flatten(), rest.flatten())
    return torch.linalg.vector_norm(alone, dim=1).sum() + (together**2 + softness**2).sqrt().sum()


def assumed_error(half_log_snr: Tensor) -> Tensor:
    """The error of a predicted x0 is taken as s² / a, which the log-SNR alone decides."""
    # a and s are those of a variance preserving state: a flow's state is one of them, scaled.
    return torch.sigmoid(-2 * half_log_snr) / torch.sigmoid(2 * half_log_snr).sqrt()


def step_weights(nodes: Tensor) -> tuple[Tensor, Tensor]:
    """The weight in each step of the predictions it looks at, latest first, and which those are: (K, order) each.

    In units of s, a step adds the integral of e^l·x0 over l; x0 is the polynomial through the latest predictions.
    The order rises at the start, where predictions are few, and falls at the end, as in practice.
    """
    steps = len(nodes) - 1
    step, behind = torch.arange(steps), torch.arange(ORDER)
    at = (step[:, None] - behind).clamp(min=0)
    order = torch.minimum(step + 1, steps - step).clamp(max=ORDER)
    return _integrals(nodes, nodes[at], behind < order[:, None]), at


def _integrals(nodes: Tensor, known: Tensor, used: Tensor) -> Tensor:
    """(K, order): the integral over each step of e^l times each Lagrange polynomial through the nodes in use."""
    half = nodes.diff()[:, None] / 2
    between = nodes[:-1, None] + half * (1 + PLACES)  # (K, places)
    zeros = used[:, :, None] & used[:, None, :] & ~torch.eye(ORDER, dtype=torch.bool)  # (K, polynomial, its zeros)
    apart = torch.where(zeros, known[:, :, None] - known[:, None, :], 1.0)
    factors = (between[:, None, None, :] - known[:, None, :, None]) / apart[..., None]
    polynomials = torch.where(zeros[..., None], factors, 1.0).prod(dim=2)
    integrals = ((half * SHARES * between.exp())[:, None, :] * polynomials).sum(dim=2)
    return torch.where(used, integrals, 0.0)


def _minimise(shares: Tensor, start: float, end: float, softness: float) -> None:
    """Move the shares in place to where the softened objective is smallest."""
    search = torch.optim.LBFGS([shares], max_iter=ITERATIONS, history_size=30, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        search.zero_grad()
        value = carried_error(_nodes(start, end, shares), softness).log()
        value.backward()
        return value

    search.step(loss)


def _nodes(start: float, end: float, shares: Tensor) -> Tensor:
    """Rising nodes, whatever the shares of their gaps."""
    rising = start + (end - start) * shares.softmax(dim=0).cumsum(dim=0)
    return torch.cat([rising.new_tensor([start]), rising[:-1], rising.new_tensor([end])])
