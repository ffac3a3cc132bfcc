"""The network and the text encoder of the scenes, trained together on latents."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from diffusers import DDIMScheduler, UNet2DConditionModel
from diffusers.models.attention_processor import AttnProcessor
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import CLIPTextModel

from recipes.scenes.checkpoints import load_checkpoint, save_checkpoint
from recipes.scenes.latents import EncodedScenes


@dataclass(frozen=True)
class DiffusionPlan:
    """How the network is built and trained."""

    channels: tuple[int, int, int] = (64, 96, 128)
    batch: int = 32
    steps: int = 12000
    learning_rate: float = 8e-4
    warm_up: int = 300
    decay_share: float = 0.25
    average: float = 0.998
    caption_drop: float = 0.1
    save_every: int = 500


class Denoiser(nn.Module):
    """The network and its text encoder as one module, so that one optimizer and one average hold both."""

    def __init__(self, unet: UNet2DConditionModel, text_encoder: CLIPTextModel) -> None:
        super().__init__()
        self.unet = unet
        self.text_encoder = text_encoder

    def forward(self, noisy: Tensor, timesteps: Tensor, tokens: Tensor) -> Tensor:
        text = self.text_encoder(tokens).last_hidden_state
        with torch.autocast("cpu", torch.bfloat16):
            return self.unet(noisy, timesteps, text).sample.float()


def new_scheduler() -> DDIMScheduler:
    """The noise of Stable Diffusion 1.5 and its scheduler's settings."""
    return DDIMScheduler(
        num_train_timesteps=1000,
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        prediction_type="epsilon",
        clip_sample=False,
        set_alpha_to_one=False,
        steps_offset=1,
    )


def new_unet(channels: tuple[int, int, int], text_width: int) -> UNet2DConditionModel:
    """An untrained network that reads the caption at 8x8 and 4x4."""
    return UNet2DConditionModel(
        sample_size=16,
        in_channels=4,
        out_channels=4,
        block_out_channels=channels,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        layers_per_block=1,
        cross_attention_dim=text_width,
        attention_head_dim=4,
        norm_num_groups=16,
    )


def train_denoiser(
    denoiser: Denoiser,
    data: EncodedScenes,
    no_caption: Tensor,
    plan: DiffusionPlan,
    folder: Path,
    when_saved: Callable[[Denoiser], None],
) -> Denoiser:
    """Train, or go on from the last checkpoint, and return the average of the weights; each save hands it on."""
    # On a CPU the fused attention's backward pass in bfloat16 takes ten times as long as plain products.
    denoiser.unet.set_attn_processor(AttnProcessor())
    denoiser.train()
    average = AveragedModel(denoiser, multi_avg_fn=get_ema_multi_avg_fn(plan.average))
    optimizer = torch.optim.AdamW(denoiser.parameters(), lr=plan.learning_rate, betas=(0.9, 0.99), weight_decay=1e-2)
    parts = {"denoiser": denoiser, "average": average, "optimizer": optimizer}
    path = folder / "diffusion.pt"
    first = load_checkpoint(path, parts)
    scheduler = new_scheduler()
    weights = _weights_of_timesteps(scheduler.alphas_cumprod)
    started, recent = time.monotonic(), 0.0
    for step in range(first, plan.steps):
        for group in optimizer.param_groups:
            group["lr"] = plan.learning_rate * rate_at(step, plan)
        latents, tokens = _batch_at(step, data, no_caption, plan)
        noise = torch.randn_like(latents)
        timesteps = torch.randint(0, 1000, (plan.batch,))
        error = denoiser(scheduler.add_noise(latents, noise, timesteps), timesteps, tokens) - noise
        loss = (error.square().mean(dim=(1, 2, 3)) * weights[timesteps]).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(denoiser.parameters(), 1.0)
        optimizer.step()
        average.update_parameters(denoiser)
        recent += loss.item()
        if (step + 1) % 100 == 0:
            speed = (step - first + 1) * plan.batch / (time.monotonic() - started)
            print(f"diffusion step={step + 1} loss={recent / 100:.4f} samples/s={speed:.1f}", flush=True)
            recent = 0.0
        if (step + 1) % plan.save_every == 0 or step + 1 == plan.steps:
            save_checkpoint(path, step + 1, parts)
            when_saved(average.module)
    return average.module.eval()


def rate_at(step: int, plan: DiffusionPlan) -> float:
    """The share of the learning rate: a warm-up, a plateau, and a straight way down at the end."""
    warm = min(1.0, (step + 1) / plan.warm_up)
    left = (plan.steps - step) / (plan.steps * plan.decay_share)
    return warm * min(1.0, left)


def _batch_at(step: int, data: EncodedScenes, no_caption: Tensor, plan: DiffusionPlan) -> tuple[Tensor, Tensor]:
    # Seeded by the step: a resumed run sees the same batches and the same noise as an unbroken one.
    torch.manual_seed(step)
    rows = torch.randint(0, len(data.latents), (plan.batch,))
    dropped = torch.rand(plan.batch) < plan.caption_drop
    return data.latents[rows].float(), torch.where(dropped[:, None], no_caption, data.tokens[rows])


def _weights_of_timesteps(alphas_cumprod: Tensor) -> Tensor:
    # The plain loss in noise hardly sees errors where noise is strong, but there captions decide most: with these
    # weights every timestep counts about the same.
    return ((1 - alphas_cumprod) / alphas_cumprod).sqrt()
