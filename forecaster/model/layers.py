"""Encoder layer, decoder layer, and the parts they share.

What comes in and goes out: tokens of one width. Around every part lies a residual with dropout; the
norm stands before the part (pre-norm) or after the sum (post-norm, as published in 2017). While
training, stochastic depth leaves whole parts out, the later the layer the more often.

Axes: B batch · N token · M memory token · C channel · D width. With channel attention B counts
channels too: the channels of a window lie side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from forecaster.config import ModelConfig
from forecaster.model.attention import MultiHeadAttention
from forecaster.model.dropout import Dropout
from forecaster.model.memory import Cache, Memory


def make_norm(config: ModelConfig) -> nn.Module:
    """Returns the normalisation of tokens that the config names."""
    rms = config.normalization == "rms"
    return nn.RMSNorm(config.width, eps=1e-5) if rms else nn.LayerNorm(config.width)


class FeedForward(nn.Module):
    """Two linear maps with an activation between, on each token by itself.

    SwiGLU (Shazeer, "GLU variants improve Transformer", 2020) gates what the first map gives by a
    third one.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.expand = nn.Linear(config.width, config.feed_forward)
        self.contract = nn.Linear(config.feed_forward, config.width)
        gated = config.activation == "swiglu"
        self.gate = nn.Linear(config.width, config.feed_forward) if gated else None
        self.activation = F.relu if config.activation == "relu" else F.gelu

    def forward(self, tokens: Float[Tensor, "B N D"]) -> Float[Tensor, "B N D"]:
        """Returns transformed tokens."""
        hidden = self.expand(tokens)
        hidden = self.activation(hidden) if self.gate is None else F.silu(self.gate(tokens)) * hidden
        changed: Tensor = self.contract(hidden)
        return changed


class Residual(nn.Module):
    """The way around a part, with its norm and dropout.

    Stochastic depth: Huang et al., "Deep networks with stochastic depth" (2016); a part is left out
    for a whole window, and the others count for more in turn.
    """

    def __init__(self, config: ModelConfig, layer: int):
        """Takes how far along the stack this layer is.

        Args:
            config: dropout, norm order and the largest rate of stochastic depth.
            layer: 1 … encoder_layers + decoder_layers.
        """
        super().__init__()
        self.norm_first = config.norm_first
        self.dropout = Dropout(config.dropout)
        self.skip = config.stochastic_depth * layer / (config.encoder_layers + config.decoder_layers)

    def forward(
        self, tokens: Float[Tensor, "B N D"], norm: nn.Module, part: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "B N D"]:
        """Returns tokens plus what the part makes of them."""
        if self.norm_first:
            return tokens + self._dropped(part(norm(tokens)))
        changed: Tensor = norm(tokens + self._dropped(part(tokens)))
        return changed

    def _dropped(self, change: Tensor) -> Tensor:
        change = self.dropout(change)
        if self.skip and self.training:
            kept = torch.rand((len(change), 1, 1), device=change.device) >= self.skip
            change = change * kept / (1 - self.skip)
        return change


class ChannelAttention(nn.Module):
    """Tokens of all channels of a window at the same patch attend to each other."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.attention = MultiHeadAttention(config)

    def forward(
        self, tokens: Float[Tensor, "B N D"], seen: Bool[Tensor, "B N"], channels: int
    ) -> Float[Tensor, "B N D"]:
        """Returns, for each token, what it takes from the other channels and itself.

        Args:
            tokens: the channels of a window lie side by side.
            seen: True where a token may be attended to.
            channels: of a window.
        """
        # Contiguous: otherwise torch rounds a product by whether its weights learn.
        beside = tokens.unflatten(0, (-1, channels)).transpose(1, 2).contiguous()  # [windows, N, C, D]
        real = seen.unflatten(0, (-1, channels)).transpose(1, 2).flatten(0, 1)
        mixed = self.attention(beside.flatten(0, 1), beside.flatten(0, 1), real)
        taken: Tensor = mixed.unflatten(0, beside.shape[:2]).transpose(1, 2).flatten(0, 1)
        return taken


class EncoderLayer(nn.Module):
    """Self-attention over the context, channel attention if there is any, then feed-forward."""

    def __init__(self, config: ModelConfig, layer: int, tokens: int):
        """Builds the layer.

        Args:
            config: the network's.
            layer: its number in the whole stack, from 1.
            tokens: of the context.
        """
        super().__init__()
        self.attention_norm = make_norm(config)
        self.attention = MultiHeadAttention(config, config.attention, tokens)
        self.channel_norm = make_norm(config) if config.channel_attention else None
        self.channel = ChannelAttention(config) if config.channel_attention else None
        self.feed_forward_norm = make_norm(config)
        self.feed_forward = FeedForward(config)
        self.residual = Residual(config, layer)

    def forward(
        self,
        tokens: Float[Tensor, "B N D"],
        seen: Bool[Tensor, "B N"],
        angles: Float[Tensor, "B N _"] | None = None,
        channels: int = 1,
    ) -> Float[Tensor, "B N D"]:
        """Returns tokens that have looked at each other.

        Args:
            tokens: the context.
            seen: True where a token may be attended to.
            angles: by which queries and keys are turned; None = not at all.
            channels: of a window, side by side in B; for channel attention.
        """

        def attend(own: Tensor) -> Tensor:
            mixed: Tensor = self.attention(own, own, seen, angles=angles, source_angles=angles)
            return mixed

        tokens = self.residual(tokens, self.attention_norm, attend)
        if self.channel is not None:
            across = partial(self.channel, seen=seen, channels=channels)
            tokens = self.residual(tokens, self.channel_norm, across)
        changed: Tensor = self.residual(tokens, self.feed_forward_norm, self.feed_forward)
        return changed


class DecoderLayer(nn.Module):
    """Self-attention over the horizon, channel attention if any, cross-attention, feed-forward."""

    def __init__(self, config: ModelConfig, layer: int, tokens: int, memory: int):
        """Builds the layer.

        Args:
            config: the network's.
            layer: its number in the whole stack, from 1.
            tokens: of the horizon.
            memory: tokens of the context.
        """
        super().__init__()
        self.attention_norm = make_norm(config)
        self.attention = MultiHeadAttention(config, config.decoder_attention, tokens)
        self.channel_norm = make_norm(config) if config.channel_attention else None
        self.channel = ChannelAttention(config) if config.channel_attention else None
        self.cross_norm = make_norm(config)
        self.cross = MultiHeadAttention(config, config.cross_attention, memory)
        self.feed_forward_norm = make_norm(config)
        self.feed_forward = FeedForward(config)
        self.residual = Residual(config, layer)

    def forward(
        self,
        tokens: Float[Tensor, "B N D"],
        memory: Memory,
        causal: bool,
        shown: Bool[Tensor, "B N"],
        angles: Float[Tensor, "B N _"] | None = None,
        channels: int = 1,
        cache: Cache | None = None,
    ) -> Float[Tensor, "B N D"]:
        """Returns horizon tokens that have looked at each other and at the context.

        Args:
            tokens: the horizon.
            memory: the encoded context.
            causal: whether a token ignores those after it.
            shown: True where other channels may attend to a token; for channel attention.
            angles: by which queries and keys are turned; None = not at all.
            channels: of a window, side by side in B; for channel attention.
            cache: what earlier calls have kept of earlier tokens, causal; None = there are none.
        """

        def attend(own: Tensor) -> Tensor:
            if cache is not None:
                return cache.attend(self.attention, own, angles)
            mixed: Tensor = self.attention(own, own, causal=causal, angles=angles, source_angles=angles)
            return mixed

        def recall(own: Tensor) -> Tensor:
            if cache is not None:
                return cache.recall(self.cross, own, memory, angles)
            mixed: Tensor = self.cross(
                own, memory.tokens, memory.seen, angles=angles, source_angles=memory.angles
            )
            return mixed

        tokens = self.residual(tokens, self.attention_norm, attend)
        if self.channel is not None:
            across = partial(self.channel, seen=shown, channels=channels)
            tokens = self.residual(tokens, self.channel_norm, across)
        tokens = self.residual(tokens, self.cross_norm, recall)
        changed: Tensor = self.residual(tokens, self.feed_forward_norm, self.feed_forward)
        return changed


class ConvStem(nn.Module):
    """A causal convolution over tokens before attention: each sees itself and a few before it.

    Depthwise, then across the width; tokens without an observation enter as zeros, and rows never mix.
    """

    def __init__(self, config: ModelConfig, kernel: int):
        super().__init__()
        self.kernel = kernel
        # Summed by hand: torch's convolution, too, rounds by whether its weights learn.
        self.along = nn.Linear(kernel, config.width)
        self.across = nn.Linear(config.width, config.width)

    def forward(
        self, tokens: Float[Tensor, "B N D"], seen: Bool[Tensor, "B N"]
    ) -> Float[Tensor, "B N D"]:
        """Returns tokens plus what the convolution makes of them and those before.

        Args:
            tokens: patches, before anything is said of their time.
            seen: True where a token holds an observation.
        """
        real = tokens.masked_fill(~seen[..., None], 0.0)
        padded, length = F.pad(real, (0, 0, self.kernel - 1, 0)), tokens.shape[1]
        along: Tensor = self.along.bias
        for k, weight in enumerate(self.along.weight.unbind(dim=1)):
            along = along + weight * padded[:, k : k + length]
        mixed: Tensor = tokens + self.across(F.gelu(along))
        return mixed
