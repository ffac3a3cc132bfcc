"""The whole job once on a model in the box: tune it, and draw the same noise as today, in as few steps, and tuned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from geosprint.baselines import baseline_schedule
from geosprint.integrations.adapter import decoder_of
from geosprint.models.base import Model
from geosprint.report.plots import side_by_side
from geosprint.sampling import sample
from geosprint.teacher import BUDGET
from geosprint.tuned import Tuned
from geosprint.tuning.run import tune

FRESH = 3_000_000  # seed of the first picture: far from those that tuning learns from and is judged by


@dataclass(frozen=True)
class Demo:
    """What the demo found, and what it drew from the same noise, by name."""

    tuned: Tuned
    drawn: list[tuple[str, Tensor]]

    def save(self, out: Path) -> list[Path]:
        """The tuned steps and the pictures."""
        return [self.tuned.save(out / "tuned.json"), side_by_side(self.drawn, out / "side-by-side.png")]


def run_demo(model: Model, budget_nfe: int = BUDGET, samples: int = 16, seed: int = 0, progress: bool = True) -> Demo:
    """Tune, and draw what nothing was tuned on in three ways."""
    tuned = tune(model, budget_nfe=budget_nfe, seed=seed, progress=progress)
    today, steps = tuned.today, tuned.proved or max(tuned.steps)
    assert today is not None, "tune always measures what is run today"
    seeds, decode = range(FRESH + seed, FRESH + seed + samples), decoder_of(model)
    drawn = []
    for k in (today.steps, steps):
        schedule = baseline_schedule(today.spacing, model.noise, k)
        drawn.append((str(replace(today, steps=k)), sample(model, schedule, seeds, today.solver)))
    drawn.append((f"{steps} tuned steps", sample(model, tuned, seeds, steps=steps)))
    return Demo(tuned, [(title, decode(samples)) for title, samples in drawn])
