"""The corollary of Section 3.3, which the paper never tests: does the score fall with each round of reflow?

Small flows on 8×8 digits are trained here, two rounds of reflow after the first fit; the shipped flow of
clothes is compared with its shipped reflow. Every round starts from the same noise and is pruned by the same share.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from geosprint.estimates import bootstrap_mean
from geosprint.integrations.adapter import load_model
from geosprint.models.base import Model, Network
from geosprint.models.exact import digit_images
from geosprint.noise import Flow
from geosprint.paper.base import Numbers, PaperFinding, Rows, Setting, as_numbers, estimate_in
from geosprint.paper.claims import Evidence, PaperExperiment, below
from geosprint.paper.figures import SCORE_LABEL, Panel
from geosprint.paper.learning import DataOrder, Learner, TrainingPlan, draw_couplings, generator_of, stratified_times
from geosprint.paper.measuring import SHARE, Array
from geosprint.threshold import least_score_at_share

ROUNDS = 2  # of reflow, after the first fit
SHIPPED = ("fashion-flow", "fashion-reflow")
SHAPE = (1, 8, 8)
WIDTH = 256
FREQUENCIES = 8
STEPS_PER_SAMPLE, PAIRS_PER_SAMPLE = 10, 24
"""How long every round learns, and from how many pairs, for each sample that the setting asks for."""
MOST_SAMPLES = 256  # beyond, the small networks learn no more
HEUN_STEPS = 20  # from noise to sample, when pairs are drawn


def measure(setting: Setting) -> tuple[Rows, Numbers]:
    """Score every round of every family of flows."""
    rows: Rows = []
    for repetition in range(setting.repetitions):
        rows += family_rows("digits", repetition, list(digit_flows(setting, setting.seed + repetition)), setting)
    rows += family_rows("fashion", 0, [load_model(name) for name in SHIPPED], setting)
    return rows, {"share": SHARE}


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
        first, last = nn.Linear(pixels + 2 * FREQUENCIES, WIDTH), nn.Linear(WIDTH, pixels)
        self.layers = nn.Sequential(first, nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU(), last)
        with torch.no_grad():  # torch's own start draws from the global generator
            for weights in self.parameters():
                bound = 1 / math.sqrt(weights.shape[-1])
                weights.copy_((2 * torch.rand(weights.shape, generator=generator) - 1) * bound)

    def forward(self, x: Tensor, t: Tensor | float, labels: Tensor | None = None) -> Tensor:
        share = torch.as_tensor(t, dtype=x.dtype) / 1000
        angles = share.reshape(-1, 1) * 2.0 ** torch.arange(FREQUENCIES) * math.pi / 2
        hidden = torch.cat([x.flatten(1), torch.cat([angles.sin(), angles.cos()], dim=1).expand(len(x), -1)], dim=1)
        return self.layers(hidden).view_as(x)


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


def family_rows(family: str, repetition: int, models: list[Model], setting: Setting) -> Rows:
    """Every round's score with its interval, and the change since the round before, seeds paired."""
    measured = [straightness_of(model, setting) for model in models]
    return [
        {
            "family": family,
            "repetition": repetition,
            "round": round_,
            **as_numbers("score", bootstrap_mean(now["score"])),
            **as_numbers("change", bootstrap_mean(now["score"] - before["score"]) if round_ else None),
            "score_unnormalised": float(now["score_unnormalised"].mean()),
            "bend": float(now["bend"].mean()),
            "trajectories": setting.trajectories,
            "reference_steps": setting.reference_steps,
        }
        for round_, (before, now) in enumerate(zip([{}, *measured], measured, strict=False))
    ]


def straightness_of(model: Model, setting: Setting) -> dict[str, Array]:
    """How far from straight every trajectory of a flow is, in three ways: the score at the matched share, as the paper
    has it (every dimension normalised over time) and of the states as they are, and how far velocity is from constant.
    """
    walks = setting.recording(model).walks
    assert walks.x0 is not None
    assert walks.eps is not None
    score, unnormalised = (least_score_at_share(walks.gram(how), SHARE).scores for how in ("time", "none"))
    bend = velocity_bend(walks.states[:, 0] - walks.states[:, -1], walks.eps - walks.x0)
    return {"score": score, "score_unnormalised": unnormalised, "bend": bend}


def velocity_bend(way: Tensor, velocities: Tensor) -> Array:
    """Mean |way - velocity|² over time, by |way|²: the straightness of Liu et al. (2023), 0 for a straight line."""
    off = ((way[:, None] - velocities) ** 2).sum(dim=2).mean(dim=1)
    return (off / (way**2).sum(dim=1)).double().numpy()


def _changes(finding: PaperFinding) -> Evidence:
    return {f"{i}": estimate_in(row, "change") for i, row in enumerate(finding.rows) if row["round"]}


QUANTITIES = {
    "score": f"{SCORE_LABEL} at {SHARE:.0%} pruned",
    "score_unnormalised": "the same, states not normalised",
    "bend": "mean |way − velocity|² / |way|² (Liu et al. 2023)",
}
BY = ("family", "repetition")


REFLOW = PaperExperiment(
    "reflow",
    "Corollary of Section 3.3: the score falls with each round of reflow; not tested there",
    measure,
    figure=tuple(Panel("round", name, "rounds of reflow", said, by=BY, log="y") for name, said in QUANTITIES.items()),
    claims={
        "the score falls with each round of reflow (a corollary it does not test) (3.3)": below(
            f"change of the score at {SHARE:.0%} pruned from one round to the next, of several trainings", of=_changes
        )
    },
)
