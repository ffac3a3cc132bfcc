"""What an experiment of the paper is given, and what it finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from geosprint.comparison.plan import FRESH_SEED
from geosprint.errors import ScheduleError
from geosprint.estimates import Estimate
from geosprint.extraction import extract
from geosprint.integrations.adapter import load_model
from geosprint.integrations.devices import AUTO
from geosprint.models.base import Model
from geosprint.models.spread import Spread
from geosprint.profile import CurvatureProfile
from geosprint.rivals.base import Recording
from geosprint.runs import BATCH


@dataclass(frozen=True)
class Setting:
    """How large an experiment is."""

    model: str = "fashion"  # a name, or package.module:factory
    steps: tuple[int, ...] = (5, 10, 20)  # the NFE list
    trajectories: int = 32  # B
    reference_steps: int = 100  # N
    samples: int = 128  # fresh ones, for each repetition
    repetitions: int = 3  # "mean ± std over 3 seeds"
    fine_steps: int = 60  # Heun steps of the reference solve
    features: str | None = None  # of Fréchet distances; None: what suits the model
    seed: int = 0
    batch: int = BATCH
    prompts: tuple[str, ...] = ()  # of a pipeline with text
    guidance_scale: float | None = None  # of a pipeline; None: its own
    device: str = AUTO
    progress: bool = False

    def load(self) -> Model:
        """The model of this setting: in the box, the user's own, or a pipeline."""
        inputs = None
        if self.prompts or self.guidance_scale is not None:
            from geosprint.integrations.pipelines import PipelineInputs  # diffusers takes seconds to import

            inputs = PipelineInputs(self.prompts, guidance_scale=self.guidance_scale)
        return load_model(self.model, inputs=inputs, device=self.device)

    @property
    def seeds(self) -> range:
        """Of the reference trajectories."""
        return range(self.seed, self.seed + self.trajectories)

    def fresh_seeds(self, repetition: int = 0, repetitions: int = 1) -> range:
        """Seeds of held-out noise, other ones for each repetition; of one repetition, or of several in turn."""
        first = FRESH_SEED + self.seed + repetition * self.samples
        return range(first, first + repetitions * self.samples)

    def recording(self, model: Model) -> Recording:
        """Reference trajectories of this size, recorded when somebody looks."""
        size = (self.trajectories, self.reference_steps, self.seed, self.progress)
        return Recording(Spread(model, batch=self.batch), *size)

    def extract(self, model: Model, reference_steps: int | None = None) -> CurvatureProfile:
        """The profile of such trajectories, in this number of steps or in another."""
        steps = reference_steps or self.reference_steps
        return extract(model, self.trajectories, steps, seed=self.seed, batch=self.batch, progress=self.progress)


QUICK = Setting()
"""All experiments on a small network within twenty minutes of two cores."""

SD_STEPS = (15, 20, 24, 29, 34, 39, 44)  # Table 1, Stable Diffusion

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
    # The paper's third experiment in miniature: its NFE and guidance on a network that two cores can ask.
    "scenes": Setting("scenes", SD_STEPS, trajectories=50, reference_steps=200, samples=10, guidance_scale=7.5),
    "sd15": replace(
        _PAPER,
        model="runwayml/stable-diffusion-v1-5",
        steps=SD_STEPS,
        samples=5_000,
        guidance_scale=7.5,
    ),
}


Rows = list[dict[str, Any]]
"""A table; the same keys in every row."""
Numbers = dict[str, Any]
"""What verdicts and claims are judged by, plain JSON."""


@dataclass(frozen=True)
class PaperFinding:
    """What came out of an experiment of the paper."""

    name: str
    setting: Setting
    rows: Rows
    numbers: Numbers
    verdict: str  # one or two sentences, as measured

    def where(self, **wanted: Any) -> Rows:
        """The rows that hold these values."""
        return [row for row in self.rows if all(row[name] == value for name, value in wanted.items())]


def as_numbers(name: str, found: Estimate | None) -> Numbers:
    """An estimate as a finding holds it: the value and both ends of its interval; None where there is none."""
    value, low, high = (None, None, None) if found is None else (found.value, found.low, found.high)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def estimate_in(numbers: Mapping[str, Any], name: str) -> Estimate:
    """The inverse of `as_numbers`, or of `asdict`; a number without an interval is exact."""
    if isinstance(numbers[name], Mapping):
        return Estimate(*(numbers[name][end] for end in ("value", "low", "high")))
    return Estimate(*(float(numbers.get(f"{name}{end}", numbers[name])) for end in ("", "_low", "_high")))


def preset(name: str | None, model: str | None) -> Setting:
    """The setting of this name; without one that about this model, or else the one for networks in the box."""
    if name not in (None, *PRESETS):
        raise ScheduleError(f"the preset must be one of {', '.join(PRESETS)}, got {name!r}")
    about = (known for known, setting in PRESETS.items() if setting.model == model)
    return PRESETS[name or next(about, "shipped")]
