"""Prompt agreement of a pipeline directory and a grid of its pictures: `python -m recipes.scenes.measure`."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import numpy as np
import torch
from diffusers import StableDiffusionPipeline
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from recipes.scenes.agreement import ready_detector, total_agreement
from recipes.scenes.drawing import draw, draw_up_scenes

# No training picture has a seed this high.
_HELD_OUT_SEED = 10**9 + 1


def main() -> None:
    """Print the agreement of true drawings, of their reconstructions and of samples at each guidance scale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("out/scenes"), help="where training put the pipeline")
    parser.add_argument("--count", type=int, default=32, help="captions, none of them from training scenes")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--guidance", type=float, nargs="+", default=[1.0, 5.0, 7.5])
    parser.add_argument("--losses", type=Path, nargs="+", help="instead, draw the losses that training has printed")
    options = parser.parse_args()
    if options.losses:
        draw_losses(losses_in(options.losses), options.folder / "losses.png")
        return
    torch.set_num_threads(1)
    detector = ready_detector(options.folder)
    pipeline = StableDiffusionPipeline.from_pretrained(options.folder / "pipeline")
    pipeline.set_progress_bar_config(disable=True)
    scenes = draw_up_scenes(options.count, seed=_HELD_OUT_SEED)
    captions, drawings = [scene.caption for scene in scenes], draw(scenes)
    rows = {"drawings": drawings, "reconstructions": reconstructed(pipeline, drawings)}
    for scale in options.guidance:
        rows[f"guidance {scale:g}"] = sampled(pipeline, captions, options.steps, scale)
    for name, pictures in rows.items():
        print(f"{name}: {total_agreement(captions, pictures, detector)}", flush=True)
    save_grid(list(rows.values()), options.folder / "grid.png")


@torch.no_grad()
def reconstructed(pipeline: StableDiffusionPipeline, pictures: Tensor) -> Tensor:
    """Pictures that were encoded and decoded."""
    return pipeline.vae.decode(pipeline.vae.encode(pictures).latent_dist.mean).sample


def sampled(pipeline: StableDiffusionPipeline, captions: list[str], steps: int, guidance: float) -> Tensor:
    """One picture of each caption, with values from -1 to 1; each has its own seed."""
    generators = [torch.Generator().manual_seed(seed) for seed in range(len(captions))]
    images = pipeline(
        captions, num_inference_steps=steps, guidance_scale=guidance, generator=generators, output_type="pt"
    ).images
    return images.float() * 2 - 1


def losses_in(logs: list[Path]) -> dict[int, float]:
    """Loss of the network by step, of all runs; a step that was trained again counts as the last log has it."""
    lines = [line for log in logs for line in log.read_text(encoding="utf-8").splitlines()]
    found = [re.match(r"diffusion step=(\d+) loss=([\d.]+)", line) for line in lines]
    return {int(one[1]): float(one[2]) for one in found if one}


def draw_losses(losses: dict[int, float], path: Path) -> None:
    """The mean of every hundred steps."""
    figure = Figure((6, 3), layout="constrained")
    axes = figure.subplots()
    steps = sorted(losses)
    axes.plot(steps, [losses[step] for step in steps], lw=0.8)
    axes.set(xlabel="step", ylabel="weighted squared error of the noise", ylim=(0.06, 0.14))
    axes.grid(alpha=0.25, lw=0.5)
    figure.savefig(path, dpi=110)


def save_grid(rows: list[Tensor], path: Path, columns: int = 16, zoom: int = 2) -> None:
    """Pictures of the same caption below each other."""
    bands = [
        torch.cat(list(row[start : start + columns]), dim=-1)
        for start in range(0, len(rows[0]), columns)
        for row in rows
    ]
    width = max(band.shape[-1] for band in bands)
    bands = [torch.nn.functional.pad(band, (0, width - band.shape[-1])) for band in bands]
    values = ((torch.cat(bands, dim=-2).clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    image = Image.fromarray(np.ascontiguousarray(values.permute(1, 2, 0).numpy()))
    image.resize((image.width * zoom, image.height * zoom), Image.Resampling.NEAREST).save(path)


if __name__ == "__main__":
    main()
