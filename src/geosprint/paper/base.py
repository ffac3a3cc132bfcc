"""What an experiment is given, and what it must find: rows, numbers, and a sentence with the verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from geosprint.comparison.plan import FRESH_SEED
from geosprint.errors import ScheduleError
from geosprint.models.base import Model
from geosprint.models.registry import is_in_the_box, load_model
from geosprint.sampling import BATCH


@dataclass(frozen=True)
class Setting:
    """How large an experiment is."""

    model: str = "fashion"  # a name, or package.module:factory
    steps: tuple[int, ...] = (5, 10, 20)  # the NFE list
    trajectories: int = 32  # B
    reference_steps: int = 100  # N
    samples: int = 128  # fresh ones, for each repetition
    repetitions: int = 3  # "mean ± std over 3 seeds"
    fine_steps: int = 60  # Heun steps of the solve that stands for the truth
    features: str | None = None  # of Fréchet distances; None: what suits the model
    seed: int = 0
    batch: int = BATCH
    prompts: tuple[str, ...] = ()  # of a pipeline that draws what it is told
    guidance_scale: float | None = None  # of a pipeline; None: its own
    device: str = "cpu"  # of a pipeline
    progress: bool = False

    def load(self) -> Model:
        """The model of this setting: in the box, the user's own, or a pipeline."""
        if is_in_the_box(self.model):
            return load_model(self.model)
        from geosprint.integrations.adapter import load_any_model  # diffusers takes seconds to import
        from geosprint.integrations.pipelines import PipelineInputs

        return load_any_model(
            self.model, inputs=PipelineInputs(self.prompts, guidance_scale=self.guidance_scale), device=self.device
        )

    def fresh_seeds(self, repetition: int = 0) -> range:
        """Seeds of samples that no schedule was made from, others for each repetition."""
        first = FRESH_SEED + self.seed + repetition * self.samples
        return range(first, first + self.samples)


TOY = Setting("mixture", (4, 8), trajectories=8, reference_steps=30, samples=16, repetitions=2, fine_steps=20)
"""For tests."""

QUICK = Setting()
"""All experiments on a small network within twenty minutes of two cores."""

# Section 5.1: the paper's models, B, N, NFE lists (Table 1), sample counts and seeds, for whoever has a GPU.
_PAPER = Setting(
    features="inception", trajectories=50, reference_steps=200, samples=10_000, repetitions=3, fine_steps=100
)
PRESETS: dict[str, Setting] = {
    "shipped": Setting(steps=(5, 10, 20, 50), trajectories=100, reference_steps=200, samples=256, fine_steps=100),
    "cifar10": replace(
        _PAPER, model="google/ddpm-cifar10-32", steps=(10, 20, 30, 49, 60, 70, 80, 89), trajectories=100
    ),
    "church": replace(_PAPER, model="google/ddpm-ema-church-256", steps=(52, 56, 74, 79)),
    "sd15": replace(
        _PAPER,
        model="runwayml/stable-diffusion-v1-5",
        steps=(15, 20, 24, 29, 34, 39, 44),
        samples=5_000,
        guidance_scale=7.5,
    ),
}


@dataclass(frozen=True)
class Finding:
    """What came out of an experiment."""

    name: str
    setting: Setting
    rows: list[dict[str, Any]]  # as CSV; the same keys in every row
    numbers: dict[str, Any]  # what claims are judged by, plain JSON
    verdict: str  # one or two sentences, as measured


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper."""

    name: str
    paper: str  # where in the paper, and what it shows
    run: Callable[[Setting], Finding]
    quick: dict[str, Any] = field(default_factory=dict)  # what the quick setting changes for this one


def preset_named(name: str) -> Setting:
    """A setting by name."""
    if name not in PRESETS:
        raise ScheduleError(f"the preset must be one of {', '.join(PRESETS)}, got {name!r}")
    return PRESETS[name]
