"""The pipeline directory: half precision, opened by diffusers and transformers alone."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

from diffusers import AutoencoderKL, StableDiffusionPipeline
from transformers import CLIPTokenizer

from recipes.scenes.diffusion import Denoiser, new_scheduler


def export_pipeline(autoencoder: AutoencoderKL, denoiser: Denoiser, tokenizer: CLIPTokenizer, folder: Path) -> None:
    """Save in half precision, the tokenizer also in the two files that older transformers read."""
    pipeline = StableDiffusionPipeline(
        # Copies, as the caller may go on training in full precision.
        vae=deepcopy(autoencoder).half(),
        text_encoder=deepcopy(denoiser.text_encoder).half(),
        tokenizer=tokenizer,
        unet=deepcopy(denoiser.unet).half(),
        scheduler=new_scheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.save_pretrained(folder, safe_serialization=True)
    _ask_for_single_precision(folder / "text_encoder" / "config.json")
    _write_vocabulary_files(folder / "tokenizer")


def _ask_for_single_precision(path: Path) -> None:
    # transformers opens a model in its saved precision, diffusers in float32: they must agree by default.
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "dtype": "float32"}, indent=2) + "\n")


def _write_vocabulary_files(folder: Path) -> None:
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"], ensure_ascii=False))
    merges = [" ".join(pair) for pair in model["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n")
