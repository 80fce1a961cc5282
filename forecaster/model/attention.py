"""Multi-head attention, and which tokens meet.

What comes in: tokens, what they look at, and which of that is real. What goes out: for each token what
it takes. Promised: a token with nothing to attend to gets zeros, never NaN; what a masked token holds
changes nothing. Which pairs meet is the kernel's affair; all kernels share one signature:

    full       every query meets every key                               time N²
    local      keys at most `attention_window` tokens away               N
    strided    the same, and every `attention_stride`-th key             N²/stride
    sparse     queries that stand out meet every key, the others a mean  N·ln N
    low_rank   every query meets `attention_rank` mixtures of the keys   N

Axes: B batch · N query · M key · D width · A head · E width per head.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from forecaster.config import ModelConfig
from forecaster.model.dot_product import full_attention
from forecaster.model.local_attention import local_attention, strided_attention
from forecaster.model.positions import rotated
from forecaster.model.sparse_attention import LowRank, sparse_attention

Kernel = Callable[[Tensor, Tensor, Tensor, Tensor | None, bool, float], Tensor]
"""(query, key, value, seen, causal, dropout) → mixed, as `full_attention`."""


def attention_kernel(config: ModelConfig, kind: str, keys: int) -> Kernel:
    """Returns the kernel of a kind.

    Args:
        config: for the window, stride, factor and rank.
        kind: full, local, strided, sparse or low_rank.
        keys: number of tokens attended to; low_rank alone must know it.
    """
    window = config.attention_window
    if kind == "local":
        return partial(local_attention, window=window)
    if kind == "strided":
        return partial(strided_attention, window=window, stride=config.attention_stride)
    if kind == "sparse":
        return partial(sparse_attention, factor=config.attention_factor)
    if kind == "low_rank":
        return LowRank(keys, config.attention_rank)
    return full_attention


class MultiHeadAttention(nn.Module):
    """Attention in several subspaces at once, and the output projection that mixes them.

    Source: Vaswani et al. (2017), section 3.2.2.
    """

    def __init__(self, config: ModelConfig, kind: str = "full", keys: int = 0):
        """Builds the projections around the kernel of a kind.

        Args:
            config: width, heads, dropout and what the kind needs.
            kind: which tokens meet.
            keys: number of tokens attended to; low_rank alone must know it.
        """
        super().__init__()
        width = config.width
        self.heads, self.dropout = config.heads, config.attention_dropout
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.kernel = attention_kernel(config, kind, keys)

    def forward(
        self,
        tokens: Float[Tensor, "B N D"],
        source: Float[Tensor, "B M D"],
        seen: Bool[Tensor, "B M"] | None = None,
        *,
        causal: bool = False,
        angles: Float[Tensor, "B N _"] | None = None,
        source_angles: Float[Tensor, "B M _"] | None = None,
    ) -> Float[Tensor, "B N D"]:
        """Returns, for each token, what it takes from the source.

        Args:
            tokens: ask the questions.
            source: holds the answers; the tokens themselves in self-attention.
            seen: True where a source token is real; None = everywhere.
            causal: whether a token meets itself and earlier ones alone; the tokens are the last of the
                source then.
            angles: by which queries are turned (rotary positions); None = not at all.
            source_angles: the same for keys.
        """
        query = self.ask(tokens, angles)
        return self.recall(query, *self.remember(source, source_angles), seen, causal)

    def weights(
        self,
        tokens: Float[Tensor, "B N D"],
        source: Float[Tensor, "B M D"],
        seen: Bool[Tensor, "B M"] | None = None,
        *,
        causal: bool = False,
        angles: Float[Tensor, "B N _"] | None = None,
        source_angles: Float[Tensor, "B M _"] | None = None,
    ) -> Float[Tensor, "B A N M"]:
        """Returns how much of each source token's value each token takes, per head.

        What a kernel gives is linear in the values, so unit vectors in their place give its weights:
        those it really works with, whatever its kind. A low-rank kernel has no softmax over the source,
        so its weights may be negative and need not sum to 1.

        Args:
            tokens, source, seen, causal, angles, source_angles: as in `forward`.
        """
        query, (key, value) = self.ask(tokens, angles), self.remember(source, source_angles)
        count, size = value.shape[2:]
        units = torch.eye(count, dtype=value.dtype, device=value.device)
        units = F.pad(units, (0, -count % size))  # a kernel takes as many values as a head is wide
        found = [
            self.kernel(query, key, part.expand_as(value), seen, causal, 0.0)
            for part in units.split(size, dim=1)
        ]
        return torch.cat(found, dim=-1)[..., :count]

    def ask(self, tokens: Tensor, angles: Tensor | None) -> Float[Tensor, "B A N E"]:
        """Returns the queries of tokens."""
        return _turned(self._split(self.query(tokens)), angles)

    def remember(
        self, source: Tensor, angles: Tensor | None
    ) -> tuple[Float[Tensor, "B A M E"], Float[Tensor, "B A M E"]]:
        """Returns the keys and values of a source: what a cache holds."""
        return _turned(self._split(self.key(source)), angles), self._split(self.value(source))

    def recall(
        self, query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None, causal: bool
    ) -> Float[Tensor, "B N D"]:
        """Returns what queries take from keys and values, heads joined."""
        mixed = self.kernel(query, key, value, seen, causal, self.dropout if self.training else 0.0)
        joined: Tensor = self.output(mixed.transpose(1, 2).flatten(2))  # [B, N, D]
        return joined

    def _split(self, tokens: Tensor) -> Tensor:
        heads: Tensor = tokens.unflatten(-1, (self.heads, -1))
        return heads.transpose(1, 2)  # [B, A, N, E]


def _turned(heads: Tensor, angles: Tensor | None) -> Tensor:
    return heads if angles is None else rotated(heads, angles)
