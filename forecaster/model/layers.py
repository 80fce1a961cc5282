"""Encoder layer, decoder layer, and their parts.

Around every part lies a residual with dropout; the norm stands before the part (style modern) or after
the sum (style vaswani2017). With channel attention the channels of a window lie side by side in B.

Axes: B batch · N token · M memory token · C channel · D width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool
from torch import Tensor, nn

from forecaster.config import ModelPlan
from forecaster.model.attention import KeyValueCache, Memory, MultiHeadAttention, Tokens
from forecaster.model.kernels import causal_attention, full_attention, make_kernel

Shown = Bool[Tensor, "B N"]
"""True where a token may be attended to."""

_CHANCES = 1 << 16  # numbers of sixteen random bits


class Dropout(nn.Module):
    """Sets values to 0 at random while training, and scales up the others."""

    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate

    def forward(self, values: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return values
        if values.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(values, self.rate)
        # torch draws a number per value, 6.4 ns each; four to a 64-bit word are 2.4 times as fast.
        kept = max(1, round((1 - self.rate) * _CHANCES))  # of the numbers of sixteen bits
        count = -(-values.numel() // 4)  # rounded up
        words = torch.empty(count, dtype=torch.int64).random_(-(2**63), None)
        bits = words.view(torch.int16)[: values.numel()].view(values.shape)  # −2¹⁵ … 2¹⁵ − 1
        # 1 where kept, else 0, written as floats: no mask to convert.
        factor = torch.empty(values.shape, dtype=values.dtype)
        torch.lt(bits, kept - _CHANCES // 2, out=factor)
        return values * factor.mul_(_CHANCES / kept)


class FeedForward(nn.Module):
    """Two linear maps with an activation between, on each token by itself."""

    def __init__(self, config: ModelPlan):
        super().__init__()
        self.expand = nn.Linear(config.width, config.feed_forward)
        self.contract = nn.Linear(config.feed_forward, config.width)
        self.activation = F.gelu if config.style == "modern" else F.relu

    def forward(self, tokens: Tokens) -> Tokens:
        return self.contract(self.activation(self.expand(tokens)))


class Residual(nn.Module):
    """The connection around a part, with its norm and dropout."""

    def __init__(self, config: ModelPlan):
        super().__init__()
        self.norm_first = config.style == "modern"
        self.dropout = Dropout(config.dropout)

    def forward(self, tokens: Tokens, norm: nn.Module, part: Callable[[Tensor], Tensor]) -> Tokens:
        """Returns tokens plus the output of the part."""
        if self.norm_first:
            return tokens + self.dropout(part(norm(tokens)))
        return norm(tokens + self.dropout(part(tokens)))


def attend_across_channels(
    attention: MultiHeadAttention, tokens: Tokens, seen: Shown, channels: int
) -> Tokens:
    """Returns the attention of each token to the tokens of all channels at the same patch.

    `seen`: True where other channels may attend to a token.
    """
    # Contiguous: otherwise torch rounds a product by whether its weights learn.
    by_patch = tokens.unflatten(0, (-1, channels)).transpose(1, 2).contiguous()  # [windows, N, C, D]
    real = seen.unflatten(0, (-1, channels)).transpose(1, 2).flatten(0, 1)  # [windows·N, C]
    mixed = attention(by_patch.flatten(0, 1), by_patch.flatten(0, 1), real)  # [windows·N, C, D]
    return mixed.unflatten(0, by_patch.shape[:2]).transpose(1, 2).flatten(0, 1)  # [B, N, D]


class EncoderLayer(nn.Module):
    """Self-attention over the context, channel attention if any, feed-forward."""

    def __init__(self, config: ModelPlan, tokens: int):
        super().__init__()
        width, heads, across = config.width, config.heads, config.channel_attention
        kernel = make_kernel(config.attention, config.attention_size, tokens)
        self.attention_norm = nn.LayerNorm(width)
        self.attention = MultiHeadAttention(width, heads, kernel)
        self.channel_norm = nn.LayerNorm(width) if across else None
        self.channel_attention = MultiHeadAttention(width, heads) if across else None
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = FeedForward(config)
        self.residual = Residual(config)

    def forward(self, tokens: Tokens, seen: Shown, channels: int = 1) -> Tokens:
        """Returns encoded tokens.

        Args:
            tokens: the context.
            seen: True where a token may be attended to.
            channels: of a window, side by side in B; for channel attention.
        """
        tokens = self.residual(tokens, self.attention_norm, lambda x: self.attention(x, x, seen))
        if (across := self.channel_attention) is not None:
            tokens = self.residual(
                tokens, self.channel_norm, lambda x: attend_across_channels(across, x, seen, channels)
            )
        return self.residual(tokens, self.feed_forward_norm, self.feed_forward)


class DecoderLayer(nn.Module):
    """Self-attention over the horizon, channel attention if any, cross-attention, feed-forward."""

    def __init__(self, config: ModelPlan):
        super().__init__()
        width, heads, across = config.width, config.heads, config.channel_attention
        kernel = causal_attention if config.decoder_mask == "causal" else full_attention
        self.attention_norm = nn.LayerNorm(width)
        self.attention = MultiHeadAttention(width, heads, kernel)
        self.channel_norm = nn.LayerNorm(width) if across else None
        self.channel_attention = MultiHeadAttention(width, heads) if across else None
        self.cross_norm = nn.LayerNorm(width)
        self.cross = MultiHeadAttention(width, heads)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = FeedForward(config)
        self.residual = Residual(config)

    def forward(
        self,
        tokens: Tokens,
        memory: Memory,
        shown: Shown,
        channels: int = 1,
        cache: KeyValueCache | None = None,
    ) -> Tokens:
        """Returns decoded tokens.

        Args:
            tokens: the horizon; with a cache, the new ones only.
            memory: the encoded context.
            shown: True where other channels may attend to a token; for channel attention.
            channels: of a window, side by side in B; for channel attention.
            cache: keys and values of earlier calls; None = all tokens are given at once.
        """

        def attend(x: Tensor) -> Tensor:
            if cache is not None:
                return cache.self_attention(self.attention, x)
            return self.attention(x, x)

        def cross_attend(x: Tensor) -> Tensor:
            if cache is not None:
                return cache.cross_attention(self.cross, x, memory)
            return self.cross(x, memory.tokens, memory.seen)

        tokens = self.residual(tokens, self.attention_norm, attend)
        if (across := self.channel_attention) is not None:
            tokens = self.residual(
                tokens, self.channel_norm, lambda x: attend_across_channels(across, x, shown, channels)
            )
        tokens = self.residual(tokens, self.cross_norm, cross_attend)
        return self.residual(tokens, self.feed_forward_norm, self.feed_forward)


class ConvStem(nn.Module):
    """A causal depthwise convolution over tokens before attention, then a map across the width.

    Tokens without an observation enter as zeros.
    """

    def __init__(self, width: int, kernel: int):
        super().__init__()
        self.kernel = kernel
        # Summed by hand: torch's convolution rounds by whether its weights learn.
        self.along = nn.Linear(kernel, width)
        self.across = nn.Linear(width, width)

    def forward(self, tokens: Tokens, seen: Shown) -> Tokens:
        """Returns tokens (before their time encodings) plus the convolution of them and those before."""
        real = tokens.masked_fill(~seen[..., None], 0.0)
        # Padded before the first token only: token n reads n − kernel + 1 … n.
        padded = F.pad(real, (0, 0, self.kernel - 1, 0))
        length = tokens.shape[1]
        along: Tensor = self.along.bias  # [D]
        for k, weight in enumerate(self.along.weight.unbind(dim=1)):  # [D], a tap of each channel
            along = along + weight * padded[:, k : k + length]  # [B, N, D]
        return tokens + self.across(F.gelu(along))
