"""Multi-head attention, the encoder's memory, and the key-value cache of an autoregressive decoder.

A token with nothing to attend to gets zeros, never NaN. Which queries meet which keys is the choice of
the kernel (kernels.py).

Axes: B batch · N query · M key · D width · A head · E width per head · S path · C channel.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from forecaster.model.kernels import Kernel, Keys, Queries, Seen, full_attention
from forecaster.model.scaling import Scale

Tokens = Float[Tensor, "B N D"]
Source = Float[Tensor, "B M D"]


class MultiHeadAttention(nn.Module):
    """Attention in several subspaces at once, and the output projection that mixes them.

    Source: Vaswani et al. (2017), section 3.2.2.
    """

    def __init__(self, width: int, heads: int, kernel: Kernel = full_attention):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.kernel = kernel

    def forward(self, tokens: Tokens, source: Source, seen: Seen | None = None) -> Tokens:
        """Returns the attention of tokens to a source, the tokens themselves in self-attention.

        `seen`: True where a source token is real.
        """
        return self.attend(self.queries(tokens), *self.keys_and_values(source), seen)

    def weights(
        self, tokens: Tokens, source: Source, seen: Seen | None = None
    ) -> Float[Tensor, "B A N M"]:
        """Returns the attention weights per head; the arguments are those of `forward`.

        A kernel is linear in the values, so unit vectors in their place give its true weights, whatever
        its kind. A low-rank kernel has no softmax over the source: its weights may be negative and need
        not sum to 1.
        """
        query, (key, value) = self.queries(tokens), self.keys_and_values(source)
        count, size = value.shape[2:]
        units = torch.eye(count, dtype=value.dtype, device=value.device)
        units = F.pad(units, (0, -count % size))  # a kernel takes as many values as a head is wide
        weights = [
            self.kernel(query, key, part.expand_as(value), seen) for part in units.split(size, dim=1)
        ]
        return torch.cat(weights, dim=-1)[..., :count]  # [B, A, N, M]

    def queries(self, tokens: Tensor) -> Queries:
        return self._split(self.query(tokens))

    def keys_and_values(self, source: Tensor) -> tuple[Keys, Keys]:
        return self._split(self.key(source)), self._split(self.value(source))

    def attend(self, query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None) -> Tokens:
        mixed = self.kernel(query, key, value, seen)  # [B, A, N, E]
        return self.output(mixed.transpose(1, 2).flatten(2))  # [B, N, D]

    def _split(self, tokens: Tensor) -> Tensor:
        return tokens.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # [B, A, N, E]


class Memory(NamedTuple):
    """The encoder's output, which the decoder reads."""

    tokens: Tensor
    """[B, M, D] the encoded context."""
    seen: Tensor
    """[B, M] True where a token holds an observation."""
    static: Tensor
    """[B, 1, D] embedding of the series and the channel, whatever the time."""
    scale: Scale
    """Scale of each window, to undo the scaling."""


class KeyValueCache:
    """Keys and values of a decoder layer: of the horizon so far, and of the memory once.

    Sample paths of a window share its memory; they lie side by side in B, each with all channels.
    """

    def __init__(self, paths: int, channels: int):
        self.paths, self.channels = paths, channels
        self._horizon: tuple[Tensor, Tensor] | None = None
        self._memory: tuple[Tensor, Tensor] | None = None

    def self_attention(self, attention: MultiHeadAttention, tokens: Tensor) -> Tokens:
        """Returns the attention of new tokens to all tokens so far, and keeps the new ones."""
        key, value = attention.keys_and_values(tokens)
        if self._horizon is not None:
            earlier_key, earlier_value = self._horizon
            key = torch.cat([earlier_key, key], dim=2)
            value = torch.cat([earlier_value, value], dim=2)
        self._horizon = (key, value)
        # No mask: nothing after the new tokens is here yet.
        return attention.attend(attention.queries(tokens), key, value, None)

    def cross_attention(self, attention: MultiHeadAttention, tokens: Tensor, memory: Memory) -> Tokens:
        """Returns cross-attention to the memory, batched over the sample paths of a window."""
        if self._memory is None:
            key, value = attention.keys_and_values(memory.tokens)
            self._memory = (key.contiguous(), value.contiguous())  # read once per patch: a third faster
        # Paths become queries of one window, so that its memory is not repeated.
        query = attention.queries(tokens).unflatten(0, (-1, self.paths, self.channels))
        query = query.permute(0, 2, 3, 1, 4, 5)  # [windows, S, C, A, N, E] → [windows, C, A, S, N, E]
        query = query.flatten(3, 4).flatten(0, 1)  # [windows·C, A, S·N, E]
        mixed = attention.attend(query, *self._memory, memory.seen)  # [windows·C, S·N, D]
        mixed = mixed.unflatten(1, (self.paths, -1))
        mixed = mixed.unflatten(0, (-1, self.channels))
        return mixed.transpose(1, 2).flatten(0, 2)  # [windows, C, S, N, D] → [windows·S·C, N, D]
