"""Latents and captions of many scenes, computed once and kept in shards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from diffusers import AutoencoderKL
from torch import Tensor
from transformers import CLIPTokenizer

from recipes.scenes.autoencoder import encode_mean
from recipes.scenes.drawing import draw, draw_up_scenes

SHARD = 4096
_AT_A_TIME = 64
# Seeds of the shards start here, past those of the autoencoder's batches.
_FIRST_SEED = 10**6


@dataclass(frozen=True)
class EncodedScenes:
    """Latents of unit variance in half precision, and the tokens of their captions."""

    latents: Tensor
    tokens: Tensor


def tokens_of(captions: list[str], tokenizer: CLIPTokenizer) -> Tensor:
    """Token ids, padded as `StableDiffusionPipeline` pads them."""
    padded = tokenizer(captions, padding="max_length", truncation=True, max_length=tokenizer.model_max_length)
    return torch.tensor(padded.input_ids)


def encode_scenes(count: int, autoencoder: AutoencoderKL, tokenizer: CLIPTokenizer, folder: Path) -> EncodedScenes:
    """Encode the shards that are missing in the folder and return all of them together."""
    shards = [_shard(index, autoencoder, tokenizer, folder) for index in range(-(-count // SHARD))]
    latents = torch.cat([shard["latents"] for shard in shards])
    return EncodedScenes(latents[:count], torch.cat([shard["tokens"] for shard in shards])[:count])


def _shard(index: int, autoencoder: AutoencoderKL, tokenizer: CLIPTokenizer, folder: Path) -> dict[str, Tensor]:
    path = folder / f"latents-{index:03d}.pt"
    if not path.exists():
        scenes = draw_up_scenes(SHARD, seed=_FIRST_SEED + index)
        parts = [scenes[start : start + _AT_A_TIME] for start in range(0, SHARD, _AT_A_TIME)]
        means = torch.cat([encode_mean(autoencoder, draw(part)) for part in parts])
        latents = (means * autoencoder.config.scaling_factor).half()
        tokens = tokens_of([scene.caption for scene in scenes], tokenizer)
        unfinished = path.with_suffix(".unfinished")
        torch.save({"latents": latents, "tokens": tokens}, unfinished)
        unfinished.replace(path)
        print(f"latents shard={index} std={latents.float().std():.3f}", flush=True)
    return torch.load(path, weights_only=True)
