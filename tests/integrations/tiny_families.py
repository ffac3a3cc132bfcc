"""More pipeline families with small random weights, and what each must be called with beside a prompt."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import diffusers
import tiny_pipelines as tiny
import torch
import transformers
from diffusers import DDIMScheduler, FlowMatchEulerDiscreteScheduler, ModelMixin, UniPCMultistepScheduler
from diffusers.configuration_utils import register_to_config
from PIL import Image

SIZE = {"height": 16, "width": 16}


@dataclass(frozen=True)
class Family:
    """One class of pipelines: how a tiny one is made, and what it must be told."""

    build: Callable[[], Any]
    call: dict[str, Any] = field(default_factory=dict)  # arguments that `PipelineInputs` has no field for
    size: dict[str, int] = field(default_factory=lambda: SIZE)
    prompts: tuple[str, ...] = tiny.PROMPTS
    image_to_image: bool = False  # takes a strength
    today: str | None = None  # what is run now, if its default is too much here
    budget_nfe: int = 2000
    batch: int = 24  # samples at once: some take one image for one prompt only


def picture(side: int = 16, shade: int = 90) -> Image.Image:
    return Image.linear_gradient("L").resize((side, side)).point(lambda v: (v + shade) % 256).convert("RGB")


def seeded(kind: type, **settings: Any) -> Any:
    """A small network in evaluation mode, the same every time."""
    torch.manual_seed(0)
    return kind(**settings).eval()


def shifted(**more: Any) -> FlowMatchEulerDiscreteScheduler:
    return FlowMatchEulerDiscreteScheduler(shift=3.0, **more)


def vp(**more: Any) -> DDIMScheduler:
    return DDIMScheduler(**tiny.SD_NOISE, clip_sample=False, set_alpha_to_one=False, steps_offset=1, **more)


def t5_parts() -> dict[str, Any]:
    return {"text_encoder": tiny._t5(), "tokenizer": tiny._t5_tokenizer()}


def llm_tokenizer() -> Any:
    """Words by letters, with the chat template that these pipelines ask for."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors

    vocab = {piece: i for i, piece in enumerate(["<pad>", "</s>", "<unk>", *map(chr, range(32, 127))])}
    inner = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    inner.post_processor = processors.TemplateProcessing(single="</s> $A", special_tokens=[("</s>", 1)])
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=256
    )
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    return tokenizer


LLM_SIZES = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 512,
}


def llm(kind: type, config: type, hidden: int = 16, **more: Any) -> Any:
    sizes = {**LLM_SIZES, "hidden_size": hidden, "head_dim": 8, **more}
    torch.manual_seed(0)
    return kind(config(**sizes, pad_token_id=0, eos_token_id=1, bos_token_id=1)).eval()


def sharing(kind: type, base: Callable[[], Any], **more: Callable[[], Any]) -> Callable[[], Any]:
    """Another pipeline of the same parts, with others in place of some."""

    def build() -> Any:
        taken = inspect.signature(kind.__init__).parameters
        parts = {name: part for name, part in base().components.items() if name in taken}
        unguarded = {"requires_safety_checker": False} if "requires_safety_checker" in taken else {}
        return kind(**{**parts, **{name: made() for name, made in more.items()}, **unguarded})

    return build


def like(base: Callable[[], Any], part: str, **changed: Any) -> Callable[[], Any]:
    """A network of a pipeline with another config: it sees a mask or a picture, too, or a guidance scale."""

    def build() -> Any:
        network = getattr(base(), part)
        return seeded(type(network), **{**network.config, **changed})

    return build


def controlnet() -> Any:
    return diffusers.ControlNetModel.from_unet(tiny.sd15().unet, conditioning_embedding_out_channels=(8, 16)).eval()


def controlnet_xl() -> Any:
    return diffusers.ControlNetModel.from_unet(tiny.sdxl().unet, conditioning_embedding_out_channels=(8, 16)).eval()


def motion_adapter() -> Any:
    return seeded(
        diffusers.MotionAdapter,
        block_out_channels=(8, 16),
        motion_layers_per_block=1,
        motion_norm_num_groups=4,
        motion_num_attention_heads=4,
    )


def unet_of_videos() -> Any:
    return seeded(
        diffusers.UNet3DConditionModel,
        sample_size=8,
        block_out_channels=(8, 16),
        layers_per_block=1,
        norm_num_groups=4,
        down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"),
        up_block_types=("UpBlock3D", "CrossAttnUpBlock3D"),
        cross_attention_dim=32,
        attention_head_dim=4,
    )


def stable_video() -> Any:
    unet = seeded(
        diffusers.UNetSpatioTemporalConditionModel,
        block_out_channels=(32, 32),
        layers_per_block=1,
        sample_size=8,
        down_block_types=("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"),
        up_block_types=("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal"),
        cross_attention_dim=32,
        num_attention_heads=4,
        projection_class_embeddings_input_dim=96,
        addition_time_embed_dim=32,
    )
    vae = seeded(
        diffusers.AutoencoderKLTemporalDecoder,
        block_out_channels=(32, 32),
        down_block_types=("DownEncoderBlock2D",) * 2,
    )
    config = transformers.CLIPVisionConfig(
        hidden_size=32,
        projection_dim=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        image_size=224,  # to which the pipeline resizes
        intermediate_size=37,
        patch_size=56,
    )
    torch.manual_seed(0)
    return diffusers.StableVideoDiffusionPipeline(
        vae=vae,
        image_encoder=transformers.CLIPVisionModelWithProjection(config).eval(),
        unet=unet,
        scheduler=diffusers.EulerDiscreteScheduler(
            **tiny.SD_NOISE,
            prediction_type="v_prediction",
            timestep_type="continuous",
            use_karras_sigmas=True,
            sigma_min=0.002,
            sigma_max=700.0,
        ),
        feature_extractor=transformers.CLIPImageProcessor(),
    )


def flux_controlnet() -> Any:
    return diffusers.FluxControlNetModel.from_transformer(
        tiny.flux().transformer, num_layers=1, num_single_layers=0, attention_head_dim=16, num_attention_heads=2
    ).eval()


def sd3_controlnet() -> Any:
    settings = {"num_layers": 1, "num_extra_conditioning_channels": 0, "load_weights_from_transformer": False}
    return diffusers.SD3ControlNetModel.from_transformer(tiny.sd3().transformer, **settings).eval()


def chroma() -> Any:
    transformer = seeded(
        diffusers.ChromaTransformer2DModel,
        **tiny.FLUX_SIZES,
        joint_attention_dim=32,
        axes_dims_rope=(4, 4, 8),
        approximator_hidden_dim=32,
        approximator_layers=1,
        approximator_num_channels=16,
    )
    return diffusers.ChromaPipeline(scheduler=shifted(), vae=tiny.flux().vae, **t5_parts(), transformer=transformer)


def bria() -> Any:
    transformer = seeded(
        diffusers.BriaTransformer2DModel,
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=8,
        num_attention_heads=2,
        joint_attention_dim=32,
        axes_dims_rope=[0, 4, 4],
    )
    return diffusers.BriaPipeline(**t5_parts(), vae=tiny.flux().vae, transformer=transformer, scheduler=shifted())


def ernie() -> Any:
    transformer = seeded(
        diffusers.ErnieImageTransformer2DModel,
        hidden_size=16,
        num_attention_heads=2,
        num_layers=1,
        ffn_hidden_size=16,
        in_channels=4,
        out_channels=4,
        text_in_dim=16,
        rope_axes_dim=(4, 2, 2),
    )
    torch.nn.init.normal_(transformer.final_linear.weight, std=0.1)  # zeros at first
    return diffusers.ErnieImagePipeline(
        transformer=transformer,
        vae=flux2_vae(),
        text_encoder=llm(transformers.Qwen3Model, transformers.Qwen3Config),
        tokenizer=llm_tokenizer(),
        scheduler=shifted(),
    )


def flux2_vae() -> Any:
    return seeded(
        diffusers.AutoencoderKLFlux2,
        sample_size=16,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(8, 8),
        layers_per_block=1,
        latent_channels=1,
        norm_num_groups=4,
        use_quant_conv=False,
        use_post_quant_conv=False,
    )


def flux2() -> Any:
    transformer = seeded(
        diffusers.Flux2Transformer2DModel,
        **tiny.FLUX_SIZES,
        joint_attention_dim=16,
        timestep_guidance_channels=16,
        axes_dims_rope=(4, 4, 4, 4),
        guidance_embeds=False,
    )
    return diffusers.Flux2KleinPipeline(
        scheduler=shifted(use_dynamic_shifting=True),
        vae=flux2_vae(),
        text_encoder=llm(transformers.Qwen3ForCausalLM, transformers.Qwen3Config),
        tokenizer=llm_tokenizer(),
        transformer=transformer,
    )


def z_image() -> Any:
    transformer = seeded(
        diffusers.ZImageTransformer2DModel,
        all_patch_size=(2,),
        all_f_patch_size=(1,),
        in_channels=4,
        dim=32,
        n_layers=1,
        n_refiner_layers=1,
        n_heads=2,
        n_kv_heads=2,
        cap_feat_dim=16,
        rope_theta=256.0,
        axes_dims=(8, 4, 4),
        axes_lens=(256, 32, 32),
    )
    with torch.no_grad():
        transformer.x_pad_token.fill_(1.0)
        transformer.cap_pad_token.fill_(1.0)
    return diffusers.ZImagePipeline(
        scheduler=shifted(),
        vae=tiny._vae(4, shift_factor=0.1),
        text_encoder=llm(transformers.Qwen3Model, transformers.Qwen3Config),
        tokenizer=llm_tokenizer(),
        transformer=transformer,
    )


def lumina2() -> Any:
    transformer = seeded(
        diffusers.Lumina2Transformer2DModel,
        sample_size=4,
        patch_size=2,
        in_channels=4,
        hidden_size=8,
        num_layers=1,
        num_refiner_layers=1,
        num_attention_heads=1,
        num_kv_heads=1,
        multiple_of=16,
        axes_dim_rope=(4, 2, 2),
        cap_feat_dim=16,
    )
    return diffusers.Lumina2Pipeline(
        transformer=transformer,
        scheduler=shifted(),
        vae=tiny._vae(4, shift_factor=0.1),
        text_encoder=llm(transformers.Gemma2Model, transformers.Gemma2Config),
        tokenizer=llm_tokenizer(),
    )


def sana() -> Any:
    transformer = seeded(
        diffusers.SanaTransformer2DModel,
        patch_size=1,
        in_channels=4,
        out_channels=4,
        num_layers=1,
        num_attention_heads=2,
        attention_head_dim=4,
        num_cross_attention_heads=2,
        cross_attention_head_dim=4,
        cross_attention_dim=8,
        caption_channels=16,
        sample_size=8,
    )
    vae = seeded(
        diffusers.AutoencoderDC,
        latent_channels=4,
        attention_head_dim=2,
        encoder_block_types=("ResBlock", "EfficientViTBlock"),
        decoder_block_types=("ResBlock", "EfficientViTBlock"),
        encoder_block_out_channels=(8, 8),
        decoder_block_out_channels=(8, 8),
        encoder_qkv_multiscales=((), (5,)),
        decoder_qkv_multiscales=((), (5,)),
        encoder_layers_per_block=(1, 1),
        decoder_layers_per_block=(1, 1),
        downsample_block_type="conv",
        upsample_block_type="interpolate",
        decoder_norm_types="rms_norm",
        decoder_act_fns="silu",
    )
    return diffusers.SanaPipeline(
        transformer=transformer,
        scheduler=shifted(),
        vae=vae,
        text_encoder=llm(transformers.Gemma2Model, transformers.Gemma2Config),
        tokenizer=llm_tokenizer(),
    )


def aura_flow() -> Any:
    transformer = seeded(
        diffusers.AuraFlowTransformer2DModel,
        sample_size=16,
        patch_size=2,
        in_channels=4,
        num_mmdit_layers=1,
        num_single_dit_layers=1,
        attention_head_dim=8,
        num_attention_heads=4,
        caption_projection_dim=32,
        joint_attention_dim=32,
        out_channels=4,
        pos_embed_max_size=256,
    )
    return diffusers.AuraFlowPipeline(**t5_parts(), vae=tiny._vae(4), transformer=transformer, scheduler=shifted())


def pixart(kind: type) -> Callable[[], Any]:
    def build() -> Any:
        transformer = seeded(
            diffusers.PixArtTransformer2DModel,
            sample_size=8,
            num_layers=1,
            patch_size=2,
            attention_head_dim=8,
            num_attention_heads=3,
            caption_channels=32,
            in_channels=4,
            cross_attention_dim=24,
            out_channels=8,
            norm_type="ada_norm_single",
            norm_elementwise_affine=False,
            norm_eps=1e-6,
        )
        return kind(**t5_parts(), vae=tiny._vae(4), transformer=transformer, scheduler=vp())

    return build


def latte() -> Any:
    transformer = seeded(
        diffusers.LatteTransformer3DModel,
        sample_size=8,
        num_layers=1,
        patch_size=2,
        attention_head_dim=8,
        num_attention_heads=3,
        caption_channels=32,
        in_channels=4,
        cross_attention_dim=24,
        out_channels=8,
        attention_bias=True,
        activation_fn="gelu-approximate",
        num_embeds_ada_norm=1000,
        norm_type="ada_norm_single",
        norm_elementwise_affine=False,
    )
    return diffusers.LattePipeline(**t5_parts(), vae=tiny._vae(4), transformer=transformer, scheduler=vp())


def hunyuan_dit() -> Any:
    transformer = seeded(
        diffusers.HunyuanDiT2DModel,
        sample_size=16,
        num_layers=2,
        patch_size=2,
        attention_head_dim=8,
        num_attention_heads=3,
        in_channels=4,
        cross_attention_dim=32,
        cross_attention_dim_t5=32,
        pooled_projection_dim=16,
        hidden_size=24,
        text_len=77,
        text_len_t5=256,
        activation_fn="gelu-approximate",
    )
    config = transformers.BertConfig(
        vocab_size=128, hidden_size=32, intermediate_size=37, num_hidden_layers=1, num_attention_heads=4
    )
    torch.manual_seed(0)
    return diffusers.HunyuanDiTPipeline(
        vae=tiny._vae(4),
        text_encoder=transformers.BertModel(config).eval(),
        tokenizer=llm_tokenizer(),
        transformer=transformer,
        scheduler=vp(prediction_type="v_prediction"),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
        text_encoder_2=tiny._t5(),
        tokenizer_2=tiny._t5_tokenizer(),
    )


def cogvideox_vae() -> Any:
    return seeded(
        diffusers.AutoencoderKLCogVideoX,
        down_block_types=("CogVideoXDownBlock3D",) * 4,
        up_block_types=("CogVideoXUpBlock3D",) * 4,
        block_out_channels=(8, 8, 8, 8),
        latent_channels=4,
        layers_per_block=1,
        norm_num_groups=2,
        temporal_compression_ratio=4,
    )


def cogvideox(kind: type, in_channels: int = 4) -> Callable[[], Any]:
    def build() -> Any:
        transformer = seeded(
            diffusers.CogVideoXTransformer3DModel,
            num_attention_heads=2,
            attention_head_dim=16,
            in_channels=in_channels,
            out_channels=4,
            time_embed_dim=2,
            text_embed_dim=32,
            num_layers=1,
            sample_width=2,
            sample_height=2,
            sample_frames=9,
            patch_size=2,
            temporal_compression_ratio=4,
            max_text_seq_length=16,
            use_rotary_positional_embeddings=True,
            use_learned_positional_embeddings=in_channels != 4,
        )
        scheduler = diffusers.CogVideoXDDIMScheduler(
            prediction_type="v_prediction", rescale_betas_zero_snr=True, snr_shift_scale=1.0
        )
        return kind(**t5_parts(), vae=cogvideox_vae(), transformer=transformer, scheduler=scheduler)

    return build


def cogview4() -> Any:
    transformer = seeded(
        diffusers.CogView4Transformer2DModel,
        patch_size=2,
        in_channels=4,
        num_layers=1,
        attention_head_dim=8,
        num_attention_heads=4,
        out_channels=4,
        text_embed_dim=32,
        time_embed_dim=8,
        condition_dim=4,
        rope_axes_dim=(16, 16),
    )
    return diffusers.CogView4Pipeline(
        tokenizer=llm_tokenizer(),
        text_encoder=llm(transformers.GlmForCausalLM, transformers.GlmConfig, hidden=32),
        vae=tiny._vae(4),
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(
            use_dynamic_shifting=True, time_shift_type="linear", base_shift=0.25, max_shift=0.75
        ),
    )


def cogview3() -> Any:
    transformer = seeded(
        diffusers.CogView3PlusTransformer2DModel,
        patch_size=2,
        in_channels=4,
        num_layers=1,
        attention_head_dim=4,
        num_attention_heads=2,
        out_channels=4,
        text_embed_dim=32,
        time_embed_dim=8,
        condition_dim=2,
        pos_embed_max_size=8,
        sample_size=8,
    )
    return diffusers.CogView3PlusPipeline(
        **t5_parts(), vae=tiny._vae(4), transformer=transformer, scheduler=diffusers.CogVideoXDDIMScheduler()
    )


def ltx(kind: type) -> Callable[[], Any]:
    def build() -> Any:
        transformer = seeded(
            diffusers.LTXVideoTransformer3DModel,
            in_channels=8,
            out_channels=8,
            num_attention_heads=4,
            attention_head_dim=8,
            cross_attention_dim=32,
            num_layers=1,
            caption_channels=32,
        )
        vae = seeded(
            diffusers.AutoencoderKLLTXVideo,
            latent_channels=8,
            block_out_channels=(8, 8, 8, 8),
            decoder_block_out_channels=(8, 8, 8, 8),
            layers_per_block=(1,) * 5,
            decoder_layers_per_block=(1,) * 5,
            spatio_temporal_scaling=(True, True, False, False),
            decoder_spatio_temporal_scaling=(True, True, False, False),
            decoder_inject_noise=(False,) * 5,
            upsample_residual=(False,) * 4,
            upsample_factor=(1,) * 4,
            patch_size=1,
            patch_size_t=1,
        )
        vae.use_framewise_encoding = vae.use_framewise_decoding = False
        return kind(**t5_parts(), vae=vae, transformer=transformer, scheduler=FlowMatchEulerDiscreteScheduler())

    return build


def mochi(**settings: Any) -> Any:
    transformer = seeded(
        diffusers.MochiTransformer3DModel,
        patch_size=2,
        num_attention_heads=2,
        attention_head_dim=8,
        num_layers=1,
        pooled_projection_dim=16,
        in_channels=12,
        text_embed_dim=32,
        time_embed_dim=4,
        max_sequence_length=16,
    )
    transformer.pos_frequencies.data.zero_()
    vae = seeded(
        diffusers.AutoencoderKLMochi,
        encoder_block_out_channels=(32,) * 4,
        decoder_block_out_channels=(32,) * 4,
        layers_per_block=(1,) * 5,
    )
    scheduler = FlowMatchEulerDiscreteScheduler(**settings)
    return diffusers.MochiPipeline(**t5_parts(), vae=vae, transformer=transformer, scheduler=scheduler)


def wan_vae() -> Any:
    return seeded(
        diffusers.AutoencoderKLWan,
        base_dim=3,
        z_dim=16,
        dim_mult=[1, 1, 1, 1],
        num_res_blocks=1,
        temperal_downsample=[False, True, True],
    )


def wan(kind: type, experts: int = 1, in_channels: int = 16, **more: Any) -> Callable[[], Any]:
    def build() -> Any:
        def expert(seed: int) -> Any:
            torch.manual_seed(seed)
            return diffusers.WanTransformer3DModel(
                patch_size=(1, 2, 2),
                num_attention_heads=2,
                attention_head_dim=12,
                in_channels=in_channels,
                out_channels=16,
                text_dim=32,
                freq_dim=16,
                ffn_dim=32,
                num_layers=1,
                cross_attn_norm=True,
                qk_norm="rms_norm_across_heads",
                rope_max_seq_len=32,
            ).eval()

        scheduler = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0)
        parts = {"transformer": expert(0), "transformer_2": expert(1) if experts > 1 else None}
        return kind(**t5_parts(), vae=wan_vae(), scheduler=scheduler, **parts, **more)

    return build


class Unguarded(ModelMixin, diffusers.ConfigMixin):  # diffusers looks for ModelMixin in the same module
    """In place of the guardrail of Cosmos, which is a package of its own."""

    @register_to_config
    def __init__(self) -> None:
        super().__init__()
        self.nothing = torch.nn.Parameter(torch.zeros(1))

    def check_text_safety(self, prompt: str) -> bool:
        return True

    def check_video_safety(self, video: Any) -> Any:
        return video


def cosmos(kind: type, scheduler: Callable[[], Any], vae: Callable[[], Any], more: int = 0, **words: Any) -> Any:
    """`more` channels of the network: a mask of what is given."""

    def build() -> Any:
        transformer = seeded(
            diffusers.CosmosTransformer3DModel,
            in_channels=16 + more,
            out_channels=16,
            num_attention_heads=2,
            attention_head_dim=16,
            num_layers=1,
            mlp_ratio=2,
            text_embed_dim=32,
            adaln_lora_dim=4,
            max_size=(4, 32, 32),
            extra_pos_embed_type=None,
            concat_padding_mask=False,  # that takes torchvision
        )
        parts = {"transformer": transformer, "vae": vae(), "scheduler": scheduler(), "safety_checker": Unguarded()}
        return kind(**(t5_parts() | {name: made() for name, made in words.items()}), **parts)

    return build


def cosmos_vae() -> Any:
    return seeded(
        diffusers.AutoencoderKLCosmos,
        latent_channels=16,
        encoder_block_out_channels=(8, 8, 8, 8),
        decode_block_out_channels=(8, 8, 8, 8),
        attention_resolutions=(8,),
        resolution=64,
        num_layers=1,
        patch_size=4,
        spatial_compression_ratio=8,
        temporal_compression_ratio=8,
    )


def vision_llm() -> Any:
    """Qwen 2.5 VL that is shown words alone; Cosmos puts the states of its two layers beside one another."""
    positions = {"rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}, "rope_theta": 10000.0}
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 16}
    torch.manual_seed(0)
    config = transformers.Qwen2_5_VLConfig(text_config={**LLM_SIZES, **positions}, vision_config=vision)
    return transformers.Qwen2_5_VLForConditionalGeneration(config).eval()


def chatting_tokenizer() -> Any:
    """For messages that are made of parts."""
    tokenizer = llm_tokenizer()
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'][0]['text'] }}{% endfor %}"
    return tokenizer


def allegro() -> Any:
    transformer = seeded(
        diffusers.AllegroTransformer3DModel,
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=4,
        out_channels=4,
        num_layers=1,
        cross_attention_dim=24,
        sample_width=8,
        sample_height=8,
        sample_frames=8,
        caption_channels=32,
    )
    vae = seeded(
        diffusers.AutoencoderKLAllegro,
        down_block_types=("AllegroDownBlock3D",) * 4,
        up_block_types=("AllegroUpBlock3D",) * 4,
        block_out_channels=(8, 8, 8, 8),
        latent_channels=4,
        layers_per_block=1,
        norm_num_groups=2,
    )
    vae.enable_tiling()
    return diffusers.AllegroPipeline(**t5_parts(), vae=vae, transformer=transformer, scheduler=vp())


def deepfloyd() -> Any:
    unet = seeded(
        diffusers.UNet2DConditionModel,
        sample_size=8,
        in_channels=3,
        out_channels=6,
        layers_per_block=1,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("ResnetDownsampleBlock2D", "SimpleCrossAttnDownBlock2D"),
        mid_block_type="UNetMidBlock2DSimpleCrossAttn",
        up_block_types=("SimpleCrossAttnUpBlock2D", "ResnetUpsampleBlock2D"),
        cross_attention_dim=32,
        encoder_hid_dim=32,
        attention_head_dim=4,
    )
    return diffusers.IFPipeline(
        **t5_parts(),
        unet=unet,
        scheduler=diffusers.DDPMScheduler(variance_type="learned_range", thresholding=True),
        safety_checker=None,
        feature_extractor=None,
        watermarker=None,
        requires_safety_checker=False,
    )


def dit() -> Any:
    transformer = seeded(
        diffusers.DiTTransformer2DModel,
        sample_size=8,
        num_layers=1,
        patch_size=2,
        attention_head_dim=8,
        num_attention_heads=2,
        in_channels=4,
        out_channels=8,
        num_embeds_ada_norm=1000,
    )
    return diffusers.DiTPipeline(transformer=transformer, vae=tiny._vae(4), scheduler=vp())


def consistency() -> Any:
    unet = tiny._pixel_unet()
    return diffusers.ConsistencyModelPipeline(unet, diffusers.CMStochasticIterativeScheduler())


VIDEO = {"num_frames": 9, "max_sequence_length": 16}

FAMILIES: dict[str, Family] = {
    "DDPMPipeline": Family(tiny.ddpm, size={}, prompts=(), today="ddim:20"),
    "DDIMPipeline": Family(tiny.ddim, size={}, prompts=()),
    "StableDiffusionPipeline": Family(tiny.sd15),
    "StableDiffusionImg2ImgPipeline": Family(
        sharing(diffusers.StableDiffusionImg2ImgPipeline, tiny.sd15), {"image": picture()}, {}, image_to_image=True
    ),
    "StableDiffusionInpaintPipeline": Family(
        sharing(diffusers.StableDiffusionInpaintPipeline, tiny.sd15, unet=like(tiny.sd15, "unet", in_channels=9)),
        {"image": picture(), "mask_image": picture(shade=0)},
        image_to_image=True,
    ),
    "StableDiffusionInstructPix2PixPipeline": Family(
        sharing(
            diffusers.StableDiffusionInstructPix2PixPipeline, tiny.sd15, unet=like(tiny.sd15, "unet", in_channels=8)
        ),
        {"image": picture()},
        {},
        budget_nfe=3300,
    ),
    "StableDiffusionControlNetPipeline": Family(
        sharing(diffusers.StableDiffusionControlNetPipeline, tiny.sd15, controlnet=controlnet), {"image": picture()}
    ),
    "StableDiffusionControlNetImg2ImgPipeline": Family(
        sharing(diffusers.StableDiffusionControlNetImg2ImgPipeline, tiny.sd15, controlnet=controlnet),
        {"image": picture(), "control_image": picture(shade=30)},
        image_to_image=True,
    ),
    "StableDiffusionPAGPipeline": Family(sharing(diffusers.StableDiffusionPAGPipeline, tiny.sd15), budget_nfe=2600),
    "LatentConsistencyModelPipeline": Family(
        sharing(
            diffusers.LatentConsistencyModelPipeline,
            tiny.sd15,
            unet=like(tiny.sd15, "unet", time_cond_proj_dim=8),
            scheduler=lambda: diffusers.LCMScheduler(**tiny.SD_NOISE),
        )
    ),
    "AnimateDiffPipeline": Family(
        sharing(diffusers.AnimateDiffPipeline, tiny.sd15, motion_adapter=motion_adapter), {"num_frames": 2}
    ),
    "TextToVideoSDPipeline": Family(
        sharing(diffusers.TextToVideoSDPipeline, tiny.sd15, unet=unet_of_videos), {"num_frames": 2}
    ),
    "StableVideoDiffusionPipeline": Family(stable_video, {"image": picture(), "num_frames": 2}, prompts=()),
    "StableDiffusionXLPipeline": Family(tiny.sdxl),
    "StableDiffusionXLPipeline, Playground 2.5": Family(
        sharing(diffusers.StableDiffusionXLPipeline, tiny.sdxl, scheduler=diffusers.EDMDPMSolverMultistepScheduler)
    ),
    "StableDiffusionXLImg2ImgPipeline": Family(
        sharing(diffusers.StableDiffusionXLImg2ImgPipeline, tiny.sdxl), {"image": picture()}, {}, image_to_image=True
    ),
    "StableDiffusionXLInpaintPipeline": Family(
        sharing(diffusers.StableDiffusionXLInpaintPipeline, tiny.sdxl),
        {"image": picture(), "mask_image": picture(shade=0)},
        image_to_image=True,
    ),
    "StableDiffusionXLControlNetPipeline": Family(
        sharing(diffusers.StableDiffusionXLControlNetPipeline, tiny.sdxl, controlnet=controlnet_xl),
        {"image": picture()},
    ),
    "StableDiffusion3Pipeline": Family(tiny.sd3),
    "StableDiffusion3Img2ImgPipeline": Family(
        sharing(diffusers.StableDiffusion3Img2ImgPipeline, tiny.sd3), {"image": picture()}, image_to_image=True, batch=1
    ),
    "StableDiffusion3ControlNetPipeline": Family(
        sharing(diffusers.StableDiffusion3ControlNetPipeline, tiny.sd3, controlnet=sd3_controlnet),
        {"control_image": picture()},
    ),
    "FluxPipeline": Family(tiny.flux),
    "FluxImg2ImgPipeline": Family(
        sharing(diffusers.FluxImg2ImgPipeline, tiny.flux), {"image": picture()}, image_to_image=True
    ),
    "FluxKontextPipeline": Family(
        sharing(diffusers.FluxKontextPipeline, tiny.flux), {"image": picture(), "_auto_resize": False, "max_area": 256}
    ),
    "FluxControlNetPipeline": Family(
        sharing(diffusers.FluxControlNetPipeline, tiny.flux, controlnet=flux_controlnet), {"control_image": picture()}
    ),
    "FluxControlPipeline": Family(
        sharing(
            diffusers.FluxControlPipeline,
            tiny.flux,
            transformer=like(tiny.flux, "transformer", in_channels=8, out_channels=4),
        ),
        {"control_image": picture()},
    ),
    "ChromaPipeline": Family(chroma, {"max_sequence_length": 32}),
    "Flux2KleinPipeline": Family(flux2, {"max_sequence_length": 32, "text_encoder_out_layers": (1,)}),
    "BriaPipeline": Family(bria, {"max_sequence_length": 16}),
    "ErnieImagePipeline": Family(ernie, {"use_pe": False}),
    "ZImagePipeline": Family(z_image, {"max_sequence_length": 16}),
    "Lumina2Pipeline": Family(lumina2, {"max_sequence_length": 32}),
    "SanaPipeline": Family(
        sana,
        {"max_sequence_length": 16, "complex_human_instruction": None, "use_resolution_binning": False},
        {"height": 32, "width": 32},
    ),
    "AuraFlowPipeline": Family(aura_flow, {"max_sequence_length": 16}),
    "PixArtAlphaPipeline": Family(
        pixart(diffusers.PixArtAlphaPipeline), {"use_resolution_binning": False, "max_sequence_length": 16}
    ),
    "PixArtSigmaPipeline": Family(
        pixart(diffusers.PixArtSigmaPipeline), {"use_resolution_binning": False, "max_sequence_length": 16}
    ),
    "LattePipeline": Family(latte, {"video_length": 1, "clean_caption": False}, batch=1),
    "HunyuanDiTPipeline": Family(hunyuan_dit, {"use_resolution_binning": False}),
    "CogVideoXPipeline": Family(cogvideox(diffusers.CogVideoXPipeline), VIDEO),
    "CogVideoXImageToVideoPipeline": Family(
        cogvideox(diffusers.CogVideoXImageToVideoPipeline, 8), {**VIDEO, "image": picture()}, batch=1
    ),
    "CogView3PlusPipeline": Family(cogview3, {"max_sequence_length": 16}),
    "CogView4Pipeline": Family(cogview4, {"max_sequence_length": 32}),
    "LTXPipeline": Family(ltx(diffusers.LTXPipeline), VIDEO, {"height": 32, "width": 32}),
    "LTXImageToVideoPipeline": Family(
        ltx(diffusers.LTXImageToVideoPipeline), {**VIDEO, "image": picture(32)}, {"height": 32, "width": 32}, batch=1
    ),
    "LTXConditionPipeline": Family(ltx(diffusers.LTXConditionPipeline), VIDEO, {"height": 32, "width": 32}),
    "LTXConditionPipeline, an image": Family(
        ltx(diffusers.LTXConditionPipeline), {**VIDEO, "image": picture(32)}, {"height": 32, "width": 32}
    ),
    "MochiPipeline": Family(mochi, {"num_frames": 7, "max_sequence_length": 16}),
    "MochiPipeline, as published": Family(
        lambda: mochi(invert_sigmas=True), {"num_frames": 7, "max_sequence_length": 16}
    ),
    "WanPipeline": Family(wan(diffusers.WanPipeline), VIDEO),
    "WanPipeline, two experts": Family(wan(diffusers.WanPipeline, 2, boundary_ratio=0.875), VIDEO),
    "CosmosTextToWorldPipeline": Family(
        cosmos(diffusers.CosmosTextToWorldPipeline, diffusers.EDMEulerScheduler, cosmos_vae), VIDEO
    ),
    "Cosmos2TextToImagePipeline": Family(
        cosmos(
            diffusers.Cosmos2TextToImagePipeline,
            lambda: FlowMatchEulerDiscreteScheduler(use_karras_sigmas=True),
            wan_vae,
        ),
        {"max_sequence_length": 16},
    ),
    "Cosmos2_5_PredictBasePipeline": Family(
        cosmos(
            diffusers.Cosmos2_5_PredictBasePipeline,
            lambda: UniPCMultistepScheduler(
                prediction_type="flow_prediction",
                use_flow_sigmas=True,
                use_karras_sigmas=True,
                sigma_min=0.01,
                sigma_max=200.0,
            ),
            wan_vae,
            more=1,
            text_encoder=vision_llm,
            tokenizer=chatting_tokenizer,
        ),
        {"num_frames": 1, "max_sequence_length": 16},
    ),
    "AllegroPipeline": Family(allegro, {"num_frames": 8, "max_sequence_length": 16}, budget_nfe=2200),
    "IFPipeline": Family(deepfloyd),
    "DiTPipeline": Family(dit, {"class_labels": [1]}, {}, prompts=()),
    "ConsistencyModelPipeline": Family(consistency, {}, {}, prompts=()),
}


def inputs_of(family: Family, **more: Any) -> dict[str, Any]:
    """The arguments of one silent run that ends in latents."""
    words = {"prompt": family.prompts[0]} if family.prompts else {}
    return {**words, **family.size, **family.call, **more}
