"""Every solver that `geosprint.apply` supports, written from its paper in float64 for any falling list of times.

A network is a function (x, a, s, t) of the variance-preserving state x = a·x0 + s·eps; it returns x0 and eps.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

import geosprint

Network = Callable[[Tensor, float, float, float], tuple[Tensor, Tensor]]
Levels = list[tuple[float, float]]  # (a, s) at every time, then at the clean end


def smooth_network(x: Tensor, a: float, s: float, t: float) -> tuple[Tensor, Tensor]:
    """The exact denoiser of a Gaussian, bent a little so that no solver is exact on it."""
    mean, variance = torch.linspace(-0.5, 0.5, x.shape[-1], dtype=x.dtype), 0.3
    total = a**2 * variance + s**2
    x0 = mean + a * variance / total * (x - a * mean) + 0.1 * s * torch.tanh(x)
    return x0, (x - a * x0) / s


def answer(kind: str, x0: Tensor, eps: Tensor, a: float, s: float) -> Tensor:
    """What a network of this prediction type returns."""
    return {"epsilon": eps, "sample": x0, "v_prediction": a * eps - s * x0, "flow": eps - x0}[kind]


def vp_levels(alphas_cumprod: Tensor, times: Sequence[float], final: float = 1.0) -> Levels:
    kept = [*(float(alphas_cumprod[int(t)]) for t in times), final]
    return [(math.sqrt(k), math.sqrt(1 - k)) for k in kept]


def ddim(network: Network, x: Tensor, times: Sequence[float], levels: Levels) -> Tensor:
    """Song et al. (2021), Eq. 12 with eta = 0."""
    for t, (a, s), (a1, s1) in zip(times, levels, levels[1:], strict=False):
        x0, eps = network(x, a, s, t)
        x = a1 * x0 + s1 * eps
    return x


def euler(network: Network, x: Tensor, times: Sequence[float], levels: Levels) -> Tensor:
    """Karras et al. (2022): Euler in x / a over s / a."""
    z = x / levels[0][0]
    for t, (a, s), (a1, s1) in zip(times, levels, levels[1:], strict=False):
        x0, _ = network(a * z, a, s, t)
        z = z + (s1 / a1 - s / a) * (z - x0) / (s / a)
    return z


def euler_ancestral(
    network: Network, x: Tensor, times: Sequence[float], levels: Levels, draw: Callable[[], Tensor]
) -> Tensor:
    """Euler to a lower noise level, then fresh noise up to the wanted one, so that the variances add up."""
    z = x / levels[0][0]
    for t, (a, s), (a1, s1) in zip(times, levels, levels[1:], strict=False):
        now, then = s / a, s1 / a1
        up = then * math.sqrt(1 - (then / now) ** 2)
        down = math.sqrt(then**2 - up**2)
        x0, _ = network(a * z, a, s, t)
        z = z + (down - now) * (z - x0) / now + up * draw()
    return z


def heun(network: Network, x: Tensor, times: Sequence[float], levels: Levels) -> Tensor:
    """Karras et al. (2022), Algorithm 1 without churn."""
    z = x / levels[0][0]
    for i, t in enumerate(times):
        (a, s), (a1, s1) = levels[i], levels[i + 1]
        slope = (z - network(a * z, a, s, t)[0]) / (s / a)
        landing = z + (s1 / a1 - s / a) * slope
        if s1 == 0:
            return landing
        slope_there = (landing - network(a1 * landing, a1, s1, times[i + 1])[0]) / (s1 / a1)
        z = z + (s1 / a1 - s / a) * (slope + slope_there) / 2
    return z


def dpmpp_multistep(network: Network, x: Tensor, times: Sequence[float], levels: Levels, order: int = 2) -> Tensor:
    """Lu et al. (2023), Algorithm 2 and its third-order code; lower orders at both ends of a short walk."""
    lambdas, seen = [_half_log_snr(level) for level in levels], []
    for i, t in enumerate(times):
        (a, s), (a1, s1) = levels[i], levels[i + 1]
        seen.append(network(x, a, s, t)[0])
        left = len(times) - i
        use = min(order, i + 1, left if len(times) < 15 else (order if left > 1 else 1))
        h = lambdas[i + 1] - lambdas[i]
        step = (s1 / s) * x - a1 * math.expm1(-h) * seen[i]
        if use >= 2:
            first = (seen[i] - seen[i - 1]) * h / (lambdas[i] - lambdas[i - 1])
        if use == 2:
            step = step - a1 * math.expm1(-h) * first / 2
        if use == 3:
            before = (seen[i - 1] - seen[i - 2]) * h / (lambdas[i - 1] - lambdas[i - 2])
            r0, r1 = (lambdas[i] - lambdas[i - 1]) / h, (lambdas[i - 1] - lambdas[i - 2]) / h
            second = (first - before) / (r0 + r1)
            phi_2 = math.expm1(-h) / h + 1
            phi_3 = phi_2 / h - 0.5
            step = step + a1 * phi_2 * (first + r0 * second) - a1 * phi_3 * second
        x = step
    return x


def dpmpp_singlestep(network: Network, x: Tensor, times: Sequence[float], levels: Levels, order: int = 2) -> Tensor:
    """Lu et al. (2023), Algorithm 1 (2S) and 3S: the inner times of a step are the next entries of the list."""
    lambdas, i = [_half_log_snr(level) for level in levels], 0
    while i < len(times):
        left = len(times) - i
        # The last step, to sigma 0, is of first order, and what is left before it fills one shorter step.
        size = min(order, left - 1) if left > 1 else 1
        seen, start = [], x
        for j in range(size):
            (a, s), (a_start, s_start) = levels[i + j], levels[i]
            assert (a_start, s_start) == levels[i]
            seen.append(network(x, a, s, times[i + j])[0])
            a1, s1 = levels[i + j + 1]
            h = lambdas[i + j + 1] - lambdas[i]
            x = (s1 / s_start) * start - a1 * math.expm1(-h) * seen[0]
            if j == 1:
                slope = (seen[1] - seen[0]) * h / (lambdas[i + 1] - lambdas[i])
                x = x - a1 * math.expm1(-h) * slope / 2
            if j == 2:
                slope = (seen[2] - seen[0]) * h / (lambdas[i + 2] - lambdas[i])
                x = x + a1 * (math.expm1(-h) / h + 1) * slope
        i += size
    return x


def unipc(network: Network, x: Tensor, times: Sequence[float], levels: Levels, order: int = 2) -> Tensor:
    """Zhao et al. (2023), UniPC with B(h) = e^h - 1 in data prediction: correct where the walk stands, then predict."""
    lambdas, seen = [_half_log_snr(level) for level in levels], []
    before, used = x, 0
    for i, t in enumerate(times):
        now = network(x, *levels[i], t)[0]
        if i:
            x = _unified(before, [*seen, now], levels, lambdas, i - 1, used, corrector=True)
        seen.append(now)
        used = min(order, i + 1, len(times) - i)
        before = x
        x = _unified(x, seen, levels, lambdas, i, used, corrector=False)
    return x


def _unified(
    x: Tensor, seen: list[Tensor], levels: Levels, lambdas: list[float], i: int, order: int, corrector: bool
) -> Tensor:
    (_, s), (a1, s1) = levels[i], levels[i + 1]
    h = lambdas[i + 1] - lambdas[i]
    step = (s1 / s) * x - a1 * math.expm1(-h) * seen[i]
    ratios = [(lambdas[i - k] - lambdas[i]) / h for k in range(1, order)]
    differences = [(seen[i - k] - seen[i]) / r for k, r in zip(range(1, order), ratios, strict=True)]
    if corrector:
        ratios.append(1.0)
        differences.append(seen[i + 1] - seen[i])
    if not ratios:
        return step
    if len(ratios) == 1:
        weights = [0.5]  # the paper's choice: for one point any bounded weight keeps the order
    else:
        rows = [[r**power for r in ratios] for power in range(len(ratios))]
        wanted = [math.factorial(k) * -h * _phi(k + 1, -h) / math.expm1(-h) for k in range(1, len(ratios) + 1)]
        weights = np.linalg.solve(np.array(rows), np.array(wanted)).tolist()
    return step - a1 * math.expm1(-h) * sum(w * d for w, d in zip(weights, differences, strict=True))


def ddpm(network: Network, x: Tensor, times: Sequence[float], levels: Levels, draw: Callable[[], Tensor]) -> Tensor:
    """Ho et al. (2020), Eq. 6 and 7, for the forward process thinned to these times."""
    for t, (a, s), (a1, s1) in zip(times, levels, levels[1:], strict=False):
        x0, _ = network(x, a, s, t)
        alpha = (a / a1) ** 2  # of the thinned process
        mean = a1 * (1 - alpha) / s**2 * x0 + math.sqrt(alpha) * s1**2 / s**2 * x
        x = mean + math.sqrt(s1**2 / s**2 * (1 - alpha)) * draw() if s1 else mean
    return x


def sde_dpmpp_2m(
    network: Network, x: Tensor, times: Sequence[float], levels: Levels, draw: Callable[[], Tensor]
) -> Tensor:
    """Lu et al. (2023), SDE-DPM-Solver++(2M): the reverse SDE, its noise integrated exactly."""
    lambdas, seen = [_half_log_snr(level) for level in levels], []
    for i, t in enumerate(times):
        (a, s), (a1, s1) = levels[i], levels[i + 1]
        seen.append(network(x, a, s, t)[0])
        h = lambdas[i + 1] - lambdas[i]
        ahead = seen[i]
        if 0 < i < len(times) - 1:
            ahead = ahead + (seen[i] - seen[i - 1]) * h / (lambdas[i] - lambdas[i - 1]) / 2
        fresh = -math.expm1(-2 * h)
        x = (s1 / s) * math.exp(-h) * x + a1 * fresh * ahead + s1 * math.sqrt(fresh) * draw()
    return x


def lcm(network: Network, x: Tensor, times: Sequence[float], levels: Levels, draw: Callable[[], Tensor]) -> Tensor:
    """Luo et al. (2023), Algorithm 3, with the boundary scalings of their code (0.5 and 10)."""
    for i, t in enumerate(times):
        x0, _ = network(x, *levels[i], t)
        skip = 0.25 / ((10 * t) ** 2 + 0.25)
        x = 10 * t / math.sqrt((10 * t) ** 2 + 0.25) * x0 + skip * x
        if i + 1 < len(times):
            a1, s1 = levels[i + 1]
            x = a1 * x + s1 * draw()
    return x


def _half_log_snr(level: tuple[float, float]) -> float:
    a, s = level
    return math.log(a / s) if s else math.inf


def _phi(k: int, z: float) -> float:
    """The function phi_k of exponential integrators, from its integral."""
    nodes, weights = np.polynomial.legendre.leggauss(64)
    r = (nodes + 1) / 2
    return float(np.sum(weights / 2 * np.exp((1 - r) * z) * r ** (k - 1)) / math.factorial(k - 1))


def walked(scheduler: object, network: Network, x: Tensor, kind: str, steps: int, levels_at: Callable) -> Tensor:
    """The loop of a pipeline: a diffusers scheduler and a network, from unit noise to the result."""
    scheduler.set_timesteps(steps)
    generator = torch.Generator().manual_seed(11)
    named = {"generator": generator} if "generator" in inspect.signature(scheduler.step).parameters else {}
    x = x * scheduler.init_noise_sigma
    for t in scheduler.timesteps:
        scaled = scheduler.scale_model_input(x, t) if hasattr(scheduler, "scale_model_input") else x
        a, s = levels_at(float(t))
        x = scheduler.step(answer(kind, *network(scaled, a, s, float(t)), a, s), t, x, **named, return_dict=False)[0]
    return x


def profile_for(noise: object, prediction: str = "eps", trajectories: int = 4, steps: int = 24) -> object:
    """A small profile of the smooth network under this noise schedule."""
    kinds = {"eps": "epsilon", "v": "v_prediction", "x0": "sample", "flow": "flow"}

    def called(x: Tensor, t: float) -> Tensor:
        a, s = noise.signal_and_sigma(t)
        return answer(kinds[prediction], *smooth_network(x, a, s, t), a, s)

    model = geosprint.Network(called, (6,), noise, prediction, name="smooth")
    return geosprint.extract(model, trajectories, steps)
