"""Encoder layer, decoder layer, feed-forward.

What comes in and goes out: tokens of one width. Residuals around every part, layer norm before it
(pre-norm), dropout on every residual.

Axes: B batch · N token · M memory token · D width.
"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor, nn

from forecaster.config import ModelConfig
from forecaster.model.attention import MultiHeadAttention


class FeedForward(nn.Module):
    """Two linear maps with a GELU between, on each token by itself."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.expand = nn.Linear(config.width, config.feed_forward)
        self.contract = nn.Linear(config.feed_forward, config.width)
        self.activation = nn.GELU()

    def forward(self, tokens: Float[Tensor, "B N D"]) -> Float[Tensor, "B N D"]:
        """Returns transformed tokens."""
        changed: Tensor = self.contract(self.activation(self.expand(tokens)))
        return changed


class EncoderLayer(nn.Module):
    """Self-attention over the context, then feed-forward."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = MultiHeadAttention(config.width, config.heads, config.attention_dropout)
        self.feed_forward_norm = nn.LayerNorm(config.width)
        self.feed_forward = FeedForward(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, tokens: Float[Tensor, "B N D"], mask: Bool[Tensor, "B 1 1 N"] | None
    ) -> Float[Tensor, "B N D"]:
        """Returns tokens that have looked at each other.

        Args:
            tokens: the context.
            mask: True where a token may be attended to; None = everywhere.
        """
        normed = self.attention_norm(tokens)
        tokens = tokens + self.dropout(self.attention(normed, normed, mask))
        changed: Tensor = tokens + self.dropout(self.feed_forward(self.feed_forward_norm(tokens)))
        return changed


class DecoderLayer(nn.Module):
    """Self-attention over the horizon, cross-attention to the memory, then feed-forward."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = MultiHeadAttention(config.width, config.heads, config.attention_dropout)
        self.cross_norm = nn.LayerNorm(config.width)
        self.cross = MultiHeadAttention(config.width, config.heads, config.attention_dropout)
        self.feed_forward_norm = nn.LayerNorm(config.width)
        self.feed_forward = FeedForward(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        tokens: Float[Tensor, "B N D"],
        memory: Float[Tensor, "B M D"],
        mask: Bool[Tensor, "N N"] | None,
        memory_mask: Bool[Tensor, "B 1 1 M"] | None,
    ) -> Float[Tensor, "B N D"]:
        """Returns horizon tokens that have looked at each other and at the context.

        Args:
            tokens: the horizon.
            memory: the encoded context.
            mask: who may attend to whom within the horizon; None = all to all.
            memory_mask: True where a memory token may be attended to; None = everywhere.
        """
        normed = self.attention_norm(tokens)
        allowed = None if mask is None else mask[None, None]
        tokens = tokens + self.dropout(self.attention(normed, normed, allowed))
        tokens = tokens + self.dropout(self.cross(self.cross_norm(tokens), memory, memory_mask))
        changed: Tensor = tokens + self.dropout(self.feed_forward(self.feed_forward_norm(tokens)))
        return changed
