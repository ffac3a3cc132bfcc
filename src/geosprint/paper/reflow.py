"""The corollary of Section 3.3, which the paper never tests: does the score fall with each round of reflow?

Small flows on 8×8 digits are trained here, two rounds of reflow after the first fit; the shipped flow of
clothes is compared with its shipped reflow. Every round walks from the same noise and is pruned by the same share.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor, nn

from geosprint.metrics.estimates import bootstrap_mean
from geosprint.models.base import Model, Network
from geosprint.models.exact import digit_images
from geosprint.models.registry import load_model
from geosprint.noise import Flow
from geosprint.paper.base import Experiment, Finding, Setting
from geosprint.paper.figures import in_both_formats
from geosprint.paper.learning import (
    DataOrder,
    Learner,
    TrainingPlan,
    draw_couplings,
    generator_of,
    stratified_times,
)
from geosprint.paper.measuring import spread
from geosprint.report.plots import BLUE, RED
from geosprint.sampling import record
from geosprint.threshold import least_score_at_share

Array = NDArray[np.float64]

SHARE = 0.8
ROUNDS = 2  # of reflow, after the first fit
SHIPPED = ("fashion-flow", "fashion-reflow")
SHAPE = (1, 8, 8)
WIDTH = 256
FREQUENCIES = 8
STEPS_PER_SAMPLE, PAIRS_PER_SAMPLE = 10, 24
"""How long every round learns, and from how many pairs, for each sample that the setting asks for."""
MOST_SAMPLES = 256  # beyond, the small networks learn no more
HEUN_STEPS = 20  # from noise to sample, when pairs are drawn


def run(setting: Setting) -> Finding:
    """Score every round of every family of flows."""
    rows = [row for repetition in range(setting.repetitions) for row in digits_rows(repetition, setting)]
    rows += family_rows("fashion", 0, [load_model(name) for name in SHIPPED], setting)
    numbers = numbers_from(rows)
    return Finding("reflow", setting, rows, numbers, verdict(numbers))


def digits_rows(repetition: int, setting: Setting) -> list[dict[str, Any]]:
    """Rows of one family of small flows, trained from its own seed."""
    return family_rows("digits", repetition, list(digit_flows(setting, setting.seed + repetition)), setting)


def digit_flows(setting: Setting, seed: int) -> Iterator[Model]:
    """A flow fitted to the digits and, from its weights on, a flow fitted to the couplings of the one before."""
    samples, noise = digit_images()[0].float(), None
    network = VelocityNetwork(generator_of(seed, "weights", 0))
    for round_ in range(ROUNDS + 1):
        if round_:
            unlabelled = torch.zeros(PAIRS_PER_SAMPLE * min(setting.samples, MOST_SAMPLES), dtype=torch.int64)
            fresh = seed * (ROUNDS + 1) + round_  # no noise of another round or repetition
            samples, noise = draw_couplings(network, SHAPE, unlabelled, HEUN_STEPS, fresh)
        network = trained(network, samples, noise, setting, seed)
        yield Network(network, SHAPE, Flow(), "flow", name=f"digits-reflow-{round_}")


class VelocityNetwork(nn.Module):
    """Two hidden layers from a picture and its time to a velocity."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        pixels = math.prod(SHAPE)
        sizes = (pixels + 2 * FREQUENCIES, WIDTH, WIDTH, pixels)
        self.layers = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(sizes))
        with torch.no_grad():  # torch's own start draws from the global generator
            for weights in self.parameters():
                bound = 1 / math.sqrt(weights.shape[-1])
                weights.copy_((2 * torch.rand(weights.shape, generator=generator) - 1) * bound)

    def forward(self, x: Tensor, t: Tensor | float, labels: Tensor | None = None) -> Tensor:
        share = torch.as_tensor(t, dtype=x.dtype) / 1000
        angles = share.reshape(-1, 1) * 2.0 ** torch.arange(FREQUENCIES) * math.pi / 2
        hidden = torch.cat([x.flatten(1), torch.cat([angles.sin(), angles.cos()], dim=1).expand(len(x), -1)], dim=1)
        for layer in self.layers[:-1]:
            hidden = nn.functional.silu(layer(hidden))
        return self.layers[-1](hidden).view_as(x)


def trained(
    before: VelocityNetwork, samples: Tensor, noise: Tensor | None, setting: Setting, seed: int
) -> VelocityNetwork:
    """A network that went on learning from these weights: the average of its weights.

    Without `noise` every step draws its own.
    """
    network = VelocityNetwork(torch.Generator())
    network.load_state_dict(before.state_dict())
    steps = STEPS_PER_SAMPLE * min(setting.samples, MOST_SAMPLES)
    learner = Learner(network, TrainingPlan(steps, batch=128, learning_rate=2e-3, warmup=50, ema_decay=0.99))
    order = DataOrder(len(samples), learner.plan.batch, seed)
    for step in range(steps):
        rows, generator = order.rows(step), generator_of(seed, "noise", step)
        x0, times = samples[rows], stratified_times(len(rows), generator)
        eps = torch.randn(x0.shape, generator=generator) if noise is None else noise[rows]
        s = times.view(-1, 1, 1, 1)
        learner.learn(nn.functional.mse_loss(network((1 - s) * x0 + s * eps, times * 1000), eps - x0))
    network.load_state_dict(learner.average)
    return network.requires_grad_(False)


def family_rows(family: str, repetition: int, models: list[Model], setting: Setting) -> list[dict[str, Any]]:
    """Every round's score with its interval, and the change since the round before, seeds paired."""
    measured = [measure(model, setting) for model in models]
    rows = []
    for round_, now in enumerate(measured):
        found = bootstrap_mean(now.scores)
        change = bootstrap_mean(now.scores - measured[round_ - 1].scores) if round_ else None
        rows.append(
            {
                "family": family,
                "repetition": repetition,
                "round": round_,
                "score": found.value,
                "score_low": found.low,
                "score_high": found.high,
                "change": change and change.value,
                "change_low": change and change.low,
                "change_high": change and change.high,
                "score_unnormalised": float(now.unnormalised.mean()),
                "bend": float(now.bends.mean()),
                "trajectories": setting.trajectories,
                "reference_steps": setting.reference_steps,
            }
        )
    return rows


@dataclass(frozen=True)
class Straightness:
    """How far from straight every trajectory of one flow is, in three ways."""

    scores: Array  # (trajectories,) at the matched share, as the paper has it: every dimension normalised over time
    unnormalised: Array  # (trajectories,) the same of the states as they are
    bends: Array  # (trajectories,) how far the velocity is from constant


def measure(model: Model, setting: Setting) -> Straightness:
    """Walk the flow from the setting's seeds and look at the paths."""
    seeds = range(setting.seed, setting.seed + setting.trajectories)
    walks = record(model, seeds, setting.reference_steps, batch=setting.batch, predictions=True)
    assert walks.x0 is not None
    assert walks.eps is not None
    scores, unnormalised = (least_score_at_share(walks.gram(how), SHARE).scores for how in ("time", "none"))
    bends = velocity_bend(walks.states[:, 0] - walks.states[:, -1], walks.eps - walks.x0)
    return Straightness(scores, unnormalised, bends)


def velocity_bend(way: Tensor, velocities: Tensor) -> Array:
    """Mean |way - velocity|² over time, by |way|²: the straightness of Liu et al. (2023), 0 for a straight path."""
    off = ((way[:, None] - velocities) ** 2).sum(dim=2).mean(dim=1)
    return (off / (way**2).sum(dim=1)).double().numpy()


def numbers_from(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Of each family: mean score of every round, whether it falls each time, and whether chance could do that."""
    numbers: dict[str, Any] = {"share": SHARE}
    for family in dict.fromkeys(row["family"] for row in rows):
        of_family = [row for row in rows if row["family"] == family]
        rounds = sorted({row["round"] for row in of_family})
        for column in ("score", "score_unnormalised", "bend"):
            found = [[row[column] for row in of_family if row["round"] == k] for k in rounds]
            means = [float(np.mean(trainings)) for trainings in found]
            numbers[f"{family}_{column}_by_round"] = means
            numbers[f"{family}_{column}_std_by_round"] = [spread(trainings) for trainings in found]
            numbers[f"{family}_{column}_falls_monotonically"] = bool((np.diff(means) < 0).all())
        later = [row for row in of_family if row["round"]]
        numbers[f"{family}_changes"] = len(later)
        numbers[f"{family}_changes_surely_down"] = sum(row["change_high"] < 0 for row in later)
        numbers[f"{family}_changes_surely_up"] = sum(row["change_low"] > 0 for row in later)
    return numbers


def verdict(numbers: dict[str, Any]) -> str:
    """Whether the corollary holds on each family."""
    said = []
    for family in ("digits", "fashion"):
        by_round = numbers[f"{family}_score_by_round"]
        down, up, all_ = (numbers[f"{family}_changes{end}"] for end in ("_surely_down", "_surely_up", ""))
        falls = numbers[f"{family}_score_falls_monotonically"]
        scores, plain = (
            " → ".join(f"{score:.2g}" for score in numbers[f"{family}_{column}_by_round"])
            for column in ("score", "score_unnormalised")
        )
        held = "holds" if falls and down == all_ else "fails" if not falls and up else "is not settled"
        agrees = falls == numbers[f"{family}_bend_falls_monotonically"]
        said.append(
            f"{family}: score {scores} ({plain} of states not normalised) over {len(by_round) - 1} "
            f"round{'s' * (len(by_round) > 2)} of reflow at {SHARE:.0%} pruned, surely lower in {down} and "
            f"surely higher in {up} of {all_} rounds; the corollary "
            f"{held} here, and the spread of velocities (Liu et al. 2023) {'agrees' if agrees else 'does not agree'}."
        )
    return " ".join(part[0].upper() + part[1:] for part in said)


REFLOW = Experiment(
    "reflow", paper="Corollary of Section 3.3: the score falls with each round of reflow; not tested there", run=run
)


FAMILIES = {"digits": ("8×8 digits, trained here", BLUE), "fashion": ("28×28 clothes, shipped", RED)}


def plot(finding: Finding, path: Path) -> list[Path]:
    """A line for every training; bands of the score are 95 % intervals over trajectories."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    scores, bends = figure.subplots(1, 2)
    for family, (name, colour) in FAMILIES.items():
        repetitions = sorted({row["repetition"] for row in finding.rows if row["family"] == family})
        for repetition in repetitions:
            rows = [row for row in finding.rows if (row["family"], row["repetition"]) == (family, repetition)]
            rounds, label = [row["round"] for row in rows], name if repetition == repetitions[0] else None
            scores.plot(rounds, [row["score"] for row in rows], "o-", ms=4, color=colour, label=label)
            low, high = ([row[f"score_{end}"] for row in rows] for end in ("low", "high"))
            scores.fill_between(rounds, low, high, color=colour, alpha=0.15, lw=0)
            raw = [row["score_unnormalised"] for row in rows]
            scores.plot(rounds, raw, "s:", ms=3, color=colour, label=label and f"{label}, states not normalised")
            bends.plot(rounds, [row["bend"] for row in rows], "o-", ms=4, color=colour, label=label)
    scores.set(ylabel=rf"$\alpha_{{traj}}$ at {finding.numbers['share']:.0%} pruned", title="Projection score")
    bends.set(ylabel="mean |way − velocity|² / |way|²", title="Spread of velocities (Liu et al. 2023)")
    for axes in (scores, bends):
        axes.set(xlabel="rounds of reflow", yscale="log")
        axes.set_xticks(sorted({row["round"] for row in finding.rows}))
        axes.legend(frameon=False, fontsize="small")
    return in_both_formats(figure, path)
