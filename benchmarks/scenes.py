"""What a tuned file of `scenes` is worth by every measure, and away from what it was tuned on.

    geosprint tune scenes --steps 6,8,10,12,15,20 -o out/scenes-tuned.json
    python -m benchmarks.scenes out/scenes-tuned.json -o docs/results/scenes

writes steps.md (every number of steps against today's 50, by four measures) and transfer.md (other guidance scales,
prompts and sizes, and image to image), on noise that nothing was tuned on.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from diffusers import DDIMScheduler, DPMSolverMultistepScheduler, StableDiffusionImg2ImgPipeline
from torch import Tensor

import geosprint
from geosprint import PipelineInputs, Tuned
from geosprint.baselines import baseline_schedule
from geosprint.comparison.plan import FRESH_SEED
from geosprint.estimates import Estimate, bootstrap_mean, bootstrapped, endpoint_errors, jackknifed
from geosprint.files import as_csv, write_text
from geosprint.integrations.today import today_of
from geosprint.metrics.distances import frechet_distance
from geosprint.models.networks import load_detector
from geosprint.models.registry import bundled_prompts
from geosprint.paper.measuring import ratio_of_means
from geosprint.sampling import SeededNoise, batches_of, sample
from geosprint.teacher import FINE_SOLVER, fine_timesteps
from recipes.scenes.agreement import agreement_of, see
from recipes.scenes.drawing import draw, draw_up_scenes

GUIDANCE = 7.5
SCALES = (3.0, 5.0, 7.5, 10.0)
STRENGTH = 0.6
FINE_STEPS, FINE_STEPS_FROM_PICTURES = 40, 150  # of Heun; of DDIM, since the pipeline itself must take them
OTHER_PROMPTS_SEED = 10**9 + 7  # of scenes that are neither among the bundled prompts nor in training
TODAY = "50 DDIM steps (today)"
MEASURES = ("latent RMSE", "over today's", "picture RMSE", "prompt agreement", "squared Fréchet distance")


@dataclass(frozen=True)
class Condition:
    """What is drawn, and from which noise."""

    name: str
    prompts: tuple[str, ...]
    guidance: float = GUIDANCE
    side: int = 64


class Measured:
    """Latents of one way to draw, held against a fine solve from the same noise."""

    def __init__(self, pipe, latents: Tensor, prompts, fine: Measured | None, detector) -> None:
        self.latents, self.pictures = latents, decoded(pipe, latents)
        held = [agreement_of(prompt, one) for prompt, one in zip(prompts, see(detector, self.pictures), strict=True)]
        self.facts = np.array([(one.held, one.named) for one in held], dtype=float)
        self.features = detector.features(self.pictures).double()
        self.fine = fine or self

    @property
    def errors(self):
        return endpoint_errors(self.latents, self.fine.latents)

    def against(self, today: Measured) -> dict[str, Estimate]:
        facts, count = self.facts, len(self.facts)
        found = (
            bootstrap_mean(self.errors),
            ratio_of_means(self.errors, today.errors),
            bootstrap_mean(endpoint_errors(self.pictures, self.fine.pictures)),
            bootstrapped(lambda rows: facts[rows, 0].sum() / facts[rows, 1].sum(), count),
            jackknifed(lambda rows: frechet_distance(self.features[rows], self.fine.features[rows]), count),
        )
        return dict(zip(MEASURES, found, strict=True))


@torch.no_grad()
def decoded(pipe, latents: Tensor) -> Tensor:
    """Pictures in -1..1."""
    parts = latents.split(32)
    return torch.cat([pipe.vae.decode(some / pipe.vae.config.scaling_factor).sample for some in parts]).clamp(-1, 1)


def drawn_in_every_way(pipe, condition: Condition, tuned: Tuned, steps, seeds) -> dict[str, Tensor]:
    """Latents of a fine solve, of what is run today, and of each number of steps, tuned and by known solvers."""
    size = {} if condition.side == 64 else {"height": condition.side, "width": condition.side}
    inputs = PipelineInputs(condition.prompts, guidance_scale=condition.guidance, **size)
    model, today = geosprint.as_model(pipe, inputs), today_of(pipe, inputs)
    found = {"fine": sample(model, fine_timesteps(model.noise, FINE_STEPS), seeds, FINE_SOLVER)}
    noise = SeededNoise(seeds, model.shape, model.device).draw()
    parts = [
        today.ends(model.for_samples(rows), noise[rows.start : rows.stop], 50) for rows in batches_of(len(seeds), 32)
    ]
    found[TODAY] = torch.cat(parts)
    for k in steps:
        uniform = baseline_schedule("uniform-trailing", model.noise, k)
        with warnings.catch_warnings():  # it was tuned for another scale or size: that is what is measured
            warnings.simplefilter("ignore")
            found[f"{k} tuned steps"] = sample(model, tuned, seeds, steps=k)
        found[f"{k} DPM++ 2M steps"] = sample(model, uniform, seeds, "dpmpp-2m")
        found[f"{k} DDIM steps"] = sample(model, uniform, seeds, "ddim")
    return found


def drawn_from_pictures(pipe, prompts, tuned: Tuned, k: int, seeds) -> dict[str, Tensor]:
    """Image to image by the pipeline's own call, from drawings of other scenes."""
    stock = pipe.scheduler
    pictures = draw(draw_up_scenes(len(seeds), seed=OTHER_PROMPTS_SEED)) / 2 + 0.5
    image_to_image = StableDiffusionImg2ImgPipeline(**pipe.components)
    image_to_image.set_progress_bar_config(disable=True)

    def latents_of(scheduler, steps: int) -> Tensor:
        image_to_image.scheduler = scheduler
        asked = {
            "strength": STRENGTH,
            "guidance_scale": GUIDANCE,
            "num_inference_steps": steps,
            "output_type": "latent",
        }
        found = []
        for rows in batches_of(len(seeds), 32):
            generators = [torch.Generator().manual_seed(seeds[row]) for row in rows]
            texts = [prompts[row % len(prompts)] for row in rows]
            some = pictures[rows.start : rows.stop]
            found.append(image_to_image(texts, image=some, generator=generators, **asked).images)
        return torch.cat(found)

    found = {"fine": latents_of(stock, FINE_STEPS_FROM_PICTURES), TODAY: latents_of(stock, 50)}
    geosprint.apply(image_to_image, tuned)
    found[f"{k} tuned steps"] = latents_of(image_to_image.scheduler, k)
    found[f"{k} DPM++ 2M steps"] = latents_of(DPMSolverMultistepScheduler.from_config(stock.config), k)
    found[f"{k} DDIM steps"] = latents_of(DDIMScheduler.from_config(stock.config, timestep_spacing="trailing"), k)
    return found


def rows_of(pipe, name: str, prompts, latents: Mapping[str, Tensor], detector) -> list[dict[str, str]]:
    """A row of the table for each way."""
    said = [prompts[i % len(prompts)] for i in range(len(latents["fine"]))]
    fine = Measured(pipe, latents["fine"], said, None, detector)
    measured = {way: Measured(pipe, found, said, fine, detector) for way, found in latents.items() if way != "fine"}
    rows = []
    for way, found in {**measured, "fine solve": fine}.items():
        shown = {measure: _shown(estimate) for measure, estimate in found.against(measured[TODAY]).items()}
        shown |= {} if found is not fine else {measure: "–" for measure in MEASURES if measure != "prompt agreement"}
        rows.append({"condition": name, "way": way, **shown})
    return rows


def _shown(found: Estimate) -> str:
    return f"{found.value:.3g} ({found.low:.3g} to {found.high:.3g})"


def table(rows) -> str:
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    return "\n".join([*lines, *("| " + " | ".join(row.values()) + " |" for row in rows), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tuned", type=Path)
    parser.add_argument("-o", "--out", type=Path, default=Path("out/scenes-transfer"))
    parser.add_argument("--samples", type=int, default=48)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tuned, seeds = Tuned.load(options.tuned), range(FRESH_SEED, FRESH_SEED + options.samples)
    pipe, detector, own = geosprint.load_pipeline("scenes"), load_detector(), bundled_prompts("scenes")
    pipe.set_progress_bar_config(disable=True)
    home = Condition(f"guidance {GUIDANCE:g}", own)
    latents = drawn_in_every_way(pipe, home, tuned, tuned.steps, seeds)
    rows = rows_of(pipe, home.name, own, latents, detector)
    write_text(options.out / "steps.csv", as_csv(rows))
    print(table(rows), flush=True)
    k = tuned.proved or max(tuned.steps)
    others = tuple(scene.caption for scene in draw_up_scenes(options.samples, seed=OTHER_PROMPTS_SEED + 1))
    away = [Condition(f"guidance {scale:g}", own, scale) for scale in SCALES if scale != GUIDANCE]
    away += [Condition("other prompts", others), Condition("96×96", own, side=96)]
    kept = ("fine", TODAY, f"{k} tuned steps", f"{k} DPM++ 2M steps", f"{k} DDIM steps")
    moved = rows_of(pipe, home.name, own, {way: latents[way] for way in kept}, detector)
    for one in away:
        moved += rows_of(pipe, one.name, one.prompts, drawn_in_every_way(pipe, one, tuned, [k], seeds), detector)
    moved += rows_of(pipe, "image to image", own, drawn_from_pictures(pipe, own, tuned, k, seeds), detector)
    write_text(options.out / "transfer.csv", as_csv(moved))
    print(table(moved), flush=True)
    write_text(options.out / "steps.md", table(rows))
    write_text(options.out / "transfer.md", table(moved))


if __name__ == "__main__":
    main()
