"""Train the scenes pipeline, or go on from where the last run stopped: `python -m recipes.scenes.train`."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from transformers import CLIPTextModel, CLIPTokenizer

from geosprint import path_of
from recipes.scenes.agreement import ready_detector, save_detector
from recipes.scenes.autoencoder import AutoencoderPlan, measure_scaling_factor, refine_decoder, train_autoencoder
from recipes.scenes.diffusion import Denoiser, DiffusionPlan, new_unet, train_denoiser
from recipes.scenes.export import export_pipeline
from recipes.scenes.latents import encode_scenes, tokens_of
from recipes.scenes.text import new_text_encoder, new_tokenizer

COMMITTED = path_of("scenes")


def main() -> None:
    """Run every stage that is not done yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("out/scenes"), help="checkpoints and the pipeline go here")
    parser.add_argument("--steps", type=int, default=DiffusionPlan.steps, help="steps of the network in all")
    parser.add_argument("--scenes", type=int, default=40960, help="scenes to train the network on")
    parser.add_argument(
        "--decoder-steps", type=int, default=3000, help="steps of the decoder after the latents are fixed"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    tokenizer = new_tokenizer()
    autoencoder = _autoencoder(options.folder)
    data = encode_scenes(options.scenes, autoencoder, tokenizer, options.folder)
    if options.decoder_steps:
        refine_decoder(autoencoder, AutoencoderPlan(steps=options.decoder_steps), options.folder)
    export = partial(_export, autoencoder, tokenizer, options.folder / "pipeline")
    plan = DiffusionPlan(steps=options.steps)
    train_denoiser(_denoiser(tokenizer, plan), data, tokens_of([""], tokenizer), plan, options.folder, export)
    save_detector(ready_detector(options.folder), options.folder / "detector")


def _autoencoder(folder: Path) -> AutoencoderKL:
    # Another autoencoder would make the committed network's latents meaningless: where there is one, it stays.
    if COMMITTED.exists() and not (folder / "autoencoder.pt").exists():
        return AutoencoderKL.from_pretrained(COMMITTED, subfolder="vae").eval()
    autoencoder = train_autoencoder(AutoencoderPlan(), folder)
    autoencoder.register_to_config(scaling_factor=measure_scaling_factor(autoencoder))
    return autoencoder


def _denoiser(tokenizer: CLIPTokenizer, plan: DiffusionPlan) -> Denoiser:
    if COMMITTED.exists():
        unet = UNet2DConditionModel.from_pretrained(COMMITTED, subfolder="unet")
        unet.register_to_config(_name_or_path="")  # the place on this machine is nobody's business
        return Denoiser(unet, CLIPTextModel.from_pretrained(COMMITTED, subfolder="text_encoder"))
    torch.manual_seed(0)
    text_encoder = new_text_encoder(tokenizer)
    return Denoiser(new_unet(plan.channels, text_encoder.config.hidden_size), text_encoder)


def _export(autoencoder: AutoencoderKL, tokenizer: CLIPTokenizer, folder: Path, denoiser: Denoiser) -> None:
    export_pipeline(autoencoder, denoiser, tokenizer, folder)


if __name__ == "__main__":
    main()
