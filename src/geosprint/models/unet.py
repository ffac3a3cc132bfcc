"""The UNet of the shipped networks: reads the config and weights of a diffusers UNet2DModel, without diffusers.

Importing diffusers takes seconds and drawing a picture must not need it. Module names follow the
weights file; the tests hold this network to diffusers' own, number for number.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geosprint.errors import ModelError

NORM_EPS = 1e-5
_DOWN = {"DownBlock2D": False, "AttnDownBlock2D": True}
_UP = {"UpBlock2D": False, "AttnUpBlock2D": True}
_IGNORED = {"sample_size", "down_block_types", "up_block_types"}


class UNet(nn.Module):
    """Ho et al. (2020), Appendix B, as diffusers' UNet2DModel lays it out."""

    def __init__(
        self,
        *,
        in_channels: int,
        out_channels: int,
        block_out_channels: list[int],
        attention_down: list[bool],
        attention_up: list[bool],
        layers_per_block: int,
        norm_num_groups: int,
        attention_head_dim: int,
        num_class_embeds: int | None,
    ) -> None:
        super().__init__()
        widths, groups, head = block_out_channels, norm_num_groups, attention_head_dim
        embedding = 4 * widths[0]
        self.time_features = widths[0]
        self.conv_in = nn.Conv2d(in_channels, widths[0], 3, padding=1)
        linear_1, linear_2 = nn.Linear(widths[0], embedding), nn.Linear(embedding, embedding)
        self.time_embedding = one_after_another(linear_1=linear_1, bend=nn.SiLU(), linear_2=linear_2)
        self.class_embedding = None if num_class_embeds is None else nn.Embedding(num_class_embeds, embedding)
        self.down_blocks = nn.ModuleList()
        last = len(widths) - 1
        for level, width in enumerate(widths):
            before = [widths[max(0, level - 1)]] + [width] * (layers_per_block - 1)
            block = Block(before, width, embedding, groups, head, len(before) * attention_down[level])
            block.downsamplers = nn.ModuleList([downsample(width)] if level < last else [])
            self.down_blocks.append(block)
        self.mid_block = Block([widths[-1]] * 2, widths[-1], embedding, groups, head, 1)
        self.up_blocks = nn.ModuleList()
        for level, width in reversed(list(enumerate(widths))):
            skipped = [width] * layers_per_block + [widths[max(0, level - 1)]]
            inner = [widths[min(last, level + 1)]] + [width] * layers_per_block
            before = [a + b for a, b in zip(inner, skipped, strict=True)]
            block = Block(before, width, embedding, groups, head, len(before) * attention_up[last - level])
            block.upsamplers = nn.ModuleList([upsample(width)] if level > 0 else [])
            self.up_blocks.append(block)
        self.conv_norm_out = nn.GroupNorm(groups, widths[0], NORM_EPS)
        self.conv_out = nn.Conv2d(widths[0], out_channels, 3, padding=1)

    def forward(self, x: Tensor, t: Tensor | float, labels: Tensor | None = None) -> Tensor:
        """The prediction for a batch; t is one time for all or one per sample."""
        times = torch.as_tensor(t, device=x.device).expand(len(x))
        embedding = self.time_embedding(waves(times, self.time_features).to(x.dtype))
        if self.class_embedding is not None:
            embedding = embedding + self.class_embedding(labels)
        x = self.conv_in(x)
        skipped = [x]
        for block in cast("Iterable[Block]", self.down_blocks):
            x = block.down(x, embedding, skipped)
        x = self.mid_block.across(x, embedding)
        for block in cast("Iterable[Block]", self.up_blocks):
            x = block.up(x, embedding, skipped)
        return self.conv_out(F.silu(self.conv_norm_out(x)))


class Block(nn.Module):
    """Residual layers of one resolution, the first so many followed by attention with so many channels a head."""

    def __init__(self, before: list[int], after: int, embedding: int, groups: int, head: int, attentions: int) -> None:
        super().__init__()
        self.resnets = nn.ModuleList(Residual(width, after, embedding, groups) for width in before)
        self.downsamplers = nn.ModuleList()
        self.upsamplers = nn.ModuleList()
        self.attentions = nn.ModuleList(Attention(after, groups, head) for _ in range(attentions))

    def down(self, x: Tensor, embedding: Tensor, skipped: list[Tensor]) -> Tensor:
        """Through the layers and to the next smaller size, leaving every state for the way up."""
        for number in range(len(self.resnets)):
            x = self._layer(number, x, embedding)
            skipped.append(x)
        for shrink in self.downsamplers:
            x = shrink(x)
            skipped.append(x)
        return x

    def across(self, x: Tensor, embedding: Tensor) -> Tensor:
        """Through the layers at the smallest size."""
        for number in range(len(self.resnets)):
            x = self._layer(number, x, embedding)
        return x

    def up(self, x: Tensor, embedding: Tensor, skipped: list[Tensor]) -> Tensor:
        """Through the layers, each beside a state of the way down, and to the next larger size."""
        for number in range(len(self.resnets)):
            x = self._layer(number, torch.cat([x, skipped.pop()], dim=1), embedding)
        for grow in self.upsamplers:
            x = grow(x)
        return x

    def _layer(self, number: int, x: Tensor, embedding: Tensor) -> Tensor:
        x = self.resnets[number](x, embedding)
        return self.attentions[number](x) if number < len(self.attentions) else x


class Residual(nn.Module):
    """Two convolutions around the time embedding, added to their input."""

    def __init__(self, before: int, after: int, embedding: int, groups: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, before, NORM_EPS)
        self.conv1 = nn.Conv2d(before, after, 3, padding=1)
        self.time_emb_proj = nn.Linear(embedding, after)
        self.norm2 = nn.GroupNorm(groups, after, NORM_EPS)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1)
        if before != after:
            self.conv_shortcut = nn.Conv2d(before, after, 1)

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        hidden = self.conv1(F.silu(self.norm1(x)))
        hidden = hidden + self.time_emb_proj(F.silu(embedding))[:, :, None, None]
        hidden = self.conv2(F.silu(self.norm2(hidden)))
        return hidden + (self.conv_shortcut(x) if hasattr(self, "conv_shortcut") else x)


class Attention(nn.Module):
    """Every place looks at every other, added to its input."""

    def __init__(self, width: int, groups: int, head: int) -> None:
        super().__init__()
        self.heads = width // head
        self.group_norm = nn.GroupNorm(groups, width, NORM_EPS)
        self.to_q, self.to_k, self.to_v = (nn.Linear(width, width) for _ in range(3))
        self.to_out = nn.ModuleList([nn.Linear(width, width)])

    def forward(self, x: Tensor) -> Tensor:
        batch, width, height, across = x.shape
        places = self.group_norm(x.flatten(2)).transpose(1, 2)
        q, k, v = (
            to(places).view(batch, -1, self.heads, width // self.heads).transpose(1, 2)
            for to in (self.to_q, self.to_k, self.to_v)
        )
        seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, -1, width)
        return x + self.to_out[0](seen).transpose(1, 2).reshape(batch, width, height, across)


def one_after_another(**layers: nn.Module) -> nn.Sequential:
    """Layers by the names that the weights file has for them."""
    return nn.Sequential(OrderedDict(layers))


def downsample(width: int) -> nn.Module:
    """Half the size by a strided convolution."""
    return one_after_another(conv=nn.Conv2d(width, width, 3, stride=2, padding=1))


def upsample(width: int) -> nn.Module:
    """Twice the size by repeating each place, then a convolution."""
    return one_after_another(larger=nn.Upsample(scale_factor=2.0), conv=nn.Conv2d(width, width, 3, padding=1))


def waves(t: Tensor, count: int) -> Tensor:
    """Cosines, then sines, of t at `count`/2 frequencies from 1 down to nearly 1/10000."""
    half = count // 2
    rates = torch.exp(torch.arange(half, device=t.device) * (-math.log(10_000) / half))
    angles = t.float()[:, None] * rates
    return torch.cat([angles.cos(), angles.sin()], dim=1)


def build_unet(config: dict[str, Any]) -> UNet:
    """The network that a UNet2DModel config describes, with fresh weights."""
    given = {key: value for key, value in config.items() if not key.startswith("_")}
    try:
        attention_down = [_DOWN[kind] for kind in given["down_block_types"]]
        attention_up = [_UP[kind] for kind in given["up_block_types"]]
        rest = {key: value for key, value in given.items() if key not in _IGNORED}
        return UNet(attention_down=attention_down, attention_up=attention_up, **rest)
    except (KeyError, TypeError) as unknown:
        raise ModelError(f"this UNet knows only what the shipped configs use, got {given}: {unknown}") from unknown
