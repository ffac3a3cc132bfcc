"""Pipelines of every family with small random weights, built in memory: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    DDIMPipeline,
    DDIMScheduler,
    DDPMPipeline,
    DDPMScheduler,
    FlowMatchEulerDiscreteScheduler,
    FluxPipeline,
    FluxTransformer2DModel,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
    StableDiffusionPipeline,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
    UNet2DModel,
)
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPTokenizer,
    T5Config,
    T5EncoderModel,
    T5Tokenizer,
)

PROMPTS = ("a red cat", "the old boat", "a tree at sea")
SD_NOISE = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}


FLUX_SIZES = {
    "patch_size": 1,
    "in_channels": 4,
    "num_layers": 1,
    "num_single_layers": 1,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
}


def ddpm() -> DDPMPipeline:
    return DDPMPipeline(_pixel_unet(), DDPMScheduler())


def ddim() -> DDIMPipeline:
    return DDIMPipeline(_pixel_unet(), DDIMScheduler())


def sd15() -> StableDiffusionPipeline:
    """Also the layout of Stable Diffusion 2."""
    scheduler = DDIMScheduler(**SD_NOISE, clip_sample=False, set_alpha_to_one=False, steps_offset=1)
    return StableDiffusionPipeline(
        vae=_vae(4),
        text_encoder=_clip(),
        tokenizer=_clip_tokenizer(),
        unet=_text_unet(),
        scheduler=scheduler,
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def sdxl() -> StableDiffusionXLPipeline:
    scheduler = DDIMScheduler(**SD_NOISE, clip_sample=False, set_alpha_to_one=False, steps_offset=1)
    return StableDiffusionXLPipeline(
        vae=_vae(4),
        text_encoder=_clip(),
        text_encoder_2=_clip(CLIPTextModelWithProjection),
        tokenizer=_clip_tokenizer(),
        tokenizer_2=_clip_tokenizer(),
        unet=_text_unet(
            addition_embed_type="text_time",
            addition_time_embed_dim=8,
            projection_class_embeddings_input_dim=80,
            cross_attention_dim=64,
        ),
        scheduler=scheduler,
    )


def sd3() -> StableDiffusion3Pipeline:
    torch.manual_seed(0)
    transformer = SD3Transformer2DModel(
        sample_size=32,
        patch_size=1,
        in_channels=4,
        num_layers=1,
        attention_head_dim=8,
        num_attention_heads=4,
        caption_projection_dim=32,
        joint_attention_dim=32,
        pooled_projection_dim=64,
        out_channels=4,
    )
    return StableDiffusion3Pipeline(
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=_vae(4, shift_factor=0.0609, use_quant_conv=False, use_post_quant_conv=False),
        text_encoder=_clip(CLIPTextModelWithProjection),
        tokenizer=_clip_tokenizer(),
        text_encoder_2=_clip(CLIPTextModelWithProjection),
        tokenizer_2=_clip_tokenizer(),
        text_encoder_3=_t5(),
        tokenizer_3=_t5_tokenizer(),
    )


def flux() -> FluxPipeline:
    torch.manual_seed(0)
    transformer = FluxTransformer2DModel(
        **FLUX_SIZES,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
        guidance_embeds=True,
    )
    return FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
        vae=_vae(1, shift_factor=0.1, use_quant_conv=False, use_post_quant_conv=False),
        text_encoder=_clip(),
        tokenizer=_clip_tokenizer(),
        text_encoder_2=_t5(),
        tokenizer_2=_t5_tokenizer(),
        transformer=transformer,
    )


FAMILIES: dict[str, Callable[[], Any]] = {
    "ddpm": ddpm,
    "ddim": ddim,
    "sd15": sd15,
    "sdxl": sdxl,
    "sd3": sd3,
    "flux": flux,
}
FLOWS = ("sd3", "flux")


def takes_prompts(family: str) -> bool:
    return family not in ("ddpm", "ddim")


def drawn(pipe: Any, family: str, steps: int, seed: int = 7, **more: Any) -> Any:
    """The images of a silent run from one seed, as an array."""
    pipe.set_progress_bar_config(disable=True)
    given = {"prompt": PROMPTS[0], "height": 16, "width": 16} if takes_prompts(family) else {}
    generator = torch.Generator().manual_seed(seed)
    return pipe(num_inference_steps=steps, generator=generator, output_type="np", **given, **more).images


def _pixel_unet() -> UNet2DModel:
    torch.manual_seed(0)
    return UNet2DModel(
        sample_size=8,
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=4,
    ).eval()


def _text_unet(cross_attention_dim: int = 32, **more: Any) -> UNet2DConditionModel:
    torch.manual_seed(0)
    return UNet2DConditionModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        layers_per_block=1,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=cross_attention_dim,
        attention_head_dim=4,
        **more,
    ).eval()


def _vae(latent_channels: int, **more: Any) -> AutoencoderKL:
    torch.manual_seed(1)
    return AutoencoderKL(
        sample_size=16,
        in_channels=3,
        out_channels=3,
        block_out_channels=(8, 8),
        norm_num_groups=4,
        layers_per_block=1,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=latent_channels,
        **more,
    ).eval()


def _clip(kind: type = CLIPTextModel) -> Any:
    torch.manual_seed(2)
    config = CLIPTextConfig(
        vocab_size=len(_words()),
        hidden_size=32,
        intermediate_size=37,
        num_hidden_layers=2,
        num_attention_heads=4,
        projection_dim=32,
        max_position_embeddings=77,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    return kind(config).eval()


def _t5() -> T5EncoderModel:
    torch.manual_seed(3)
    sizes = {"d_model": 32, "d_ff": 37, "d_kv": 8, "num_layers": 2, "num_heads": 4}
    return T5EncoderModel(T5Config(vocab_size=len(_pieces()), **sizes)).eval()


def _clip_tokenizer() -> CLIPTokenizer:
    vocab = {word: i for i, word in enumerate(_words())}
    return CLIPTokenizer(vocab=vocab, merges=[("t", "h"), ("c", "a")], model_max_length=77)


def _t5_tokenizer() -> T5Tokenizer:
    return T5Tokenizer(vocab=[(piece, -float(i)) for i, piece in enumerate(_pieces())], extra_ids=0)


@cache
def _words() -> tuple[str, ...]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    ends = tuple(f"{letter}</w>" for letter in letters)
    return ("<|startoftext|>", "<|endoftext|>", *letters, *ends, "th", "ca")


@cache
def _pieces() -> tuple[str, ...]:
    return ("<pad>", "</s>", "<unk>", "▁", *"abcdefghijklmnopqrstuvwxyz")
