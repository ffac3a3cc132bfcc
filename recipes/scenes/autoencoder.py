"""The autoencoder of the scenes: 64x64 pictures to 16x16 latents of four channels."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import torch
from diffusers import AutoencoderKL
from torch import Tensor
from torch.nn import functional

from recipes.scenes.checkpoints import load_checkpoint, save_checkpoint
from recipes.scenes.drawing import draw, draw_up_scenes


@dataclass(frozen=True)
class AutoencoderPlan:
    """How the autoencoder is built and trained."""

    channels: tuple[int, ...] = (16, 32, 64)
    batch: int = 16
    steps: int = 2600
    learning_rate: float = 2e-3
    warm_up: int = 100
    kl_weight: float = 1e-5
    save_every: int = 200


# Seeds of training pictures count up from 0: this one is far from all of them.
SCALING_SEED = 10**9
_FIRST_SEED_OF_THE_DECODER = 3 * 10**6


def new_autoencoder(channels: tuple[int, ...]) -> AutoencoderKL:
    """An untrained autoencoder; its last block keeps the size, so three blocks divide it by four."""
    return AutoencoderKL(
        block_out_channels=channels,
        down_block_types=("DownEncoderBlock2D",) * len(channels),
        up_block_types=("UpDecoderBlock2D",) * len(channels),
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=8,
        sample_size=64,
        mid_block_add_attention=False,
    )


def train_autoencoder(plan: AutoencoderPlan, folder: Path) -> AutoencoderKL:
    """Train, or go on from the last checkpoint, until all steps are done."""
    torch.manual_seed(0)
    return _fit(new_autoencoder(plan.channels), plan, folder / "autoencoder.pt", first_seed=0)


def refine_decoder(autoencoder: AutoencoderKL, plan: AutoencoderPlan, folder: Path) -> AutoencoderKL:
    """Train the decoder alone, or go on with it: the latents stay what they are, so the network need not follow."""
    autoencoder.encoder.requires_grad_(False)
    autoencoder.quant_conv.requires_grad_(False)
    return _fit(autoencoder, plan, folder / "decoder.pt", first_seed=_FIRST_SEED_OF_THE_DECODER)


def _fit(autoencoder: AutoencoderKL, plan: AutoencoderPlan, path: Path, first_seed: int) -> AutoencoderKL:
    trained = [weight for weight in autoencoder.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=plan.learning_rate, betas=(0.9, 0.99), weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate_at(step, plan))
    parts = {"autoencoder": autoencoder, "optimizer": optimizer, "schedule": schedule}
    first = load_checkpoint(path, parts)
    started = time.monotonic()
    for step in range(first, plan.steps):
        pictures = draw(draw_up_scenes(plan.batch, seed=first_seed + step))
        torch.manual_seed(step)
        with torch.autocast("cpu", torch.bfloat16):
            posterior = autoencoder.encode(pictures).latent_dist
            decoded = autoencoder.decode(posterior.sample()).sample.float()
        loss = reconstruction_loss(decoded, pictures) + plan.kl_weight * posterior.kl().float().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            error = functional.l1_loss(decoded, pictures).item()
            rate = (step - first + 1) * plan.batch / (time.monotonic() - started)
            print(f"{path.stem} {step=} loss={loss.item():.4f} l1={error:.4f} pictures/s={rate:.1f}", flush=True)
        if (step + 1) % plan.save_every == 0 or step + 1 == plan.steps:
            save_checkpoint(path, step + 1, parts)
    return autoencoder.eval()


def reconstruction_loss(decoded: Tensor, pictures: Tensor) -> Tensor:
    """Distance in values and in differences between neighbours, at full, half and quarter size."""
    loss = decoded.new_zeros(())
    for _ in range(3):
        # Absolute errors alone give up small things of a rare colour: squares do not let them go.
        loss = loss + functional.l1_loss(decoded, pictures) + 4 * functional.mse_loss(decoded, pictures)
        # Both blur fine textures: missing edges must cost as well.
        for axis in (-1, -2):
            loss = loss + 0.5 * functional.l1_loss(decoded.diff(dim=axis), pictures.diff(dim=axis))
        decoded, pictures = functional.avg_pool2d(decoded, 2), functional.avg_pool2d(pictures, 2)
    return loss


@torch.no_grad()
def encode_mean(autoencoder: AutoencoderKL, pictures: Tensor) -> Tensor:
    """The posterior's means, not scaled."""
    with torch.autocast("cpu", torch.bfloat16):
        return autoencoder.encode(pictures).latent_dist.mean.float()


def measure_scaling_factor(autoencoder: AutoencoderKL, count: int = 512) -> float:
    """What the latents are multiplied by to have unit variance."""
    return 1.0 / encode_mean(autoencoder, draw(draw_up_scenes(count, seed=SCALING_SEED))).std().item()


def _rate_at(step: int, plan: AutoencoderPlan) -> float:
    warm = min(1.0, (step + 1) / plan.warm_up)
    left = 1.0 - step / plan.steps
    return warm * min(1.0, 0.02 + 2 * left)
